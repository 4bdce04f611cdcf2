"""torch and what goes with it: vision, audio, text, xformers, Python, triton."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import Literal, get_args

from stacks.versions.errors import Incompatible
from stacks.versions.tables import line, newest_from, older, order, satisfies, table
from stacks.versions.toolkit import cuda

#: The packages tied to a torch release.
Companion = Literal["vision", "audio", "text", "xformers"]
#: The architectures that wheels exist for, as in an image's platform (``linux/amd64``).
Machine = Literal["amd64", "arm64"]

_METADATA = "the packages' own metadata, stacks/versions/torch.toml"
_CANDIDATE = re.compile(r"(?P<final>\d+(?:\.\d+)+)-?rc\d+")


@dataclass(frozen=True, slots=True)
class TorchRelease:
    """One release of torch and everything that its metadata ties to it.

    Attributes:
        version: the release, as asked for.
        vision: the newest torchvision that goes with it; likewise ``audio`` and ``text``. None where none does.
        visions: every torchvision that goes with it, oldest first; likewise ``audios``, ``texts``, ``xformers``.
        pythons: CPython versions with a wheel for amd64 on the Python index; likewise ``pythons_arm64``.
        cuda: CUDA (major.minor) that the amd64 wheel on the Python index was compiled with.
        cudas: every CUDA (major.minor) with official wheels.
        cuda_min: the oldest CUDA that a build from source accepts.
        archs: compute capabilities that its build of extensions accepts in TORCH_CUDA_ARCH_LIST.
        cuda_arm64: likewise for arm64; empty where that is a CPU build.
        triton: version specifier of the triton it needs, such as ``==2.0.0``; empty where it needs none.
        nccl: specifier of the NCCL package it needs, such as ``==2.18.1``; empty where NCCL is inside the wheel.
        cudnn: likewise for cuDNN.
    """

    version: str
    vision: str | None
    audio: str | None
    text: str | None
    visions: tuple[str, ...]
    audios: tuple[str, ...]
    texts: tuple[str, ...]
    xformers: tuple[str, ...]
    pythons: tuple[str, ...]
    pythons_arm64: tuple[str, ...]
    cuda: str
    cudas: tuple[str, ...]
    cuda_min: str
    archs: tuple[str, ...]
    cuda_arm64: str
    triton: str
    nccl: str
    cudnn: str

    @property
    def triton_pin(self) -> str | None:
        """The one release of triton that it needs; None where it needs none, or leaves a choice."""
        before, pin, version = self.triton.partition("==")
        return version if pin and not before else None


def torch_versions() -> tuple[str, ...]:
    """Return every torch release in the table, oldest first."""
    return tuple(table("torch")["torch"])


def companion_versions(package: Companion) -> tuple[str, ...]:
    """Return every release of a companion in the table, oldest first."""
    return tuple(table("torch")[package])


def final_version(version: str) -> str:
    """Return the final release of a release candidate (``2.0.0-rc1`` -> ``2.0.0``), other versions unchanged."""
    candidate = _CANDIDATE.fullmatch(version)
    return candidate["final"] if candidate else version


@functools.cache
def torch_release(version: str, *, field: str = "torch.version") -> TorchRelease:
    """Return the row of torch ``version``. A release candidate has the row of its final release.

    Raises:
        Incompatible: no such release is in the table.
    """
    rows, final = table("torch")["torch"], final_version(version)
    if final not in rows:
        source = f"{_METADATA}; `python -m stacks.versions.refresh` reads newer releases"
        raise Incompatible(field, version, "is not a known torch release", torch_versions(), source, known=False)
    row = rows[final]
    fitting = {package: _fitting(package, final) for package in get_args(Companion)}
    newest = {package: versions[-1] if versions else None for package, versions in fitting.items()}
    return TorchRelease(
        version=version,
        vision=newest["vision"],
        audio=newest["audio"],
        text=newest["text"],
        visions=fitting["vision"],
        audios=fitting["audio"],
        texts=fitting["text"],
        xformers=fitting["xformers"],
        pythons=tuple(row["python"]),
        pythons_arm64=tuple(row.get("python_arm64", row["python"])),
        cuda=row["cuda"],
        cudas=tuple(table("cuda_torch")["builds"][line(final)]["cuda"]),
        cuda_min=row["cuda_min"],
        archs=tuple(row["archs"].split()),
        cuda_arm64=row.get("cuda_arm64", row["cuda"]),
        triton=row.get("triton", ""),
        nccl=row.get("nccl", ""),
        cudnn=row.get("cudnn", ""),
    )


def _requirement(package: Companion, version: str) -> str:
    amended = table("torch_amendments").get(package, {}).get(version, {})
    requirement: str = amended.get("torch", table("torch")[package][version]["torch"])
    return requirement


def _fitting(package: Companion, torch: str) -> tuple[str, ...]:
    return tuple(v for v in companion_versions(package) if satisfies(torch, _requirement(package, v)))


def check_companion(torch: str, package: Companion, version: str, *, field: str | None = None) -> None:
    """Refuse a companion that does not go with this torch.

    Where either is a release candidate, which no index holds, only their release lines (``0.15``) have to match.

    Args:
        torch: torch's version.
        package: which companion.
        version: the companion's version.
        field: where that stands in the config; ``torch.<package>`` if not given.

    Raises:
        Incompatible: they do not go together, or torch's version is unknown.
    """
    allowed = _fitting(package, final_version(torch_release(torch).version))
    exact = torch == final_version(torch) and version == final_version(version)
    lines = {order(release)[:2] for release in allowed}
    if version in allowed or (not exact and order(version)[:2] in lines):
        return
    amended = table("torch_amendments").get(package, {}).get(version)
    source = amended["source"] if amended else _METADATA
    raise Incompatible(field or f"torch.{package}", version, f"does not go with torch {torch}", allowed, source)


def check_python(
    torch: str,
    python: str,
    *,
    machine: Machine = "amd64",
    companions: dict[Companion, str] | None = None,
    field: str = "python",
) -> None:
    """Refuse a Python (``3.11``) for which the index has no wheel of torch, or of one of ``companions``.

    Only for images that install wheels: a source build is not bound to them.

    Raises:
        Incompatible: naming the package that has no such wheel.
    """
    release = torch_release(torch)
    pythons = release.pythons if machine == "amd64" else release.pythons_arm64
    if python not in pythons:
        raise Incompatible(field, python, f"has no {machine} wheel of torch {torch}", pythons, _METADATA)
    for package, version in (companions or {}).items():
        row = table("torch")[package][version]
        listed = row["python"] if machine == "amd64" else row.get("python_arm64", row["python"])
        fitting = [python for python in pythons if python in listed or "*" in listed]
        if python not in fitting:
            name = package if package == "xformers" else f"torch{package}"
            raise Incompatible(field, python, f"has no {machine} wheel of {name} {version}", fitting, _METADATA)


def check_torch_cuda(torch: str, version: str, *, source: Literal["wheel", "build"], field: str = "cuda") -> None:
    """Refuse a CUDA that torch does not go with.

    Args:
        torch: torch's version.
        version: full CUDA version.
        source: ``wheel`` where an official wheel is installed, ``build`` where torch is compiled.
        field: where the CUDA version stands in the config.

    Raises:
        Incompatible: there is no such wheel, or such a build fails.
    """
    release, toolkit = torch_release(torch), cuda(version, field=field)
    if source == "wheel":
        if toolkit.line not in release.cudas:
            row = table("cuda_torch")["builds"][line(final_version(torch))]
            origin = row.get("source", "PyTorch's release matrix, stacks/versions/cuda_torch.toml")
            raise Incompatible(field, version, f"has no official wheel of torch {torch}", release.cudas, origin)
        return
    if order(toolkit.line) < order(release.cuda_min):
        why = f"is too old to build torch {torch} with"
        oldest = (f"{release.cuda_min} and newer",)
        raise Incompatible(field, version, why, oldest, f"Caffe2/public/cuda.cmake of torch {torch}")
    first = table("cuda_torch")["first"]
    row = first[newest_from(first, version) or min(first, key=order)]
    if order(final_version(torch)) < order(row["torch"]):
        majors = [major for major, other in first.items() if order(other["torch"]) <= order(final_version(torch))]
        allowed = tuple(f"{major}.x" for major in majors if int(major) >= order(release.cuda_min)[0])
        raise Incompatible(field, version, f"is newer than torch {torch} builds with", allowed, row["source"])


def check_cudnn(torch: str, cudnn: str, *, cuda_version: str | None = None) -> None:
    """Refuse a cuDNN that torch does not build with.

    Args:
        torch: torch's version.
        cudnn: cuDNN's version, or as much of it as is known.
        cuda_version: full CUDA version whose parent image brings it, where the config names that and no cuDNN.

    Raises:
        Incompatible: it is too old, or has dropped what this torch calls.
    """
    rows = table("cuda_torch")["cudnn"]
    row = rows[newest_from(rows, final_version(torch_release(torch).version)) or next(iter(rows))]
    below = row.get("below")
    too_new = below is not None and order(cudnn) >= order(below)
    if too_new or older(cudnn, row["min"]):
        why = f"too {'new' if too_new else 'old'} to build torch {torch} with"
        allowed = (f"cuDNN {row['min']} and newer" + (f", before {below}" if below else ""),)
        source = f"Caffe2/public/cuda.cmake and ATen/cudnn/Descriptors.h of torch {torch}"
        if cuda_version is None:
            raise Incompatible("cudnn", cudnn, f"is {why}", allowed, source)
        raise Incompatible("cuda", cuda_version, f"comes with cuDNN {cudnn}, {why}", allowed, source)


def gcc_min(torch: str) -> int:
    """Return the oldest major version of gcc that compiles torch."""
    rows: dict[str, int] = table("cuda_torch")["gcc"]
    return rows[newest_from(rows, final_version(torch_release(torch).version)) or next(iter(rows))]


def constraints(torch: str) -> str:
    """Return what torch is compiled and runs with beyond its metadata: pip's constraints, ``numpy<2 setuptools<82``."""
    rows: dict[str, list[str]] = table("cuda_torch")["beside"]
    return " ".join(rows[newest_from(rows, final_version(torch_release(torch).version)) or next(iter(rows))])


