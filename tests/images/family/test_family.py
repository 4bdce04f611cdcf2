"""The torch family's images, built from stand-ins of the upstreams."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from stacks.versions.extras import extras
from tests.fakes.package_index import wheel
from tests.fakes.upstreams.upstreams import World
from tests.images import chain
from tests.images.differences import environment
from tests.images.engine import Image, build, docker, unique
from tests.images.family.conftest import (
    ATTENTION4,
    DEEPEP,
    FRONTEND,
    NEWEST,
    OLD,
    PUBLISHED,
    STACKS,
    XFORMERS,
    Built,
    Up,
    every_switch,
    stacks,
)

RUN = ("torch", "torch-extras")
"""The runtime images of every stack."""


HPCX = {
    "HPCX_DIR": "/opt/hpcx",
    "HPCX_UCX_DIR": "/opt/hpcx/ucx",
    "HPCX_UCC_DIR": "/opt/hpcx/ucc",
    "HPCX_HCOLL_DIR": "/opt/hpcx/hcoll",
    "HPCX_SHARP_DIR": "/opt/hpcx/sharp",
    "HPCX_NCCL_RDMA_SHARP_PLUGIN_DIR": "/opt/hpcx/nccl_rdma_sharp_plugin",
    "HPCX_MPI_DIR": "/opt/hpcx/ompi",
    "OMPI_HOME": "/opt/hpcx/ompi",
    "MPI_HOME": "/opt/hpcx/ompi",
    "OPAL_PREFIX": "/opt/hpcx/ompi",
    "UCX_VFS_ENABLE": "no",
}
"""The variables of an image with HPC-X, for builds on it and for UCX."""


def pip(image: Image) -> dict[str, str]:
    """Return an image's Python packages with their versions."""
    listed = json.loads(image.run("pip", "list", "--format=json", "--disable-pip-version-check"))
    return {re.sub(r"[-_.]+", "-", entry["name"]).lower(): entry["version"] for entry in listed}


def installed(image: Image) -> dict[str, str]:
    """Return an image's packages of the distribution with their versions."""
    listed = image.run("dpkg-query", "-W", "-f", "${db:Status-Status} ${Package} ${Version}\n").splitlines()
    return {line.split()[1]: line.split()[2] for line in listed if line.startswith("installed ")}


@pytest.mark.parametrize("stack", stacks(*STACKS))
def test_chain_has_the_versions_of_its_stack(built: Built, stack: str) -> None:
    images = built(stack)
    args = images.planned["torch"].args
    have = pip(images.image("torch-extras"))
    assert have["torch"] == args["TORCH_VERSION"]
    assert have["torchvision"] == args["TORCHVISION_VERSION"]
    assert have["torchaudio"] == args["TORCHAUDIO_VERSION"]
    assert have["deepspeed"] == images.planned["deepspeed-wheel"].args["VERSION"]
    assert have["flash-attn"] == images.planned["flash-attention-wheel"].args["VERSION"]
    assert (int(have["numpy"].split(".")[0]) < 2) == ("numpy<2" in args["CONSTRAINTS"])
    # A commit of Apex has its own version. Only NVIDIA's Apex has the extensions.
    images.image("torch-extras").run("python", "-c", "import torch, apex, amp_C")


COMPILERS = {"gcc", "g++", "cc", "c++"}
TOOLCHAIN = {"nvcc", "cmake", "ccache"}


def programs(image: Image) -> set[str]:
    """Return the programs of an image's distribution and of CUDA."""
    return set(image.run("sh", "-c", "ls /usr/bin /usr/local/cuda/bin /usr/local/bin || true").split())


