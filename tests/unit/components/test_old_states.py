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


LOADER = """
import base64, dill, os, sys

import pulumi  # each process has it by now

for pickled in sys.argv[1:]:
    process = os.fork()
    if not process:
        print(pickled, type(dill.loads(base64.b64decode(pickled))).__name__, flush=True)
        os._exit(0)
    os.waitpid(process, 0)
"""
"""Loads each provider in a process of its own, which none of our modules has been imported into."""


def test_pickled_provider_in_a_new_process_is_todays_class() -> None:
    command = [sys.executable, "-c", LOADER, *PICKLED]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (dict(line.split() for line in process.stdout.splitlines()), process.stderr) == (PICKLED, "")


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
