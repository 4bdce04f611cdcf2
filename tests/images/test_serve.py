"""The image with vLLM: what the resolve of its wheel keeps, on stand-ins."""

from __future__ import annotations

from tests.fakes.package_index import Index, wheel
from tests.images.conftest import Built
from tests.images.engine import Image, build, docker, unique


def resolved(parent: Image, index: Index, *requires: str) -> tuple[int, str, str]:
    """Resolve a vLLM that requires these on an image; return the status, the output, and the resulting image's name."""
    wheel(index.folder, "vllm", "0.33.0", requires)
    name = unique("serve-wheels")
    arguments = {"BASE_IMAGE": parent.tag, "VLLM_VERSION": "0.33.0", "PYTHON_INDEX_URL": index.url}
    done = build(name, arguments, "--network=host", "--target=wheels", image="serve")
    return done.returncode, done.stdout, name


def test_resolve_for_vllm_keeps_torch_and_what_it_pins(built: Built, index: Index) -> None:
    wheel(index.folder, "nvidia-cublas", "99.0")
    wheel(index.folder, "nvidia-nvshmem-cu13", "1.0")
    wheel(index.folder, "sympy", "1.15")
    wheel(index.folder, "cuda-python", "12.6.2")
    wheel(index.folder, "cuda-python", "13.4.4")
    needs = ("torch", "torchaudio==2.1.0", "nvidia-cublas", "sympy>=1.15", "cuda-python", "nvidia-nvshmem-cu13")
    status, output, name = resolved(built(), index, *needs)
    assert status == 0, output[-4000:]
    try:
        image = Image(name)
        fetched = image.run("sh", "-c", "cd /wheels && ls nvidia rest vllm")
        held = dict(line.split() for line in image.run("cat", "/wheels/held").splitlines())
    finally:
        docker("image", "rm", "--force", name)
    # What torch gives a range of may change; NVIDIA's libraries, of which it names one version, may not.
    assert [line for line in fetched.splitlines() if line.endswith(".whl")] == [
        "nvidia_nvshmem_cu13-1.0-py3-none-any.whl",
        "cuda_python-13.4.4-py3-none-any.whl",
        "sympy-1.15-py3-none-any.whl",
        "vllm-0.33.0-py3-none-any.whl",
    ]
    assert {"torch==2.1.0", "torchvision==0.16.0", "torchaudio==2.1.0", "triton==3.8.0"} < set(held)
    assert "sympy==1.14" not in held
    assert all(len(digest) == 64 for digest in held.values())


def test_vllm_that_would_replace_torch_ends_the_build(built: Built, index: Index) -> None:
    status, output, name = resolved(built(), index, "torch==2.1.1")
    docker("image", "rm", "--force", name, check=False)
    assert status != 0
    assert "vllm 0.33.0 depends on torch==2.1.1" in output
    assert "The user requested (constraint) torch==2.1.0" in output