@pytest.mark.slow
def test_torch_has_the_switches_of_its_stack(world: World) -> None:
    """The checks of the image, which the build runs, expect oneDNN to be off, and all else of the published wheel."""
    images = chain.built(
        "base-cu132",
        world,
        only="torch",
        cmake={"USE_MKLDNN": 0},
        transformerEngine=False,
        flashAttention3=False,
    )
    try:
        assert images.planned["torch"].checks_args["FEATURES"].endswith(" -mkldnn -onednn")
        program = "import torch; print(torch.backends.mkldnn.is_available(), torch.backends.mkl.is_available())"
        assert images.image("torch").run("python", "-c", program).split() == ["False", "True"]
    finally:
        chain.remove(images)


@pytest.mark.parametrize("stack", stacks(*(name for name in STACKS if name.startswith("base"))))
def test_base_image_compiles_without_development_of_cuda(built: Built, stack: str) -> None:
    images = built(stack)
    for image in map(images.image, RUN):
        assert programs(image) & (COMPILERS | TOOLCHAIN) == COMPILERS
        # Of NVIDIA's packages only the libraries that torch is linked with.
        packages = installed(image)
        assert {name.rstrip("0123456789-") for name in packages if name.startswith(("libcu", "libnccl", "cuda-"))} == {
            "cuda-cudart",
            "libcublas",
            "libcudnn" if "libcudnn8" in packages else "libcudnn9-cuda",
            "libnccl",
        }


@pytest.mark.slow
def test_slim_image_has_no_compiler_or_development_package(built: Built) -> None:
    images = built("base-cu121", slim=True)
    for image in map(images.image, RUN):
        assert not programs(image) & {*COMPILERS, *TOOLCHAIN, "make"}
        assert not [name for name in installed(image) if name.endswith("-dev") or "-dev-" in name]


@pytest.mark.parametrize("stack", stacks("base-cu121"))
def test_cpp_extension_of_torch_imports_with_setuptools(built: Built, stack: str) -> None:
    """Torch 2.0.1 imports pkg_resources, which the newest setuptools lacks."""
    for image in map(built(stack).image, RUN):
        image.run("python", "-c", "import torch.utils.cpp_extension")


def test_extra_needing_other_setuptools_fails_the_build(built: Built, tmp_path: Path) -> None:
    images = built("base-cu121")
    wheel(tmp_path, "xformers", "0.0.20", ["setuptools>=82"])
    (tmp_path / "Dockerfile").write_text("FROM scratch\nCOPY *.whl /dist/\n")
    extra = unique("extra")
    docker("build", f"--tag={extra}", tmp_path)
    parents = {"BASE_IMAGE": images.names["torch"], "XFORMERS_WHEEL_IMAGE": extra}
    arguments = {**images.planned["torch-extras"].args, **parents}
    done = build("", arguments, "--target=wheels", image="torch-extras")
    docker("rmi", extra)
    assert done.returncode != 0
    assert "Cannot install xformers==0.0.20" in done.stdout


@pytest.mark.parametrize("stack", stacks(*(name for name in STACKS if name.startswith("nccl"))))
def test_nccl_image_links_hpcx_and_compiles(built: Built, stack: str) -> None:
    images = built(stack)
    linked = images.image("torch").run(
        "sh", "-c", "ldd /opt/venv/lib/python3*/site-packages/torch/lib/libtorch_cuda.so"
    )
    assert "libucc.so.1 => /opt/hpcx/ucc/lib/libucc.so.1" in linked
    assert "libucp.so.0 => /opt/hpcx/ucx/lib/libucp.so.0" in linked
    nccl = images.planned["nccl-builder"].args["NCCL_VERSION"]
    assert installed(images.image("torch"))["libnccl2"].startswith(f"{nccl}+cuda")
    assert "release" in images.image("torch-extras").run("nvcc", "--version")


def test_nccl_tests_and_builder_have_nccl_hpcx_and_nvcc(built: Built) -> None:
    """The nccl images that `make test` builds. The build of nccl-tests runs all its checks."""
    chain = built("nccl-cu121", only="nccl-tests")
    version = chain.planned["nccl-builder"].args["NCCL_VERSION"]
    for name in ("nccl-builder", "nccl-tests"):
        image = chain.image(name)
        assert installed(image)["libnccl2"].startswith(f"{version}+cuda")
        assert environment(image).items() >= HPCX.items()
        assert "release" in image.run("nvcc", "--version")


