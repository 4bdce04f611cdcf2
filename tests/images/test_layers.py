"""How the torch image's layers come about, with stand-ins of the wheels: what each holds, and which change when."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.package_index import VERSIONS, Index, wheel
from tests.images.conftest import Built, standins_index
from tests.images.differences import environment, variables
from tests.images.engine import DOCKERFILES, Image, base_image, build, docker, remove, unique

COMPONENTS = [
    *("cublas", "cuda-2", "cuda-3", "cuda", "cudnn-2", "cudnn", "comm", "triton-2", "triton"),
    *("torch-2", "torch-3", "torch", "rest"),
]
"""The layers above those of Python, in their order."""


def component_layers(image: Image) -> dict[str, str]:
    """Return the diff id of each component's layer."""
    return dict(zip(COMPONENTS, image.diff_ids()[-len(COMPONENTS) :], strict=True))


def headers(image: Image) -> set[tuple[object, ...]]:
    """Return what each layer says of each of its files."""
    return {
        (number, path, file.type, file.size, file.mtime, file.mode, file.uid, file.linkname)
        for number, layer in enumerate(image.layers())
        for path, file in layer.files.items()
    }


def test_layers_hold_their_component_alone(built: Built) -> None:
    layers = built().layers()[-len(COMPONENTS) :]
    assert dict(zip(COMPONENTS, (layer.packages() for layer in layers), strict=True)) == {
        "cublas": ["nvidia_cublas-13.1"],
        "cuda-2": [],
        "cuda-3": [],
        "cuda": ["nvidia_cufft-12.0"],
        "cudnn-2": [],
        "cudnn": ["nvidia_cudnn_cu13-9.24"],
        "comm": ["nvidia_nccl_cu13-2.30"],
        "triton-2": [],
        "triton": ["triton-3.8.0"],
        "torch-2": [],
        "torch-3": [],
        "torch": ["torch-2.1.0"],
        # nvJitLink is CUDA's, but nothing pins it.
        "rest": [
            "mpmath-1.3",
            "nvidia_nvjitlink-13.5",
            "pillow-13.0",
            "setuptools-84.0",
            "sympy-1.14",
            "torchaudio-2.1.0",
            "torchvision-0.16.0",
        ],
    }
    for layer in layers:
        paths = set(layer.files)
        assert not [path for path in paths if path.endswith(".whl") or "/.cache/" in path]
        assert {path.split("/")[0] for path in paths} == {"opt"}, "a layer holds what the build left elsewhere"


LARGE = {
    "torch/lib/libtorch_cpu.so": ("torch", 40, "torch-2"),
    "torch/lib/libtorch_cuda.so": ("torch", 50, "torch"),
    "torch/lib/libtorch_python.so": ("torch", 17, "torch-3"),
    "nvidia/cu13/lib/libcufft.so.12": ("nvidia-cufft", 30, "cuda"),
    "nvidia/cu13/lib/libcublasLt.so.13": ("nvidia-cublas", 60, "cublas"),
    "nvidia/cu13/lib/libcublas.so.13": ("nvidia-cublas", 20, "cuda-2"),
    "triton/_C/libtriton.so": ("triton", 15, "triton"),
}
"""By file: its package, its MiB, and its layer. They are so large that theirs are as even as they can be; the last is small."""


LARGE_VERSIONS = {"torch": "2.1.0", "nvidia-cufft": "12.0", "nvidia-cublas": "13.1", "triton": "3.8.0"}


@pytest.fixture(scope="module")
def large(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Image]:
    """An image of wheels with those files, and without a wheel of cuDNN and of NCCL."""
    served = standins_index(tmp_path_factory.mktemp("large") / "index")
    requires = {"torch": ["nvidia-cufft", "nvidia-cublas", "triton"]}
    for package, version in LARGE_VERSIONS.items():
        files = {path: size for path, (owner, size, _) in LARGE.items() if owner == package}
        wheel(served.folder, package, version, requires.get(package, ()), large=files)
    yield built(TORCH_INDEX_URL=served.url)
    served.close()


