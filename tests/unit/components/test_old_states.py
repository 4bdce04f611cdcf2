"""Providers pickled into old states."""

from __future__ import annotations

import base64
import importlib
import subprocess
import sys

import pytest

from components import old_states
from stacks.config.stack_file import ROOT

PICKLED = {
    "gASVJwAAAAAAAACMFGNvbXBvbmVudHMucHVibGlzaGVklIwHX0Fza2luZ5STlCmBlC4=": "FindPublished",
    "gASVMgAAAAAAAACMH2NvbXBvbmVudHMucnVubmVycy5jZXJ0aWZpY2F0ZXOUjAdfTWFraW5nlJOUKYGULg==": "MakeCertificates",
    "gASVOAAAAAAAAACMJGNvbXBvbmVudHMucnVubmVycy5lYzIuYnVpbGRlci5zaGlmdJSMCF9SZXN0aW5nlJOUKYGULg==": "StopBuilder",
    "gASVNwAAAAAAAACMJGNvbXBvbmVudHMucnVubmVycy5lYzIuYnVpbGRlci5zaGlmdJSMB19XYWtpbmeUk5QpgZQu": "StartBuilder",
    "gASVLgAAAAAAAACMGmNvbXBvbmVudHMucnVubmVycy5yZWFjaGVklIwIX1dhaXRpbmeUk5QpgZQu": "WaitForEngine",
    "gASVJgAAAAAAAACMEmNvbXBvbmVudHMuc2lnbmluZ5SMCF9MaXN0aW5nlJOUKYGULg==": "AttestSbom",
    "gASVJgAAAAAAAACMEmNvbXBvbmVudHMuc2lnbmluZ5SMCF9TaWduaW5nlJOUKYGULg==": "SignImage",
    "gASVJgAAAAAAAACMEmNvbXBvbmVudHMuc2lnbmluZ5SMCF9UcmFjaW5nlJOUKYGULg==": "AttestProvenance",
    "gASVKAAAAAAAAACMEmNvbXBvbmVudHMuc2lnbmluZ5SMCl9WZXJpZnlpbmeUk5QpgZQu": "VerifyParent",
    "gASVIgAAAAAAAACMDmNvbXBvbmVudHMudGFnlIwIX1RhZ2dpbmeUk5QpgZQu": "TagImage",
}
"""``__provider`` as 25ac601 wrote it, and the provider's class today."""


@pytest.mark.parametrize("pickled", PICKLED)
def test_pickled_provider_in_a_new_process_is_todays_class(pickled: str) -> None:
    script = "import base64, dill, sys; print(type(dill.loads(base64.b64decode(sys.argv[1]))).__name__)"
    process = subprocess.run(
        [sys.executable, "-c", script, pickled], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (process.stdout, process.stderr) == (f"{PICKLED[pickled]}\n", "")


def test_pickled_providers_together_cover_every_moved_class() -> None:
    pickles = [base64.b64decode(pickled) for pickled in PICKLED]
    for module, classes in old_states.MOVED.items():
        for name in classes:
            assert any(module.encode() in one and name.encode() in one for one in pickles), (module, name)


def test_moved_module_beside_todays_modules_hides_none() -> None:
    for module in old_states.MOVED:
        path = ROOT / module.replace(".", "/")
        assert not path.with_suffix(".py").exists()
        assert not path.is_dir()


def test_moved_module_without_a_class_raises_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'components.tag' has no attribute 'Other'"):
        getattr(importlib.import_module("components.tag"), "Other")  # noqa: B009 - mypy knows of no such module
