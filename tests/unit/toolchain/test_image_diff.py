"""Which changes of an image's inputs count."""

from __future__ import annotations

from typing import Any

from tests.helpers.every import every
from toolchain.provider.image_diff import PropertyDiff, diff


@every(
    "old, new, kinds",
    [
        ({"imageName": "a"}, {"imageName": "a"}, {}),
        ({}, {"imageName": "a"}, {"imageName": PropertyDiff.ADD}),
        ({"imageName": "a"}, {}, {"imageName": PropertyDiff.DELETE}),
        ({"imageName": "a"}, {"imageName": "b"}, {"imageName": PropertyDiff.UPDATE}),
        ({"skipPush": True}, {"skipPush": 1}, {"skipPush": PropertyDiff.UPDATE}),
        ({"build": {"args": {"A": "1"}}}, {"build": {"args": {"B": "1"}}}, {"build": PropertyDiff.UPDATE}),
        ({"build": {"addHosts": ["a"]}}, {"build": {"addHosts": ["a", "b"]}}, {"build": PropertyDiff.UPDATE}),
        ({"registry": {"server": "r", "password": "1"}}, {"registry": {"server": "r", "password": "2"}}, {}),
        ({"registry": {"server": "r"}}, {"registry": {"server": "s"}}, {"registry": PropertyDiff.UPDATE}),
        ({"registry": {"username": "u"}}, {"registry": {"server": "s"}}, {}),
        ({"registry": None}, {"registry": {"server": "s"}}, {"registry": PropertyDiff.UPDATE}),
    ],
)
def test_image_diff_of_inputs_has_the_kind_of_each_key(
    old: dict[str, Any], new: dict[str, Any], kinds: dict[str, int]
) -> None:
    response = diff({"__inputs": old}, new)
    assert {key: change.kind for key, change in response.detailedDiff.items()} == kinds
    assert response.changes == (response.DIFF_SOME if kinds else response.DIFF_NONE)
