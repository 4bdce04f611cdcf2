"""torch and its companions: vision, audio, text, xformers, vLLM, Python, triton."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from containers.image.gpu.release_order import line, older, order
from stacks.places import newer_rows
from stacks.versions.cuda_toolkit import Machine, cuda_release, running_on
from stacks.versions.incompatible import Incompatible, Unverified
from stacks.versions.tables import applying, newest_from, satisfies, table

#: The packages tied to a torch release.
Companion = Literal["vision", "audio", "text", "xformers", "vllm"]

_METADATA = "the packages' own metadata, stacks/versions/torch.toml"
_MATRIX = "PyTorch's release matrix, stacks/versions/cuda_torch.toml"
_NOT_TORCH = "is not a known torch release"
_READS_NEWER = f"{_METADATA}; {newer_rows('maintenance.refresh.torch_table')}"
_CANDIDATE = re.compile(r"(?P<final>\d+(?:\.\d+)+)-?rc\d+")


@dataclass(frozen=True, slots=True)
class TorchRelease:
    """One release of torch and everything that its metadata ties to it.

    Attributes:
        version: the release, as given; it may be a candidate.
        row: the release whose row it has: its final release, or the one before it where the table has none for it.
        vision: the newest torchvision that goes with it; likewise ``audio`` and ``text``. None where none does.
        visions: every torchvision that goes with it, oldest first; likewise ``audios``, ``texts``, ``xformers``,
            ``vllms``.
        pythons: CPython versions with a wheel for amd64 on the Python index; likewise ``pythons_arm64``.
        cuda: CUDA (major.minor) that the amd64 wheel on the Python index was compiled with.
        cudas: every CUDA (major.minor) with official wheels for amd64.
        cudas_arm64: likewise for arm64; none before 2.4.
        cuda_min: the oldest CUDA that a build from source accepts.
        archs: compute capabilities that its build of extensions accepts in TORCH_CUDA_ARCH_LIST.
        cuda_arm64: likewise for arm64; empty for a CPU build.
        triton: version specifier of the triton it needs, such as ``==2.0.0``; empty where it needs none.
        nccl: specifier of the NCCL package it needs, such as ``==2.18.1``; empty where NCCL is inside the wheel.
        cudnn: likewise for cuDNN.
    """

    version: str
    row: str
    vision: str | None
    audio: str | None
    text: str | None
    visions: tuple[str, ...]
    audios: tuple[str, ...]
    texts: tuple[str, ...]
    xformers: tuple[str, ...]
    vllms: tuple[str, ...]
    pythons: tuple[str, ...]
    pythons_arm64: tuple[str, ...]
    cuda: str
    cudas: tuple[str, ...]
    cudas_arm64: tuple[str, ...]
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
def torch_release(version: str) -> TorchRelease:
    """Return what is known of torch ``version``. A release candidate has the row of its final release.

    A release outside the table, which :func:`check_torch_listed` refuses, has the row of the one before it, of the same
    major version. It names its own Triton.

    Raises Incompatible: no such release can be, or it is older than all of the table.
    """
    rows, final = table("torch")["torch"], final_version(version)
    like = final if final in rows else _before(final)
    if like is None:
        raise Incompatible("torch.version", version, _NOT_TORCH, torch_versions(), _READS_NEWER, known=False)
    row, builds = rows[like], applying(table("cuda_torch")["builds"], final)
    fitting = {package: _fitting(package, final) for package in get_args(Companion)}
    newest = {package: versions[-1] if versions else None for package, versions in fitting.items()}
    return TorchRelease(
        version=version,
        row=like,
        vision=newest["vision"],
        audio=newest["audio"],
        text=newest["text"],
        visions=fitting["vision"],
        audios=fitting["audio"],
        texts=fitting["text"],
        xformers=fitting["xformers"],
        vllms=fitting["vllm"],
        pythons=tuple(row["python"]),
        pythons_arm64=tuple(row.get("python_arm64", row["python"])),
        cuda=row["cuda"],
        cudas=tuple(builds["cuda"]),
        cudas_arm64=tuple(builds.get("cuda_arm64", ())),
        cuda_min=row["cuda_min"],
        archs=tuple(row["archs"].split()),
        cuda_arm64=row.get("cuda_arm64", row["cuda"]),
        triton=row.get("triton", "") if like == final else row.get("triton", "").replace("==", ">="),
        nccl=row.get("nccl", ""),
        cudnn=row.get("cudnn", ""),
    )


def missing_triton(torch: str, machine: Machine) -> str | None:
    """Return the Triton that a torch needs if the Python index has no wheel of it for a machine, else None."""
    first = table("cuda_torch")["triton"].get(machine)
    needed = torch_release(torch).triton.lstrip("=<>~!")
    return needed if first and needed and order(needed) < order(first) else None


def triton_warnings(torch: str, machine: Machine) -> list[str]:
    """Return a line if torch is built without Triton because there is none for a machine."""
    needed = missing_triton(torch, machine)
    if not needed:
        return []
    first = table("cuda_torch")["triton"][machine]
    why = (
        f"it needs {needed}, and the Python index has it for {machine} from {first} on, stacks/versions/cuda_torch.toml"
    )
    return [
        f"slipway:torch.version: torch {torch} is built without Triton, so torch.compile makes no code for GPUs: {why}"
    ]


def _before(version: str) -> str | None:
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        return None
    return newest_from((known for known in torch_versions() if order(known)[0] == order(version)[0]), version)


def check_torch_listed(version: str) -> None:
    """Refuse a torch that the table does not have.

    Raises Unverified: it may exist; otherwise as :func:`torch_release`.
    """
    instead = f"is taken to be as torch {torch_release(version).row}"
    rows = torch_versions()
    if final_version(version) not in rows:
        raise Unverified("torch.version", version, _NOT_TORCH, rows, _READS_NEWER, instead=instead)


def _requirement(package: Companion, version: str) -> str:
    amended = table("torch_amendments").get(package, {}).get(version, {})
    return str(amended.get("torch", table("torch")[package][version]["torch"]))


@functools.cache
def _fitting(package: Companion, torch: str) -> tuple[str, ...]:
    return tuple(v for v in companion_versions(package) if satisfies(torch, _requirement(package, v)))


def _released_as(package: Companion, version: str) -> str:
    """Return the release that a release candidate became: its own number, or the next of its line.

    There is no torchvision 0.15.0: the candidate 0.15.0-rc1 was released as 0.15.1. Other versions are unchanged.
    """
    final = final_version(version)
    if final == version:
        return version
    later = (release for release in companion_versions(package) if order(release) >= order(final))
    return next((release for release in later if order(release)[:2] == order(final)[:2]), final)


def check_companion(torch: str, package: Companion, version: str, *, field: str | None = None) -> None:
    """Refuse a companion that does not go with this torch. A release candidate goes with what its release goes with.

    ``field`` is the companion's key, for errors; by default ``torch.<package>``.

    Raises:
        Incompatible: they do not go together, or there can be no such torch.
        Unverified: the table has no such companion.
    """
    allowed = _fitting(package, final_version(torch_release(torch).version))
    release, field, why = _released_as(package, version), field or f"torch.{package}", f"does not go with torch {torch}"
    if release in allowed:
        return
    if release not in companion_versions(package):
        raise Unverified(field, version, why, allowed, _METADATA, instead="is taken to go with this torch", known=True)
    amended = table("torch_amendments").get(package, {}).get(version)
    raise Incompatible(field, version, why, allowed, amended["source"] if amended else _METADATA)


def check_vllm_listed(version: str, *, torch: str) -> None:
    """Refuse a vLLM that the table does not have. Raises Unverified: naming those for this torch, or all."""
    allowed = torch_release(torch).vllms or companion_versions("vllm")
    if version not in companion_versions("vllm"):
        raise Unverified(
            "serve.vllm", version, "is not a known vLLM", allowed, _METADATA, instead="is taken to go with this torch"
        )


def vllm_refusals(
    version: str,
    *,
    torch: str,
    companions: Mapping[Literal["vision", "audio"], str | None],
    cuda_version: str,
    archs: str,
    machine: Machine = "amd64",
) -> Iterator[Incompatible]:
    """Yield why a vLLM's published wheel does not run in a stack, each with what goes together.

    Of a vLLM that the table does not have, nothing is known. The wheel is compiled against one release of torch, and
    against the libraries of one major version of CUDA. A torch built from source has the C++ library's new ABI too, as
    vLLM has. ``companions`` are torchvision and torchaudio, None for none.
    """
    row = table("torch")["vllm"].get(version)
    if row is None:
        return
    if not satisfies(final_version(torch), row["torch"]):
        why = f"is compiled against torch {row['torch'].lstrip('=')}, and slipway:torch.version is {torch}"
        others = [f"vLLM {other}" for other in torch_release(torch).vllms]
        yield Incompatible(
            "serve.vllm", version, why, [*others, f"torch.version: {row['torch'].lstrip('=')}"], _METADATA
        )
    for package, companion in companions.items():
        if not companion or not satisfies(final_version(companion), row[package]):
            why, needed = f"is not the torch{package} of vLLM {version}", row[package].lstrip("=")
            yield Incompatible(f"torch.{package}", companion or "false", why, (needed,), _METADATA)
    if order(cuda_version)[0] != order(row["cuda"])[0]:
        why = f"does not have the libraries of vLLM {version}, whose wheel is compiled with CUDA {row['cuda']}"
        yield Incompatible("cuda", cuda_version, why, (f"{order(row['cuda'])[0]}.x",), _METADATA)
    first = newest_from(table("vllm")["code"], version)
    if first:
        code = table("vllm")["code"][first]
        compiled = code[machine].split()
        if not any(running_on(compiled, arch) for arch in archs.split()):
            why = f"has no compute capability that the {machine} wheel of vLLM {version} has code for"
            yield Incompatible("archList", archs, why, compiled, code["source"])


def wheel_pythons(torch: str, *, machine: Machine = "amd64") -> tuple[str, ...]:
    """Return the Pythons with a wheel of torch on the Python index."""
    release = torch_release(torch)
    return release.pythons if machine == "amd64" else release.pythons_arm64


def vllm_pythons(version: str, torch: str, *, machine: Machine = "amd64") -> tuple[str, ...]:
    """Return the Pythons that a vLLM and its torch support; those of torch for a vLLM that the table does not have."""
    pythons = wheel_pythons(torch, machine=machine)
    row = table("torch")["vllm"].get(version)
    return pythons if row is None else tuple(python for python in pythons if satisfies(python, row["pythons"]))


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

    Raises Incompatible: naming the package that has no such wheel.
    """
    pythons = wheel_pythons(torch, machine=machine)
    if python not in pythons:
        raise Incompatible(field, python, f"has no {machine} wheel of torch {torch}", pythons, _METADATA)
    for package, version in (companions or {}).items():
        row = table("torch")[package].get(version, {"python": ["*"]})
        listed = row["python"] if machine == "amd64" else row.get("python_arm64", row["python"])
        fitting = [python for python in pythons if python in listed or "*" in listed]
        if python not in fitting:
            name = package if package == "xformers" else f"torch{package}"
            raise Incompatible(field, python, f"has no {machine} wheel of {name} {version}", fitting, _METADATA)


