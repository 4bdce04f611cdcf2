"""Whoever may push puts an image under a build product's tag: an older product, another image, one of their own."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from components.supply_chain.image_signature import SignImage
from components.supply_chain.published_product import FindPublished
from tests.helpers import pushed_image
from tests.provider.conftest import private_registry
from toolchain.checkout import Checkout
from toolchain.machine import golang
from toolchain.parts import supply_chain_programs

OLD, NEW = "a" * 64, "b" * 64
"""Fingerprints of two builds of one product."""


class Registry:
    """A real registry, and a stack that signs with a key of its own."""

    def __init__(self, address: str, folder: Path) -> None:
        self.product = f"{address}/acme/torch-wheel"
        self.other = f"{address}/acme/vision-wheel"
        self._signer = {"publicKey": (folder / "cosign.pub").read_text(), "transparencyLog": False}
        self._signing = {**self._signer, "key": str(folder / "cosign.key"), "sbom": False, "provenance": False}

    def publish(self, fingerprint: str, name: str = "", *, stated: bool = True) -> str:
        """Push and sign a product as its stack does; return it by digest. Earlier versions stated no annotation."""
        name = name or self.product
        tag = f"x{fingerprint[:8]}-wheel"
        ref = pushed_image.push(f"{name}:{tag}", fingerprint)
        annotations = {"tag": tag, "fingerprint": fingerprint} if stated else {}
        SignImage().create({"ref": ref, "signing": self._signing, "annotations": annotations})
        return ref

    def taken(self, fingerprint: str, *, signed: bool = True, trusted: bool = False, needed: bool = True) -> str:
        """Return what a stack on an empty machine takes as a product; empty if it builds the product."""
        tag = f"x{fingerprint[:8]}-wheel"
        props: dict[str, Any] = {
            "ref": f"{self.product}:{tag}",
            "needed": needed,
            "signer": self._signer if signed else None,
            "annotations": {"tag": tag, "fingerprint": fingerprint},
            "trusted": trusted,
            "found": None,
        }
        outs = FindPublished().create(props).outs
        assert outs is not None
        # A refresh takes nothing else, whatever the last update took.
        refreshed = FindPublished().read(props["ref"], {**outs, "found": ""}).outs
        assert refreshed is not None
        assert refreshed["found"] == outs["found"]
        return str(outs["found"])


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[Registry]:
    (tmp_path / "registry").mkdir()
    (tmp_path / "cosign.pub").touch()
    with private_registry(tmp_path / "registry") as started:
        yield Registry(started.address, tmp_path)


@pytest.fixture
def signing(tmp_path: Path, registry: Registry, monkeypatch: pytest.MonkeyPatch) -> Registry:
    """The registry of a stack that signs with the real cosign."""
    checkout = Checkout.here()
    with golang.caches(checkout):
        real = Path(supply_chain_programs.get(checkout, supply_chain_programs.TOOLS[0]).used)
    monkeypatch.setenv("PATH", str(real.parent), prepend=os.pathsep)
    monkeypatch.setenv("COSIGN_PASSWORD", "")
    (tmp_path / "cosign.pub").unlink()
    subprocess.run(["cosign", "generate-key-pair"], cwd=tmp_path, check=True, capture_output=True)
    return Registry(registry.product.partition("/")[0], tmp_path)


@pytest.mark.slow
def test_older_signed_product_under_a_newer_tag_is_built(signing: Registry, capsys: pytest.CaptureFixture[str]) -> None:
    old = signing.publish(OLD)
    assert signing.taken(OLD) == old
    pushed_image.copy(old, f"{signing.product}:x{NEW[:8]}-wheel")
    assert signing.taken(NEW) == ""
    assert capsys.readouterr().err == (
        f"warning: {old}: signed with the tag xaaaaaaaa-wheel, not xbbbbbbbb-wheel; this is another image, or an older "
        "one; this build product is built anew\n"
    )
    # Whoever pushes nothing runs what it builds, and takes no more.
    assert signing.taken(NEW, needed=False) == ""
    new = signing.publish(NEW)
    assert signing.taken(NEW) == new


@pytest.mark.slow
def test_older_image_under_a_newer_tag_is_no_valid_signature(signing: Registry, tmp_path: Path) -> None:
    """Whoever pulls an image by its tag verifies so, with cosign alone."""

    def verified(tag: str) -> bool:
        options = ["--key", str(tmp_path / "cosign.pub"), "--insecure-ignore-tlog=true", "--annotations", f"tag={tag}"]
        words = ["cosign", "verify", *options, f"{signing.product}:{tag}"]
        return subprocess.run(words, capture_output=True, check=False).returncode == 0

    old, new = (f"x{fingerprint[:8]}-wheel" for fingerprint in (OLD, NEW))
    signing.publish(NEW)
    pushed_image.copy(signing.publish(OLD), f"{signing.product}:{new}")
    assert verified(old)
    assert not verified(new)


@pytest.mark.slow
def test_signed_product_of_another_name_is_built(signing: Registry) -> None:
    """The signature is copied beside the image, where cosign looks for it."""
    other = signing.publish(OLD, signing.other)
    signature = other.replace("@sha256:", ":sha256-") + ".sig"
    copied = pushed_image.copy(other, f"{signing.product}:x{NEW[:8]}-wheel")
    pushed_image.copy(signature, signature.replace(signing.other, signing.product))
    assert copied.partition("@")[2] == other.partition("@")[2]
    assert signing.taken(NEW) == ""


@pytest.mark.slow
def test_product_of_another_fingerprint_with_equal_tag_is_built(
    signing: Registry, capsys: pytest.CaptureFixture[str]
) -> None:
    """Eight digits of a fingerprint are found by trying: 2 to the 32 inputs that change nothing else."""
    close = OLD[:8] + "c" * 56
    ref = signing.publish(close)
    assert signing.taken(OLD) == ""
    assert f"{ref}: signed with the fingerprint {close}, not {OLD}; " in capsys.readouterr().err


@pytest.mark.slow
def test_product_whose_signature_states_no_tag_is_built(signing: Registry, capsys: pytest.CaptureFixture[str]) -> None:
    ref = signing.publish(OLD, stated=False)
    assert signing.taken(OLD) == ""
    assert capsys.readouterr().err == (
        f"warning: {ref}: the signature states no tag: Slipway did not make it, and it may be another image's; this "
        "build product is built anew\n"
    )
    signing.publish(OLD)
    assert signing.taken(OLD) == ref


def test_unsigned_product_is_built_unless_registry_is_trusted(registry: Registry) -> None:
    ref = pushed_image.push(f"{registry.product}:x{NEW[:8]}-wheel", "of whoever may push")
    assert registry.taken(NEW, signed=False) == ""
    assert registry.taken(NEW, signed=False, needed=False) == ""
    assert registry.taken(NEW, signed=False, trusted=True) == ref
