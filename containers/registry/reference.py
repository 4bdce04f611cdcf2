"""Image references: their grammar, their full form, and which registry or repository covers one."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from containers.errors import one_line

_PORT = "(?:[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"  # 1 to 65535
_HOST = rf"[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::{_PORT})?"
_NAME = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_PATH = rf"{_NAME}(?:/{_NAME})*"
_REPOSITORY = re.compile(rf"(?:{_HOST}/)?{_PATH}")
_IPV6 = rf"\[[a-fA-F0-9:]+\](?::{_PORT})?"
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_DIGEST = re.compile("sha256:[0-9a-f]{64}|sha384:[0-9a-f]{96}|sha512:[0-9a-f]{128}")
_IDENTIFIER = re.compile(r"[a-f0-9]{64}")
_LONGEST_PATH = 255
_DOCKER_HUB = "docker.io"
_ALIASES = {"index.docker.io": _DOCKER_HUB}
"""Aliases of a host, as Docker has them."""
_HUB_NAMES = {*_ALIASES, "registry-1.docker.io"}


@dataclass(frozen=True)
class Reference:
    """An image's name, by the grammar of Docker's ``distribution/reference``.

    Attributes:
        repository: the name without tag and digest, as it is written.
        tag: empty where there is none.
        digest: ``sha256:...``; empty where there is none.
    """

    repository: str
    tag: str = ""
    digest: str = ""

    @classmethod
    def of(cls, text: str) -> Reference:
        """Return the parts of a reference from a registry, an engine, or an earlier check."""
        name, _, digest = text.partition("@")
        folder, slash, last = name.rpartition("/")
        last, _, tag = last.partition(":")
        return cls(folder + slash + last, tag, digest)

    @classmethod
    def parse(cls, text: str) -> Reference:
        """Return the parts of a reference. Raises ValueError: it is not a reference, with the reason."""
        if _IDENTIFIER.fullmatch(text):
            raise ValueError("invalid repository name, cannot be a 64-byte hexadecimal string")
        reference = cls.of(text)
        path = reference.path
        if path.lower() != path:
            raise ValueError("invalid reference format: repository name must be lowercase")
        parts = (
            (rf"{_HOST}|{_IPV6}", reference.host),
            (_PATH, path),
            (_TAG, reference.tag or "x"),
            (_DIGEST, reference.digest or "sha256:" + "0" * 64),
        )
        if str(reference) != text or not all(re.fullmatch(grammar, part) for grammar, part in parts):
            raise ValueError("invalid reference format")
        if len(path) > _LONGEST_PATH:
            raise ValueError(f"repository name must not be more than {_LONGEST_PATH} characters")
        return reference

    def __str__(self) -> str:
        return self.repository + (f":{self.tag}" if self.tag else "") + (f"@{self.digest}" if self.digest else "")

    @property
    def host(self) -> str:
        """The registry, ``host[:port]``, as Docker reads the name: ``docker.io`` where none is written."""
        return self._parts[0]

    @property
    def path(self) -> str:
        """The repository within the registry, as Docker reads the name: ``library/debian`` of ``debian``."""
        return self._parts[1]

    @property
    def name(self) -> str:
        """The last part of the path."""
        return posixpath.basename(self.repository)

    @property
    def version(self) -> str:
        """The digest, else the tag, else nothing."""
        return self.digest or self.tag

    @property
    def without_digest(self) -> Reference:
        """The reference by its tag alone."""
        return replace(self, digest="")

    def at(self, digest: str) -> Reference:
        """Return the image of a digest in the same repository."""
        return Reference(self.repository, digest=digest)

    @property
    def in_full(self) -> Reference:
        """The reference with its registry and path written out: ``docker.io/library/debian:tag``."""
        return replace(self, repository="/".join(self._parts))

    @property
    def normal(self) -> Reference:
        """The reference in full by the one name that compares equal for all names of a registry.

        Docker itself takes ``index.docker.io`` alone for another name of Docker Hub's (distribution/reference 0965666a,
        normalize.go:11-30: the registry is at ``registry-1.docker.io``). A host's case counts for nothing, and HTTPS
        has port 443.
        """
        host, path = self._parts
        host = host.lower()
        host = host if on_loopback(host) else host.removesuffix(":443")
        host = _DOCKER_HUB if host in _HUB_NAMES else host
        return replace(self, repository=f"{host}/{_official(host, path)}")

    @property
    def _parts(self) -> tuple[str, str]:
        host, slash, path = self.repository.partition("/")
        if not slash or not ("." in host or ":" in host or host == "localhost" or host.lower() != host):
            host, path = _DOCKER_HUB, self.repository
        host = _ALIASES.get(host, host)
        return host, _official(host, path)


def _official(host: str, path: str) -> str:
    """Return the path of an image in a registry, as Docker Hub has its official images."""
    return f"library/{path}" if host == _DOCKER_HUB and "/" not in path else path


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
    if not _REPOSITORY.fullmatch(value) or not value.startswith(f"{Reference(value).host}/"):
        raise ValueError("expected a host and a lower-case path without a tag, such as ghcr.io/acme/images")
    return value


def on_loopback(host: str) -> bool:
    """Return whether ``host[:port]`` is an address that only this machine reaches."""
    return bool(re.fullmatch(r"(localhost|127(\.\d+){3})(:\d+)?", host))


def check_reference(value: str) -> str:
    """Return an image's reference. Raises ValueError for other text, and for a reference without tag and digest."""
    reference = Reference.of(value)
    digest = reference.digest or "sha256:" + "0" * 64
    if not (
        str(reference) == value
        and reference.version
        and _REPOSITORY.fullmatch(reference.repository)
        and _TAG.fullmatch(reference.tag or "x")
        and re.fullmatch("sha256:[0-9a-f]{64}", digest)
    ):
        raise ValueError("expected an image reference with a tag or a digest, such as debian:bookworm-slim")
    return value


