"""Budgets of images that a stack does not build."""

from __future__ import annotations

from stacks.checks.budgets import unknown_images
from stacks.graph import unlocked


def test_unknown_images_of_budgets_are_named_others_not() -> None:
    budgets = {"torch": "9 GB", "trch": "9 GB", "torch-wheel": "1 GB"}
    values = {"flavor": "base", "cuda": "13.0.2", "budgets": budgets}
    assert list(unknown_images(unlocked(values, "stack t"))) == [
        "slipway:budgets: the stack builds no image 'trch' (did you mean 'torch'?); it builds: torch, torch-extras",
        "slipway:budgets: the stack builds no image 'torch-wheel' (did you mean 'torch'?); it builds: torch, torch-extras",
    ]
