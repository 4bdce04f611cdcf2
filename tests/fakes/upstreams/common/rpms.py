"""rpms.py DIRECTORY NVIDIA: the archives of Rocky Linux, UBI and NVIDIA, of signed packages with lists made by createrepo.

Below `later/` are Rocky's and NVIDIA's as they are another day, with newer packages of each.
A package is Debian's, or one of debs.py's in the folder NVIDIA, under the name that it has on Rocky. Its files are where Debian has them.
"""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

ROCKY = {
    "BaseOS": ["bzip2", "findutils", "less", "make", "passwd", "sudo", "tzdata"],
    "AppStream": ["g++", "gcc", "git", "libjpeg62-turbo-dev", "libpng-dev"],
}
"""What is asked of Rocky's repositories, by the packages' names on Debian; what they need goes with them."""

NAMES = {
    "g++": "gcc-c++",
    "libjpeg62-turbo": "libjpeg-turbo",
    "libjpeg62-turbo-dev": "libjpeg-turbo-devel",
    "libnccl2": "libnccl",
    "libpng16-16": "libpng",
    "passwd": "shadow-utils",
}
LINKS = {"gcc": {"usr/bin/cc": "gcc"}, "gcc-c++": {"usr/bin/c++": "g++"}}
"""What Debian's packages make when they are installed."""

NVIDIA = re.compile(r"(cuda-.*|libcublas.*)-11-3_.*|libcudnn8.*|libnccl.*cuda11\.3_.*")
RELEASES = ("8", "9")
LATER = {"BaseOS": ("glibc", "2.36-2", "Provides: /sbin/ldconfig"), "cuda": ("cuda-cudart-11-3", "11.3.999-1")}
"""What has come by another day: a name, a version and further lines."""

TRUST = """#!/bin/sh
cat /etc/pki/ca-trust/source/pem/* /etc/pki/ca-trust/source/anchors/* > /etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem
"""


def run(*command: object) -> str:
    return subprocess.run([str(part) for part in command], check=True, capture_output=True, text=True).stdout


def rocky(name: str) -> str:
    """Return what a package of Debian's is called."""
    return NAMES.get(name) or re.sub(r"-dev(-|$)", r"-devel\1", name)


def package(folder: Path, name: str, version: str, tree: Path, *relations: str) -> None:
    """Make a package with the files of a folder; `version` is Debian's, as in 1:2.3-4, `relations` are lines of its specification."""
    epoch, _, full = version.rpartition(":")
    number, _, release = full.rpartition("-")
    files = [f"/{path.relative_to(tree)}" for path in tree.rglob("*") if path.is_symlink() or not path.is_dir()]
    spec = Path("/tmp/package.spec")
    spec.write_text(
        f"Name: {name}\nVersion: {(number or release).replace('-', '.')}\nRelease: {release if number else 1}\n"
        + (f"Epoch: {epoch}\n" if epoch else "")
        + "Summary: Stand-in\nLicense: as on Debian\nAutoReqProv: no\n"
        + "".join(f"{relation}\n" for relation in relations)
        + "%description\nStand-in.\n"
        + f"%install\ncp -a {tree}/. %{{buildroot}}/\n"
        + ("%post -p /sbin/ldconfig\n" if any(".so" in file for file in files) else "")
        + "%files\n"
        + "".join(f'"{file}"\n' for file in sorted(files))
    )
    macros = {"_rpmdir": folder, "_rpmfilename": "%{NAME}-%{VERSION}-%{RELEASE}.rpm", "_binary_payload": "w1.zstdio"}
    macros |= {"__os_install_post": "%{nil}", "debug_package": "%{nil}", "_build_id_links": "none"}
    run("rpmbuild", "-bb", "--quiet", *(f"--define={name} {value}" for name, value in macros.items()), spec)


def convert(deb: Path, folder: Path, made: Iterable[str]) -> None:
    """Make a package of one of Debian's, which needs those of its own that are `made` as well."""
    name, version = run("dpkg-deb", "-f", deb, "Package").strip(), run("dpkg-deb", "-f", deb, "Version").strip()
    tree = Path("/tmp/tree")
    shutil.rmtree(tree, ignore_errors=True)
    run("dpkg-deb", "-x", deb, tree)
    for merged in ("bin", "lib", "lib64", "sbin"):
        if (tree / merged).is_dir():
            shutil.copytree(tree / merged, tree / "usr" / merged, symlinks=True, dirs_exist_ok=True)
            shutil.rmtree(tree / merged)
    for unwanted in ("doc", "info", "lintian", "locale", "man"):
        shutil.rmtree(tree / "usr/share" / unwanted, ignore_errors=True)
    for link, target in LINKS.get(rocky(name), {}).items():
        (tree / link).symlink_to(target)
    depends = run("dpkg-deb", "-f", deb, "Depends")
    needs = [
        f"Requires: {rocky(need)}" + (f" = {exactly}" if exactly else "")
        for need, exactly in re.findall(r"([a-z0-9.+-]+)(?:\:\w+)?(?: \((?:= ([^)]*)|[^)]*)\))?", depends)
        if need in made
    ]
    package(folder, rocky(name), version, tree, *needs)


