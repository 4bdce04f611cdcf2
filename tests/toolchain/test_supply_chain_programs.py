"""cosign, Syft and Grype as parts: a fit one on PATH is used, else the pinned release, else one is built. The build itself is a slow test's."""

from __future__ import annotations

from pathlib import Path

import pytest

from toolchain.checkout import Checkout
from toolchain.machine import golang
from toolchain.parts import supply_chain_programs

COSIGN, SYFT, GRYPE = supply_chain_programs.TOOLS


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Checkout:
    """A checkout whose programs are written, not compiled."""
    temporary = Checkout(tmp_path)

    def build(_: Checkout, module: str, package: str, target: Path, *, ldflags: str) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(f"{module} {package} {ldflags}")

    monkeypatch.setattr(golang, "build", build)
    monkeypatch.setenv("PATH", f"{tmp_path / 'programs'}:/usr/bin:/bin")
    (tmp_path / "programs").mkdir()
    return temporary


def have(checkout: Checkout, name: str, version: str) -> Path:
    program = checkout.root / "programs" / name
    program.write_text(f"#!/bin/sh\n[ $1 = version ] && echo 'GitVersion:    {version}'\n")
    program.chmod(0o755)
    return program


def test_signing_program_on_path_is_used(checkout: Checkout) -> None:
    program = have(checkout, "cosign", "v2.4.1")
    part = supply_chain_programs.get(checkout, COSIGN)
    assert (part.used, part.version, part.path) == (str(program), "2.4.1", [])


@pytest.mark.parametrize(
    ("version", "why"), [(None, "cosign is not on PATH"), ("v3.0.4", "is 3.0.4"), ("x", "of no known")]
)
def test_missing_signing_program_is_built_once(checkout: Checkout, version: str | None, why: str) -> None:
    if version:
        have(checkout, "cosign", version)
    part = supply_chain_programs.get(checkout, COSIGN)
    assert why in part.why
    assert (part.used, part.path) == (str(checkout.bin / "cosign"), [str(checkout.bin)])
    assert part.version == golang.required("cosign", COSIGN.module)
    assert (
        Path(part.used).read_text() == f"cosign github.com/sigstore/cosign/v2/cmd/cosign -X main.version={part.version}"
    )
    Path(part.used).write_text("as it was built")
    assert supply_chain_programs.get(checkout, COSIGN) == part
    assert Path(part.used).read_text() == "as it was built"


def test_signing_program_version_is_its_go_modules() -> None:
    assert {tool.name: golang.required(tool.name, tool.module).partition(".")[0] for tool in supply_chain_programs.TOOLS} == {
        "cosign": "2", "syft": "1", "grype": "0",
    }  # fmt: skip
