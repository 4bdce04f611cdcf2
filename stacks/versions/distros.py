"""Distributions that images are built on."""

from __future__ import annotations

import functools
import itertools
import re
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Literal

from containers.registry.reference import Reference
from stacks.versions.cuda_toolkit import cuda_release
from stacks.versions.incompatible import Incompatible
from stacks.versions.pytorch import gcc_min
from stacks.versions.tables import facts, table

_SOURCE = "stacks/versions/distros.toml"


@dataclass(frozen=True, slots=True)
class Distro:
    """One distribution release.

    Attributes:
        name: as in the tags of nvidia/cuda, such as ``ubuntu20.04``; Debian likewise, ``debian12``.
        image: its own image, without CUDA.
        codename: another name of it in tags; empty for none.
        python: the version of its own python3.
        pythons: every Python that it offers, its own first.
        gcc: the major version of its own gcc.
        glibc: the version of its C library.
        packages: its package manager.
    """

    name: str
    image: str
    python: str
    pythons: tuple[str, ...]
    gcc: int
    glibc: str
    packages: Literal["apt", "dnf"]
    codename: str = ""


@dataclass(frozen=True, slots=True)
class BaseSystem:
    """What the name of a public image says of it; a field is None where it says nothing.

    Attributes:
        python: the version of the python3 that is found first.
        glibc: the version of its C library.
        packages: its package manager.
    """

    python: str | None = None
    glibc: str | None = None
    packages: str | None = None


_OTHER_MANAGERS = {
    **dict.fromkeys(("alpine", "wolfi-base"), "apk"),
    **dict.fromkeys(("fedora", "almalinux", "oraclelinux", "amazonlinux", "centos"), "rpm"),
    **dict.fromkeys(("tumbleweed", "opensuse/leap"), "zypper"),
    "archlinux": "pacman",
}
"""Package managers of distributions that no image of ours is built on, by words of references or the path.

What installs the packages of rpm differs by release and size: yum in amazonlinux:2 and oraclelinux:7, microdnf alone in
oraclelinux:8-slim (docker-library/docs 0dce785, amazonlinux/content.md; docker-library/repo-info 032dfd8,
repos/oraclelinux/local/8-slim.md; docs.oracle.com, Oracle Linux 8, About DNF).
"""
_OF_DISTRIBUTION = {
    *("buildpack-deps", "cuda", "eclipse-temurin", "gcc", "golang", "gradle", "httpd", "julia", "maven", "nginx"),
    *("node", "openjdk", "perl", "php", "postgres", "redis", "ruby", "rust", "swift", "tomcat", "uv"),
}
"""Public images, by name, that have the Python of their distribution; so has the distribution's own.

Their Dockerfiles are FROM ``debian``, ``ubuntu`` or ``buildpack-deps`` of the release that the tag names:
adoptium/containers d8d18d67, docker-library/gcc 22c26a9e, golang 7c8c182, httpd 9b63b37, julia aa7507f, openjdk
43b2bb2e, php 445bf414, postgres 6edb0a8c, redis e9204996, ruby d55e25ae, rust-lang/docker-rust 7668ee2,
tomcat 084d3348, nginx/docker-nginx 0d7f438, nodejs/docker-node f27d936f, Perl/docker-perl 6dba1f21,
keeganwitt/docker-gradle 0e6af141, carlossg/docker-maven 09a3b190, swiftlang/swift-docker 0d8a37ad; astral-sh/uv
26a9dd4b, .github/workflows/build-docker.yml:92.
"""
_BEFORE_PYTHON = {"hylang": "python", "pypy": "python", "python": "", "uv": "python"}
"""Public images, by name, that may have a Python of their own: what stands in a tag before its version.

As in ``uv:python3.12-trixie-slim`` (likewise, :106); ``pypy`` has its own folder first on PATH (docker-library/pypy
84c50d1, 3.11/bookworm/Dockerfile:23).
"""
_OF_PUBLISHER = re.compile(r"(?:(?:.*/)?(?:library|nvidia|redhat|rockylinux|astral-sh|devcontainers)/)?[^/]+")
"""Repositories of the publisher of an image, or their mirrors: another one's may have another Python."""
_USUAL = re.compile(
    r"slim|backports|scm|curl|base|runtime|devel|cudnn\d*|minimal|ubi|debian|\d[\w.]*"
    r"|lts|current|jod|krypton|iron|hydrogen|tip|nightly|rc\d*|ea|j[dr][ke]\d*|eclipse|temurin|b\d+"
    r"|apache|cli|fpm|zts|threaded|main|stable|mainline|otel|perl"
)
"""Words of their tags beside the name of the release (docker-library/official-images 37079fb3, library)."""


