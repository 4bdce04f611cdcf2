"""debs.py DIRECTORY: a repository with the packages of NVIDIA's that the Dockerfiles install, by NVIDIA's names.

The libraries are as small as can be, but they are libraries: they have the soname, the version that they answer with is
the package's, and a header goes with it.
"""

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

HERE = Path(__file__).parent
LIB = "usr/lib/x86_64-linux-gnu"
DISTROS = {"ubuntu1804": "3.6", "ubuntu2004": "3.8", "ubuntu2204": "3.10", "ubuntu2404": "3.12"}

OLD = ["50", "52", "60", "61", "62", "70", "72", "75", "80", "86", "87", "89", "90"]
KNOWN = {
    "10.2": ["35", "37", "50", "52", "60", "61", "62", "70", "72", "75"],
    "11.3": ["35", "37", "50", "52", "60", "61", "62", "70", "72", "75", "80", "86"],
    "11.8": [*["35", "37"], *OLD],
    "12.0": OLD,
    "12.1": OLD,
    "12.2": OLD,
    "12.8": [*OLD, *["100", "101", "120"]],
    "12.9": [*OLD, *["100", "101", "103", "120", "121"]],
    "13.0": ["75", "80", "86", "87", "88", "89", "90", "100", "103", "110", "120", "121"],
    "13.2": ["75", "80", "86", "87", "88", "89", "90", "100", "103", "110", "120", "121"],
}
"""CUDA, and the compute capabilities that its nvcc knows."""

NCCL = {"11.8": "2.16.2-1", "12.0": "2.18.3-1", "12.1": "2.18.3-1", "12.9": "2.30.4-1", "13.2": "2.30.4-1"}
MORE_NCCL = {"12.2": ["2.19.3-1"], "12.8": ["2.25.1-1"], "13.2": ["2.29.7-1", "2.32.3-1"]}
PARENTS_NCCL = "2.15.5-1"
CUDNN8, CUDNN9 = "8.9.0.131-1", ("9.20.0.48-1", "9.26.0.51-1", "9.28.0.42-1")


def run(*command: object) -> None:
    subprocess.run([str(part) for part in command], check=True)


class Repository:
    """Packages in the making."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def add(
        self,
        name: str,
        version: str,
        files: Mapping[str, object],
        depends: str = "",
        links: dict[str, str] | None = None,
    ) -> None:
        """Add a package; a file's content is text, another file, or a C library as (source, soname)."""
        root = Path("/tmp/package")
        shutil.rmtree(root, ignore_errors=True)
        for path, content in files.items():
            target = root / path
            target.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, tuple):
                source, soname = content
                Path("/tmp/library.c").write_text(source)
                run("gcc", "-shared", "-fPIC", "-O1", "-s", "-o", target, f"-Wl,-soname,{soname}", "/tmp/library.c")
            else:
                target.write_bytes(content.read_bytes() if isinstance(content, Path) else str(content).encode())
                target.chmod(0o755 if "/bin/" in path else 0o644)
        for path, to in (links or {}).items():
            target = root / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(to)
        control = (
            f"Package: {name}\nVersion: {version}\nArchitecture: amd64\nMaintainer: Slipway's tests <tests@localhost>\n"
        )
        control += "Description: stand-in\n" + (f"Depends: {depends}\n" if depends else "")
        (root / "DEBIAN").mkdir(parents=True)
        (root / "DEBIAN/control").write_text(control)
        if any(".so" in path for path in files):
            (root / "DEBIAN/triggers").write_text("activate-noawait ldconfig\n")
        run("dpkg-deb", "--root-owner-group", "-Znone", "--build", root, self.folder / f"{name}_{version}_amd64.deb")

    def index(self) -> None:
        """Write the list of packages."""
        entries = []
        for file in sorted(self.folder.glob("*.deb")):
            control = subprocess.run(["dpkg-deb", "-f", str(file)], check=True, capture_output=True, text=True).stdout
            digest = hashlib.sha256(file.read_bytes()).hexdigest()
            entries.append(f"{control}Filename: ./{file.name}\nSize: {file.stat().st_size}\nSHA256: {digest}\n")
        (self.folder / "Packages").write_text("\n".join(entries))