def names(debs: Iterable[Path]) -> Mapping[str, Path]:
    return {run("dpkg-deb", "-f", deb, "Package").strip(): deb for deb in debs}


def download(asked: Iterable[str]) -> Mapping[str, Path]:
    """Return Debian's packages of these names, and of what they need that is not there, by their names."""
    cache = Path("/var/cache/apt/archives")
    for old in cache.glob("*.deb"):
        old.unlink()
    run("apt-get", "install", "-q", "-y", "--no-install-recommends", "--download-only", "--reinstall", *asked)
    return names(cache.glob("*.deb"))


def trust(folder: Path) -> None:
    """Red Hat's root certificates: where they are, and what puts them together."""
    tree = Path("/tmp/tree")
    shutil.rmtree(tree, ignore_errors=True)
    for place in (
        "usr/bin",
        "etc/pki/ca-trust/source/anchors",
        "etc/pki/ca-trust/source/pem",
        "etc/pki/ca-trust/extracted/pem",
    ):
        (tree / place).mkdir(parents=True)
    program = tree / "usr/bin/update-ca-trust"
    program.write_text(TRUST)
    program.chmod(0o755)
    shutil.copy("/etc/ssl/certs/ca-certificates.crt", tree / "etc/pki/ca-trust/source/pem/roots.pem")
    (tree / "etc/pki/ca-trust/source/anchors/README").write_text("# Certificates that this machine trusts besides.\n")
    shutil.copy("/etc/ssl/certs/ca-certificates.crt", tree / "etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem")
    package(folder, "ca-certificates", "2026.1-1", tree)


def main() -> None:
    out, nvidia = Path(sys.argv[1]), Path(sys.argv[2])
    run("gpg", "--batch", "--passphrase", "", "--quick-generate-key", "tests", "rsa2048", "sign", "never")
    work = Path("/tmp/repositories")
    for repository, asked in ROCKY.items():
        folder = work / repository
        folder.mkdir(parents=True)
        debs = download(asked)
        for deb in debs.values():
            convert(deb, folder, debs)
    trust(work / "BaseOS")
    empty = Path("/tmp/empty")
    empty.mkdir()
    package(work / "BaseOS", "glibc", "2.36-1", empty, "Provides: /sbin/ldconfig")
    cuda = work / "cuda"
    cuda.mkdir()
    ours = [deb for deb in sorted(nvidia.rglob("ubuntu2004/x86_64/*.deb")) if NVIDIA.fullmatch(deb.name)]
    for deb in ours:
        convert(deb, cuda, [*names(ours), "g++"])
    sign(*work.rglob("*.rpm"))
    # One that nobody has signed, for dnf to refuse.
    package(work / "BaseOS", "unsigned", "1-1", empty)
    publish(work, out)
    for release in RELEASES:
        for repository in ROCKY:
            ubi = out / f"ubi/content/public/ubi/dist/ubi{release}/{release}/x86_64/{repository.lower()}/os"
            shutil.copytree(work / repository, ubi, copy_function=link)
    for repository, (name, version, *lines) in LATER.items():
        package(work / repository, name, version, empty, *lines)
        sign(work / repository / f"{name}-{version}.rpm")
    publish(work, out / "later")
    (out / "key").write_text(run("gpg", "--armor", "--export", "tests"))


def sign(*packages: Path) -> None:
    run("rpmsign", "--addsign", "--define=_gpg_name tests", "--define=__gpg /usr/bin/gpg", *sorted(packages))


def publish(work: Path, out: Path) -> None:
    """Make the lists of all repositories, and put Rocky's and NVIDIA's where their archives have them."""
    for folder in work.iterdir():
        run("createrepo_c", "--quiet", folder)
    for release in RELEASES:
        for repository in ROCKY:
            place = out / f"rocky/pub/rocky/{release}/{repository}/x86_64/os"
            shutil.copytree(work / repository, place, copy_function=link)
        shutil.copytree(work / "cuda", out / f"nvidia/compute/cuda/repos/rhel{release}/x86_64", copy_function=link)


def link(source: str, target: str) -> None:
    Path(target).hardlink_to(source)


if __name__ == "__main__":
    main()
