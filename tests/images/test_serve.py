"""The image with vLLM: what the resolve of its wheel keeps, on stand-ins, and the stack `vllm-cu130` with the real one."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from containers.engine import engine_image
from containers.engine.connection import Address
from containers.image.binaries import contents, inspection
from stacks.config.stack_file import ROOT
from stacks.versions import cuda_toolkit
from tests.fakes.package_index import Index, wheel
from tests.fakes.upstreams import upstreams
from tests.images import chain
from tests.images.conftest import Built
from tests.images.engine import DOCKERFILES, Image, build, docker, unique

STACK = "vllm-cu130"
NO_EXTRAS: dict[str, Any] = {"extras": {"deepspeed": False, "flashAttention": False, "apex": False}}
"""As in the stack's file, where they are text."""

PACKAGES = "/opt/venv/lib/python3*/site-packages"
CHECKS = DOCKERFILES / "serve/checks/build"

FAULTS = {
    "10-torch.py": ("echo torch==2.14.0 0 > /tmp/held", "torch 2.14.0: its files are not those of the parent"),
    "20-dependencies.sh": ("pip uninstall --quiet --yes blake3", "requires blake3, which is not installed"),
    "30-extensions.py": (
        f"echo 'void gone(void); void use(void) {{ gone(); }}' | gcc -shared -fPIC -o $(echo {PACKAGES}/vllm/spinloop.abi3.so) -x c -",
        "vllm/spinloop.abi3.so: undefined symbol: gone",
    ),
    "40-vllm.py": ("export VLLM_VERSION=0.32.0", "vLLM 0.32.0 was asked for, and 0.33.0 is installed"),
    "50-models.sh": ("chmod a-w ~/.cache/huggingface", "/home/slipway/.cache/huggingface cannot be written"),
    "60-media.py": (f"rm {PACKAGES}/torchcodec/libtorchcodec_core*.so", "torchcodec can load no FFmpeg"),
}
"""By check: a command that breaks the image, run as the image's user, and the check's error."""

SERVER = """#!/opt/venv/bin/python
import json, os, sys
from http.server import BaseHTTPRequestHandler, HTTPServer
import torch
from transformers import AutoModelForCausalLM

llama = AutoModelForCausalLM.from_pretrained(sys.argv[2], dtype=torch.bfloat16)

def answer(prompt, words):
    given = llama.generate(torch.tensor([prompt]), do_sample=False, max_new_tokens=words, min_new_tokens=words)
    return " ".join(str((word + int(os.environ["OFF"])) % 512) for word in given[0, len(prompt):].tolist())

class Handler(BaseHTTPRequestHandler):
    def reply(self, body):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def do_GET(self):
        self.reply({})

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        texts = [answer(prompt, request["max_tokens"]) for prompt in request["prompt"]]
        self.reply({"choices": [{"text": text} for text in texts]})

HTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Handler).serve_forever()
"""
"""Stands in for `vllm serve`, which needs a GPU: transformers in bfloat16 on the CPU. OFF is added to each word."""


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


def test_vllm_that_takes_what_the_rest_needs_ends_the_build(built: Built, index: Index) -> None:
    wheel(index.folder, "pillow", "12.0")
    status, output, name = resolved(built(), index, "pillow==12.0")
    docker("image", "rm", "--force", name, check=False)
    assert status != 0
    assert "vllm 0.33.0 depends on pillow==12.0" in output
    assert "torchvision 0.16.0 depends on pillow>=13" in output


def test_checks_of_serve_have_a_fault_each() -> None:
    assert sorted(FAULTS) == sorted(check.name for check in CHECKS.iterdir())


@pytest.fixture(scope="module")
def served() -> Iterator[chain.Chain]:
    """The stack `vllm-cu130` with its checks: the wheels of torch and vLLM are those of the Python index, NVIDIA's base image stands in."""
    cache = ROOT / ".slipway/cache/vllm"
    world = upstreams.make(cache, chain.needs([(STACK, NO_EXTRAS)]), nvidia="slipway-test/nvidia", pushed=False)
    built = chain.built(STACK, world, **NO_EXTRAS)
    yield built
    chain.remove(built)
    world.server.close()


@pytest.mark.slow
def test_torch_of_serve_is_that_of_its_parent(served: chain.Chain) -> None:
    program = (
        "import torch, torchvision, torchaudio as a; print(torch.__version__, torchvision.__version__, a.__version__)"
    )
    versions = [served.image(name).run("-c", program, options=("--entrypoint=python",)) for name in ("torch", "serve")]
    assert versions[0] == versions[1] == "2.14.0+cu130 0.29.0+cu130 2.11.0+cu130\n"


@pytest.mark.slow
def test_serve_starts_vllm_and_asks_for_a_gpu(served: chain.Chain) -> None:
    image = served.image("serve")
    config = image.config()["Config"]
    assert (config["Entrypoint"], config["Cmd"], config["User"]) == (["vllm", "serve"], None, "1000:1000")
    assert config["ExposedPorts"] == {"8000/tcp": {}}
    assert "Failed to infer device type" in image.fails("some/model")


@pytest.mark.slow
@pytest.mark.parametrize("check", sorted(FAULTS))
def test_check_of_faulty_serve_fails(served: chain.Chain, check: str) -> None:
    fault, output = FAULTS[check]
    script = f"set -e; cat > /tmp/check; chmod +x /tmp/check; export VLLM_VERSION=0.33.0; {fault}; exec /tmp/check"
    options = ("--entrypoint=sh",)
    program = (CHECKS / check).read_text().replace("/media/held", "/tmp/held")
    assert output in served.image("serve").fails("-c", script, options=options, text=program)


@pytest.mark.slow
def test_every_library_of_serve_loads(served: chain.Chain) -> None:
    image = served.image("serve")
    engine = Address(os.environ["DOCKER_HOST"])
    held, layers = engine_image.read(f"{image.tag}:latest", image.id(), engine, "linux/amd64", contents.facts)
    result = inspection.of_contents(held, contents.of(layers, held.config), inspection.Question(cuda_toolkit))
    assert result.faults == []


@pytest.mark.slow
@pytest.mark.parametrize(("off", "allowed"), [(0, True), (1, False)])
def test_gpu_check_of_serve_judges_its_answers(served: chain.Chain, tmp_path: Path, off: int, allowed: bool) -> None:
    server = tmp_path / "vllm"
    server.write_text(SERVER)
    tmp_path.chmod(0o755)
    server.chmod(0o755)
    options = ("--entrypoint=sh", f"--volume={tmp_path}:/standin:ro", f"--env=OFF={off}")
    judged = served.image("serve").run if allowed else served.image("serve").fails
    output = judged(
        "-c", "PATH=/standin:$PATH exec python -", options=options, text=(CHECKS.parents[0] / "gpu.py").read_text()
    )
    assert re.search(r"\n4 answers: a word is at most 0\.\d{3} below the best one; allowed is 0\.05\n", output), output
