"""What the programs that Slipway starts get of its environment, and that all of them are started so."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from containers.child_environment import PROGRAMS, child_environment
from stacks.config.stack_file import ROOT
from tests.helpers.every import every

PRODUCT = ("stacks", "containers", "cli", "components", "maintenance", "toolchain", "ci")
STARTING = {"run", "Popen", "call", "check_call", "check_output"}
SCRIPT = "toolchain/machine/network/trust_store.py"
"""A script that `mmdebstrap` runs, in an environment that is trimmed already; it can import nothing of ours."""
IN_CONTAINERS = {"cli/warm/warm_container.py", "cli/startup/in_container.py"}
"""Programs that run in a container of an image: its environment is the image's, and the command limits their time."""

SECRETS = (
    *("COSIGN_PRIVATE_KEY", "COSIGN_PASSWORD", "SIGSTORE_ID_TOKEN", "ACTIONS_ID_TOKEN_REQUEST_TOKEN"),
    *("GITHUB_TOKEN", "GH_TOKEN", "SLIPWAY_REGISTRY_PASSWORD", "DOCKER_REGISTRY_PASS", "INDEX_PASSWORD"),
    *("PULUMI_CONFIG", "PULUMI_CONFIG_PASSPHRASE", "PULUMI_ACCESS_TOKEN", "VAULT_TOKEN", "AWS_SECRET_ACCESS_KEY"),
)
NEEDED = {
    "aws": {"AWS_SECRET_ACCESS_KEY"},
    "cosign": {"AWS_SECRET_ACCESS_KEY", "VAULT_TOKEN"},
    "docker": {"AWS_SECRET_ACCESS_KEY"},
    "gh": {"GITHUB_TOKEN", "GH_TOKEN"},
    "github init": {"GITHUB_TOKEN", "GH_TOKEN", "AWS_SECRET_ACCESS_KEY"},
    "grype": {"AWS_SECRET_ACCESS_KEY"},
    "kubectl": {"AWS_SECRET_ACCESS_KEY"},
    "pulumi": {
        *("PULUMI_CONFIG", "PULUMI_CONFIG_PASSPHRASE", "PULUMI_ACCESS_TOKEN"),
        *("VAULT_TOKEN", "AWS_SECRET_ACCESS_KEY"),
    },
    "reading": {"AWS_SECRET_ACCESS_KEY"},
    "ssh": {"AWS_SECRET_ACCESS_KEY"},
    "syft": {"AWS_SECRET_ACCESS_KEY"},
}
"""By program: the secrets that it gets; AWS's are those of registries' credential helpers and of the way to a builder."""


@every("program", [*PROGRAMS, "tar", "mksquashfs", "no-such-program"])
def test_program_gets_the_secrets_that_it_needs_alone(program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*SECRETS, "DOCKER_HOST"):
        monkeypatch.setenv(name, "canary")
    environment = child_environment(f"/usr/local/bin/{program}", COLUMNS="80")
    assert {name for name in SECRETS if name in environment} == NEEDED.get(program, set())
    assert {"PATH", "COLUMNS"} <= environment.keys()
    assert ("DOCKER_HOST" in environment) == (program in {"docker", "reading"})


def texts(word: str) -> Iterator[tuple[Path, str]]:
    """Yield the product's modules that have a word, and their texts."""
    for file in (file for folder in PRODUCT for file in (ROOT / folder).rglob("*.py")):
        if str(file.relative_to(ROOT)) not in IN_CONTAINERS and word in (text := file.read_text(encoding="utf-8")):
            yield file, text


def calls() -> Iterator[tuple[str, ast.Call]]:
    """Yield the calls of `subprocess` in the product, with their places."""
    for file, text in texts("subprocess"):
        for node in ast.walk(ast.parse(text)):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and isinstance(node.func.value, ast.Name)
                and node.func.value.id == "subprocess"
                and node.func.attr in STARTING
            ):
                yield f"{file.relative_to(ROOT)}:{node.lineno}", node


def test_no_program_inherits_the_whole_environment() -> None:
    started = dict(calls())
    assert len(started) > 25
    bare = [place for place, call in started.items() if all(keyword.arg != "env" for keyword in call.keywords)]
    assert [place for place in bare if not place.startswith(SCRIPT)] == []


def test_no_program_is_waited_for_without_a_limit() -> None:
    ended = {place: call for place, call in calls() if call.func.attr != "Popen"}  # type: ignore[attr-defined]
    assert len(ended) > 15  # most programs are run by `run_program`
    assert [place for place, call in ended.items() if all(each.arg != "timeout" for each in call.keywords)] == []


def test_no_environment_is_made_of_the_whole_one() -> None:
    copying = [
        str(file.relative_to(ROOT))
        for file, text in texts("os.environ")
        if any(whole(node) for node in ast.walk(ast.parse(text)))
    ]
    assert copying == []


def whole(node: ast.AST) -> bool:
    """Return whether a node is `{**os.environ}`, `dict(os.environ)`, `os.environ.copy()` or `env=os.environ`."""
    if isinstance(node, ast.Dict):
        return any(
            key is None and ast.unparse(value) == "os.environ"
            for key, value in zip(node.keys, node.values, strict=True)
        )
    if isinstance(node, ast.Call):
        return ast.unparse(node) in {"dict(os.environ)", "os.environ.copy()"} or any(
            keyword.arg == "env" and ast.unparse(keyword.value) == "os.environ" for keyword in node.keywords
        )
    return False