@pytest.mark.parametrize("stack", ["nccl-cu121", *stacks("nccl-cu132")])
def test_hpcx_of_either_layout_has_own_openmpi_alone(built: Built, stack: str, tmp_path: Path) -> None:
    product = built(stack, only="nccl-tests").names["hpcx-build"]  # which others want too
    docker("build", f"--output=type=local,dest={tmp_path}", "-", text=f"FROM {product}\n")
    hpcx = tmp_path / "out/opt/hpcx"
    assert {path.name for path in hpcx.iterdir()} == {"hpcx-init.sh", "nccl_rdma_sharp_plugin", "ompi", "ucc", "ucx"}
    assert (hpcx / "ompi/lib/libmpi.so.40").is_file()
    assert "OpenMPI that HPC-X came with" not in (hpcx / "ompi/bin/mpirun").read_text(errors="replace")
    assert (hpcx / "hpcx-init.sh").read_text() == "export HPCX_MPI_DIR=${HPCX_DIR}/ompi\n"


def test_builder_has_no_tool_of_nccl_tests(built: Built) -> None:
    chain = built("nccl-cu121", only="nccl-tests")
    programs = [f"/usr/bin/{name}" for name in ("dcgmi", "gdrcopy_copybw", "ib_write_bw", "nvbandwidth")]
    tools = ["/opt/nccl-tests", *programs, "/home/slipway", "/usr/sbin/sshd"]
    for name, expected in (("nccl-builder", []), ("nccl-tests", tools)):
        output = chain.image(name).run("ls", "-d", *tools, check=bool(expected))
        assert sorted(line for line in output.splitlines() if line.startswith("/")) == sorted(expected)


@pytest.mark.parametrize("stack", stacks(*PUBLISHED))
def test_layers_hold_no_wheel_source_or_package_list(built: Built, stack: str) -> None:
    images = built(stack)
    parts = {"src", "dist", "source", "wheels", "built", "out"}
    for layer in images.image("torch-extras").layers():  # those of torch are among them
        unwanted = [path for path in layer.files if path.endswith((".whl", ".deb", ".tbz", ".tar.gz", "_Packages"))]
        unwanted += [path for path in layer.files if path.split("/")[0] in parts]
        # The distribution's own venv module brings wheels of pip and setuptools.
        assert not [path for path in unwanted if not path.startswith("usr/share/python-wheels/")]


@pytest.mark.parametrize("stack", stacks(*PUBLISHED))
def test_image_config_has_labels_user_and_environment(built: Built, stack: str) -> None:
    images = built(stack)
    archs = images.planned["torch"].args["ARCH_LIST"]
    for name, planned in images.planned.items():
        if planned.spec.product:
            continue
        config = images.image(name).config()["Config"]
        have = environment(images.image(name))
        assert {key: config["Labels"][key] for key in planned.spec.labels} == planned.spec.labels
        assert config["WorkingDir"] == "/workspace"
        if "nccl" in stack:
            assert HPCX.items() <= have.items()
        if name in RUN:
            assert (config["User"], config["Cmd"]) == ("1000:1000", ["python"])
            assert have["TORCH_CUDA_ARCH_LIST"] == archs
            assert have["PATH"].startswith("/opt/venv/bin:")
            assert images.image(name).run("id", "-u").strip() == "1000"


