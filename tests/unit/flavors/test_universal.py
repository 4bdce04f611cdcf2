"""The flavor ``universal``: its graph, whose images depend on what, and the one line for each mistake."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

from stacks import flavors, plan
from stacks.config.stack_file import ROOT
from stacks.spec import CONTEXT, ImageSpec, Outside, parents_first
from stacks.versions.cuda_toolkit import cuda_versions
from stacks.versions.distros import distro_names
from stacks.versions.pytorch import torch_versions
from tests.helpers import refusals
from tests.helpers.contents import checkout_fingerprints
from tests.helpers.every import every

SEED: dict[str, Any] = {
    "cuda": "11.3.1",
    "cudnn": "8",
    "distro": "ubuntu20.04",
    "python": "3.8",
    "torch": {"version": "1.9.1"},
    "archList": "8.6",
}

TODAY: dict[str, Any] = {
    "cuda": "13.2.1",
    "cudnn": "9",
    "distro": "ubuntu24.04",
    "python": "3.12",
    "torch": {},
    "archList": None,
}


MICROMAMBA = {
    "MICROMAMBA_VERSION": "2.8.1-0",
    "MICROMAMBA_SHA256": "9689782d863c05a1bf5d2d371ba527104e7a4eb4310c1637d8653b751aed9c82",
}

ROCKY: dict[str, Any] = {"cuda": "12.9.1", "cudnn": "9", "distro": "rockylinux9", "python": "3.11", "archList": "9.0"}
ROCKY |= {"torch": {"version": "2.8.0"}}
CPU: dict[str, Any] = {"cuda": False, "cudnn": None, "archList": None}


def specs(**values: Any) -> dict[str, ImageSpec]:
    config = flavors.load({"flavor": "universal", **SEED, **values}, "stack x")
    return {spec.name: spec for spec in parents_first(flavors.flavor("universal").images(config))}


refusal = partial(refusals.refusal_line, specs)


def test_cudnn_of_the_parent_that_computes_wrong_is_a_warning() -> None:
    config = flavors.load({"flavor": "universal", **ROCKY}, "stack x")
    start = "slipway:cuda: cuDNN 9.10.2.21 may compute 3D convolutions in bfloat16 wrong; take 9.13 or newer by slipway:cuda; "
    assert [line.startswith(start) for line in config.warnings if "cuDNN" in line] == [True]


def changed(before: dict[str, ImageSpec], after: dict[str, ImageSpec]) -> set[str]:
    """Return the images whose fingerprints are other ones, or that are new."""
    ours, theirs = checkout_fingerprints(before.values()), checkout_fingerprints(after.values())
    return {name for name in theirs if theirs[name] != ours.get(name)}


def test_flavor_alone_is_a_stack() -> None:
    config = flavors.load({"flavor": "universal"}, "stack x")
    assert [spec.name for spec in flavors.flavor("universal").images(config) if not spec.product] == ["train"]


def test_stack_of_cu113_has_upstream_versions() -> None:
    built = {spec.name: spec for spec in plan.resolve("universal-cu113")[1]}
    assert set(built) == {
        "install",
        *(f"{name}-{product}" for name in ("torch", "vision", "audio", "text") for product in ("source", "wheel")),
        "dist",
        "train",
    }
    parent = Outside(reference="nvidia/cuda:11.3.1-cudnn8-devel-ubuntu20.04")
    assert built["install"].parents == {"BASE_IMAGE": parent}
    assert built["train"].parents["BASE_IMAGE"] == parent
    assert built["install"].args == {
        **MICROMAMBA,
        "PYTHON_VERSION": "3.8",
        "CONSTRAINTS": "numpy<2 setuptools<82",
        "MAGMA_PACKAGE": "magma-cuda113",
        "MAGMA_ARCHIVE": "",
    }
    wheels = {name: built[f"{name}-wheel"].args for name in ("torch", "vision", "audio", "text")}
    assert {name: args["VERSION"] for name, args in wheels.items()} == {
        "torch": "1.9.1",
        "vision": "0.10.1",
        "audio": "0.9.1",
        "text": "0.10.1",
    }
    assert wheels["torch"]["ARCH_LIST"] == "5.2 6.0 6.1 7.0 7.5 8.0 8.6+PTX"
    assert wheels["torch"]["TRITON_VERSION"] == "none"
    assert wheels["text"]["ARCH_LIST"] == ""
    assert built["train"].args["TZ"] == "Asia/Seoul"
    assert built["train"].suffix.render() == "universal-cuda11.3.1-ubuntu20.04-torch1.9.1-vision0.10.1-audio0.9.1"


def test_companions_left_out_come_from_the_table() -> None:
    args = specs()["train"].args
    assert (args["TORCHVISION_VERSION"], args["TORCHAUDIO_VERSION"], args["TORCHTEXT_VERSION"]) == (
        "0.10.1",
        "0.9.1",
        "0.10.1",
    )
    assert specs(torch={"version": "1.9.1", "text": False})["train"].args["TORCHTEXT_VERSION"] == ""
    assert "text-wheel" not in specs(**TODAY)


MINE = {"name": "alice", "uid": 1000, "gid": 1000}


@every(
    "mine",
    [
        {"tz": "America/Los_Angeles"},
        {"uid": 1001, "gid": 1001},
        {"uid": 0, "gid": 0},
        {"apt": ["git", "tmux"]},
        {"pip": ["seaborn==0.11.2", "torch-scatter"]},
        {"conda": ["numpy=1.20.3"]},
        {"env": {"WANDB_MODE": "offline"}},
    ],
)
def test_train_keys_change_only_their_own_image(mine: dict[str, Any]) -> None:
    bob = {"name": "bob", "uid": 1001}
    before, after = specs(train=[MINE, bob]), specs(train=[{**MINE, **mine}, bob])
    assert changed(before, after) == {"train-alice"}


@every("mine, group", [({"uid": 0}, "0"), ({"uid": 1001}, "1001"), ({"gid": 100}, "100"), ({}, "1000")])
def test_train_without_gid_takes_the_uid(mine: dict[str, Any], group: str) -> None:
    assert specs(train=[mine])["train"].args["GROUP_ID"] == group


def test_train_image_added_leaves_the_others_alone() -> None:
    assert changed(specs(train=[MINE]), specs(train=[MINE, {"name": "bob"}])) == {"train-bob"}


def test_build_keys_change_all_that_depends_on_torch() -> None:
    below = {"install", "torch-source", "vision-source", "audio-source", "text-source"}
    assert set(specs()) - changed(specs(), specs(archList="7.5")) == below
    assert set(specs()) - changed(specs(), specs(torch={"version": "1.9.1", "commits": {"vision": "a" * 40}})) == {
        *below - {"vision-source"},
        "torch-wheel",
        "audio-wheel",
        "text-wheel",
    }


def test_cache_key_changes_every_image() -> None:
    assert changed(specs(cacheKey="monday"), specs(cacheKey="tuesday")) == set(specs())
    assert changed(specs(cacheKey="monday"), specs(cacheKey="monday")) == set()


def test_train_env_fills_arguments_of_the_dockerfile() -> None:
    args = specs(train=[{"env": {"B": 2, "A": "one two", "C": True}}])["train"].args
    assert {name: value for name, value in args.items() if name.startswith("ENV_")} == {
        "ENV_1_NAME": "A",
        "ENV_1_VALUE": "one two",
        "ENV_2_NAME": "B",
        "ENV_2_VALUE": "2",
        "ENV_3_NAME": "C",
        "ENV_3_VALUE": "true",
    }


def test_cpu_stack_has_no_cuda_arguments() -> None:
    built = specs(cuda=False, cudnn=None, archList=None)
    assert built["install"].parents == {"BASE_IMAGE": Outside(reference="ubuntu:20.04")}
    assert "MAGMA_PACKAGE" not in built["install"].args
    assert {spec.args["ARCH_LIST"] for spec in built.values() if "ARCH_LIST" in spec.args} == {""}
    assert built["torch-wheel"].args["TRITON_VERSION"] == "none"
    assert built["train"].suffix.render().startswith("universal-ubuntu20.04-torch1.9.1")


def test_magma_follows_cuda() -> None:
    def requested(**values: Any) -> tuple[str | None, str | None]:
        args = specs(**values)["install"].args
        return args.get("MAGMA_PACKAGE"), args.get("MAGMA_ARCHIVE")

    assert requested() == requested(magma="113") == ("magma-cuda113", "")
    assert requested(**TODAY) == ("magma-cuda132", "magma-cuda132-2.6.1-1.tar.bz2")
    assert requested(magma=False) == requested(cuda="11.4.3", magma=False) == (None, None)


def test_train_image_edition_sets_the_parent() -> None:
    parents = specs(trainImage="base")["train"].parents
    assert parents["BASE_IMAGE"] == Outside(reference="nvidia/cuda:11.3.1-base-ubuntu20.04")
    assert specs(trainImage="runtime")["train"].parents["BASE_IMAGE"] == Outside(
        reference="nvidia/cuda:11.3.1-cudnn8-runtime-ubuntu20.04"
    )


def refused_person(**values: Any) -> str:
    return refusal(train=[values])


def test_build_mistake_fails_with_one_line() -> None:
    assert "archList: '9.0' cannot be compiled by CUDA 11.3.1" in refusal(archList="8.6 9.0")
    assert "archList: '8.0' cannot be compiled by CUDA 10.2" in refusal(
        cuda="10.2", distro="ubuntu18.04", archList="7.5 8.0"
    )
    assert "magma: '11.4.3' has no MAGMA package (magma-cuda114 was never released" in refusal(cuda="11.4.3")
    assert "magma: '102' is not the MAGMA of CUDA 11.3.1; allowed: 113, false" in refusal(magma="102")
    assert "torch.vision: '0.11.1' does not go with torch 1.9.1; allowed: 0.10.1" in refusal(
        torch={"version": "1.9.1", "vision": "0.11.1"}
    )
    assert "torch.text: '0.11.0' does not go with torch 1.9.1; allowed: 0.10.1" in refusal(
        torch={"version": "1.9.1", "text": "0.11.0"}
    )
    assert "torch.text: '0.10.1rc1': expected a release as PyTorch's tags name it, without the v: write 0.10.1-rc1" in (
        refusal(torch={"version": "1.9.1", "text": "0.10.1rc1"})
    )
    assert "its git has no --jobs" in refusal(distro="ubuntu16.04")
    assert "python: '3.12' is not supported by torch 1.9.1; allowed: 3.6, 3.7, 3.8, 3.9" in refusal(python="3.12")
    assert "cuda: '13.2.1' is newer than torch 1.9.1 builds with" in refusal(
        cuda="13.2.1", cudnn="9", distro="ubuntu24.04", archList=None
    )
    assert "archList: '8.6': needs CUDA, and 'cuda: false' builds without it" in refusal(cuda=False, cudnn=None)
    assert "cacheKey: 'a b': expected letters" in refusal(cacheKey="a b")
    assert "(did you mean 'archList'?)" in refusal(archs="8.6")


@every(
    "person, message",
    [
        ({"tz": "Asia/Soul"}, "train.0.tz: 'Asia/Soul': is not an IANA time zone (did you mean 'Asia/Seoul'?)"),
        ({"uid": 0, "gid": 5}, "uid 0 is root, whose gid is 0, not 5: leave gid out"),
        ({"uid": -1}, "train.0.uid: '-1':"),
        ({"name": "Alice"}, "train.0.name: 'Alice':"),
        ({"env": {"WANDB_API_KEY": "x"}}, "WANDB_API_KEY reads like a secret"),
        ({"env": {"TZ": "UTC"}}, "TZ cannot be set here: it is set by tz"),
        ({"env": {"USER_ID": "7"}}, "USER_ID cannot be set here: it is set by uid"),
        ({"env": {"LABEL_TITLE": "x"}}, "LABEL_TITLE cannot be set here: the Dockerfile has an argument of that name"),
        ({"env": {"ENV_2_NAME": "x"}}, "ENV_2_NAME cannot be set here: the Dockerfile has an argument of that name"),
        ({"env": {"PIP_INDEX_URL": "https://me:pw@host/simple"}}, "PIP_INDEX_URL must not carry user:password@"),
        ({"env": {"A B": "x"}}, "'A B' is not a variable's name"),
        ({"env": {f"A{number}": "" for number in range(9)}}, "9 variables, and an image can have 8"),
        ({"env": {"WANDB_MODE": None}}, "train.0.env.WANDB_MODE: has no value"),
        ({"env": {"A": ["b"]}}, "train.0.env.A: "),
        ({"dnf": ["git=2.43"]}, "train.0.dnf.0: 'git=2.43': expected a package such as tmux or git-2.43.5-2.el9"),
        ({"apt": ["tmux-"]}, "train.0.apt.0: 'tmux-': apt-get install removes a package whose name ends with '-'"),
        ({"apt": ["tmux=1.0-"]}, "train.0.apt.0: 'tmux=1.0-': apt-get install removes a package"),
        ({"apt": ["--force-yes"]}, "train.0.apt.0: '--force-yes': expected a package such as tmux"),
        ({"conda": ["numpy; rm"]}, "train.0.conda.0: 'numpy; rm': expected a package such as numpy=1.20.3"),
        ({"pip": ["-r x"]}, "train.0.pip.0: '-r x': expected a requirement of pip's"),
        ({"pip": ["x @ https://me:pw@host/x.whl"]}, "must not carry user:password@"),
        ({"pip": ["torch==2.0"]}, "train.0.pip.0: 'torch==2.0': torch comes with the stack: set slipway:torch"),
        ({"pip": ["TorchVision"]}, "torchvision comes with the stack: set slipway:torch.vision"),
        ({"conda": ["conda-forge::pytorch"]}, "pytorch comes with the stack: set slipway:torch"),
        ({"conda": ["python=3.9"]}, "python comes with the stack: set slipway:python"),
    ],
)
def test_train_mistake_fails_with_one_line(person: dict[str, Any], message: str) -> None:
    assert message in refused_person(**person)


@every("path", ["project", "/", "/opt//x", "/opt/x/", "/..", "/../..", "/opt/./x", "/opt/project/../conda"])
def test_project_root_not_absolute_is_refused(path: str) -> None:
    assert refusal(projectRoot=path) == (
        f"stack x: slipway:projectRoot: '{path}': expected an absolute path of letters, digits and . _ -, without the "
        "parts . and .."
    )


@every(
    "path",
    ["/bin", "/dev/shm", "/etc", "/lib", "/lib64/x", "/libx32", "/mnt/data", "/root/x", "/srv", "/tmp/x", "/usr/local/x", "/var",
     "/home", "/opt", "/opt/conda", "/opt/conda/lib/x", "/opt/nvidia"],
)  # fmt: skip
def test_project_root_in_system_folder_is_refused(path: str) -> None:
    assert refusal(projectRoot=path) == (
        f"stack x: slipway:projectRoot: '{path}': belongs to the image: choose a folder for the project, such as /opt/project "
        "or /home/user/project"
    )


@every("path", ["/opt/project", "/opt/conda-project", "/home/user/project", "/workspace", "/library", "/data/.x/..y"])
def test_project_root_elsewhere_is_accepted(path: str) -> None:
    assert specs(projectRoot=path)["train"].args["PROJECT_ROOT"] == path


def test_readmes_name_the_oldest_torch_and_cuda() -> None:
    front, image = (
        " ".join((ROOT / name).read_text().split()) for name in ("README.md", "dockerfiles/universal/README.md")
    )
    torch, cuda = torch_versions()[0], cuda_versions()[0]
    assert f"PyTorch {torch} or newer from source, for CPUs or for your choice of GPU, CUDA ({cuda} or newer)," in front
    assert f"PyTorch {torch} or newer, CUDA {cuda} or newer," in image


@every(
    "distro, image",
    [
        ("debian12", "debian:12-slim"),
        ("rockylinux9", "rockylinux/rockylinux:9"),
        ("ubi9", "registry.access.redhat.com/ubi9/ubi:latest"),
    ],
)
def test_cpu_parent_is_the_distribution_image(distro: str, image: str) -> None:
    built = specs(**CPU, distro=distro)
    assert {built[name].parents["BASE_IMAGE"] for name in ("install", "train")} == {Outside(reference=image)}


def test_cuda_parent_is_the_nvidia_image() -> None:
    for distro in ("rockylinux9", "ubi9"):
        parent = Outside(reference=f"nvidia/cuda:12.9.1-cudnn-devel-{distro}")
        assert specs(**{**ROCKY, "distro": distro})["install"].parents == {"BASE_IMAGE": parent}
    message = (
        "distro: 'debian12' has no nvidia/cuda image of CUDA 12.9.1; allowed: rockylinux8, rockylinux9, ubi8, ubi9, "
    )
    assert message in refusal(**{**ROCKY, "distro": "debian12"})
    # CUDA 11.3.1 is there for Ubuntu 16.04 too, on which nothing can be built.
    message = "has no nvidia/cuda image of CUDA 11.3.1; allowed: rockylinux8, ubi8, ubuntu18.04, ubuntu20.04; rule: "
    assert message in refusal(distro="debian12")


def test_packages_of_other_installer_are_refused() -> None:
    assert specs(**ROCKY, train=[{"dnf": ["less", "sudo"]}])["train"].args["SYSTEM_PACKAGES"] == "less\nsudo"
    assert "train.0.apt: 'less' cannot be installed: rockylinux9 has no apt; allowed: train.0.dnf" in refusal(
        **ROCKY, train=[{"apt": ["less"]}]
    )
    assert "train.1.dnf: 'less' cannot be installed: ubuntu20.04 has no dnf; allowed: train.1.apt" in refusal(
        train=[{"name": "alice"}, {"dnf": ["less"]}]
    )


def test_rocky_and_ubi_without_a_feature_refuse_it() -> None:
    message = "distro: 'ubi8' has gcc 8, and torch 2.8.0 needs gcc 9 or newer; allowed: rockylinux9, ubi9; "
    assert message in refusal(**{**ROCKY, "distro": "ubi8"})
    older = {"cuda": "11.8.0", "cudnn": "8", "torch": {"version": "2.3.0"}, "distro": "ubi8"}
    assert "allowed: ubuntu20.04, ubuntu22.04; " in refusal(**{**ROCKY, **older})
    assert "allowed: ubi9, ubi10, rockylinux9, rockylinux10; " in refusal(**{**ROCKY, **CPU, "distro": "ubi8"})
    assert "platform: 'linux/arm64' cannot be built for on rockylinux9" in refusal(
        **{**ROCKY, "platform": "linux/arm64", "magma": False}
    )
    assert "compilerCache: 'http://cache.example' cannot be used on rockylinux9" in refusal(
        **ROCKY, compilerCache="http://cache.example"
    )


def test_time_zones_of_old_names_have_their_package() -> None:
    """Ubuntu from 23.10 on, Debian from 13 on."""
    system = (ROOT / CONTEXT / "universal/layers/system").read_text()
    named = re.search(r"^ *(.*)\) set -- .* tzdata-legacy", system, re.MULTILINE)
    assert named
    parts = [re.fullmatch(r"(ubuntu|debian)(\d+).*", name) for name in distro_names()]
    apart = [part[0] for part in parts if part and int(part[2]) >= {"ubuntu": 24, "debian": 13}[part[1]]]
    assert sorted(named[1].split(" | ")) == sorted(apart)


def test_magma_of_arm64_is_none_unless_it_is_named() -> None:
    arm: dict[str, Any] = {
        "cuda": "13.2.1",
        "distro": "ubuntu24.04",
        "cudnn": "9",
        "python": "3.12",
        "torch": {"version": "2.14.0"},
    }
    assert "MAGMA_PACKAGE" in specs(**arm)["install"].args
    arm["platform"] = "linux/arm64"
    assert "MAGMA_PACKAGE" not in specs(**arm)["install"].args
    assert "slipway:magma: 'linux/arm64' has no MAGMA package; allowed: false; rule: " in refusal(**arm, magma="132")


def test_micromamba_is_pinned_by_hash() -> None:
    for name in ("install", "train"):
        assert MICROMAMBA.items() <= specs()[name].args.items()
        arm = specs(**CPU, platform="linux/arm64")[name].args
        assert arm["MICROMAMBA_SHA256"] == "e5ba23b5945aa49dfd11022e592a510d2686a8feee810e00140b73c9fdf0ba2a"
    ours = specs(micromamba={"version": "2.7.0-0", "sha256": "a" * 64})["install"].args
    assert (ours["MICROMAMBA_VERSION"], ours["MICROMAMBA_SHA256"]) == ("2.7.0-0", "a" * 64)
    assert "micromamba.version: '2.7.0-0' has no known SHA-256; allowed: 2.8.1-0, 2.9.0-0; " in refusal(
        micromamba={"version": "2.7.0-0"}
    )
    assert "micromamba.sha256: 'abc': expected a SHA-256" in refusal(micromamba={"sha256": "abc"})


def test_train_names_repeated_are_refused() -> None:
    assert "two images have the name 'alice'" in refusal(train=[MINE, MINE])


def test_switches_are_an_argument_of_torch_alone() -> None:
    built = specs(cmake={"USE_MKLDNN": 0})
    assert {name for name, spec in built.items() if "TORCH_SWITCHES" in spec.args} == {"torch-wheel"}
    assert built["torch-wheel"].args["TORCH_SWITCHES"] == "USE_MKLDNN=0"
    products = {name for name in built if name.endswith("-wheel")} | {"dist"}
    assert products <= changed(specs(), built) <= products | {name for name in built if name.startswith("train")}


def test_switch_that_a_key_sets_is_refused() -> None:
    assert refusal(cmake={"USE_MAGMA": 0}) == (
        "stack x: slipway:cmake: the variable USE_MAGMA cannot be set here: it is set by slipway:cuda, or slipway:magma "
        "of a universal stack"
    )


def test_mpi_that_no_builder_of_universal_has_is_refused() -> None:
    assert refusal(cmake={"USE_MPI": 1}) == (
        "stack x: slipway:cmake: the variable USE_MPI cannot be '1' in flavor universal, whose builder has no mpi: "
        "leave it out, or take flavor nccl"
    )
