"""A build product that exists already is used unchanged: no instruction of its Dockerfile runs."""

from __future__ import annotations

from pathlib import Path

from stacks import plan
from stacks.config.stack_file import stack_names
from stacks.spec import PRODUCT_ARG
from tests.images.engine import Image, build, docker, unique


def test_existing_product_is_used_unchanged(tmp_path: Path) -> None:
    products = {
        (spec.dockerfile, spec.target or "") for name in stack_names() for spec in plan.resolve(name)[1] if spec.product
    }
    assert products
    existing, built = unique("there"), unique("taken")
    (tmp_path / "Dockerfile").write_text("FROM scratch\nCOPY Dockerfile /made\nENV MADE=elsewhere\n")
    docker("build", "--tag", existing, tmp_path)
    try:
        for dockerfile, target in sorted(products):
            flags = [f"--target={target}"] if target else []
            done = build(built, {PRODUCT_ARG: existing}, *flags, image=dockerfile.partition("/")[0])
            assert done.returncode == 0, done.stdout
            assert "RUN" not in done.stdout, (dockerfile, target)
            assert Image(built).id() == Image(existing).id(), (dockerfile, target)
    finally:
        docker("rmi", "--force", existing, built)