def processor_warnings(torch: str, machine: Machine) -> list[str]:
    """Return a line if the wheel that the Python index has of torch for a machine is without CUDA."""
    if machine == "amd64" or torch_release(torch).cuda_arm64:
        return []
    releases = map(torch_release, torch_versions())
    first = next(release.version for release in releases if release.pythons_arm64 and release.cuda_arm64)
    why = f"that wheel on the Python index has no CUDA; {first} and newer have it, stacks/versions/torch.toml"
    return [f"slipway:torch.version: torch {torch} does not use GPUs on {machine}: {why}"]


def wheel_glibc(torch: str, *, machine: Machine = "amd64") -> str:
    """Return the oldest glibc that torch's official wheels load on."""
    return str(_from_torch("glibc", torch)[machine])


def check_torch_cuda(
    torch: str, version: str, *, source: Literal["wheel", "build"], machine: Machine = "amd64"
) -> None:
    """Refuse a CUDA, by its full version, that torch does not go with.

    ``source`` is ``wheel`` for an official wheel, ``build`` for a compiled torch; builds are the same for all machines.

    Raises:
        Unverified: no wheel with this CUDA is known, but one with another.
        Incompatible: there are no such wheels, or such a build fails.
    """
    release, toolkit = torch_release(torch), cuda_release(version)
    if source == "wheel":
        _check_wheel(release, version, machine)
        return
    if order(toolkit.line) < order(release.cuda_min):
        why = f"is too old to build torch {torch} with"
        oldest = (f"{release.cuda_min} and newer",)
        raise Incompatible("cuda", version, why, oldest, f"Caffe2/public/cuda.cmake of torch {torch}")
    row = applying(table("cuda_torch")["first"], version)
    if order(final_version(torch)) < order(row["torch"]):
        why = f"is newer than torch {torch} builds with"
        raise Incompatible("cuda", version, why, _lines_before(release), row["source"])


