"""torch's headers, and what compiles extensions, out of its wheel: without the gigabytes of libraries that importing it takes."""

from __future__ import annotations

import subprocess
import zipfile
from pathlib import Path

PARTS = (
    "torch/include/",
    "torch/_appdirs.py",
    "torch/_vendor/",
    "torch/torch_version.py",
    "torch/utils/_cpp_extension_versioner.py",
    "torch/utils/cpp_extension.py",
    "torch/utils/file_baton.py",
    "torch/utils/hipify/",
    "torch/version.py",
)
LIBRARIES = ("c10", "c10_cuda", "torch", "torch_cpu", "torch_cuda", "torch_python")

STANDINS = {
    "__init__.py": """
from torch import version
from torch.torch_version import __version__

class cuda:
    is_available = is_initialized = staticmethod(lambda: False)
    _is_compiled = staticmethod(lambda: True)

    class nccl:
        version = staticmethod(lambda: (2, 30, 7))

class _C:
    _GLIBCXX_USE_CXX11_ABI = True

class _Anything:
    def __getattr__(self, name):
        return _Anything()

    def __call__(self, *args, **options):
        return _Anything()

def compiled_with_cxx11_abi():
    return True

def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return _Anything()
""",
    "_utils_internal.py": """
from pathlib import Path

def get_file_path(*parts):
    return str(Path(__file__).parent.joinpath(*parts[1:]))
""",
    "utils/__init__.py": "",
    "utils/_filelock.py": """
from contextlib import nullcontext

def FileLock(*args, **options):
    return nullcontext()
""",
}


def install(wheel: Path, site: Path) -> None:
    """Put them into a folder of Python packages. The libraries are empty: extensions are linked with them, and not loaded."""
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if name.startswith(PARTS) or ".dist-info/" in name]
        archive.extractall(site, names)
    for name, text in STANDINS.items():
        (site / "torch" / name).write_text(text)
    make_libraries(site / "torch/lib", LIBRARIES)


def make_libraries(folder: Path, names: tuple[str, ...]) -> None:
    """Make empty shared libraries."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        subprocess.run(["gcc", "-shared", "-x", "c", "/dev/null", "-o", folder / f"lib{name}.so"], check=True)
