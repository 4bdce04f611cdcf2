"""What every test needs that runs the real Pulumi: a state of its own, and output without terminal codes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
from collections.abc import Mapping
from functools import cache
from importlib import metadata
from pathlib import Path


def environment(state: Path, **more: str) -> dict[str, str]:
    """Return this environment with the state in a folder, under a passphrase of the tests' own.

    `pulumi` is Pulumi's own in it. That of the checkout starts Python first, and changes nothing for a state of another place.
    """
    path = os.pathsep.join(each for each in os.get_exec_path() if not each.endswith("toolchain/pulumi_run/shell"))
    own = {"PATH": path, "PULUMI_BACKEND_URL": state.as_uri(), "PULUMI_CONFIG_PASSPHRASE": "test"}
    variables = {**os.environ, **own, **more}
    variables.pop("PULUMI_CONFIG_PASSPHRASE_FILE", None)
    return variables


def plain(output: str) -> str:
    """Return an output without colours."""
    return re.sub(r"\x1b\[[0-9;]*m", "", output)


@cache
def _new_stack() -> tuple[Mapping[str, bytes], str]:
    """Return the files of a state that has the empty stack `t` of the project `slipway`, and the line of its salt."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "Pulumi.yaml").write_text("name: slipway\nruntime: python\n")
        (folder / "Pulumi.t.yaml").write_text("config: {}\n")
        command = ["pulumi", "stack", "init", "--no-select", "--non-interactive", "t"]
        subprocess.run(command, cwd=folder, env=environment(folder), check=True, capture_output=True)
        state = {
            str(file.relative_to(folder)): file.read_bytes() for file in folder.glob(".pulumi/**/*") if file.is_file()
        }
        [salt] = [line for line in (folder / "Pulumi.t.yaml").read_text().splitlines() if "encryptionsalt" in line]
        return state, salt


def add_stack(state: Path, config: Path) -> None:
    """Add the empty stack `t` to a new state, and its salt to the stack's file; `pulumi stack init` runs once a process."""
    files, salt = _new_stack()
    for name, content in files.items():
        (state / name).parent.mkdir(parents=True, exist_ok=True)
        (state / name).write_bytes(content)
    with config.open("a") as file:
        file.write(f"{salt}\n")


@cache
def _pulumi_packages() -> str:
    packages = [one for one in metadata.distributions() if one.name.startswith("pulumi")]
    listed = [{"name": one.name, "version": one.version, "location": str(one.locate_file(""))} for one in packages]
    return json.dumps(listed)


def write_pip(root: Path) -> None:
    """Write a stand-in of pip, found before it where Pulumi runs: it lists Pulumi's packages.

    Pulumi runs `python -m pip list -v --format json` in the project's folder before each update and preview, to find the
    plugins that these packages need. That takes 0.6 s of CPU, a fifth of a preview.
    """
    (root / "pip.py").write_text(f"print({_pulumi_packages()!r})\n")


def image_names(exported: str) -> list[str]:
    """Return the names under which the engine has the images of an exported stack and their checks."""
    resources = json.loads(exported)["deployment"]["resources"]
    return [each["outputs"]["imageName"] for each in resources if each["type"] == "docker:index/image:Image"]
