"""archives.py DIRECTORY: EFA's installers, PMIx's and OpenMPI's archives, as small as can be.

The libraries are Debian's own libfabric, OpenMPI and PMIx, put where EFA's installer and these sources put theirs. Only the
plugin is none: it is linked with libfabric and hwloc, has the symbol that NCCL asks for, and says its version.
"""

import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

from tests.fakes.upstreams.common.debs import Repository

HERE = Path(__file__).parent
LIB = Path("/usr/lib/x86_64-linux-gnu")
INSTALLERS = {"1.29.0": None, "1.43.0": "1.16.1", "1.51.0": "1.22.0"}
"""Installer, and the plugin that it brings."""


def run(*command: object) -> str:
    return subprocess.run([str(part) for part in command], check=True, stdout=subprocess.PIPE, text=True).stdout


def depends(package: str) -> str:
    return run("dpkg-query", "-W", "-f", "${Depends}", package)


def below(folder: Path, place: str) -> tuple[dict[str, object], dict[str, str]]:
    """Return the files and the links of a folder, as they are to lie below a place."""
    files: dict[str, object] = {}
    links: dict[str, str] = {}
    for path in sorted(folder.rglob("*")):
        name = f"{place}/{path.relative_to(folder)}"
        if path.is_symlink():
            links[name] = str(path.readlink())
        elif path.is_file():
            files[name] = path
    return files, links


def pack(folder: Path, archive: Path) -> None:
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(archive, "w:gz", compresslevel=1) as made:  # the default takes four times as long
        made.add(folder, folder.name)


def openmpi(work: Path) -> Path:
    """Return Debian's OpenMPI for a prefix of its own, as the stand-in of HPC-X has it."""
    run("tar", "-xf", "/out/hpcx/hpcx.tbz", "-C", work)
    run("tar", "-xf", work / "hpcx-standin/sources/openmpi-gitclone.tar.gz", "-C", work)
    tree = work / "openmpi-gitclone/tree"
    for library in (tree / "lib").glob("libfabric*"):
        library.unlink()  # EFA's is to be found
    return tree


def libfabric(repository: Repository, version: str) -> None:
    fi_info = Path("/tmp/fi_info")
    shutil.copy("/usr/bin/fi_info", fi_info)
    run("patchelf", "--set-rpath", "/opt/amazon/efa/lib", fi_info)
    real = (LIB / "libfabric.so.1").resolve()
    repository.add(
        "libfabric1-aws",
        f"{version}-1",
        {"opt/amazon/efa/lib/libfabric.so.1": real, "etc/ld.so.conf.d/000_efa.conf": "/opt/amazon/efa/lib\n"},
        depends("libfabric1"),
        {"opt/amazon/efa/lib/libfabric.so": "libfabric.so.1"},
    )
    repository.add(
        "libfabric-aws-bin",
        f"{version}-1",
        {"opt/amazon/efa/bin/fi_info": fi_info},
        f"libfabric1-aws (= {version}-1)",
    )
    headers, _ = below(Path("/usr/include/rdma"), "opt/amazon/efa/include/rdma")
    repository.add("libfabric-aws-dev", f"{version}-1", headers, f"libfabric1-aws (= {version}-1)")


def plugin(repository: Repository, installer: str, version: str) -> None:
    made = Path("/tmp/plugin")
    shutil.rmtree(made, ignore_errors=True)
    folder = "lib" if tuple(map(int, installer.split("."))) >= (1, 44) else "lib/x86_64-linux-gnu"
    run("make", "-C", "/plugin", "install", f"VERSION={version}", f"DESTDIR={made}", f"LIBDIR=/{folder}", "FABRIC=/usr")
    files, links = below(made, "opt/amazon/ofi-nccl")
    files["etc/ld.so.conf.d/100_ofinccl.conf"] = f"/opt/amazon/ofi-nccl/{folder}\n"
    repository.add("libnccl-ofi", f"{version}-1", files, "libhwloc15, libfabric1-aws", links)


def installers(out: Path, tree: Path) -> None:
    for version, ofi in INSTALLERS.items():
        top = Path("/tmp/installer/aws-efa-installer")
        shutil.rmtree(top, ignore_errors=True)
        repository = Repository(top / "DEBS")
        libfabric(repository, version)
        repository.add("openmpi40-aws", "4.1.7-1", *_with_depends(*below(tree, "opt/amazon/openmpi")))
        if ofi:
            plugin(repository, version, ofi)
        script = (HERE / "efa_installer.sh").read_text().replace("@VERSION@", version)
        (top / "efa_installer.sh").write_text(script)
        (top / "efa_installer.sh").chmod(0o755)
        pack(top, out / f"efa/aws-efa-installer-{version}.tar.gz")


def _with_depends(files: dict[str, object], links: dict[str, str]) -> tuple[dict[str, object], str, dict[str, str]]:
    return files, "libc6, libfabric1-aws", links


def sources(out: Path, tree: Path) -> None:
    """PMIx 4.2.6 and OpenMPI 4.1.8: a configure that refuses what the real one would, and what make installs."""
    pmix = Path("/tmp/pmix-4.2.6")
    (pmix / "tree/lib").mkdir(parents=True)
    for name in ("libpmix.so.2", "libpmix.so"):
        shutil.copy(LIB / "pmix2/lib" / name, pmix / "tree/lib/", follow_symlinks=True)
    shutil.copytree(LIB / "pmix2/include", pmix / "tree/include")
    shutil.copy(HERE / "pmix-configure", pmix / "configure")
    pack(pmix, out / "pmix/v4.2.6/pmix-4.2.6.tar.gz")
    source = Path("/tmp/openmpi-4.1.8")
    source.mkdir()
    shutil.copytree(tree, source / "tree", symlinks=True)
    for pattern in ("libpmix*", "libevent*"):  # the ones outside are to be found
        for library in (source / "tree/lib").glob(pattern):
            library.unlink()
    shutil.copy(HERE / "openmpi-configure", source / "configure")
    pack(source, out / "openmpi/v4.1/openmpi-4.1.8.tar.gz")


def main() -> None:
    out, work = Path(sys.argv[1]), Path("/tmp/work")
    work.mkdir()
    tree = openmpi(work)
    installers(out, tree)
    sources(out, tree)


if __name__ == "__main__":
    main()
