"""The Megatron-LM image with locked Python packages: one of them is a source distribution, which pip builds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from cli.locking import python_packages
from stacks import plan
from stacks.config.fetching.mirrors import MirrorsConfig
from stacks.config.stack_file import ROOT
from stacks.identity import staged_context
from stacks.identity.content import CheckoutContents, contexts
from tests.fakes.upstreams.megatron_upstreams import Upstreams
from tests.images.engine import Image, build, remove, unique

pytestmark = pytest.mark.slow

PYTHON, GLIBC = "3.11", "2.36"
"""Those of Debian 12, which stands in for NVIDIA's image."""
SOURCE = "/antlr4-python3-runtime-4.9.3.tar.gz"

Locked = Callable[[Mapping[str, str]], Path]


@pytest.fixture(scope="module")
def files(upstreams: Upstreams) -> dict[str, str]:
    """What the lock has for the stack's image on that parent."""
    packages = plan.make(upstreams.stack, upstreams.values(), search=False).images[0].spec.packages
    assert packages
    packages = packages.model_copy(update={"pythons": (PYTHON,), "glibc": GLIBC})
    return python_packages.files(packages, "linux/amd64", MirrorsConfig.model_validate(upstreams.mirrors))


@pytest.fixture
def locked(upstreams: Upstreams) -> Locked:
    """A function that returns the folder which a build with these locked files is given."""

    def folder(files: Mapping[str, str]) -> Path:
        spec = plan.make(upstreams.stack, upstreams.values(), search=False).images[0].spec
        assert spec.packages
        packages = spec.packages.model_copy(update={"files": files})
        content = CheckoutContents(contexts(ROOT)).of(spec.model_copy(update={"packages": packages}))
        staged_context.write([content], ROOT)
        return ROOT / content.folder

    return folder


def test_locked_megatron_has_what_its_source_builds(
    upstreams: Upstreams, files: Mapping[str, str], locked: Locked
) -> None:
    assert [address for address in files if not address.endswith(".whl")] == [
        address for address in files if address.endswith(SOURCE)
    ]
    image = Image(unique("locked-megatron"))
    try:
        done = build(image.tag, upstreams.arguments(), context=locked(files), image="")
        assert done.returncode == 0, done.stdout[-8000:]
        assert image.run("nemo-launcher", "hydra.run.dir=/tmp/launched") == "nvcr.io/nvidia/nemo:24.09\n"
        requirements = image.run("ls", "/opt/NeMo-Framework-Launcher/requirements")
        assert "antlr4_python3_runtime-4.9.3.dist-info" in requirements
    finally:
        remove(image)


@pytest.mark.parametrize(
    ("name", "digest", "message"),
    [
        (SOURCE, "0" * 64, "THESE PACKAGES DO NOT MATCH THE HASHES"),
        ("/setuptools-79.0.1-py3-none-any.whl", None, "No matching distribution found for setuptools"),
    ],
    ids=["another source", "other tools"],
)
def test_locked_megatron_refuses_what_is_not_locked(
    upstreams: Upstreams, files: Mapping[str, str], locked: Locked, name: str, digest: str | None, message: str
) -> None:
    (address,) = (address for address in files if address.endswith(name))
    wrong = {key: value for key, value in files.items() if key != address} | ({address: digest} if digest else {})
    done = build("", upstreams.arguments(), "--target=launcher", context=locked(wrong), image="")
    assert done.returncode != 0
    assert message in done.stdout
