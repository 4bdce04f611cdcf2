"""A build with the lock's Python packages: pip takes these files, asks no index, and refuses another file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from cli.locking import python_packages
from stacks import plan
from stacks.config.fetching.mirrors import MirrorsConfig
from stacks.config.stack_file import ROOT, read_stack
from stacks.identity import staged_context
from stacks.identity.content import CheckoutContents, contexts
from stacks.spec import ImageSpec, Packages
from tests.fakes.package_index import Index, wheel
from tests.images.conftest import Built
from tests.images.engine import Image, build, docker, remove, unique

VALUES = {"flavor": "local", "torch": {"version": "2.1.0", "vision": "0.16.0", "audio": "2.1.0"}}
MISMATCH = "THESE PACKAGES DO NOT MATCH THE HASHES"


def _spec(values: Mapping[str, Any], name: str) -> ImageSpec:
    _, specs = plan.specs(values, "test")
    return next(spec for spec in specs if spec.name == name)


def _files(index: Index, packages: Packages) -> dict[str, str]:
    return python_packages.files(packages, "linux/amd64", MirrorsConfig.model_validate({"pythonIndex": index.url}))


def _given(index: Index, spec: ImageSpec, files: Mapping[str, str]) -> tuple[Path, dict[str, str]]:
    """Return the folder that a build with locked files is given, and its arguments."""
    assert spec.packages
    packages = spec.packages.model_copy(update={"files": files})
    content = CheckoutContents(contexts(ROOT)).of(spec.model_copy(update={"packages": packages}))
    staged_context.write([content], ROOT)
    return ROOT / content.folder, {**content.args, "PYTHON_INDEX_URL": index.url}


def _asked(index: Index) -> list[str]:
    """Return the requests for a project's page."""
    return [request for request in index.requests if "/simple" in request]


@pytest.mark.slow
def test_locked_build_installs_locked_files_alone(index: Index) -> None:
    wheel(index.folder, "pip", "22.0")
    spec = _spec(VALUES, "torch").model_copy(update={"target": "installed"})
    assert spec.packages
    (context, arguments), image = _given(index, spec, _files(index, spec.packages)), Image(unique("locked"))
    index.requests.clear()
    wheel(index.folder, "torchaudio", "2.1.2")
    try:
        done = build(image.tag, arguments, "--network=host", context=context, image="")
        assert done.returncode == 0, done.stdout[-6000:]
        assert index.requests
        assert not _asked(index)
        installed = docker("run", "--rm", image.tag, "pip", "freeze").stdout.split()
        assert {"torch==2.1.0", "torchvision==0.16.0", "torchaudio==2.1.0", "sympy==1.14"} <= {*installed}
        listing = docker("run", "--rm", image.tag, "find", "/tmp", "-mindepth", "1").stdout
        assert listing == ""
    finally:
        remove(image)

    wheel(index.folder, "sympy", "1.14", ["mpmath"], code="raise SystemExit\n")
    # With another argument, the engine does not take the step from its cache.
    done = build("", {**arguments, "TORCH_INDEX_URL": index.url}, "--network=host", context=context, image="")
    assert done.returncode != 0
    assert MISMATCH in done.stdout


@pytest.mark.slow
def test_locked_serve_installs_locked_files_alone(built: Built, index: Index) -> None:
    wheel(index.folder, "pip", "99.0")
    wheel(index.folder, "vllm", "0.33.0", ["torch", "pydantic>=2", "nvidia-nvshmem-cu13"])
    wheel(index.folder, "pydantic", "2.13")
    wheel(index.folder, "nvidia-nvshmem-cu13", "1.0")
    spec = _spec(read_stack("vllm-cu130"), "serve")
    assert spec.packages
    # The stack's torch, which the parent stands in for.
    standin = spec.packages.model_copy(
        update={
            "requirements": (*_spec(VALUES, "torch").packages.requirements, spec.packages.requirements[-1]),  # type: ignore[union-attr]
        }
    )
    spec = spec.model_copy(update={"target": "wheels", "packages": standin})
    files = _files(index, standin)
    context, arguments = _given(index, spec, files)
    arguments["BASE_IMAGE"], image = built().tag, Image(unique("locked-serve"))
    wheel(index.folder, "pydantic", "2.14")
    index.requests.clear()
    try:
        done = build(image.tag, arguments, "--network=host", context=context, image="")
        assert done.returncode == 0, done.stdout[-6000:]
        assert index.requests
        assert not _asked(index)
        wheels = image.run("sh", "-c", "cd /wheels && ls */*.whl").split()
        assert [name.rpartition("/")[2].partition("-py3")[0] for name in wheels] == [
            "nvidia_nvshmem_cu13-1.0",
            "pydantic-2.13",
            "vllm-0.33.0",
        ]
    finally:
        remove(image)

    missing = {address: digest for address, digest in files.items() if "pydantic" not in address}
    context, _ = _given(index, spec, missing)
    done = build("", arguments, "--network=host", context=context, image="")
    assert done.returncode != 0
    assert "No matching distribution found for pydantic>=2" in done.stdout
    assert not _asked(index)

    context, _ = _given(index, spec, dict.fromkeys(files, "0" * 64))
    done = build("", arguments, "--network=host", context=context, image="")
    assert done.returncode != 0
    assert MISMATCH in done.stdout
