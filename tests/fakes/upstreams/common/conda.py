"""conda.py DIRECTORY: conda's channels, micromamba, and MAGMA as conda packages.

A package is called .tar.bz2, as the real ones are, and is not compressed. Python is Debian's own, made to run from anywhere, by the
versions that the stacks ask for.
"""

import re
import shutil
import sys
from pathlib import Path

from magma import magma, pack, run  # type: ignore[import-not-found]  # beside this program

HERE = Path(__file__).parent
MICROMAMBA = "2.8.1-0"
PYTHONS = ("3.8", "3.9", "3.12")
MAGMA = ("102", "113")
"""The CUDA versions whose MAGMA is a conda package."""

OURS = re.compile(r"lib(c|m|pthread|dl|rt|util)\.so|ld-linux|linux-vdso")


def relocatable(binary: Path, libraries: Path, runpath: str) -> None:
    """Have a program or library find what it is linked with in a folder beside it, where that is put."""
    for path in re.findall(r"=> (/\S+)", run("ldd", binary)):
        target = libraries / Path(path).name
        if not OURS.match(target.name) and not target.exists():
            shutil.copy(path, target)
            relocatable(target, libraries, "$ORIGIN")
    run("patchelf", "--force-rpath", "--set-rpath", runpath, binary)


def python(root: Path) -> None:
    """Python with headers, its library, and pip."""
    name = "python" + ".".join(map(str, sys.version_info[:2]))
    for folder in ("bin", "share"):
        (root / folder).mkdir(parents=True)
    shutil.copy(f"/usr/bin/{name}", root / "bin" / name)
    for alias in ("python", "python3", *(f"python{version}" for version in PYTHONS)):
        (root / "bin" / alias).symlink_to(name)
    library = root / "lib" / name
    unwanted = shutil.ignore_patterns("__pycache__", "EXTERNALLY-MANAGED", "test", "config-*")
    shutil.copytree(f"/usr/lib/{name}", library, ignore=unwanted)
    shutil.copytree(f"/usr/include/{name}", root / "include" / name)
    shutil.copy(f"/usr/include/x86_64-linux-gnu/{name}/pyconfig.h", root / "include" / name)
    shutil.copytree("/usr/share/python-wheels", root / "share/python-wheels")
    # Debian's own looks for packages in the second, which is in the interpreter itself.
    (library / "site-packages").mkdir(exist_ok=True)
    (library / "dist-packages").symlink_to("site-packages")
    run("sh", "-c", f"cd {library}/site-packages && python3 -m zipfile -e {root}/share/python-wheels/pip-*.whl .")
    pip = root / "bin/pip"
    pip.write_text('#!/bin/sh\nexec "$(dirname "$0")/python" -m pip "$@"\n')
    pip.chmod(0o755)
    # Where Debian's pip puts packages, and where its wheel is.
    for file, pattern, replacement in (
        ("sysconfig.py", r"'posix_local'\)", "'posix_prefix')"),
        ("sysconfig.py", "prefix_scheme = 'posix_local'", "prefix_scheme = 'posix_prefix'"),
        (
            "ensurepip/__init__.py",
            r"sysconfig\.get_config_var\('WHEEL_PKG_DIR'\)",
            "os.path.join(sys.base_prefix, 'share/python-wheels')",
        ),
    ):
        path = library / file
        text, count = re.subn(pattern, replacement, path.read_text())
        assert count, f"{file} has no {pattern}"
        path.write_text(text)
    relocatable(root / "bin" / name, root / "lib", "$ORIGIN/../lib")
    for module in (library / "lib-dynload").glob("*.so"):
        relocatable(module, root / "lib", "$ORIGIN/../..")


def tree(root: Path) -> None:
    """A small program, for people to ask for."""
    (root / "bin").mkdir(parents=True)
    (root / "bin/tree").write_text("#!/bin/sh\necho tree v2.1.1\n")
    (root / "bin/tree").chmod(0o755)


def channel(folder: Path, packages: dict[str, tuple[str, list[str]]]) -> None:
    """Write a channel's lists; `packages` maps a file to its name and version, and what it depends on."""
    lines = []
    for file, (name, depends) in packages.items():
        version = file.removesuffix("-0.tar.bz2").removeprefix(f"{name}-")
        needs = ", ".join(f'"{need}"' for need in depends)
        lines.append(f'"{file}": {{"name": "{name}", "version": "{version}", "depends": [{needs}]}}')
    for subdir, entries in (("linux-64", lines), ("noarch", [])):
        (folder / subdir).mkdir(parents=True, exist_ok=True)
        listed = ",\n".join(entries)
        (folder / subdir / "repodata.json").write_text(
            f'{{"info": {{"subdir": "{subdir}"}}, "packages": {{\n{listed}\n}}}}\n'
        )


def main() -> None:
    out, work = Path(sys.argv[1]), Path("/tmp/conda")
    target = out / "micromamba" / MICROMAMBA / "micromamba-linux-64"
    target.parent.mkdir(parents=True)
    shutil.copy(HERE / "micromamba", target)
    for make in (python, tree, magma):
        make(work / make.__name__)
    forge = out / "conda/conda-forge"
    packages: dict[str, tuple[str, list[str]]] = {}
    for version in PYTHONS:
        packages[f"python-{version}.99-0.tar.bz2"] = ("python", [])
        pack(work / "python", forge / f"linux-64/python-{version}.99-0.tar.bz2")
    (work / "nothing").mkdir()
    for name, root in (("pip", work / "nothing"), ("tree", work / "tree")):
        packages[f"{name}-2.1.1-0.tar.bz2"] = (name, ["python"] if name == "pip" else [])
        pack(root, forge / f"linux-64/{name}-2.1.1-0.tar.bz2")
    channel(forge, packages)
    pytorch, packages = out / "conda/pytorch", {}
    for cuda in MAGMA:
        name = f"magma-cuda{cuda}"
        packages[f"{name}-2.5.2-0.tar.bz2"] = (name, [])
        pack(work / "magma", pytorch / f"linux-64/{name}-2.5.2-0.tar.bz2")
    channel(pytorch, packages)


if __name__ == "__main__":
    main()