def full_names(prefix: str) -> tuple[str, ...]:
    """Return the full names of a prefix: on Docker Hub one word is an organization or an official image."""
    below = "/x/y"
    return (str(Reference.of(prefix + below).normal).removesuffix(below), str(Reference.of(prefix).normal))


def covering(prefixes: Iterable[str], reference: str) -> tuple[str, str] | None:
    """Return the longest prefix of an image's name among registries and repositories, and the rest of the name.

    Each may be spelled as Docker allows: ``docker.io``, ``nvidia``, ``nvidia/cuda``, ``debian``,
    ``index.docker.io/library/debian``; see :attr:`Reference.normal`. None where no prefix fits.
    """
    full = str(Reference.of(reference).normal)
    names = {name: prefix for prefix in prefixes for name in full_names(prefix)}
    for name in sorted(names, key=len, reverse=True):
        ends = "/:@" if "/" in name else "/"  # a colon after a host begins a port: another registry
        if full.startswith(tuple(name + end for end in ends)):
            return names[name], full[len(name) :]
    return None


def check_prefixes(prefixes: Iterable[str]) -> None:
    """Refuse text that names no registry or repository, and two spellings of the same one.

    Raises ValueError: naming it.
    """
    spellings: dict[str, str] = {}
    for prefix in prefixes:
        if not _PREFIX.fullmatch(prefix):
            raise ValueError(f"'{one_line(prefix)}': expected a registry or repository without a tag")
        for name in full_names(prefix):
            if spellings.setdefault(name, prefix) != prefix:
                raise ValueError(f"'{spellings[name]}' and '{prefix}' name the same; leave one out")


def hexadecimal(reference: str) -> str:
    """Return the hexadecimal part of the digest of a reference, or of a bare digest or id ``sha256:...``."""
    return reference.rpartition(":")[2]
