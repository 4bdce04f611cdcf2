"""The main job on real input: the `local` stack, built by `pulumi up` from published wheels, run, and checked by its checks.

Each check passes on the image, as its build ran them, and fails for its fault. That a build fails with one of them is tested on
the family's torch, which has the same Dockerfile.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers import registry_api
from tests.helpers.index_wheel import fetched
from tests.images.engine import DOCKERFILES, Image, base_image, docker, forget
from tests.images.published import Published

MANIFESTS = "application/vnd.docker.distribution.manifest.v2+json, application/vnd.oci.image.manifest.v1+json"
COMPONENTS = ["nvidia_cublas", "nvidia_cufft", "nvidia_cudnn", "nvidia_nccl", "triton", "torch-", "torchvision"]
"""A package of each component, in the order in which the layers lie."""

CHECKS = DOCKERFILES / "torch/checks/build"
PACKAGES = "/opt/venv/lib/python3*/site-packages"

FAULTS = [
    ("10-imports.py", f"rm {PACKAGES}/nvidia/*/lib/libcublas.so.*", "libcublas.so"),
    (
        "11-switches.py",
        f"echo 'import flash_attn_3._C' > $(echo {PACKAGES})/flash_attn_interface.py",
        "flash_attn_interface cannot be imported: ModuleNotFoundError: No module named 'flash_attn_3'",
    ),
    (
        "12-features.py",
        (
            f"echo 'import torch._C; torch._C._has_magma = False' >> $(echo {PACKAGES}/torch/__init__.py); "
            "export FEATURES='lapack magma'"
        ),
        "lacks what the published wheel of its release has: magma\n",
    ),
    ("20-versions.py", "export TORCH_VISION_VERSION=0.1.0", "torchvision: asked for 0.1.0 (TORCH_VISION_VERSION), but"),
    ("21-cuda.py", "export CUDA_VERSION=10.2.89", ", the image for CUDA 10.2.89"),
    ("30-dependencies.sh", "pip uninstall --quiet --yes sympy", "requires sympy, which is not installed"),
    (
        "40-arithmetic.py",
        f"echo 'Tensor.__matmul__ = lambda a, b: mm(a, b) + 1' >> $(echo {PACKAGES}/torch/__init__.py)",
        "a 64 x 64 matrix product in torch.float32 is off by up to 1.0",
    ),
    (
        "40-arithmetic.py",
        f"echo 'conv2d = lambda *given: torch.conv2d(*given) * 2' >> $(echo {PACKAGES}/torch/nn/functional.py)",
        "a 3 x 3 convolution gives wrong numbers",
    ),
    (
        "42-numpy.py",
        f"echo 'from_numpy = lambda array: zeros(4)' >> $(echo {PACKAGES}/torch/__init__.py)",
        "four ones come back from NumPy as [0.0, 0.0, 0.0, 0.0]",
    ),
    (
        "43-linear-algebra.py",
        f"echo 'inverse = lambda matrix: matrix' >> $(echo {PACKAGES}/torch/__init__.py)",
        "the inverse of a matrix in torch.float32 is [[2.0, 1.0], [1.0, 1.0]]",
    ),
    (
        "45-compile.py",
        f"sed -i '/^Requires-Dist: .*triton/d' $(echo {PACKAGES}/torch-*.dist-info/METADATA)",
        "torch asks for no Triton",
    ),
    ("50-vision.py", f"rm {PACKAGES}/torchvision/_C*.so", "torchvision"),
    ("51-audio.py", f"rm {PACKAGES}/torchaudio/lib/*.so", "has no attribute 'rnnt_loss"),
    ("60-libraries.py", f"rm {PACKAGES}/pillow.libs/libtiff*", "needs libtiff"),
    ("70-account.sh", "chmod a-w /opt/venv/lib", "/opt/venv cannot be written, so pip cannot install"),
    ("71-shells.sh", "echo 'PATH=/usr/bin:/bin' >> ~/.profile", "/opt/venv/bin/python"),
    ("80-clean.sh", "touch /opt/venv/left.whl", "left behind by the build: /opt/venv/left.whl"),
]
"""A check, a command that breaks the image, run as the image's user, and the check's error."""

EDITED = f"{PACKAGES}/torch/__pycache__/__init__.*.pyc {PACKAGES}/torch/nn/__pycache__/functional.*.pyc"
"""The bytecode of the modules that a fault edits: Python does not compare a module of an image with it."""


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Published]:
    """The `local` stack, up, with its image in the engine alone: a push would compress 6 GB, and the gate would save them.

    The engine keeps nothing of it, and from the start not the wheels: they are as large as what is installed.
    """
    base_image()
    stack = Published(tmp_path_factory.mktemp("local"), "local", publish=False, inspection={"gate": False})
    stack.up()
    forget("/mnt/resolve", 100_000_000)
    yield stack
    docker("image", "rm", "--force", *stack.built())
    forget("/srv/install-component", 100_000_000)


@pytest.fixture(scope="module")
def image(local: Published) -> Image:
    """Its torch image."""
    return Image(local.refs()["torch"])


@pytest.fixture(scope="module")
def pushed(local: Published, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The image's reference in the registry."""
    stack = local.copy(tmp_path_factory.mktemp("pushed") / "local")
    stack.configure(publish=True, inspection={"gate": True})
    stack.up()
    return stack.refs()["torch"]