def base_system(reference: str) -> BaseSystem:
    """Return what is known of a public image by its reference, such as ``ubuntu:24.04`` or ``python:3.12-bookworm``."""
    image = Reference.of(reference)
    words = [*PurePosixPath(image.repository).parts, *image.tag.split("-")]
    others = (word.rstrip("0123456789.") for word in (image.path, image.name, *image.tag.split("-")))
    if manager := next((_OTHER_MANAGERS[other] for other in others if other in _OTHER_MANAGERS), None):
        return BaseSystem(packages=manager)
    release = next(
        (release for release in map(_release, table("distros")) if _is_named(release, image.name, words)), None
    )
    number = _own_python(image)
    if release is None:
        return BaseSystem(number, packages="apt") if number else BaseSystem()
    families = {*distro_families(), *_OF_DISTRIBUTION}
    named = (release.name, release.codename)
    usual = all(word in named or _USUAL.fullmatch(word) for word in image.tag.split("-"))
    is_own = image.name.rstrip("0123456789.") in families and _OF_PUBLISHER.fullmatch(image.path) and usual
    own = release.python if is_own else None
    return BaseSystem(number or own, release.glibc, release.packages)


def leaves_python_open(reference: str) -> bool:
    """Return whether a public image of a distribution or of Python does not say its Python, as ``ubuntu:latest``."""
    image = Reference.of(reference)
    names = {*distro_families(), *_OF_DISTRIBUTION, *_BEFORE_PYTHON}
    return bool(image.name in names and _OF_PUBLISHER.fullmatch(image.path)) and base_system(reference).python is None


def _own_python(image: Reference) -> str | None:
    """Return the Python that an image has of its own, by the last such word of its tag.

    ``devcontainers/python:3.0-3.12-trixie`` has 3.12 (devcontainers/images a00b2d5, src/python/manifest.json).
    """
    if image.name not in _BEFORE_PYTHON:
        return None
    pattern = re.compile(rf"{_BEFORE_PYTHON[image.name]}(3\.\d+)(?!\d).*")
    versions = [match[1] for word in image.tag.split("-") if (match := pattern.fullmatch(word))]
    return versions[-1] if versions else None


def _is_named(release: Distro, name: str, words: list[str]) -> bool:
    family = release.name.rstrip("0123456789.")
    number = release.name.removeprefix(family)
    numbers = [word for word in words if f"{word}.".startswith(f"{number}.")] if name == family else []
    named = (release.name, release.codename or release.name)
    return bool(numbers) or not {*words}.isdisjoint(named) or (family, number) in itertools.pairwise(words)


def distro_names() -> tuple[str, ...]:
    """Return the distributions that images can be built on."""
    return tuple(name for name, row in table("distros").items() if "refused" not in row)


def distro_families() -> tuple[str, ...]:
    """Return the names of the distributions without their releases, sorted: ``debian``, ``ubuntu``, ..."""
    return tuple(sorted({name.rstrip("0123456789.") for name in table("distros")}))


@functools.cache
def distro_release(name: str) -> Distro:
    """Return the row of a distribution.

    Raises Incompatible: it is unknown, or nothing can be built on it, with the reason.
    """
    row = table("distros").get(name)
    if row is None:
        raise Incompatible("distro", name, "is not a known distribution", distro_names(), _SOURCE, known=False)
    if "refused" in row:
        raise Incompatible("distro", name, f"cannot be built on ({row['refused']})", distro_names(), _SOURCE)
    return _release(name)


def _release(name: str) -> Distro:
    """Return the row of a distribution, whether anything can be built on it or not."""
    row = {key: value for key, value in table("distros")[name].items() if key != "refused"}
    return Distro(name, **{**facts(row), "pythons": (row["python"], *row.get("pythons", ()))})


def distro_python(name: str, python: str | None) -> str:
    """Return the Python of an image: ``python`` if it is given and the distribution offers it, else its own.

    Raises Incompatible: the distribution does not offer it, or nothing can be built on it.
    """
    release = distro_release(name)
    if python is not None and python not in release.pythons:
        raise Incompatible("python", python, f"is not a Python of {name}", release.pythons, _SOURCE)
    return python or release.python


def check_gcc(name: str, torch: str, cuda_version: str | None) -> None:
    """Refuse a distribution whose gcc is too old to compile torch, for a CUDA or for the CPU alone.

    Raises Incompatible: naming this CUDA's parents with a new enough gcc, those with the same package manager if any.
    """
    oldest, gcc = gcc_min(torch), distro_release(name).gcc
    if gcc < oldest:
        parents = cuda_release(cuda_version).distros if cuda_version else distro_names()
        fitting = [other for other in parents if other in distro_names() and distro_release(other).gcc >= oldest]
        alike = [other for other in fitting if distro_release(other).packages == distro_release(name).packages]
        why = f"has gcc {gcc}, and torch {torch} needs gcc {oldest} or newer"
        raise Incompatible("distro", name, why, alike or fitting, f"c10/util/C++17.h of torch {torch}")
