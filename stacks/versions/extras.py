"""Extensions that images compile against their torch, such as DeepSpeed: a row in ``extras.toml`` for each."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from packaging.version import Version

from containers.image.gpu.release_order import line, older, order
from stacks.places import newer_rows
from stacks.versions.cuda_toolkit import cuda_release, running_on
from stacks.versions.incompatible import Incompatible, Unverified
from stacks.versions.pytorch import built_libraries, torch_versions
from stacks.versions.tables import applying, newest_from, satisfies, table

_TABLE = "stacks/versions/extras.toml"
_METADATA = f"the packages' own metadata, {_TABLE} and torch.toml"
_AS_NEWEST = "is taken to need what the newest release before it does"

Image = Literal["torch", "torch-extras"]
"""The images that extras are in."""


@dataclass(frozen=True, slots=True)
class Extra:
    """One extension.

    Attributes:
        name: of its recipe, such as ``flash-attention``.
        title: its name as people write it.
        distribution: the name of the Python package that its wheel is.
        image: the image that it is in.
        default: the version or commit for a stack that names none; False leaves the extra out.
        description: of its key.
        versions: the pattern and an example of its versions; empty for the usual ones.
        commit_only: why it is built at a commit only; empty if it is not.
        flavor: the only flavor that it is for; empty for all.
        flavor_source: why it is for that one.
        jit: whether it is compiled at run time, so that its wheel has no machine code.
        march: whether its code for the CPU is compiled for one kind of processor.
        pins_torch: whether its metadata pins one torch.
        releases: its releases, from the first one here on; empty if the table does not say.
        needs: by version, the row that applies from it on; ``any`` applies to every version and commit.
        tvm_ffi: by version, the requirement on apache-tvm-ffi from it on.
        packages: by version, what pip installs from it on, besides torch, to compile and to run it.
    """

    name: str
    title: str
    distribution: str
    image: Image
    default: str | Literal[False]
    description: str
    versions: Mapping[str, str]
    commit_only: str
    flavor: str
    flavor_source: str
    jit: bool
    march: bool
    pins_torch: bool
    releases: tuple[str, ...]
    needs: Mapping[str, Mapping[str, Any]]
    tvm_ffi: Mapping[str, str]
    packages: Mapping[str, list[str]]

    @property
    def field(self) -> str:
        """The field of the models that holds its version: ``flash_attention``."""
        return self.name.replace("-", "_")

    @property
    def key(self) -> str:
        """Its key in a stack's file: ``extras.flashAttention``; in the image torch, ``flashAttention3``."""
        first, *others = self.name.split("-")
        key = first + "".join(word.capitalize() for word in others)
        return key if self.image == "torch" else f"extras.{key}"

    def row(self, version: str) -> Mapping[str, Any]:
        """Return the needs of a version, with those of all versions; a commit needs what the newest version does."""
        rows = {first: row for first, row in self.needs.items() if first != "any"}
        own = applying(rows, version if "." in version else max(rows, key=order)) if rows else {}
        return {**self.needs.get("any", {}), **own}

    def packages_of(self, version: str) -> tuple[str, ...] | None:
        """Return what pip installs for a version, besides torch; a commit needs what the newest version does.

        None where the table does not say.
        """
        first = newest_from(self.packages, version) if "." in version else max(self.packages, key=order, default=None)
        return tuple(self.packages[first]) if first else None


@functools.cache
def extras() -> Mapping[str, Extra]:
    """Return every extra by its name, in the order in which images have them."""
    return {
        name: Extra(
            name=name,
            title=row["title"],
            distribution=row.get("distribution", name),
            image=row.get("image", "torch-extras"),
            default=row.get("default", False),
            description=row.get("description", f"{row['title']}."),
            versions=row.get("versions", {}),
            commit_only=row.get("commit_only", ""),
            flavor=row.get("flavor", ""),
            flavor_source=row.get("flavor_source", ""),
            jit=row.get("jit", False),
            march=row.get("march", False),
            pins_torch=row.get("pins_torch", False),
            releases=tuple(row.get("releases", ())),
            needs=row.get("needs", {}),
            tvm_ffi=row.get("tvm_ffi", {}),
            packages=row.get("packages", {}),
        )
        for name, row in table("extras").items()
    }