def cuda(repository: Repository, version: str) -> None:
    """The packages of one CUDA."""
    major, dashed, root = version.split(".", maxsplit=1)[0], version.replace(".", "-"), f"usr/local/cuda-{version}"
    runtime = {"10": "10.2", "11": "11.0"}.get(major, major)
    full = f"{version}.99-1"
    number = int(major) * 1000 + int(version.split(".")[1]) * 10
    repository.add(
        f"cuda-cudart-{dashed}",
        full,
        {
            f"{root}/lib64/libcudart.so.{runtime}": (
                f"int cudaRuntimeGetVersion(int *version) {{ *version = {number}; return 0; }}",
                f"libcudart.so.{runtime}",
            ),
            f"etc/ld.so.conf.d/cuda-{dashed}.conf": f"/{root}/lib64\n",
        },
    )
    repository.add(
        f"cuda-cudart-dev-{dashed}",
        full,
        {f"{root}/include/cuda_runtime.h": "extern int cudaRuntimeGetVersion(int *version);\n"},
        f"cuda-cudart-{dashed}",
        {f"{root}/lib64/libcudart.so": f"libcudart.so.{runtime}"},
    )
    repository.add(
        f"libcublas-{dashed}",
        full,
        {f"{root}/lib64/libcublas.so.{major}": ("int cublasGetVersion(void) { return 1; }", f"libcublas.so.{major}")},
        f"cuda-cudart-{dashed}",
    )
    repository.add(
        f"libcublas-dev-{dashed}",
        full,
        {f"{root}/include/cublas_v2.h": "extern int cublasGetVersion(void);\n"},
        f"libcublas-{dashed} (= {full})",
        {f"{root}/lib64/libcublas.so": f"libcublas.so.{major}"},
    )
    repository.add(
        f"cuda-driver-dev-{dashed}",
        full,
        {
            f"{root}/lib64/stubs/libcuda.so": (
                "int cuInit(unsigned flags) { (void)flags; return 34; }",
                "libcuda.so.1",
            ),
            f"{root}/include/cuda.h": "extern int cuInit(unsigned flags);\n",
        },
    )
    repository.add(
        f"cuda-nvml-dev-{dashed}",
        full,
        {
            f"{root}/lib64/stubs/libnvidia-ml.so": ("int nvmlInit_v2(void) { return 9; }", "libnvidia-ml.so.1"),
            f"{root}/include/nvml.h": "extern int nvmlInit_v2(void);\n",
        },
    )
    repository.add(f"cuda-nvrtc-dev-{dashed}", full, {f"{root}/include/nvrtc.h": "int nvrtcVersion(int *, int *);\n"})
    repository.add(f"libcurand-dev-{dashed}", full, {f"{root}/include/curand.h": "int curandGetVersion(int *);\n"})
    nvcc = (HERE / "nvcc").read_text().replace("@KNOWN@", " ".join(KNOWN[version])).replace("@CUDA@", version)
    repository.add(f"cuda-nvcc-{dashed}", full, {f"{root}/bin/nvcc": nvcc}, "python3, g++")
    repository.add(
        f"cuda-cuobjdump-{dashed}", full, {f"{root}/bin/cuobjdump": (HERE / "cuobjdump").read_text()}, "binutils"
    )
    for release in filter(None, (PARENTS_NCCL, NCCL.get(version), *MORE_NCCL.get(version, []))):
        nccl(repository, f"{release}+cuda{version}")
    repository.add(
        f"datacenter-gpu-manager-4-cuda{major}",
        "1:4.4.2-1",
        {"usr/bin/dcgmi": "#!/bin/sh\necho dcgmi version: 4.4.2\n"},
    )


def nccl(repository: Repository, version: str) -> None:
    """NCCL with its header; `version` is the package's."""
    major, minor, patch = version.split("-", maxsplit=1)[0].split(".")
    code = int(major) * 10000 + int(minor) * 100 + int(patch)
    header = "#pragma once\ntypedef enum { ncclSuccess = 0 } ncclResult_t;\n"
    header += f"#define NCCL_MAJOR {major}\n#define NCCL_MINOR {minor}\n#define NCCL_PATCH {patch}\n"
    header += f"#define NCCL_VERSION_CODE {code}\n"
    header += '#ifdef __cplusplus\nextern "C"\n#endif\nncclResult_t ncclGetVersion(int *version);\n'
    source = f"int ncclGetVersion(int *version) {{ *version = {code}; return 0; }}"
    repository.add("libnccl2", version, {f"{LIB}/libnccl.so.2": (source, "libnccl.so.2")})
    repository.add(
        "libnccl-dev",
        version,
        {"usr/include/nccl.h": header},
        f"libnccl2 (= {version})",
        {f"{LIB}/libnccl.so": "libnccl.so.2"},
    )