def _check_wheel(release: TorchRelease, version: str, machine: Machine) -> None:
    published = release.cudas if machine == "amd64" else release.cudas_arm64
    if cuda_release(version).line in published:
        return
    if not published:
        first = next(torch for torch in torch_versions() if torch_release(torch).cudas_arm64)
        allowed = (f"{first} and newer", "source: build")
        why = f"has no official {machine} wheel with CUDA"
        raise Incompatible("torch.version", release.version, why, allowed, _MATRIX)
    wheel = "wheel" if machine == "amd64" else f"{machine} wheel"
    origin = applying(table("cuda_torch")["builds"], final_version(release.version)).get("source", _MATRIX)
    why, instead = (
        f"has no official {wheel} of torch {release.version}",
        "has one in PyTorch's index, or the build fails",
    )
    raise Unverified("cuda", version, why, published, origin, instead=instead, known=True)


def _lines_before(release: TorchRelease) -> tuple[str, ...]:
    """Return the CUDA lines that a torch builds with, with their limits: ``11.x``, ``12.x before 12.9``."""
    first, torch = table("cuda_torch")["first"], order(final_version(release.version))
    limit = next(row for row, needs in first.items() if order(needs["torch"]) > torch)
    majors = [row for row in first if order(release.cuda_min)[:1] <= order(row) < order(limit) and "." not in row]
    return tuple(f"{major}.x before {limit}" if limit.startswith(f"{major}.") else f"{major}.x" for major in majors)