def test_large_files_are_spread_over_layers(large: Image) -> None:
    layers = dict(zip(COMPONENTS, large.layers()[-len(COMPONENTS) :], strict=True))
    places = {
        path: [name for name, layer in layers.items() if any(file.endswith(f"/{path}") for file in layer.files)]
        for path in LARGE
    }
    assert places == {path: [layer] for path, (_, _, layer) in LARGE.items()}
    for path, (_, size, name) in LARGE.items():
        (entry,) = [file for each, file in layers[name].files.items() if each.endswith(f"/{path}")]
        assert (entry.uid, entry.gid, entry.mode, entry.size) == (1000, 1000, 0o755, size << 20)
    folders = {(f.uid, f.mode) for layer in layers.values() for f in layer.files.values() if f.isdir()}
    assert folders == {(0, 0o755), (1000, 0o755)}
    # Each is what its wheel has, and pip knows it as the package's.
    site = "$(python -c 'import sysconfig; print(sysconfig.get_path(\"platlib\"))')"
    printed = large.run("sh", "-euc", f"cd {site}; for file in {' '.join(LARGE)}; do $PWD/$file; done").splitlines()
    assert printed == [f"{path} {LARGE_VERSIONS[package]}" for path, (package, _, _) in LARGE.items()]
    remove = f"pip uninstall --quiet --yes {' '.join(LARGE_VERSIONS)}; cd {site}; ls {' '.join(LARGE)}"
    assert large.fails("sh", "-c", remove).count("No such file") == len(LARGE)


def test_layer_without_wheels_has_its_name_alone(large: Image) -> None:
    """As all of CUDA's are with a build of torch for CPUs; Docker 26.1.5 has lost equal layers."""
    layers = dict(zip(COMPONENTS, large.layers()[-len(COMPONENTS) :], strict=True))
    files = {name: [path for path, file in layer.files.items() if file.isfile()] for name, layer in layers.items()}
    alone = {name for name in COMPONENTS if files[name] == [f"opt/venv/share/slipway/layers/{name}"]}
    assert alone == {"cuda-3", "cudnn-2", "cudnn", "comm", "triton-2"}


def test_second_build_takes_all_from_cache(built: Built) -> None:
    assert built().id() == built(target="installed").id()  # the default, said: another build


def test_patch_release_of_torch_changes_its_layer_alone(built: Built) -> None:
    before, after = component_layers(built()), component_layers(built(TORCH_VERSION="2.1.1"))
    assert {name for name in COMPONENTS if before[name] != after[name]} == {"torch"}


def test_what_nothing_pins_changes_last_layer_alone(built: Built, index: Index) -> None:
    """A new torchaudio, a new release of what torch asks for without a version, and constraints.

    torchvision and other wheels ask for NumPy and setuptools, whatever torch was compiled with: constraints hold for them.
    """
    before = built()
    wheel(index.folder, "nvidia-nvjitlink", "13.6")
    constraints = "numpy<2 setuptools<82"
    after = built(TORCHAUDIO_VERSION="2.1.1", CONSTRAINTS=constraints, TORCH_INDEX_URL=index.url)
    assert before.diff_ids()[:-1] == after.diff_ids()[:-1]
    packages = {*after.layers()[-1].packages()}
    changed = packages - {*before.layers()[-1].packages()}
    assert changed == {"nvidia_nvjitlink-13.6", "setuptools-81.0", "torchaudio-2.1.1"}
    assert "setuptools-84.0" not in packages


def test_new_library_below_torch_keeps_layers_above(built: Built, index: Index) -> None:
    """They are made anew, the layer below being another, but a registry is sent the changed ones only."""
    before = component_layers(built())
    wheel(
        index.folder,
        "torch",
        "2.1.1",
        ["nvidia-cublas==13.2", "sympy", "triton", "nvidia-cudnn-cu13", "nvidia-nccl-cu13"],
    )
    wheel(index.folder, "nvidia-cublas", "13.2")
    after = component_layers(built(TORCH_VERSION="2.1.1", TORCH_INDEX_URL=index.url))
    assert {name for name in COMPONENTS if before[name] != after[name]} == {"cublas", "cuda", "torch", "rest"}
    assert (after["cudnn"], after["comm"], after["triton"]) == (before["cudnn"], before["comm"], before["triton"])


def test_pip_freeze_has_versions_and_no_build_paths(built: Built) -> None:
    assert "torch==2.1.0" in built().run("pip", "freeze").split()


def test_user_installs_and_removes_packages(built: Built, shared_index: Index) -> None:
    command = (
        f"pip uninstall --quiet --yes triton && pip install --quiet --index-url {shared_index.url} torchaudio==2.1.1"
    )
    image = built()
    out = image.run("sh", "-c", f"{command} && pip freeze", options=("--network=host",)).split()
    assert "torchaudio==2.1.1" in out
    assert not [package for package in out if package.startswith("triton")]