def cudnn(repository: Repository, runtime: str, dev: str, version: str) -> None:
    """CuDNN with its headers."""
    major, minor, patch = version.split(".")[:3]
    code = int(major) * (10000 if int(major) > 8 else 1000) + int(minor) * 100 + int(patch)
    source = f"unsigned long cudnnGetVersion(void) {{ return {code}; }}"
    libraries = {f"libcudnn.so.{major}": source}
    if major == "8":
        # It opens these while it runs.
        parts = (f"libcudnn_{part}_{half}.so.8" for part in ("ops", "cnn", "adv") for half in ("infer", "train"))
        libraries |= dict.fromkeys(parts, "")
    repository.add(runtime, version, {f"{LIB}/{name}": (text, name) for name, text in libraries.items()})
    headers = {
        "usr/include/cudnn_version.h": f"#define CUDNN_VERSION {code}\n",
        "usr/include/cudnn.h": '#ifdef __cplusplus\nextern "C"\n#endif\nunsigned long cudnnGetVersion(void);\n',
    }
    repository.add(
        dev, version, dict(headers), f"{runtime} (= {version})", {f"{LIB}/libcudnn.so": f"libcudnn.so.{major}"}
    )


def python(repository: Repository, version: str) -> None:
    """Debian's Python by the name of another distribution's, for the Dockerfiles that ask for that name."""
    name = f"python{version}"
    release = f"{version}.99-1"  # other packages break with early ones
    repository.add(name, release, {}, "python3", {f"usr/bin/{name}": "python3"})
    repository.add(f"{name}-venv", release, {}, f"{name}, python3-venv")
    repository.add(f"{name}-dev", release, {}, f"{name}, python3-dev")


def cmake(repository: Repository) -> None:
    """Ubuntu 20.04's CMake, in place of Debian's newer one: an epoch makes it the one that apt takes."""
    repository.add("cmake", "1:3.16.3-1ubuntu1", {"usr/bin/cmake": HERE / "cmake"})
    repository.index()


def main() -> None:
    """Make the repository once, under the name of each distribution."""
    top = Path(sys.argv[1], "compute/cuda/repos")
    first = Repository(top / next(iter(DISTROS)) / "x86_64")
    for version in KNOWN:
        cuda(first, version)
    cudnn(first, "libcudnn8", "libcudnn8-dev", CUDNN8)
    for major in ("12", "13"):
        for version in CUDNN9:
            cudnn(first, f"libcudnn9-cuda-{major}", f"libcudnn9-dev-cuda-{major}", version)
    for version in DISTROS.values():
        python(first, version)
    first.index()
    for distro in list(DISTROS)[1:]:
        shutil.copytree(first.folder, top / distro / "x86_64")
    cmake(Repository(top / "ubuntu2004/x86_64"))
    time_zones(Repository(top / "ubuntu2404/x86_64"))
    for distro in DISTROS:
        keyring(Repository(top / distro / "x86_64"))


def time_zones(repository: Repository) -> None:
    """Old names of time zones, which Ubuntu 24.04 has apart from the others and Debian 12 has among them."""
    repository.add("tzdata-legacy", "2026a-0", {"usr/share/doc/tzdata-legacy/README": "stand-in\n"}, "tzdata")
    repository.index()


def keyring(repository: Repository) -> None:
    """What adds the repository to an image; NVIDIA's has the key besides, as its packages are signed."""
    address = f"https://developer.download.nvidia.com/compute/cuda/repos/{repository.folder.parent.name}/x86_64"
    repository.add("cuda-keyring", "1.1-1", {"etc/apt/sources.list.d/cuda.list": f"deb [trusted=yes] {address} /\n"})
    # Its name has no architecture: it is fetched by its address.
    made = repository.folder / "cuda-keyring_1.1-1_amd64.deb"
    made.rename(made.with_name("cuda-keyring_1.1-1_all.deb"))


if __name__ == "__main__":
    main()
