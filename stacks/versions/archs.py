"""Lists of compute capabilities: as stacks write them, and the defaults by profile."""

from __future__ import annotations

import re
from typing import NamedTuple

from containers.image.gpu.release_order import order
from stacks.versions.cuda_toolkit import CudaRelease, Machine, cuda_release
from stacks.versions.incompatible import Incompatible, row
from stacks.versions.pytorch import torch_release
from stacks.versions.tables import applying, table

_SEPARATORS = re.compile(r"[\s,;]+")
_TOKEN = re.compile(
    r"(?:(?P<dotted>\d{1,2}\.\d)|(?:sm_?)?(?P<digits>[2-9]\d|1\d\d))(?P<feature>[af])?(?P<ptx>\+ptx)?",
    re.ASCII | re.IGNORECASE,
)
_NAMES = "TORCH_CUDA_ARCH_LIST as torch reads it, torch/utils/cpp_extension.py"
_WRITTEN = "capabilities such as 8.0, 9.0a, 8.6+PTX, sm_90 or Hopper, separated by spaces, commas or semicolons"


class Arch(NamedTuple):
    """One compute capability: ``9.0``, ``9.0a``, and whether its PTX is kept as well (``+PTX``)."""

    name: str
    ptx: bool

    def __str__(self) -> str:
        return f"{self.name}+PTX" if self.ptx else self.name


def parse_archs(text: str, *, field: str = "archs") -> tuple[Arch, ...]:
    """Return the capabilities that ``text`` names, oldest first and each once, whether or not any CUDA compiles them.

    Raises Incompatible: something in it is not a capability, or is a name for several.
    """
    tokens = [token for token in _SEPARATORS.split(text) if token]
    if not tokens:
        raise Incompatible(field, text, "names no compute capability", (_WRITTEN,), _NAMES)
    with_ptx: dict[str, bool] = {}
    for token in tokens:
        arch = _parse_token(token, field)
        with_ptx[arch.name] = with_ptx.get(arch.name, False) or arch.ptx
    return tuple(Arch(name, with_ptx[name]) for name in sorted(with_ptx, key=lambda name: (order(name), name)))


def _parse_token(token: str, field: str) -> Arch:
    match = _TOKEN.fullmatch(token)
    if match:
        digits = match["digits"]
        number = match["dotted"] or f"{digits[:-1]}.{digits[-1]}"
        return Arch(number + (match["feature"] or "").lower(), ptx=bool(match["ptx"]))
    names, ambiguous = table("cuda")["name"], table("cuda")["ambiguous"]
    name = token.lower().removesuffix("+ptx")
    if name in ambiguous:
        meant = tuple(ambiguous[name].split())
        raise Incompatible(field, token, "stands for more than one compute capability", meant, _NAMES)
    if name in names:
        return _parse_token(names[name], field)
    raise Incompatible(field, token, "is not a compute capability", (_WRITTEN,), _NAMES)


def arch_list(text: str, version: str, *, torch: str | None = None, field: str = "archs") -> str:
    """Return ``text`` in canonical form: ``8.0 8.6 9.0+PTX``, single spaces, oldest first, each once.

    It may have spaces, commas or semicolons, and ``8.6``, ``86``, ``sm_86``, ``8.6+PTX``, ``Hopper``. ``version`` is
    the full CUDA version that is to compile for them. ``torch`` is given if its build of extensions has to know them
    too. ``field`` is the list's key, for errors.

    Raises Incompatible: unreadable, or not compiled by this CUDA, or not known to this torch.
    """
    release = cuda_release(version)
    archs = parse_archs(text, field=field)
    for arch in archs:
        _check_arch(arch, release, torch, field)
    return " ".join(map(str, archs))


def _check_arch(arch: Arch, release: CudaRelease, torch: str | None, field: str) -> None:
    if arch.name not in release.archs:
        why = f"cannot be compiled by CUDA {release.version}"
        raise Incompatible(field, arch.name, why, _alike(arch, release.archs), release.archs_source)
    if torch is None:
        return
    known = tuple(name for name in torch_release(torch).archs if name in release.archs)
    if arch.name not in known:
        why = f"is not known to torch {torch}, whose extensions could not be built"
        source = f"torch/utils/cpp_extension.py of torch {torch}"
        raise Incompatible(field, arch.name, why, _alike(arch, known), source)


def _alike(arch: Arch, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names with the same feature suffix (``a``, ``f`` or none), or all names if none has it."""
    suffix = arch.name.lstrip("0123456789.")
    return tuple(name for name in names if name.lstrip("0123456789.") == suffix) or names


def default_archs(profile: str, version: str, *, torch: str | None = None, machine: Machine = "amd64") -> str:
    """Return a profile's default list for a CUDA version, in canonical form.

    Capabilities that this CUDA does not compile, or this torch does not know, are left out. ``+PTX`` moves
    to the newest remaining one.

    Raises Incompatible: no such profile, or this CUDA compiles nothing in its list.
    """
    lists = row(table("archs"), profile, "archList", "is not a profile", "stacks/versions/archs.toml")
    release = cuda_release(version)
    preferred_lists = applying({each["cuda"]: each for each in lists}, version)
    preferred = parse_archs(preferred_lists.get(machine, preferred_lists["amd64"]), field="archList")
    supported = set(release.archs) & set(torch_release(torch).archs if torch else release.archs)
    names = [arch.name for arch in preferred if arch.name in supported]
    if not names:
        why = f"has nothing that CUDA {version} compiles"
        raise Incompatible("archList", profile, why, _alike(preferred[0], release.archs), release.archs_source)
    ptx = "+PTX" if any(arch.ptx for arch in preferred) else ""
    return " ".join(names) + ptx


def capability(name: str) -> str:
    """Return the compute capability of a GPU, ``9.0`` of ``H100``; a capability, or ``sm_90``, stands for itself.

    Raises Incompatible: no such GPU is in the table.
    """
    if match := re.fullmatch(r"(?:sm_)?(\d+)\.?(\d)", name):
        return f"{match[1]}.{match[2]}"
    source = "NVIDIA's list of CUDA GPUs, stacks/versions/gpus.toml"
    names = {known.lower(): value for known, value in table("gpus")["gpu"].items()}
    if name.lower() in names:
        return str(names[name.lower()])
    return str(row(table("gpus")["gpu"], name, "--gpu", "is no known GPU; a compute capability works too", source))
