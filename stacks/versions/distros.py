"""Distributions that images are built on."""

from __future__ import annotations

import functools
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
_WITH_OWN_PYTHON = {"buildpack-deps", "cuda"}
"""Public images, by name, that have the Python of their distribution; so has the distribution's own."""
_OF_PUBLISHER = re.compile(r"(?:(?:.*/)?(?:library|nvidia|redhat|rockylinux)/)?[^/]+")
"""Repositories of the publisher of an image, or their mirrors: another one's may have another Python."""
_PYTHON = "python"
"""The public image, by name, that has a Python of its own."""
_USUAL = re.compile(r"slim|backports|scm|curl|base|runtime|devel|cudnn\d*|minimal|ubi|[\d.]+")
"""Words of their tags beside the name of the release."""


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
    number = re.match(r"3\.\d+(?![\d])", image.tag) if image.name == _PYTHON else None
    if release is None:
        return BaseSystem(number[0], packages="apt") if number else BaseSystem()
    families = {*distro_families(), *_WITH_OWN_PYTHON}
    named = (release.name, release.codename)
    usual = all(word in named or _USUAL.fullmatch(word) for word in image.tag.split("-"))
    is_own = image.name.rstrip("0123456789.") in families and _OF_PUBLISHER.fullmatch(image.path) and usual
    own = release.python if is_own else None
    return BaseSystem(number[0] if number else own, release.glibc, release.packages)


def leaves_python_open(reference: str) -> bool:
    """Return whether a public image of a distribution or of Python does not say its Python, as ``ubuntu:latest``."""
    image = Reference.of(reference)
    is_public = image.name in {*distro_families(), *_WITH_OWN_PYTHON, _PYTHON} and _OF_PUBLISHER.fullmatch(image.path)
    return bool(is_public) and base_system(reference).python is None


def _is_named(release: Distro, name: str, words: list[str]) -> bool:
    family = release.name.rstrip("0123456789.")
    number = release.name.removeprefix(family)
    numbers = [word for word in words if f"{word}.".startswith(f"{number}.")] if name == family else []
    return bool(numbers) or release.name in words or (release.codename != "" and release.codename in words)


def distro_names() -> tuple[str, ...]:
    """Return the distributions that images can be built on."""
    return tuple(name for name, row in table("distros").items() if "refused" not in row)


def distro_families() -> tuple[str, ...]:
    """Return the names of the distributions without their releases, sorted: ``debian``, ``ubuntu``, ..."""
    return tuple(sorted({name.rstrip("0123456789.") for name in table("distros")}))


@functools.cache
def distro_release(name: str) -> Distro:
    """Return the row of a distribution.

    Raises:
        Incompatible: it is unknown, or nothing can be built on it, with the reason.
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

    Raises:
        Incompatible: the distribution does not offer it, or nothing can be built on it.
    """
    release = distro_release(name)
    if python is not None and python not in release.pythons:
        raise Incompatible("python", python, f"is not a Python of {name}", release.pythons, _SOURCE)
    return python or release.python


def check_gcc(name: str, torch: str, cuda_version: str | None) -> None:
    """Refuse a distribution whose gcc is too old to compile torch, for a CUDA or for the CPU alone.

    Raises:
        Incompatible: naming this CUDA's parents with a new enough gcc, those with the same package manager if any.
    """
    oldest, gcc = gcc_min(torch), distro_release(name).gcc
    if gcc < oldest:
        parents = cuda_release(cuda_version).distros if cuda_version else distro_names()
        fitting = [other for other in parents if other in distro_names() and distro_release(other).gcc >= oldest]
        alike = [other for other in fitting if distro_release(other).packages == distro_release(name).packages]
        why = f"has gcc {gcc}, and torch {torch} needs gcc {oldest} or newer"
        raise Incompatible("distro", name, why, alike or fitting, f"c10/util/C++17.h of torch {torch}")