@pytest.mark.parametrize("stack", stacks(*PUBLISHED))
def test_layers_are_in_the_planned_order(built: Built, stack: str) -> None:
    """Parts that change rarely are in lower layers; in `nccl` the parent has the CUDA libraries."""
    images = built(stack)
    layers = images.image("torch-extras").layers()
    where = {
        "parent": "usr/local/cuda",
        **({"hpcx": "opt/hpcx/ucc/lib/libucc.so.1"} if "nccl" in stack else {}),
        "python": "opt/venv/pyvenv.cfg",
        "triton": "opt/venv/lib/python3.11/site-packages/triton/__init__.py",
        "torch": "opt/venv/lib/python3.11/site-packages/torch/__init__.py",
        "rest": "opt/venv/lib/python3.11/site-packages/torchvision/__init__.py",
        "needs": "opt/venv/lib/python3.11/site-packages/einops/__init__.py",
        "flash-attention": "opt/venv/lib/python3.11/site-packages/flash_attn/__init__.py",
        "apex": "opt/venv/lib/python3.11/site-packages/apex/__init__.py",
        "deepspeed": "opt/venv/lib/python3.11/site-packages/deepspeed/__init__.py",
    }
    places = {name: [at for at, layer in enumerate(layers) if path in layer.files] for name, path in where.items()}
    assert all(len(numbers) == 1 for numbers in places.values()), places
    assert list(places.values()) == sorted(places.values()), places


@pytest.mark.parametrize("stack", stacks(*PUBLISHED))
def test_second_up_changes_nothing(up: Up, stack: str) -> None:
    _, published = up(stack)
    before = published.refs()
    assert re.search(r"Resources:\n\s+\d+ unchanged", published.up())
    assert published.refs() == before


@pytest.mark.slow
def test_second_build_takes_all_from_cache(built: Built, world: World, tmp_path: Path) -> None:
    """The second stack has another state and repository. A rebuilt image would have another date, and so another id."""
    first = built("base-cu121")
    second, _ = chain.published("base-cu121", world, tmp_path)
    assert {name: second.image(name).id() for name in second.names} == {
        name: first.image(name).id() for name in first.names
    }
    chain.remove(second)


EXTRAS_OFF = [
    ({"apex": False}, {"apex", "packaging"}),
    ({"deepspeed": False}, {"deepspeed", "psutil", "py-cpuinfo"}),
    ({"flashAttention": False}, {"flash-attn", "einops"}),
]


@pytest.mark.slow
@pytest.mark.parametrize(("off", "less"), EXTRAS_OFF)
def test_extra_switched_off_is_missing_alone(built: Built, off: dict[str, bool], less: set[str]) -> None:
    normal = pip(built("base-cu121").image("torch-extras"))
    reduced = pip(built("base-cu121", extras={**OLD, **off}).image("torch-extras"))
    assert reduced == {name: version for name, version in normal.items() if name not in less}


@pytest.mark.slow
def test_xformers_requested_is_installed(built: Built) -> None:
    normal = pip(built("base-cu121").image("torch-extras"))
    assert pip(built("base-cu121", **XFORMERS).image("torch-extras")) == {**normal, "xformers": "0.0.20"}


@pytest.mark.slow
def test_attention4_is_the_one_owner_of_its_files(built: Built) -> None:
    image = built("base-cu132", **ATTENTION4).image("torch-extras")
    have = pip(image)
    assert (have["flash-attn"], have["flash-attn-4"], have["nvidia-cutlass-dsl"]) == ("2.8.3", "4.0.0b27", "9.9")
    # The check of the build imports both.
    code = "from importlib.metadata import files; print(*(path for path in files('flash-attn') if 'cute' in str(path)))"
    assert image.run("python", "-c", code).strip() == ""


@pytest.mark.slow
def test_deepep_is_linked_with_the_nvshmem_of_torch(built: Built) -> None:
    # The check of the wheel reads the link, that of the image imports it with the driver's stub.
    image = built("nccl-cu132", **DEEPEP).image("torch-extras")
    assert pip(image)["deep-ep"] == "1.2.1"
    linked = image.run("sh", "-c", "ldd /opt/venv/lib/python3*/site-packages/deep_ep_cpp*.so")
    assert re.search(r"libnvshmem_host\.so\.3 => /opt/venv/lib/python3\S+/site-packages/nvidia/nvshmem/lib/", linked)


