"""Python packages in a new lock: looked up, kept from the lock before, or left out with a warning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from cli.locking import lock_file, python_packages, requirement_lists
from cli.locking.python_packages import NotLockable
from containers.errors import SlipwayError
from stacks import graph, lock
from stacks.graph import Graph
from stacks.spec import Packages

OLD, NEW = ({f"https://f.example/{name}-py3-none-any.whl": "0" * 64} for name in ("a-1", "a-2"))
TORCH = {"version": "2.14.0", "source": "wheel"}
BASE = {"flavor": "base", "cuda": "13.0.3", "distro": "ubuntu24.04", "torch": TORCH, "extras": {"deepspeed": "0.19.7"}}


def stack(values: Mapping[str, Any] = BASE, name: str = "b") -> Graph:
    return graph.unlocked(values, f"stack {name}")


def keys(unlocked: Graph, *, product: bool) -> set[str]:
    """Return the names in the lock of the packages of a stack's products, or of its images."""
    return {
        lock.packages_key(spec.packages, spec.platform, unlocked.config.mirrors)
        for spec in unlocked.specs
        if spec.packages and spec.product == product
    }


@pytest.fixture(autouse=True)
def index(monkeypatch: pytest.MonkeyPatch) -> dict[str, SlipwayError]:
    """What an index fails with, by a requirement of the set; others have the files ``NEW``."""
    errors: dict[str, SlipwayError] = {}

    def files(packages: Packages, *_: object) -> dict[str, str]:
        for requirement, error in errors.items():
            if requirement in packages.requirements:
                raise error
        return NEW

    monkeypatch.setattr(python_packages, "files", files)
    monkeypatch.setattr(requirement_lists, "read", lambda *_: {})
    return errors


def test_upgrade_takes_new_packages_but_those_of_products() -> None:
    base = stack()
    products, images = keys(base, product=True), keys(base, product=False)
    assert products
    assert images
    before = dict.fromkeys(products | images, OLD)
    found, warnings = lock_file._packages([base], {}, before, upgrade=True)
    assert found == dict.fromkeys(products, OLD) | dict.fromkeys(images, NEW)
    assert warnings == []
    assert lock_file._packages([base], {}, before) == (before, [])


def test_added_packages_fit_the_locked_ones_that_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    local = stack({"flavor": "local", "packages": {"pip": ["hjson"]}}, "l")
    (torch,) = (spec.packages for spec in local.specs if spec.packages and not spec.own)
    before = {lock.packages_key(torch, "linux/amd64", local.config.mirrors): OLD}
    fitted: list[list[str]] = []
    monkeypatch.setattr(python_packages, "files", lambda *given: fitted.append([*given[4]]) or NEW)
    found, _ = lock_file._packages([local], {}, before)
    assert (fitted, before.items() < found.items()) == ([[*OLD]], True)
    fitted.clear()
    lock_file._packages([local], {}, before, upgrade=True)
    assert fitted == [[], []]


def test_product_without_locked_packages_gets_new_ones() -> None:
    base = stack()
    every = keys(base, product=True) | keys(base, product=False)
    empty: dict[str, dict[str, str]] = {key: {} for key in every}
    for before in (empty, {"linux/amd64 another set": OLD}):
        assert lock_file._packages([base], {}, before) == (dict.fromkeys(every, NEW), [])


def test_set_that_cannot_be_locked_is_left_out(index: dict[str, SlipwayError]) -> None:
    index["hjson"] = NotLockable("hjson: no wheel")
    base = stack()
    every = keys(base, product=True) | keys(base, product=False)
    left = {key for key in every if " hjson " in key}
    found, warnings = lock_file._packages([base], {}, {"linux/amd64 another set": OLD})
    assert 0 < len(left) < len(every)
    assert found == dict.fromkeys(every - left, NEW)
    assert len(warnings) == len(left)
    assert (
        "stack b: torch-extras: no Python packages in the lock, so built as without one, and "
        "`slipway check --locked` refuses it: hjson: no wheel"
    ) in warnings


def test_set_that_cannot_be_locked_now_keeps_its_entry(index: dict[str, SlipwayError]) -> None:
    local = stack({"flavor": "local"}, "l")
    (key,) = keys(local, product=False)
    index["pip"] = NotLockable("pip: no wheel")
    other = stack({"flavor": "local"}, "m")
    found, (warning,) = lock_file._packages([local, other], {}, {key: OLD, f"{key} more": OLD}, upgrade=True)
    assert found == {key: OLD}
    assert warning == ("stack l: torch, stack m: torch: the lock keeps the Python packages that it had: pip: no wheel")


def test_index_that_does_not_respond_ends_the_lock(index: dict[str, SlipwayError]) -> None:
    index["hjson"] = SlipwayError("no route to host")
    base = stack()
    with pytest.raises(SlipwayError, match=r"^no route to host$"):
        lock_file._packages([base], {}, dict.fromkeys(keys(base, product=False), OLD))


def test_list_of_a_source_is_read_once_for_all_images(monkeypatch: pytest.MonkeyPatch) -> None:
    lists: list[str | None] = []
    monkeypatch.setattr(requirement_lists, "read", lambda listed, *_: lists.append(listed) or {})
    compiled = {"flavor": "base", "cuda": "13.0.3", "torch": {"version": "2.14.0", "source": "build"}}
    stacks = [stack({**compiled, "distro": distro}, distro) for distro in ("ubuntu22.04", "ubuntu24.04")]
    assert len({key for each in stacks for key in keys(each, product=True) if " mkl-static " in key}) == 2
    lock_file._packages(stacks, {}, {})
    assert [each for each in lists if each] == ["pytorch/pytorch v2.14.0 requirements.txt"]