def extras_of(image: Image) -> tuple[Extra, ...]:
    """Return the extras that an image may have."""
    return tuple(extra for extra in extras().values() if extra.image == image)


def extra_archs(name: str, version: str, archs: str) -> str:
    """Return the compute capabilities that a component's wheel has machine code for, to run on ``archs``.

    By default those are ``archs`` themselves. The table limits some extras, whose wheels have no PTX either. An extra
    with an oldest capability has code for that one and newer. An extra with a list has, for each of ``archs``, the code
    of the list that runs on it (``8.0`` on ``8.9``). An extra compiled at run time has none. A component that is no
    extra compiles for any capability. ``version`` may be a commit; ``archs`` have the canonical form.
    """
    if name not in extras():
        return archs
    return "" if extras()[name].jit else _running(extras()[name].row(version), archs)


def _running(row: Mapping[str, Any], archs: str) -> str:
    """Return the compute capabilities of an extra's code, for each of ``archs`` that some of it runs on."""
    targets = [arch.removesuffix("+PTX") for arch in archs.split()]
    if "archs_min" in row:
        return " ".join(arch for arch in targets if order(arch) >= order(row["archs_min"]))
    if "archs" in row:
        running = {running_on(row["archs"], arch) for arch in targets}
        return " ".join(arch for arch in row["archs"] if arch in running)
    return archs


def check_extra_listed(name: str, version: str) -> None:
    """Refuse a version that was never released, as far as the table says.

    One that differs from a release by its ``.post1`` alone is a tag of its own, and not refused.

    Raises Unverified: the releases are the allowed values.
    """
    extra = extras()[name]
    plain = {_plain(release) for release in extra.releases}
    if plain and _plain(version) >= min(plain) and _plain(version) not in plain:
        where, why = f"{_TABLE}; {newer_rows('maintenance refresh extras')}", "is not a known release"
        raise Unverified(extra.key, version, f"{why} of {extra.title}", extra.releases, where, instead=_AS_NEWEST)


@functools.cache
def _plain(release: str) -> Version:
    return Version(re.sub(r"\.post\d+$", "", release))


def check_extras_together(pins: Mapping[str, str]) -> None:
    """Refuse an extra that cannot be imported beside another one; ``pins`` are by name all extras in one image.

    Raises Incompatible: naming the first version that can be, and the other extra.
    """
    for name, pin in pins.items():
        extra = extras()[name]
        for other, source in extra.row(pin).get("beside", {}).items():
            if other in pins:
                fitting = (row for row in extra.needs if other not in extra.needs[row].get("beside", {}))
                newer = [row for row in fitting if order(row) > order(pin)]
                allowed = [f"{row} and newer" for row in newer[:1]] + [f"{extras()[other].key}: false"]
                why = f"cannot be imported beside {extras()[other].title}"
                raise Incompatible(extra.key, pin, why, allowed, source)


def vllm_extra_refusals(pins: Mapping[str, str], vllm: str) -> Iterator[Incompatible]:
    """Yield each extra that cannot be installed beside a vLLM: both need apache-tvm-ffi, and vLLM one release of it.

    ``pins`` are by name all extras below vLLM. Of a commit nothing is known, nor of a vLLM that the table does not
    have.
    """
    release = table("torch")["vllm"].get(vllm, {}).get("tvm_ffi", "").removeprefix("==")
    for name, pin in pins.items():
        extra = extras()[name]
        needed = applying(extra.tvm_ffi, pin) if extra.tvm_ffi and "." in pin else ""
        if release and needed and not satisfies(release, needed):
            newer = [row for row in extra.tvm_ffi if order(row) > order(pin) and satisfies(release, extra.tvm_ffi[row])]
            why = f"needs apache-tvm-ffi {needed}, and vLLM {vllm} needs {release}"
            yield Incompatible(extra.key, pin, why, [*(f"{row} and newer" for row in newer[:1]), "false"], _METADATA)


