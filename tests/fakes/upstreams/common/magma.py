"""magma.py DIRECTORY: MAGMA as PyTorch's archives. What is in it is one function that says its name."""

import subprocess
import sys
import tarfile
from pathlib import Path

ARCHIVES = {"129": "2.6.1-1", "132": "2.6.1-1"}
"""CUDA, and the version in the archive's name."""


def run(*command: object) -> str:
    return subprocess.run([str(part) for part in command], check=True, capture_output=True, text=True).stdout


def magma(root: Path) -> None:
    """MAGMA, a static library with its header."""
    (root / "include").mkdir(parents=True)
    (root / "lib").mkdir()
    (root / "include/magma_v2.h").write_text("extern const char *magma_dgetrf_gpu(void);\n")
    source = root / "magma.c"
    source.write_text("const char *magma_dgetrf_gpu(void) { return __func__; }\n")
    run("gcc", "-O1", "-fPIC", "-c", source, "-o", root / "magma.o")
    run("ar", "rc", root / "lib/libmagma.a", root / "magma.o")
    source.unlink()
    (root / "magma.o").unlink()


def pack(root: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(target, "w:bz2" if "archives" in target.parts else "w") as archive:
        for path in sorted(root.iterdir()):
            archive.add(path, path.name)


def main() -> None:
    out, work = Path(sys.argv[1]), Path("/tmp/magma")
    magma(work)
    for cuda, version in ARCHIVES.items():
        pack(work, out / f"archives/magma-cuda{cuda}-{version}.tar.bz2")


if __name__ == "__main__":
    main()