def test_second_up_changes_nothing(local: Published) -> None:
    before = local.refs()["torch"]
    assert re.search(r"Resources:\n\s+\d+ unchanged", local.up())
    assert local.refs()["torch"] == before


def test_torch_multiplies_as_unprivileged_user(local: Published, image: Image) -> None:
    program = "import torch, os; a = torch.arange(6.).reshape(2, 3); print(torch.__version__, (a @ a.T).tolist(), os.getuid())"
    version = local.outputs()["plan"]["torch"]["args"]["TORCH_VERSION"]
    output = image.run("python", "-c", program)
    assert re.fullmatch(rf"{re.escape(version)}\+\S+ \[\[5.0, 14.0\], \[14.0, 50.0\]\] 1000\n", output), output


def test_torchvision_and_torchaudio_are_those_of_plan(local: Published, image: Image) -> None:
    args = local.outputs()["plan"]["torch"]["args"]
    program = "import torchvision, torchaudio; print(torchvision.__version__, torchaudio.__version__)"
    vision, audio = image.run("python", "-c", program).split()
    assert vision.partition("+")[0] == args["TORCHVISION_VERSION"]
    assert audio.partition("+")[0] == args["TORCHAUDIO_VERSION"]


def test_labels_have_title_version_and_base(local: Published, image: Image) -> None:
    config = image.config()["Config"]
    labels = {key.removeprefix("org.opencontainers.image."): value for key, value in config["Labels"].items()}
    planned = local.outputs()["plan"]["torch"]["labels"]
    assert labels["title"] == "torch" == planned["LABEL_TITLE"]
    assert labels["version"] == planned["LABEL_VERSION"]
    assert labels["base.name"] == "debian:bookworm-slim"
    assert labels["slipway.driver"] == planned["LABEL_SLIPWAY_DRIVER"]
    assert f"NVIDIA_REQUIRE_CUDA={local.outputs()['plan']['torch']['args']['REQUIRE_CUDA']}" in config["Env"]
    assert config["WorkingDir"] == "/workspace"
    assert (config["User"], config["Cmd"]) == ("1000:1000", ["python"])


def test_checks_have_a_fault_each() -> None:
    assert {check for check, *_ in FAULTS} == {check.name for check in CHECKS.iterdir()}


@pytest.mark.parametrize(("check", "fault", "output"), FAULTS)
def test_check_of_faulty_image_fails(image: Image, check: str, fault: str, output: str) -> None:
    program = (CHECKS / check).read_text()
    script = f"set -e; cat > /tmp/check; chmod +x /tmp/check; {fault}; rm {EDITED}; exec /tmp/check"
    assert output in image.fails("sh", "-c", script, text=program)


SYSTEM = rf"""
set -e
system=/usr/lib/$(uname -m)-linux-gnu
cp {PACKAGES}/nvidia/cudnn/lib/libcudnn.so.9 {PACKAGES}/nvidia/cudnn/lib/libcudnn_graph.so.9 $system
ln -s libcudnn.so.9 $system/libcudnn.so
"""
"""Puts cuDNN where NVIDIA's development images have theirs."""