def check_extra_flavor(name: str, version: str, flavor: str) -> None:
    """Refuse an extra that is for another flavor. Raises Incompatible: naming its flavor."""
    extra = extras()[name]
    if extra.flavor not in {"", flavor}:
        allowed = (f"flavor {extra.flavor}",)
        raise Incompatible(extra.key, version, f"is not for the flavor {flavor}", allowed, extra.flavor_source)


def _too_old(row: Mapping[str, Any], requirement: str, version: str) -> bool:
    bound = row.get(f"{requirement}_below")
    return bound is not None and not older(version, bound)


def _has_nvshmem(torch: str, cuda_version: str, oldest: str) -> bool:
    version = built_libraries(torch, cuda_version).get("nvshmem")
    return version is not None and not older(version, oldest)


def _new_enough(extra: Extra, requirement: str, version: str) -> tuple[str, ...]:
    """Return the first version of an extra that is new enough for a CUDA or torch, as an error lists it."""
    newest = max((row for row in extra.needs if _too_old(extra.needs[row], requirement, version)), key=order)
    return tuple(f"{row} and newer" for row in extra.needs if order(row) > order(newest))[:1]


def _refusals(
    extra: Extra, bounds: Mapping[str, Any], stack: Mapping[str, str | None]
) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield why an extra does not build with a stack, whose versions are by requirement, and what it builds with."""
    known = {requirement: version for requirement, version in stack.items() if version}
    for requirement, version in known.items():
        oldest = bounds.get(f"{requirement}_min")
        if oldest and older(version, oldest):
            yield f"does not build with {requirement} {version}", (f"{requirement} {oldest} and newer",)
    for requirement, version in known.items():
        if _too_old(bounds, requirement, version):
            yield f"does not build with {requirement} {version}", _new_enough(extra, requirement, version)


def _without_nvshmem(
    bounds: Mapping[str, Any], torch: str | None, cuda_version: str
) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield why a torch without the NVSHMEM that an extra needs is refused, and the first torch that has it."""
    oldest = bounds.get("nvshmem_min")
    if torch and oldest and not _has_nvshmem(torch, cuda_version, oldest):
        fitting = [release for release in torch_versions() if _has_nvshmem(release, cuda_version, oldest)]
        why = (
            f"needs NVSHMEM {oldest}, which torch {torch} with cuda {line(cuda_release(cuda_version).version)} has not"
        )
        yield why, [f"torch {first} and newer" for first in fitting[:1]]


def check_extra(
    name: str,
    version: str,
    *,
    cuda_version: str,
    python: str | None = None,
    cudnn: str | None = None,
    torch: str | None = None,
    archs: str | None = None,
    field: str | None = None,
) -> None:
    """Refuse an extra that does not go with CUDA, cuDNN, Python or torch, or without code for any of ``archs``.

    A version between two rows of the table follows the older row. For a commit, only the row ``any`` and the compute
    capabilities are checked. ``cuda_version`` is the full version, and ``archs`` have the canonical form. What is not
    known of Python, cuDNN and torch is None. ``field`` is the extra's key, for errors; by default its own.

    Raises Incompatible: naming the oldest that does, or the capabilities in its code.
    """
    extra = extras()[name]
    row, where = extra.row(version), field or extra.key
    source = row.get("source", f"setup.py of {name}")
    cuda_line = line(cuda_release(cuda_version).version)
    stack = {"cuda": cuda_line, "python": python, "cudnn": cudnn, "torch": torch}
    for bounds in [extra.needs.get("any", {}), *([row] if "." in version else [])]:
        for why, allowed in [*_refusals(extra, bounds, stack), *_without_nvshmem(bounds, torch, cuda_version)]:
            raise Incompatible(where, version, why, allowed, bounds.get("source", source))
    if archs and not _running(row, archs):
        why = f"has no code for any of the compute capabilities {archs}"
        fitting = row.get("archs") or (f"{row['archs_min']} and newer",)
        raise Incompatible(where, version, why, fitting, source)
