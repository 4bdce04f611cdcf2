"""``slipway:mirrors``: where builds fetch from instead of the public addresses."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit

from pydantic import Field, StringConstraints, field_validator

from containers.errors import one_line
from containers.registry.reference import Reference, check_prefixes, check_reference, covering
from stacks.config.model import Model
from stacks.config.values import Certificate, Url, check_url

MIRRORS_VARIABLE = "SLIPWAY_MIRRORS"
"""Environment variable with a ``mirrors`` block as JSON. The stack's own block overrides it."""
SOURCES = ("downloads", "git", "index")
"""What a step of a build fetches from: archives of packages and single files, repositories, Python indexes."""


class MirrorsConfig(Model):
    """Where a build fetches from instead of the public addresses; no address may carry a credential."""

    images: dict[str, str] = Field(
        default_factory=dict,
        description="Parent images: a registry or repository (docker.io, docker.io/nvidia, docker.io/library/debian) "
        "to the prefix that replaces it. The longest match wins.",
    )
    image_digests: dict[str, Annotated[str, StringConstraints(pattern="^sha256:[0-9a-f]{64}$")]] = Field(
        default_factory=dict,
        description="The digest of an image on such a mirror, by its reference there, as host:port/name:tag: it is "
        "pulled by this digest, whatever its tag names. No other tag of its repository is pulled from that mirror. "
        "An entry of a stack's own gives its images another tag. One of the environment does not.",
    )
    apt: Url | None = Field(
        None,
        description="Base address of a mirror of the distribution's archive, to which /debian, /debian-security, "
        "/ubuntu or /ubuntu-ports is added. Default: the parent's.",
    )
    python_index: Url | None = Field(None, description="Python package index (PEP 503). Default: pip's own.")
    torch_index: Url | None = Field(
        None,
        description="The only index of torch, torchvision and torchaudio; their dependencies come from it or from the "
        "Python index. Default: the Python index.",
    )
    git: Url | None = Field(None, description="Base address that replaces https://github.com, for submodules too.")
    downloads: dict[str, Url] = Field(
        default_factory=dict,
        description="Downloads: a public address to the one that replaces it, for everything below it. "
        "The longest match wins.",
    )
    ca_certificate: Certificate | None = Field(
        None, description="PEM of additional root certificates for builds and images, as behind an inspecting proxy."
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

    @field_validator("image_digests")
    @classmethod
    def _references(cls, value: dict[str, str]) -> dict[str, str]:
        for name in value:
            if Reference.of(check_reference(name)).digest:
                raise ValueError(f"'{one_line(name)}': expected a reference with a tag and without a digest")
        return value

    @property
    def urls_by_source(self) -> dict[str, list[str]]:
        """The addresses of the web that builds fetch from, by :data:`SOURCES`; those of images left out."""
        addresses = {
            "downloads": (self.apt, *self.downloads.values()),
            "git": (self.git,),
            "index": (self.python_index, self.torch_index),
        }
        return {source: [address for address in addresses[source] if address] for source in SOURCES}

    @property
    def urls(self) -> list[str]:
        """The same addresses in one list."""
        return [address for addresses in self.urls_by_source.values() for address in addresses]

    @property
    def hosts(self) -> dict[str, str]:
        """The hosts of these addresses, each with one of them; one without encryption where there is such."""
        return {url_host(url): url for url in sorted(self.urls, reverse=True)}

    def image(self, reference: str) -> str:
        """Return where to pull ``reference`` from: itself, or the same name and tag below a mirror's prefix."""
        match = covering(self.images, reference)
        mirrored = self.images[match[0]] + match[1] if match else reference
        stated = Reference.of(mirrored).repository in {Reference.of(name).repository for name in self.image_digests}
        return reference if stated and mirrored not in self.image_digests else mirrored


def url_host(url: str) -> str:
    """Return the host of an address, without its port and login."""
    return urlsplit(url).hostname or ""
