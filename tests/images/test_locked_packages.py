"""A build with the lock's Python packages: pip takes these files, asks no index, and refuses another file."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.locking import python_packages
from stacks import plan
from stacks.config.fetching.mirrors import Mirrors
from stacks.config.stack_file import ROOT
from stacks.identity import staged_context
from stacks.identity.content import Contents
from stacks.identity.context import Folder
from stacks.spec import CONTEXT
from tests.fakes.package_index import Index, wheel
from tests.images.engine import Image, build, docker, remove, unique

VALUES = {"flavor": "local", "torch": {"version": "2.1.0", "vision": "0.16.0", "audio": "2.1.0"}}


def _locked(index: Index) -> tuple[Path, dict[str, str]]:
    """Lock what the index has; return the folder that a build is given, and its arguments."""
    wheel(index.folder, "pip", "22.0")
    _, (spec,) = plan.specs(VALUES, "test")
    assert spec.packages
    files = python_packages.files(spec.packages, spec.platform, Mirrors.model_validate({"pythonIndex": index.url}))
    packages = spec.packages.model_copy(update={"files": files})
    content = Contents(Folder(ROOT / CONTEXT)).of(spec.model_copy(update={"target": "installed", "packages": packages}))
    staged_context.write([content], ROOT)
    return ROOT / content.folder, {**content.args, "PYTHON_INDEX_URL": index.url}


@pytest.mark.slow
def test_locked_build_installs_locked_files_alone(index: Index) -> None:
    (context, arguments), image = _locked(index), Image(unique("locked"))
    index.requests.clear()
    wheel(index.folder, "torchaudio", "2.1.2")
    try:
        done = build(image.tag, arguments, "--network=host", context=context, image="")
        assert done.returncode == 0, done.stdout[-6000:]
        assert index.requests
        assert not [request for request in index.requests if "/simple" in request]
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
    assert "THESE PACKAGES DO NOT MATCH THE HASHES" in done.stdout