@pytest.mark.slow
@pytest.mark.parametrize("stack", NEWEST)
def test_chain_with_every_switch_has_all_its_parts(world: World, stack: str) -> None:
    """The checks of each image, which its build runs, import all of them in one environment."""
    images = chain.built(stack, world, **every_switch(stack))
    try:
        variant, _, cuda = stack.partition("-")
        have = pip(images.image("torch-extras"))
        assert {extra.distribution for extra in extras().values() if extra.flavor in {"", variant}} <= have.keys()
        assert (have["flash-attn"], have["flash-attn-4"], have["xformers"]) == ("2.8.3", "4.0.0b27", "0.0.35")
        assert (have["deepspeed"], have["transformer-engine"]) == ("0.19.7", "2.17.1")
        program = "import torch; print(torch.__version__, torch.version.cuda, torch.backends.mkldnn.is_available())"
        output = images.image("torch-extras").run("python", "-c", program)
        assert output.split() == ["2.15.0", {"cu129": "12.9", "cu132": "13.2"}[cuda], "False"]
        cudnn = {name: version for name, version in installed(images.image("torch")).items() if "cudnn9" in name}
        assert {*cudnn.values()} == {"9.26.0.51-1"}
    finally:
        chain.remove(images)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("off", "less"),
    [
        ({"transformerEngine": False}, {"transformer-engine"}),
        ({"flashAttention3": False}, {"flash-attn-3", "einops"}),
    ],
)
def test_torch_part_switched_off_is_missing_alone(built: Built, off: dict[str, bool], less: set[str]) -> None:
    normal = pip(built("base-cu129").image("torch"))
    reduced = pip(built("base-cu129", **off).image("torch"))
    assert reduced == {name: version for name, version in normal.items() if name not in less}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stack", "name", "packages"),
    [
        ("base-cu129", "torch", {"libcudnn9-cuda-12"}),
        ("nccl-cu129", "nccl-builder", {"libcudnn9-cuda-12", "libcudnn9-dev-cuda-12"}),
    ],
)
def test_cudnn_named_replaces_that_of_parent(built: Built, stack: str, name: str, packages: set[str]) -> None:
    have = installed(built(stack, only=name).image(name))
    assert {key: version for key, version in have.items() if "cudnn" in key} == dict.fromkeys(packages, "9.26.0.51-1")


@pytest.mark.slow
def test_engine_needing_cudnn_frontend_builds(built: Built) -> None:
    assert (
        pip(built("base-cu129", only="torch", **FRONTEND).image("torch")).items()
        >= {
            "transformer-engine": "2.18",
            "nvidia-cudnn-frontend": "1.32.0",
        }.items()
    )


@pytest.mark.slow
def test_published_wheels_and_parent_make_the_same_image(built: Built, world: World) -> None:
    compiled = built("nccl-cu118")
    index = world.publish(*(compiled.image(f"{name}-wheel") for name in ("torch", "vision", "audio")))
    torch = {"version": "2.0.1", "vision": "0.15.2", "audio": "2.0.2", "source": "wheel"}
    parent = compiled.names["nccl-tests"] + ":latest"
    images = built("nccl-cu118", torch=torch, mirrors={**world.mirrors, "torchIndex": index}, ncclTests=parent)
    nccl = {"nccl-tests", "nccl-builder"}
    nccl |= {f"{name}-build" for name in ("hpcx", "gdrcopy", "perftest", "nvbandwidth", "nccl-tests")}
    assert set(compiled.planned) - set(images.planned) == nccl | {
        f"{name}-{product}" for name in ("torch", "vision", "audio") for product in ("source", "wheel")
    }
    for name in RUN:
        assert pip(images.image(name)) == pip(compiled.image(name))
