"""``slipway:mirrors``: where builds fetch from instead of the public addresses."""

from __future__ import annotations

from pydantic import Field, field_validator

from stacks.config.model import Model
from stacks.config.values import Certificate, Url, check_url
from stacks.references import check_prefixes, covering

MIRRORS_VARIABLE = "SLIPWAY_MIRRORS"
"""Environment variable with a JSON ``mirrors`` block that applies where the stack's own says nothing."""


class Mirrors(Model):
    """Where a build fetches from instead of the public addresses; no address may carry a credential."""

    images: dict[str, str] = Field(
        default_factory=dict,
        description="Parent images: a registry or repository (docker.io, docker.io/nvidia, docker.io/library/debian) "
        "to the prefix that replaces it. The longest match wins.",
    )
    apt: Url | None = Field(
        None,
        description="What stands before /debian, /debian-security, /ubuntu or /ubuntu-ports in the address of a mirror "
        "of the distribution's archive. Default: the parent's.",
    )
    python_index: Url | None = Field(None, description="Python package index (PEP 503). Default: pip's own.")
    torch_index: Url | None = Field(
        None,
        description="The one index of torch, torchvision and torchaudio; what they need comes from it or the Python "
        "index. Default: the Python index.",
    )
    git: Url | None = Field(None, description="Base address that stands in for https://github.com, of submodules too.")
    downloads: dict[str, Url] = Field(
        default_factory=dict,
        description="Downloads: the public address that something stands below, to the address that replaces it. "
        "The longest match wins.",
    )
    ca_certificate: Certificate | None = Field(
        None,
        description="PEM of further root certificates that a build and its image trust, as behind an inspecting proxy.",
    )

    @field_validator("downloads")
    @classmethod
    def _addresses(cls, value: dict[str, str]) -> dict[str, str]:
        return {check_url(source): target for source, target in value.items()}

    @field_validator("images")
    @classmethod
    def _prefixes(cls, value: dict[str, str]) -> dict[str, str]:
        check_prefixes(value)
        for target in value.values():
            check_prefixes([target])
        return value

    def image(self, reference: str) -> str:
        """Return where to pull ``reference`` from: itself, or the same name and tag below a mirror's prefix."""
        found = covering(self.images, reference)
        return self.images[found[0]] + found[1] if found else reference