def check_audio_wheel(torch: str, audio: str, *, cuda_line: str | None = None, field: str = "torch.audio") -> None:
    """Refuse a torchaudio without a wheel for the CUDA of the torch beside it: one for another CUDA fails on import.

    Where torchaudio's metadata names one torch, the two are published for the same CUDA versions.

    Args:
        torch: torch's version.
        audio: torchaudio's version.
        cuda_line: CUDA (major.minor) whose index both come from. Default: the Python index, which has one of each.
        field: where torchaudio's version stands in the config.

    Raises:
        Incompatible: there is no such wheel, or the two on the Python index were compiled with different CUDA versions.
    """
    amended = table("torch_amendments").get("audio", {}).get(audio, {})
    cuda = amended.get("cuda")
    if cuda is None:
        return
    source = "stacks/versions/torch_amendments.toml"
    if cuda_line is not None:
        published = [line for line in torch_release(amended["built_with"]).cudas if line in torch_release(torch).cudas]
        if cuda_line not in published:
            allowed = [*(f"with CUDA {line}" for line in published), "false"]
            raise Incompatible(field, audio, f"has no wheel for CUDA {cuda_line}", allowed, source)
    elif torch_release(torch).cuda != cuda:
        allowed = [version for version in torch_versions() if torch_release(version).cuda == cuda]
        why = f"is compiled with CUDA {cuda} and torch {torch} with {torch_release(torch).cuda}; torch with that CUDA"
        raise Incompatible(field, audio, f"{why}, as published", allowed, source)