def test_environment_is_that_of_the_readme(built: Built, parent: Image) -> None:
    assert variables(parent, built(ARCH_LIST="8.0 9.0+PTX", REQUIRE_CUDA="cuda>=13.0 driver>=580")) == {
        "VIRTUAL_ENV": "/opt/venv",
        "PATH": f"/opt/venv/bin:{environment(parent)['PATH']}",
        "TORCH_VERSION": VERSIONS["TORCH_VERSION"],
        "TORCH_VISION_VERSION": VERSIONS["TORCHVISION_VERSION"],
        "TORCH_AUDIO_VERSION": VERSIONS["TORCHAUDIO_VERSION"],
        "TORCH_CUDA_ARCH_LIST": "8.0 9.0+PTX",
        "NVIDIA_VISIBLE_DEVICES": "all",
        "NVIDIA_DRIVER_CAPABILITIES": "compute,utility",
        "NVIDIA_REQUIRE_CUDA": "cuda>=13.0 driver>=580",
    }


def _packages(image: Image) -> dict[str, str]:
    output = image.run("dpkg-query", "-W", "tzdata", "foo")
    return dict(line.split("\t") for line in output.splitlines())


def test_refresh_upgrades_distribution_packages_alone(built: Built, parent: Image) -> None:
    assert _packages(parent) == {"foo": "1", "tzdata": "2020a-0"}
    after = _packages(built())
    assert after["foo"] == "1"
    assert after["tzdata"] > "2020a-0"


@pytest.mark.slow
def test_parent_with_user_1000_builds(built: Built) -> None:
    """As Ubuntu's images have from 23.04 on; and one that runs as it."""
    base = unique("parent")
    instructions = f"FROM {base_image()}\nRUN useradd --uid 1000 --create-home ubuntu\nUSER ubuntu\n"
    docker("build", f"--tag={base}", "-", text=instructions)
    image = built(target="python", BASE_IMAGE=base)
    assert image.run("id", "1000") == "uid=1000(slipway) gid=1000(slipway) groups=1000(slipway)\n"
    assert "ubuntu" not in image.run("cat", "/etc/passwd")
    docker("rmi", base)


@pytest.mark.slow
def test_build_uses_mirror_with_root_certificate(
    built: Built, shared_index: Index, archives: dict[str, str], tmp_path: Path
) -> None:
    """Behind a proxy with a root certificate of its own: apt and pip go to the mirror, and trust it; so does the image."""
    key, root = tmp_path / "key.pem", tmp_path / "root.pem"
    request = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=test -addext subjectAltName=IP:127.0.0.1"
    subprocess.run([*request.split(), "-keyout", key, "-out", root], check=True, capture_output=True)
    both = tmp_path / "both.pem"
    both.write_text(key.read_text() + root.read_text())
    mirror = Index(shared_index.folder, archives, both)
    image = built(
        target="wheels",
        CA_CERTIFICATE=root.read_text(),
        APT_MIRROR=mirror.address,
        PYTHON_INDEX_URL=mirror.url,
        TORCH_INDEX_URL="",
    )
    assert any(path.startswith("/debian/pool/main/p/python3") for path in mirror.requests)
    assert any(path.startswith("/files/torch-2.1.0") for path in mirror.requests)
    assert any(path.startswith("/debian-security/") for path in mirror.requests)
    fetch = f"import urllib.request; print(urllib.request.urlopen('{mirror.url}torch/').status)"
    assert image.run("python", "-c", fetch, options=("--network=host",)) == "200\n"
    assert "CERTIFICATE_VERIFY_FAILED" in built().fails("python", "-c", fetch, options=("--network=host",))
    download = ["pip", "download", "--no-deps", "--dest=/tmp", f"--index-url={mirror.url}", "torch"]
    assert "Saved /tmp/torch" in image.run(*download, options=("--network=host",))
    mirror.close()


def test_torch_comes_from_its_own_index_alone(
    build_arguments: dict[str, str], shared_index: Index, tmp_path: Path
) -> None:
    """A gap in the index of one CUDA version must not be filled with the other index's build."""
    gap = tmp_path / "gap"
    gap.mkdir()
    for package in ("torchvision-0.16.0", "torchaudio-2.1.0"):
        shutil.copy(shared_index.folder / f"{package}-py3-none-any.whl", gap)
    torch_index = Index(gap)
    done = build("", {**build_arguments, "TORCH_INDEX_URL": torch_index.url}, "--network=host", "--target=wheels")
    assert done.returncode != 0
    assert "No matching distribution found for torch==2.1.0" in done.stdout
    torch_index.close()


