"""``slipway:compression``: what is accepted, and what it changes of a plan."""

from __future__ import annotations

from typing import Any

import pytest

from containers.errors import SlipwayError
from stacks import placement, plan, tags
from tests.helpers.every import every

ZSTD = {"kind": "zstd", "level": 5}


def planned(**keys: Any) -> plan.Plan:
    return plan.make("local", {"flavor": "local", **keys}, search=False)


@every(
    "value, message",
    [
        ({"kind": "lz4"}, r"slipway:compression\.kind: 'lz4': expected one of gzip, zstd"),
        ({"kind": "gzip", "level": 3}, r"slipway:compression: unknown key 'level'"),
        ({"kind": "zstd", "level": 0}, r"slipway:compression\.level: '0'"),
        ({"kind": "zstd", "level": 20}, r"slipway:compression\.level: '20': .* less than or equal to 19"),
        ({"kind": "zstd", "level": True}, r"slipway:compression: level: expected a number, and not true"),
        ({"level": 3}, r"slipway:compression: 'kind' is required"),
        ("zstd", r"slipway:compression: 'zstd': expected a mapping"),
    ],
)
def test_wrong_value_is_refused_with_its_key(value: Any, message: str) -> None:
    with pytest.raises(SlipwayError, match=message):
        planned(compression=value)


def test_gzip_is_the_default_and_in_no_tag() -> None:
    assert planned(compression={"kind": "gzip"}).images[0].tag == planned().images[0].tag


def test_level_is_in_the_tag_and_not_in_the_content() -> None:
    """The content, its labels too, is the same: an engine takes each step from its cache."""
    ours, others = planned(compression=ZSTD, tagSuffix="acme").images[0], planned(tagSuffix="acme").images[0]
    assert ours.tag == others.tag.replace("-acme", "-zstd5-acme")
    assert ours.fingerprint == others.fingerprint
    assert tags.parse(ours.tag)[1].zstd == "5"


def test_products_and_unpushed_images_keep_gzip() -> None:
    """No product is compiled again for another compression."""
    keys = {"flavor": "nccl", "cuda": "12.9.1"}
    base, zstd = (plan.make("nccl-cu129", {**keys, **more}, search=False) for more in ({}, {"compression": ZSTD}))
    levels = {placed.name: placed.level for placed in placement.place(zstd).images}
    products = {image.spec.name: image for image in zstd.images if image.spec.product}
    assert {levels[name] for name in products} == {None}
    assert {level for name, level in levels.items() if name not in products} == {5}
    assert {image.reference for image in products.values()} == {i.reference for i in base.images if i.spec.product}
    unpushed = plan.make("nccl-cu129", {**keys, "compression": ZSTD, "publish": False}, search=False)
    assert {placed.level for placed in placement.place(unpushed).images} == {None}


@every(
    "image, old",
    [
        ("docker:20.10.24-dind", True),
        ("docker:20-dind", True),
        ("docker:19", True),
        ("docker:28.5.2-dind", False),
        ("docker:23-dind", False),
        ("docker:dind", False),
        ("r.example/dind:20260101", False),
        ("r.example/dind:1.0", False),
    ],
)
def test_old_engine_of_runners_is_refused(image: str, old: bool) -> None:
    github = {"url": "https://github.com/acme", "secret": "github"}
    runners = {"kind": "kubernetes", "dockerImage": image, "github": github, "nodeSelector": {"pool": "runners"}}
    if old:
        with pytest.raises(SlipwayError, match=rf"slipway:compression: Docker 23\.0 is the first .* '{image}'"):
            planned(compression=ZSTD, runners=runners)
        planned(runners=runners)
    else:
        planned(compression=ZSTD, runners=runners)
