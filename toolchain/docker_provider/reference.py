"""Names of images, by the grammar of `distribution/reference`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from toolchain.provider_base import ProviderError

DOCKER_HUB = "docker.io"
DOCKER_HUB_AUTH = "https://index.docker.io/v1/"
"""The name under which credentials for Docker Hub are kept."""
_DOCKER_HUB_NAMES = frozenset({"docker.io", "index.docker.io", "registry-1.docker.io"})

_LABEL = r"(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])"
_DOMAIN = rf"(?:{_LABEL}(?:\.{_LABEL})*|\[(?:[a-fA-F0-9:]+)\])(?::[0-9]+)?"
_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_DIGEST = r"[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,}"
_REFERENCE = re.compile(
    rf"(?P<name>(?:(?P<domain>{_DOMAIN})/)?(?P<path>{_PART}(?:/{_PART})*))(?::(?P<tag>\w[\w.-]{{0,127}}))?(?:@(?P<digest>{_DIGEST}))?",
    re.ASCII,
)
_IDENTIFIER = re.compile(r"[a-f0-9]{64}")
_LONGEST_NAME = 255


@dataclass(frozen=True)
class Reference:
    """An image's name in full.

    Attributes:
        domain: the registry, `host[:port]`.
        path: the repository within it.
        tag: "" where there is none.
        digest: "" where there is none.
    """

    domain: str
    path: str
    tag: str
    digest: str

    @property
    def repository(self) -> str:
        """`domain/path`."""
        return f"{self.domain}/{self.path}"

    def __str__(self) -> str:
        tag = f":{self.tag}" if self.tag else ""
        return self.repository + tag + (f"@{self.digest}" if self.digest else "")


def parse(name: str) -> Reference:
    """Read an image's name, with Docker Hub and `library/` filled in where they are left out.

    Raises:
        ProviderError: if it is not a name.
    """
    if _IDENTIFIER.fullmatch(name):
        raise ProviderError(f'"{name}": invalid repository name, cannot be a 64-byte hexadecimal string')
    domain, slash, rest = name.partition("/")
    if not slash or not (set(".:") & set(domain) or domain == "localhost" or domain.lower() != domain):
        domain, rest = DOCKER_HUB, name
    if domain in _DOCKER_HUB_NAMES - {"registry-1.docker.io"}:
        domain = DOCKER_HUB
        if "/" not in rest:
            rest = f"library/{rest}"
    repository = rest.partition(":")[0].partition("@")[0]
    if repository.lower() != repository:
        raise ProviderError(f'"{name}": invalid reference format: repository name must be lowercase')
    match = _REFERENCE.fullmatch(f"{domain}/{rest}")
    if match is None:
        raise ProviderError(f'"{name}": invalid reference format')
    if len(match["path"]) > _LONGEST_NAME:
        raise ProviderError(f'"{name}": repository name must not be more than {_LONGEST_NAME} characters')
    return Reference(match["domain"], match["path"], match["tag"] or "", match["digest"] or "")


def registry_of(server: str, image: str) -> str:
    """Return the key under which credentials for an image's registry are kept.

    Args:
        server: the registry as the program names it (a URL or a host), or "".
        image: the image's name, which must be written in full where no server is given.

    Raises:
        ProviderError: if the registry cannot be told from the name.
    """
    host = hostname(server) if server else _full(image).domain
    return DOCKER_HUB_AUTH if host in _DOCKER_HUB_NAMES else host


def hostname(url: str) -> str:
    """Strip a registry's URL to `host[:port]`."""
    return url.removeprefix("http://").removeprefix("https://").partition("/")[0]


def _full(image: str) -> Reference:
    reference = parse(image)
    if str(reference) != image:
        raise ProviderError(
            f'"{image}": repository name must be canonical. This resource requires all image names to be fully '
            f"qualified: write `{reference}` to mean Docker Hub, or put your registry's host in front"
        )
    return reference
