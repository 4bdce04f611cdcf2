"""The refresh of torch's table: real wheels on a real index on loopback, read by byte ranges."""

from __future__ import annotations

import pytest

from maintenance.refresh import torch_table


def test_torch_table_index_is_the_one_of_pip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    assert torch_table.pip_index_url() == "http://127.0.0.1:9/simple"
    monkeypatch.delenv("PIP_INDEX_URL")
    assert torch_table.pip_index_url().startswith("http")
