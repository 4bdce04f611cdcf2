"""The refresh of torch's table from the index that pip is configured with."""

from __future__ import annotations

import tomllib

import pytest

from maintenance.refresh import torch_table
from stacks.config.stack_file import ROOT


def test_torch_table_index_is_the_one_of_pip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    assert torch_table.pip_index_url() == "http://127.0.0.1:9/simple"
    monkeypatch.delenv("PIP_INDEX_URL")
    assert torch_table.pip_index_url().startswith("http")


@pytest.mark.slow
def test_torch_table_committed_is_current() -> None:
    committed = tomllib.loads((ROOT / "stacks/versions/torch.toml").read_text())
    for package in ("torchaudio", "torchtext"):
        rows = dict(torch_table.table(torch_table.pip_index_url(), package))
        ours = committed[package.removeprefix("torch")]
        assert {version: rows[version] for version in ours} == ours