def _from_torch(section: str, torch: str) -> Any:
    """Return the row of a section that applies to a torch. Rows apply from their torch on."""
    return applying(table("cuda_torch")[section], final_version(torch_release(torch).version))


def wheel_pins(torch: str, cuda_version: str) -> Mapping[str, str]:
    """Return the cuDNN and NCCL that torch's official wheel for a CUDA of PyTorch's index needs, as far as known."""
    pins: Mapping[str, str] = _from_torch("pins", torch).get(cuda_release(cuda_version).line, {})
    return pins


def wheel_abi(torch: str, cuda_version: str, *, machine: Machine) -> Literal["0", "1"]:
    """Return the C++ library's ABI (_GLIBCXX_USE_CXX11_ABI) of torch's official wheel for a CUDA."""
    return "1" if {machine, cuda_release(cuda_version).line} & {*_from_torch("abi", torch)} else "0"


def check_cudnn(torch: str, cudnn: str, *, cuda_version: str | None = None) -> None:
    """Refuse a cuDNN, by as much of its version as is known, that torch does not build with.

    ``cuda_version`` is the full one of the parent image that has this cuDNN, if the config names no cuDNN.

    Raises Incompatible: it is too old, or has dropped what this torch calls.
    """
    row = _from_torch("cudnn", torch)
    below = row.get("below")
    too_new = below is not None and order(cudnn) >= order(below)
    if too_new or older(cudnn, row["min"]):
        why = f"too {'new' if too_new else 'old'} to build torch {torch} with"
        allowed = (f"cuDNN {row['min']} and newer" + (f", before {below}" if below else ""),)
        source = f"Caffe2/public/cuda.cmake and ATen/cudnn/Descriptors.h of torch {torch}"
        if cuda_version is None:
            raise Incompatible("cudnn", cudnn, f"is {why}", allowed, source)
        raise Incompatible("cuda", cuda_version, f"comes with cuDNN {cudnn}, {why}", allowed, source)


