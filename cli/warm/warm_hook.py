"""Chooses the caches that fit this machine, in an image with warm layers.

The image's Python runs it at each start, from 3.7 on. So it imports nothing that is not there anyway, and reads little.
Where no cache fits, it changes nothing. A variable that is set already stays.
"""

from __future__ import annotations

import os

ROOT = "/opt/slipway/warm"
"""The folder of the warm layers: each has a folder of its own in it, with a file ``fits`` and its caches."""

CACHES = {
    "inductor": "TORCHINDUCTOR_CACHE_DIR",  # torch/_inductor/runtime/cache_dir_utils.py
    "triton": "TRITON_CACHE_DIR",  # triton/runtime/cache.py
    "cuda": "CUDA_CACHE_PATH",  # CUDA C++ programming guide, environment variables
    "flashinfer": "FLASHINFER_WORKSPACE_BASE",  # flashinfer/jit/env.py
    "deepgemm": "DG_JIT_CACHE_DIR",  # DeepGEMM's README
}
"""The variable that names the folder of each kind of cache. cuDNN has none: it keeps its plans in memory."""

_X86 = (
    "3dnowprefetch abm adx aes amx avx bmi cldemote clflush clwb cmov cx16 cx8 enqcmd f16c fma fsgsbase gfni hle "
    "lahf_lm lzcnt mmx mov pclmulqdq pku pni popcnt prfchw ptwrite rdpid rdrnd rdrand rdseed rtm serialize sha sm3 sm4 "
    "sse ssse3 tbm uintr vaes vpclmulqdq waitpkg wbnoinvd xop xsave"
)
_ARM = (
    "aes asimd atomics bf16 bti crc32 dcpodp dgh dit ecv fcma flag fp frint i8mm ilrcpc jscvt lrcpc pac pmull rng sb "
    "sha sm3 sm4 sme ssbs sve uscat"
)
_COMPILED_FOR = tuple((_X86 + " " + _ARM).split())
"""How the features of a processor begin that a compiler may use for its own machine (`gcc -march=native`)."""


def _text(path: str, size: int) -> str:
    """Return the beginning of a file; empty if there is none. Of /proc/cpuinfo the whole takes long."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        return os.read(descriptor, size).decode("ascii", "replace")
    finally:
        os.close(descriptor)


def _values(text: str) -> dict[str, str]:
    """Return the values of a text of lines ``name: value``, the first of each name."""
    values: dict[str, str] = {}
    for line in text.splitlines():
        name, _, value = line.partition(":")
        values.setdefault(name.strip(), value.strip())
    return values


def _gpus() -> list[str]:
    """Return the models of the GPUs in this container, each once. A driver's /proc lists those of the whole machine."""
    models = set()
    root = "/proc/driver/nvidia/gpus"
    for name in os.listdir(root) if os.path.isdir(root) else ():
        values = _values(_text(os.path.join(root, name, "information"), 4096))
        if os.path.exists("/dev/nvidia" + values.get("Device Minor", "?")):
            models.add(values.get("Model", ""))
    return sorted(models)


def _driver() -> str:
    """Return the branch of NVIDIA's driver, which decides its CUDA, such as ``580``; empty if there is none."""
    for word in _text("/proc/driver/nvidia/version", 4096).split():
        branch, point, _ = word.partition(".")
        if point and branch.isdigit():
            return branch
    return ""


def _host() -> list[str]:
    """Return the lines of ``fits`` that must be equal."""
    models = _gpus()
    return ["gpu " + model for model in models] + (["driver " + _driver()] if models else [])


def _processor() -> list[str]:
    """Return the machine's architecture, and then those features of its processor that compilers use."""
    values = _values(_text("/proc/cpuinfo", 16384))
    features = values.get("flags", values.get("Features", "")).split()
    return [os.uname().machine] + sorted({word for word in features if word.startswith(_COMPILED_FOR)})


def machine() -> list[str]:
    """Return what compiled code depends on, as the lines of ``fits``."""
    return [*_host(), "processor " + " ".join(_processor())]


def fits(lines: list[str]) -> bool:
    """Return whether this machine runs what was compiled on one with these ``lines``: its processor may have more."""
    return lines[:-1] == _host() and set(lines[-1].split()[1:]) <= set(_processor())


def activate() -> None:
    """Set the variables of the first caches that fit, if this user may write there: a cache that is used grows."""
    for key in sorted(os.listdir(ROOT)) if os.path.isdir(ROOT) else ():
        folder = os.path.join(ROOT, key)
        caches = [name for name in CACHES if os.access(os.path.join(folder, name), os.W_OK | os.X_OK)]
        lines = _text(os.path.join(folder, "fits"), 16384).splitlines()
        if caches and lines and fits(lines):
            for name in caches:
                os.environ.setdefault(CACHES[name], os.path.join(folder, name))
            return


def safely() -> None:
    """Choose the caches. A fault here must not end a program that would run without them."""
    try:
        activate()
    except Exception:  # noqa: S110 - as above
        pass
