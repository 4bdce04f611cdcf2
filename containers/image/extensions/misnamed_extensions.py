"""Files under the name of an extension of Python that are none: text, nothing, an object file, a program.

Python imports the first file of a module in the order of `importlib.machinery.EXTENSION_SUFFIXES`, and a package before
all of them (python/cpython v3.11.9, Lib/importlib/_bootstrap_external.py, `FileFinder.find_spec`). Only names count
that nothing else has: a text named `libc.so` may be a linker script.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from containers.image.binaries.contents import Contents
from containers.image.binaries.elf_file import AARCH64, ARM, I386, MAGIC, X86_64, ElfMachine

_EXTENSION: Final = re.compile(
    r"(?P<module>(?:.*/)?(?P<name>[^/.]+))\.(?:abi3|cpython-3(?P<minor>\d+)(?P<flags>[mt]?)-(?P<platform>[^/.]+))\.so"
)
_FOLDER: Final = re.compile(
    r".*?lib(?:64)?/python3(?:\.(?P<minor>\d+))?(?P<flags>t?)/(?:site-packages|dist-packages|lib-dynload)/.*"
)
_ASIDE: Final = re.compile(r"(^|/)(tests?|testing|testdata|test_data|[.]cache|pkgs)/")
"""Folders of data for tests, and of caches: uv's and conda's."""
_MOUNTED: Final = re.compile(r".*/(?:[^/]*nvidia[^/]*[.]so[^/]*|tegra/.*)")
"""Where NVIDIA's container toolkit mounts a host's files, and leaves empty ones behind in what is committed then
(NVIDIA/libnvidia-container#140). It mounts each library of a driver's release, and on a Jetson what its lists name
(NVIDIA/nvidia-container-toolkit 082cc39, pkg/nvcdi/driver-nvml.go, `getVersionLibs`; 02174f0,
internal/discover/graphics.go, `newGraphicsLibrariesDiscoverer`)."""
_PYTHON: Final = re.compile(r"(?:.*/)?bin/python3\.(?P<minor>\d+)")
_PLATFORMS: Final[Mapping[ElfMachine, str]] = {X86_64: "x86_64-", AARCH64: "aarch64-", I386: "i386-", ARM: "arm-"}
"""How the platform in an extension's name begins (python/cpython v3.11.9, configure.ac, `PLATFORM_TRIPLET`)."""


class Misnamed(NamedTuple):
    """A file that Python takes for an extension and cannot load, with the reason."""

    path: str
    reason: str


def misnamed(contents: Contents, machine: ElfMachine) -> Iterator[Misnamed]:
    """Yield the files that Python for a machine fails to import."""
    no_libraries = (
        path
        for path, binary in contents.binaries.items()
        if binary.kind != "library" and not binary.problem and path.endswith(".so")
    )
    for path in sorted([*contents.not_elf, *no_libraries]):
        match = _EXTENSION.fullmatch(path)
        if match and (reason := _reason(contents, path, match)) and _is_imported(contents, machine, match):
            yield Misnamed(path, reason)


def too_short(contents: Contents) -> Iterator[tuple[str, int]]:
    """Yield the libraries that have fewer bytes than the first four of an ELF file, with their sizes in bytes.

    Those in Python's folders may be for anybody, and count where Python imports them: see :func:`misnamed`.
    Source: bminor/glibc glibc-2.36, elf/dl-load.c (`open_verify`, "file too short").
    """
    for path, file in sorted(contents.not_elf.items()):
        is_python_s = _EXTENSION.fullmatch(path) or _FOLDER.fullmatch(path)
        is_mounted = not file.size and _MOUNTED.fullmatch(f"/{path}")
        if file.size < len(MAGIC) and not is_python_s and not is_mounted and not _ASIDE.search(path):
            yield path, file.size


def named_for(path: str, machine: ElfMachine) -> bool:
    """Return whether the name of an extension says that it is for a machine."""
    match, platform = _EXTENSION.fullmatch(path), _PLATFORMS.get(machine)
    return bool(match and platform and (match["platform"] or "").startswith(platform))


def _is_imported(contents: Contents, machine: ElfMachine, match: re.Match[str]) -> bool:
    """Return whether a Python of the image takes a file for its module."""
    module, folder = match["module"], _FOLDER.fullmatch(match[0])
    package = f"{module}/__init__."
    if _ASIDE.search(match[0]) or any(contents.tree.find(f"{package}{kind}") for kind in ("py", "pyc")):
        return False
    if any(path.startswith(package) for path in contents.binaries):
        return False
    if folder is None:
        roots = [contents.folder, *contents.folders("PYTHONPATH")]
        found = any(root.strip("/") and f"/{module}".startswith(f"/{root.strip('/')}/") for root in roots)
        return found and named_for(match[0], machine) and not match["flags"] and match["minor"] in _minors(contents)
    if match["platform"]:
        if folder["minor"] is None:  # Debian's, of all its releases
            same = match["minor"] in _minors(contents)
        else:
            same = (match["minor"], match["flags"].replace("m", "")) == (folder["minor"], folder["flags"])
        return same and named_for(match[0], machine)
    preferred = (path for path in (*contents.binaries, *contents.not_elf) if path.startswith(f"{module}.cpython-3"))
    return not folder["flags"] and not any(preferred)  # without its lock, Python passes over `abi3`


def _minors(contents: Contents) -> set[str]:
    """Return the releases of Python 3 in the image."""
    return {match["minor"] for path in contents.binaries if (match := _PYTHON.fullmatch(path))}


def _reason(contents: Contents, path: str, match: re.Match[str]) -> str:
    if (text := contents.not_elf.get(path)) is not None:
        return "it is no ELF file" if text.size else "it is empty"
    binary = contents.binaries[path]
    if binary.kind != "program":
        return "it is an object file" if binary.kind == "other" else "it has no dynamic segment"
    # An extension that can be run has an interpreter too.
    return "" if binary.is_module(match["name"]) else "it is a program"