def built_libraries(torch: str, cuda_version: str) -> dict[str, str]:
    """Return the wheels of NVIDIA's that a torch from source needs for a CUDA: ``{"cusparselt": "0.8.1"}``."""
    toolkit = cuda_release(cuda_version).line
    versions = {}
    for library, rows in _from_torch("libraries", torch).items():
        first = newest_from((row for row in rows if order(row)[0] == order(toolkit)[0]), toolkit)
        if first:
            versions[library] = rows[first]
    return versions


def published_features(torch: str, *, cuda: bool) -> tuple[str, ...]:
    """Return what torch's wheel for amd64 on the Python index has, as the check 12-features.py names it.

    A release without a row has that of the release before it of its line, or none. Without ``cuda``, what needs a GPU
    is left out.
    """
    rows, final = table("torch_features"), final_version(torch)
    row = newest_from((row for row in rows if line(row) == line(final)), final)
    return tuple(rows[row]["gpu"] * cuda + rows[row]["cpu"]) if row else ()


def gcc_min(torch: str) -> int:
    """Return the oldest major version of gcc that compiles torch."""
    return int(_from_torch("gcc", torch))


def constraints(torch: str) -> str:
    """Return pip's constraints for torch that its metadata lacks: ``numpy<2 setuptools<82``."""
    return " ".join(_from_torch("constraints", torch))


def check_audio_wheel(torch: str, audio: str, *, cuda_line: str | None = None) -> None:
    """Refuse a torchaudio without a wheel for torch's CUDA: one for another CUDA fails on import.

    Where torchaudio's metadata names one torch, the two are published for the same CUDA versions. ``cuda_line`` is the
    CUDA (major.minor) of the index that both come from; by default it is the Python index, with one of each.

    Raises Incompatible: there is no such wheel, or the two on the Python index were compiled with different CUDA
    versions.
    """
    amended = table("torch_amendments").get("audio", {}).get(audio, {})
    cuda = amended.get("cuda")
    if cuda is None:
        return
    source = "stacks/versions/torch_amendments.toml"
    if cuda_line is not None:
        built = torch_release(amended["built_with"]).cudas
        if cuda_line not in built:
            published = [line for line in built if line in torch_release(torch).cudas]
            allowed = [*(f"with CUDA {line}" for line in published), "false"]
            raise Incompatible("torch.audio", audio, f"has no wheel for CUDA {cuda_line}", allowed, source)
    elif torch_release(torch).cuda != cuda:
        allowed = [version for version in torch_versions() if torch_release(version).cuda == cuda]
        why = f"is compiled with CUDA {cuda} and torch {torch} with {torch_release(torch).cuda}; torch with that CUDA"
        raise Incompatible("torch.audio", audio, f"{why}, as published", allowed, source)