LOADED = r"""
import re
print(*sorted(set(re.findall(r"(/\S+)/libcudnn[^/\s]*\.so", open("/proc/self/maps").read()))))
"""
"""Prints the folders of the cuDNN that is loaded."""


def _folders(image: Image, program: str, *options: str) -> list[str]:
    """Return what a program prints beside a cuDNN of the system: in the image, and without what finds torch's first."""
    return [
        image.run("sh", "-c", f"{SYSTEM} {change}ldconfig; exec python -", options=("--user=0", *options), text=program)
        for change in ("", "rm /etc/ld.so.conf.d/000-cudnn.conf; ")
    ]


def test_cudnn_of_torch_is_found_before_the_systems(image: Image) -> None:
    program = f"import ctypes; ctypes.CDLL('libcudnn.so'); ctypes.CDLL('libcudnn_graph.so.9')\n{LOADED}"
    folders = _folders(image, program)
    assert re.fullmatch(r"/opt/venv/lib/python3\S+/site-packages/nvidia/cudnn/lib\n", folders[0])
    assert re.fullmatch(r"/usr/lib/\w+-linux-gnu\n", folders[1])


@pytest.mark.slow
def test_search_of_engine_finds_cudnn_of_torch(image: Image, tmp_path: Path) -> None:
    """TransformerEngine's own, out of its release."""
    with fetched("transformer-engine==2.17.1", tmp_path) as engine:
        search = engine.read("transformer_engine/common/__init__.py").decode()
    program = f"{search}\nimport torch\n_load_cuda_library('cudnn')\n{LOADED}"
    output = _folders(image, program, "--env=NVTE_PROJECT_BUILDING=1")
    folders = [each.split() for each in output]
    assert [len(each) for each in folders] == [1, 2], folders
    assert folders[0][0].startswith("/opt/venv/")


@pytest.mark.parametrize("part", ["libcudnn.so.9", "libcudnn_graph.so.9"])
def test_second_cudnn_in_process_fails_check(image: Image, part: str) -> None:
    copy = f"cp {PACKAGES}/nvidia/cudnn/lib/{part} /tmp"
    module = f'import ctypes; print(1, 2); ctypes.CDLL("/tmp/{part}")'
    script = f"set -e; cat > /tmp/check; {copy}; echo '{module}' > $(echo {PACKAGES})/flash_attn_interface.py"
    program = (CHECKS / "11-switches.py").read_text()
    assert re.fullmatch(
        r"flash_attn_interface loads cuDNN of /opt/\S+/nvidia/cudnn/lib and of /tmp; ldconfig -p must name .*\n",
        image.fails("sh", "-c", f"{script}; exec python /tmp/check", text=program),
    )


def test_gpu_check_without_driver_is_one_line(image: Image) -> None:
    program = (CHECKS.parent / "gpu.py").read_text()
    assert image.fails("python", "-", text=program) == "no NVIDIA driver in this container; was it run with --gpus?\n"


@pytest.mark.slow
def test_exported_digest_is_that_of_the_registry(pushed: str) -> None:
    name, _, digest = pushed.partition("@")
    host, _, path = name.partition("/")
    response = registry_api.send("GET", f"{host}/{path}/manifests/{digest}", headers={"Accept": MANIFESTS})
    assert response.headers["Docker-Content-Digest"] == digest


@pytest.mark.slow
def test_layers_hold_a_component_each_and_no_build_files(pushed: str) -> None:
    layers = Image(pushed).layers()
    places = [
        next(index for index, layer in enumerate(layers) if any(name.startswith(part) for name in layer.packages()))
        for part in COMPONENTS
    ]
    assert places == sorted(set(places)), dict(zip(COMPONENTS, places, strict=True))
    # The distribution's own venv module brings wheels of pip and setuptools.
    unwanted = re.compile(
        r"^(?!usr/share/python-wheels/).*\.whl$|/\.cache/|^var/lib/apt/lists/.+_Packages|bin/(gcc|g\+\+|cc|c\+\+|nvcc)$"
    )
    assert not [path for layer in layers for path in layer.files if unwanted.search(path)]