def only_torch(folder: Path, index: Index) -> Index:
    """Serve torch, torchvision and torchaudio of an index from another one, for CUDA 13.0."""
    folder.mkdir()
    wheel(folder, "torch", "2.1.0+cu130", ["triton~=3.8", "sympy"])
    for package in ("torchvision-0.16.0", "torchaudio-2.1.0", "triton-3.8.0"):
        shutil.copy(index.folder / f"{package}-py3-none-any.whl", folder)
    return Index(folder)


def test_packages_not_on_torch_index_come_from_default_index(built: Built, shared_index: Index, tmp_path: Path) -> None:
    """With nothing named but an index of torch, such as https://download.pytorch.org/whl/cu130."""
    torch_index = only_torch(tmp_path / "index", shared_index)
    image = built(target="wheels", TORCH_INDEX_URL=torch_index.url)
    torch_index.close()
    wheels = {
        *image.run("find", "/wheels", "-name", "*.whl", "-printf", "%P ").replace("-py3-none-any.whl", "").split()
    }
    assert {"torch/torch-2.1.0+cu130"} == {name for name in wheels if name.startswith("torch/")}
    assert {"rest/sympy-1.14", "rest/mpmath-1.3", "rest/setuptools-84.0"} <= wheels


def test_build_by_mirror_without_cache_gives_the_same_layers(
    built: Built, shared_index: Index, archives: dict[str, str]
) -> None:
    """So another machine, or an empty one, makes what a registry already has; the times of two builds always differ.

    Neither takes a layer from the cache. An engine that made a layer twice, and was started again since, lists more in
    the layer upon it: files opened and not written, and marks of folders that are new. For the layer's parent it then has
    two names, and compares whole trees where it else takes what was written (moby's builder-next, `Prepare` against
    `EnsureLayer`).
    """
    mirror = Index(shared_index.folder, archives)
    first, second = built(), built("--no-cache", APT_MIRROR=f"{mirror.address}/")
    mirror.close()
    assert any(path.startswith("/debian/pool/main/p/python3") for path in mirror.requests)
    assert sorted(headers(first) ^ headers(second), key=repr) == []  # says which file it is
    assert first.diff_ids() == second.diff_ids()


def test_packages_on_any_parent_are_the_same_layers() -> None:
    """Here on one with an archive of apt's, and, where Debian's has none, without the files that a container hides."""
    parent, first, second = (Image(unique(name)) for name in ("parent", "first", "second"))
    docker("build", "--tag", parent.tag, "-", text=f"FROM {base_image()}\nRUN touch /var/cache/apt/archives/a.deb\n")
    for image in (first, second):
        arguments = {"BASE_IMAGE": parent.tag, "APT_PACKAGES": "libyaml-0-2"}
        done = build(image.tag, arguments, "--no-cache", "--target=final", image="packages")
        assert done.returncode == 0, done.stdout
    assert sorted(headers(first) ^ headers(second), key=repr) == []
    assert "libyaml-0-2" in first.run("ls", "/usr/share/doc")
    for image in (first, second, parent):
        remove(image)


@pytest.mark.slow
def test_wheel_is_built_against_torch_of_its_own_index(built: Built, index: Index, tmp_path: Path) -> None:
    """The other index, which has one for another CUDA, is for what torch needs."""
    torch_index = only_torch(tmp_path / "torch", index)
    wheel(index.folder, "numpy", "1.26")
    variables = {"COMPONENT": "apex", "PYTHON_INDEX_URL": index.url, "TORCH_INDEX_URL": torch_index.url}
    options = ["--network=host", *(f"--env={name}={value}" for name, value in variables.items())]
    for place, folder in (("/srv/layers", "common/layers"), ("/mnt", "wheels/builder")):
        options.append(f"--volume={DOCKERFILES / folder}:{place}:ro")
    image, install = built(target="python"), ("sh", "-euc", "/mnt/install-torch && pip freeze --all")
    packages = image.run(*install, options=(*options, "--env=TORCH_VERSION=2.1.0"))
    assert {"torch==2.1.0+cu130", "sympy==1.14", "numpy==1.26"} <= set(packages.split())
    output = image.fails(*install, options=(*options, "--env=TORCH_VERSION=2.1.1"))
    assert "No matching distribution found for torch==2.1.1" in output
    torch_index.close()
