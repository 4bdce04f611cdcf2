"""Names of images as the provider takes them, and the names under which Docker keeps their registries' credentials."""

from __future__ import annotations

from urllib.parse import urlsplit

from containers.errors import SlipwayError
from containers.registry.logins import docker_login
from containers.registry.reference import Reference


def parse(name: str) -> Reference:
    """Read an image's name, with Docker Hub and `library/` filled in where they are left out.

    Raises SlipwayError: if it is not a name.
    """
    try:
        return Reference.parse(name).in_full
    except ValueError as error:
        raise SlipwayError(f'"{name}": {error}') from None


def registry_of(server: str, image: str) -> str:
    """Return the key under which credentials for an image's registry are kept.

    ``server`` is the registry as the program names it, a URL or a host; where it is "", ``image`` is a name in full.

    Raises SlipwayError: the registry cannot be told from the name.
    """
    return docker_login.name(hostname(server) if server else _full(image).host)


def hostname(url: str) -> str:
    """Strip a registry's URL to `host[:port]`."""
    return urlsplit(url if url.startswith(("http://", "https://")) else f"//{url}").netloc


def _full(image: str) -> Reference:
    reference = parse(image)
    if str(reference) != image:
        raise SlipwayError(
            f'"{image}": repository name must be canonical. This resource requires all image names to be fully '
            f"qualified: write `{reference}` to mean Docker Hub, or put your registry's host in front"
        )
    return reference
