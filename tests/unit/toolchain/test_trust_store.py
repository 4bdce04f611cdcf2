"""The certificates that a base image gets, so that its builds reach the network as this machine does."""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path

import pytest

from toolchain.machine.network import trust_store


def pem(text: str) -> str:
    return ssl.DER_cert_to_PEM_cert(text.encode())


def test_additional_are_those_that_the_distribution_lacks() -> None:
    ours, theirs = pem("company"), pem("public")
    assert trust_store.additional(ours + theirs + pem("second") + ours, theirs) == [ours, pem("second")]
    assert trust_store.additional(theirs, f"# ours too\n{ours}{theirs}") == []


def test_add_writes_certificates_and_updates_the_trust_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a stand-in of chroot; of the machine's bundle there is nothing here, so that no machine's own matters."""
    monkeypatch.setattr(trust_store, "BUNDLE", Path("dev/null"))
    root, blocks = tmp_path / "root", [pem("company"), pem("second")]
    (root / "dev").mkdir(parents=True)
    (root / "dev/null").touch()
    (tmp_path / "chroot").write_text(f'#!/bin/sh\necho "$@" >>{tmp_path}/ran\n[ ! -e {tmp_path}/fails ]\n')
    (tmp_path / "chroot").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert trust_store.add(root) == 0
    assert not (tmp_path / "ran").exists()
    monkeypatch.setattr(trust_store, "additional", lambda *_: blocks)
    assert trust_store.add(root) == 2
    written = root / "usr/local/share/ca-certificates"
    assert [file.read_text() for file in sorted(written.glob("*.crt"))] == blocks
    assert (tmp_path / "ran").read_text() == f"{root} update-ca-certificates\n"
    (tmp_path / "fails").touch()
    with pytest.raises(subprocess.CalledProcessError):
        trust_store.add(root)
