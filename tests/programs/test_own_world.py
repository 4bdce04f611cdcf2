"""The tests' own world: nothing of who runs them is read, in this process or in what it starts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import boto3
import pytest
from docker.auth import load_config

from stacks.config.stack_file import ROOT
from tests.helpers import hostile_home


def printed(*command: str) -> str:
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_git_of_the_tests_has_no_settings() -> None:
    assert printed("git", "config", "--global", "--list") == ""


def test_commit_and_tag_of_the_tests_run_no_program(tmp_path: Path) -> None:
    name = ("-c", "user.name=a", "-c", "user.email=a@b.example")
    for words in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "a"], ["tag", "-a", "-m", "a", "a"]):
        subprocess.run(["git", *name, *words], cwd=tmp_path, check=True, timeout=60, stdin=subprocess.DEVNULL)
    subprocess.run(["git", "clone", "-q", tmp_path.as_uri(), "copy"], cwd=tmp_path, check=True, timeout=60)
    assert printed("git", "-C", str(tmp_path), "log", "--format=%an %G?") == "a N\n"


def test_clouds_of_the_tests_have_no_login() -> None:
    session = boto3.Session()
    assert (session.available_profiles, session.region_name) == ([], None)
    assert [name for name in os.environ if name.startswith(("AWS_P", "AWS_SEC", "AZURE_CL", "GITHUB_", "GH_"))] == []


def test_docker_of_the_tests_has_no_logins() -> None:
    assert load_config().is_empty
    assert [name for name in os.environ if name.startswith("DOCKER_")] == ["DOCKER_CONFIG"]


def test_pip_of_the_tests_has_no_settings() -> None:
    assert printed(sys.executable, "-m", "pip", "config", "list") == f":env:.config-file='{os.devnull}'\n"


def test_files_of_the_tests_may_be_read(tmp_path: Path) -> None:
    (tmp_path / "here").touch()
    subprocess.run(["sh", "-c", "touch there"], cwd=tmp_path, check=True, timeout=60)
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o644}


def test_environment_of_the_tests_reaches_no_network() -> None:
    names = {name.upper() for name in os.environ}
    assert names.isdisjoint({"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "SLIPWAY_REGISTRY", "PULUMI_BACKEND_URL", "CI"})
    assert names.isdisjoint({"TAR_OPTIONS", "GREP_OPTIONS", "CDPATH", "LC_ALL", "TZ", "COLUMNS", "FORCE_COLOR"})


@pytest.mark.parametrize("workers", [pytest.param("0", marks=pytest.mark.slow), "1"])
def test_hostile_home_leaves_the_world_as_it_is(workers: str, tmp_path: Path) -> None:
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--numprocesses", workers]
    tests = [f"{__file__}", "tests/unit/toolchain/test_keychain.py"]
    assert hostile_home.run(tmp_path, "env", "-C", ROOT, *words, *tests, "-k", "not hostile") == 0
