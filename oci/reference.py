"""Image references: their grammar, their full form, and which registry or repository covers one."""

from __future__ import annotations

import re
from collections.abc import Iterable

from oci.errors import one_line

# The grammar of image references is that of the OCI distribution specification.
_PORT = "(?:[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"  # 1 to 65535
_HOST = rf"[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::{_PORT})?"
_NAME = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_PATH = rf"{_NAME}(?:/{_NAME})*"
_REPOSITORY = re.compile(rf"(?:{_HOST}/)?{_PATH}")
_REFERENCE = re.compile(
    rf"(?:{_HOST}/)?{_PATH}(?P<tag>:[A-Za-z0-9_][A-Za-z0-9_.-]{{0,127}})?(?P<digest>@sha256:[0-9a-f]{{64}})?"
)

_PREFIX = re.compile(rf"{_HOST}(?:/{_PATH})?")


def check_host(value: str) -> str:
    """Return ``host[:port]``. Raises ValueError for other text."""
    if not re.fullmatch(_HOST, value):
        raise ValueError("expected host:port, such as 127.0.0.1:5000")
    return value


def check_path(value: str) -> str:
    """Return a repository's path without its host. Raises ValueError for other text."""
    if not re.fullmatch(_PATH, value):
        raise ValueError("expected a lower-case path of letters, digits and . _ - /, such as acme/images")
    return value


def check_repository(value: str) -> str:
    """Return a host and a path. Raises ValueError for other text, and for a reference with a tag."""
    host, slash, _ = value.partition("/")
    if not slash or not _REPOSITORY.fullmatch(value) or not ("." in host or ":" in host or host == "localhost"):
        raise ValueError("expected a host and a lower-case path without a tag, such as ghcr.io/acme/images")
    return value


def on_loopback(host: str) -> bool:
    """Return whether ``host[:port]`` is an address that only this machine reaches."""
    return bool(re.fullmatch(r"(localhost|127(\.\d+){3})(:\d+)?", host))


def check_reference(value: str) -> str:
    """Return an image's reference. Raises ValueError for other text, and for a reference without tag and digest."""
    match = _REFERENCE.fullmatch(value)
    if not match or not (match["tag"] or match["digest"]):
        raise ValueError("expected an image reference with a tag or a digest, such as debian:bookworm-slim")
    return value


_DOCKER_HUB = "docker.io"
_ALIASES = {"index.docker.io": _DOCKER_HUB}
"""Aliases of a host, as Docker has them."""


def _is_host(part: str) -> bool:
    return "." in part or ":" in part or part == "localhost"


def qualified(reference: str) -> str:
    """Return a reference with its registry and path written out, as Docker reads it: docker.io/library/debian:tag."""
    host, slash, path = reference.partition("/")
    if not slash or not _is_host(host):
        host, path = _DOCKER_HUB, reference
    host = _ALIASES.get(host, host)
    official = host == _DOCKER_HUB and "/" not in path
    return f"{host}/library/{path}" if official else f"{host}/{path}"


def full_names(prefix: str) -> tuple[str, ...]:
    """Return the full names of a prefix: on Docker Hub one word is an organization or an official image."""
    below = "/x/y"
    return (qualified(prefix + below).removesuffix(below), qualified(prefix))


def covering(prefixes: Iterable[str], reference: str) -> tuple[str, str] | None:
    """Return the longest prefix of an image's name among registries and repositories, and the rest of the name.

    Each may be spelled as Docker allows: ``docker.io``, ``nvidia``, ``nvidia/cuda``, ``debian``,
    ``index.docker.io/library/debian``. None where no prefix fits.
    """
    full = qualified(reference)
    names = {name: prefix for prefix in prefixes for name in full_names(prefix)}
    for name in sorted(names, key=len, reverse=True):
        ends = "/:@" if "/" in name else "/"  # a colon after a host begins a port: another registry
        if full.startswith(tuple(name + end for end in ends)):
            return names[name], full[len(name) :]
    return None


def check_prefixes(prefixes: Iterable[str]) -> None:
    """Refuse text that names no registry or repository, and two spellings of the same one.

    Raises:
        ValueError: naming it.
    """
    spellings: dict[str, str] = {}
    for prefix in prefixes:
        if not _PREFIX.fullmatch(prefix):
            raise ValueError(f"'{one_line(prefix)}': expected a registry or repository without a tag")
        for name in full_names(prefix):
            if spellings.setdefault(name, prefix) != prefix:
                raise ValueError(f"'{spellings[name]}' and '{prefix}' name the same; leave one out")


def split(reference: str) -> tuple[str, str]:
    """Return the repository of a reference and its version: the digest, else the tag, else nothing."""
    name, _, digest = reference.partition("@")
    if ":" in name.rpartition("/")[2]:
        name, _, tag = name.rpartition(":")
        return name, digest or tag
    return name, digest
