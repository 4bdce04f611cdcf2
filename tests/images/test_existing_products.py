"""A build product that exists already is used unchanged: no instruction of its Dockerfile runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from stacks import plan
from stacks.config.stack_file import stack_names
from stacks.spec import PRODUCT_ARG
from tests.images.engine import Image, build, docker, unique

PRODUCTS = sorted(
    {(spec.dockerfile, spec.target or "") for name in stack_names() for spec in plan.resolve(name)[1] if spec.product}
)


@pytest.mark.parametrize(("dockerfile", "target"), PRODUCTS)
def test_existing_product_is_used_unchanged(dockerfile: str, target: str, tmp_path: Path) -> None:
    existing, built = unique("there"), unique("taken")
    (tmp_path / "Dockerfile").write_text("FROM scratch\nCOPY Dockerfile /made\nENV MADE=elsewhere\n")
    docker("build", "--tag", existing, tmp_path)
    try:
        flags = [f"--target={target}"] if target else []
        done = build(built, {PRODUCT_ARG: existing}, *flags, image=dockerfile.partition("/")[0])
        assert done.returncode == 0, done.stdout
        assert "RUN" not in done.stdout
        assert Image(built).id() == Image(existing).id()
    finally:
        docker("rmi", "--force", existing, built)
