"""The compiler cache with NVIDIA's nvcc, DeepSpeed's kernels and torch's headers, under two Pythons and in two folders."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.fakes.compiler_storage import storage
from tests.helpers.compiler_calls import compiler_calls
from tests.helpers.machine_programs import have
from tests.helpers.needs import mounting
from tests.helpers.torch_headers import install, make_libraries
from tests.images.engine import DOCKERFILES

pytestmark = pytest.mark.slow  # a gigabyte of wheels, and minutes of nvcc

TORCH, DEEPSPEED = "2.14.0", "0.19.7"
TOOLKIT = "cuda-toolkit[cccl,cublas,crt,cudart,curand,cusolver,cusparse,nvcc,nvvm,profiler]==13.0.3"
READER = "nvidia-cuda-cuobjdump==13.2.78"  # CUDA 13.0 has no wheel of it
OP = "transformer_inference"
"""Nine kernels, which include nothing of torch, and a binding, which includes Python.h."""

LIBRARIES = ("cublas", "cublasLt", "cudart", "curand", "cusolver", "cusparse", "nvrtc")
REQUIREMENTS = (
    "cmake<4",
    "ninja",
    "numpy",
    "packaging",
    "psutil",
    "py-cpuinfo",
    "pydantic",
    "setuptools<82",
    "typing_extensions",
    "wheel",
)

CONTAINER = """
mkdir -p /root/.cache
for folder in /srv /mnt /opt /root/.cache; do mount -t tmpfs none $folder; done
mkdir /srv/layers /srv/build /opt/venv
mount --bind "$DOCKERFILES/common/layers" /srv/layers
mount --bind "$DOCKERFILES/common/build" /srv/build
cp -r "$DOCKERFILES"/wheels/. /mnt
mount --bind "$VENV" /opt/venv
export CCACHE_STATSLOG=/srv/statslog
"""
"""What the image has around `build`, in a mount namespace. The local cache is empty."""

BUILD = '/mnt/build "$SOURCE" "$SOURCE/dist" > "$LOG" 2>&1 || { tail -n 50 "$LOG" >&2; exit 1; }; cat /srv/statslog'

KERNEL = """
#ifndef __CUDA_ARCH__
#include "host.h"
#elif __CUDA_ARCH__ >= 900
#include "newer.h"
#else
#define NUMBER 0
#endif
__global__ void kernel(int *numbers) { numbers[0] = NUMBER + 1; }
#ifndef __CUDA_ARCH__
int number() { return NUMBER; }
#endif
"""
CALL = '. /mnt/compiler-cache; cd "$SOURCE"; $PYTORCH_NVCC $FLAGS -c "$SOURCE/kernel.cu" -o "$SOURCE/kernel.o"; cat /srv/statslog'
FLAGS = "-gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=sm_90"


@dataclass(frozen=True)
class Machine:
    """What compiles: a toolkit, an environment for each of two Pythons, and a remote cache."""

    folder: Path
    remote: str

    @property
    def cuda(self) -> Path:
        return self.folder / "cuda"

    def calls(self, script: str, source: Path, python: int = 0, **more: str) -> list[tuple[str, bool]]:
        """Run a script as in the image, by default with the first Python, and return the calls of compilers."""
        environment = {
            "PATH": f"/opt/venv/bin:{self.cuda}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "DOCKERFILES": str(DOCKERFILES), "VENV": str(self.folder / f"venv{python}"), "VIRTUAL_ENV": "/opt/venv",
            "SOURCE": str(source), "LOG": str(source.with_suffix(".log")), "CUDA_HOME": str(self.cuda), "CCACHE_REMOTE": self.remote,
            "COMPONENT": "deepspeed", "VERSION": DEEPSPEED, "DEEPSPEED_OPS": OP, "ARCH_LIST": "8.0 9.0", "VARIANT": "base", "CLEAN": "",
            **more,
        }  # fmt: skip
        command = [*mounting(), "sh", "-euc", CONTAINER + script, "/mnt/build"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-4000:]
        return compiler_calls(done.stdout)


def pip(*arguments: str | Path, python: str | Path = sys.executable) -> None:
    subprocess.run([python, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments], check=True)


def pythons() -> list[Path]:
    """Return two interpreters of other versions whose C++ flags are the same: 3.12 and later are built with others."""
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    installed = [next(root.glob(f"versions/3.{minor}.*/bin/python"), None) for minor in (10, 11)]
    assert all(installed), f"two Pythons are needed, 3.10 and 3.11 of pyenv in {root}; `pyenv install 3.10 3.11`"
    return [path for path in installed if path]


def install_toolkit(wheels: Path, folder: Path) -> None:
    """Unpack NVIDIA's wheels, but for their libraries, of which there are empty ones."""
    pip("download", f"--dest={wheels}", TOOLKIT, READER)
    for wheel in wheels.glob("nvidia_*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                place = Path(*Path(name).parts[2:])
                kept = name.startswith("nvidia/cu13/") and (".so" not in name or "nvvm" in name)
                if kept and not name.endswith("/"):
                    (folder / place).parent.mkdir(parents=True, exist_ok=True)
                    (folder / place).write_bytes(archive.read(name))
        wheel.unlink()
    for program in (*folder.glob("bin/*"), *folder.glob("nvvm/bin/*")):
        program.chmod(0o755)
    make_libraries(folder / "lib", LIBRARIES)
    (folder / "lib64").symlink_to("lib")


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    folder = tmp_path_factory.mktemp("compilers")
    have("ccache")
    install_toolkit(folder / "wheels", folder / "cuda")
    pip(
        "download",
        "--no-deps",
        "--only-binary=:all:",
        "--python-version=3.11",
        f"--dest={folder / 'wheels'}",
        f"torch=={TORCH}",
    )
    (wheel,) = folder.glob("wheels/torch-*.whl")
    for number, python in enumerate(pythons()):
        venv = folder / f"venv{number}"
        subprocess.run([python, "-m", "venv", venv], check=True)
        pip("install", *REQUIREMENTS, python=venv / "bin/python")
        install(wheel, next(venv.glob("lib/python3*/site-packages")))
        for script in venv.glob("bin/pip*"):
            script.write_text(script.read_text().replace(str(venv), "/opt/venv"))
    wheel.unlink()
    pip("download", "--no-deps", "--no-binary=deepspeed", f"--dest={folder}", f"deepspeed=={DEEPSPEED}")
    with storage({}) as remote:
        yield Machine(folder, remote)
    shutil.rmtree(folder)


def source_of_deepspeed(machine: Machine, name: str) -> Path:
    folder = machine.folder / name
    folder.mkdir(parents=True)
    subprocess.run(
        ["tar", "-xzf", next(machine.folder.glob("deepspeed-*.tar.gz")), "--strip=1", "-C", folder], check=True
    )
    return folder


def test_other_python_and_folder_take_nine_of_ten(machine: Machine) -> None:
    """All calls of nvcc; the binding is another one for each Python."""
    first = machine.calls(BUILD, source_of_deepspeed(machine, "one/src"))
    assert not any(hit for _, hit in first)
    again = machine.calls(BUILD, source_of_deepspeed(machine, "other/place/src"), python=1)
    units = {
        name: hit for name, hit in again if not name.endswith(".c")
    }  # DeepSpeed tries what compiles on files in /tmp
    kernels = {name: hit for name, hit in units.items() if name.endswith(".cu")}
    assert sorted(name for name, _ in first if not name.endswith(".c")) == sorted(units)
    assert len(kernels) == 9
    assert all(kernels.values()), kernels
    assert sum(units.values()) / len(units) >= 0.9, units


def test_calls_of_nvcc_with_other_inputs_are_missed(machine: Machine) -> None:
    source = machine.folder / "kernel"
    source.mkdir()
    files = {"kernel.cu": KERNEL, "host.h": "#define NUMBER 1\n", "newer.h": "#define NUMBER 1\n"}
    for name, text in files.items():
        (source / name).write_text(text)

    def hit(flags: str = FLAGS, python: int = 0, appended: str = "") -> bool:
        ((_, taken),) = machine.calls(CALL, source, python, FLAGS=flags, NVCC_APPEND_FLAGS=appended)
        return taken

    assert not hit()
    assert hit()
    assert hit(python=1)
    for name, text in files.items():
        (source / name).write_text(text.replace(" 1", " 2"))
        assert not hit(), name
        (source / name).write_text(text)
    assert hit()
    assert not hit(f"{FLAGS} -Xcompiler -O1")
    assert not hit(f"{FLAGS} --compiler-options -g1")
    assert not hit(FLAGS.replace("90", "100"))
    assert not hit(appended="-O1")
    with (machine.cuda / "bin/ptxas").open("ab") as program:
        program.write(b"another one")
    assert not hit()
