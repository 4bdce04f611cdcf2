"""CONTRIBUTING.md is true: the files that its table names are there, and its examples pass `slipway check`."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from maintenance.generated.architecture_picture import PARTS
from maintenance.upstream.contract import Contract
from stacks.config.stack_file import ROOT
from tests.helpers.program_copy import copy_folders
from tests.unit.docs.pages import page, table

GUIDE = page("CONTRIBUTING.md")
ROWS = {change: (files, proof) for change, files, proof in table(GUIDE.text, "Change")}
GENERATED = {"docs/reference/configuration.md", "stacks/stack.schema.json"}
"""What follows from a new key, beside the README of its image."""

GENERATE = (
    "import sys; from cli.main import main; from maintenance.commands import maintenance; "
    "sys.exit(main(['docs'], maintenance) or main(['schema'], maintenance))"
)
"""Both commands that write generated files, in one process: each takes half a second to start."""

OTHERS = {path.name for path in (ROOT / "stacks").glob("Pulumi.*.yaml")} - {
    "Pulumi.local.yaml",
    "Pulumi.base-cu132.yaml",
}
"""The stacks that a copy is checked without: each takes as long as that of the example. All are checked by test_cli.py."""

LEFT_OUT = ("hello*", "quay*", "Pulumi.hello.yaml", "mamba", "mamba.toml")
"""What no copy has: what the examples add, should somebody have followed them."""


class Copy:
    """A copy of what `slipway check` and the generated files read, to make a change in."""

    def __init__(self, root: Path) -> None:
        self.root = root
        copy_folders(root, *PARTS, "dockerfiles", "docs", without=LEFT_OUT)
        shutil.copy(ROOT / "Pulumi.yaml", root)
        self.before = self._files()

    def _files(self) -> dict[str, bytes]:
        files = (path for path in self.root.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
        return {path.relative_to(self.root).as_posix(): path.read_bytes() for path in files}

    def _call(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, *words], cwd=self.root, capture_output=True, text=True, check=False)

    def _check(self) -> subprocess.CompletedProcess[str]:
        for name in OTHERS:
            (self.root / "stacks" / name).rename(self.root / name)
        done = self._call("-m", "stacks", "check")
        for name in OTHERS:
            (self.root / name).rename(self.root / "stacks" / name)
        return done

    def write(self, path: str, text: str) -> None:
        """Write a new file."""
        assert path not in self.before
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def insert(self, path: str, after: str, line: str) -> None:
        """Insert lines behind the only place in a file that has this text."""
        text = (self.root / path).read_text()
        assert text.count(after) == 1, (path, after)
        (self.root / path).write_text(text.replace(after, after + line))

    def append(self, path: str, text: str) -> None:
        """Write more behind the end of a file."""
        with (self.root / path).open("a") as file:
            file.write(f"\n{text}")

    def repeat(self, path: str, pattern: str, old: str, new: str) -> None:
        """Write each part of a file that a pattern matches once more behind it, under another name."""
        text, count = re.subn(
            pattern,
            lambda match: match[0] + match[0].replace(old, new).replace(old.upper(), new.upper()),
            (self.root / path).read_text(),
            flags=re.MULTILINE,
        )
        assert count, (path, pattern)
        (self.root / path).write_text(text)

    def generate(self) -> set[str]:
        """Write the generated files again, and return those that are other than before."""
        before = self._files()
        done = self._call("-c", GENERATE)
        assert done.returncode == 0, done.stderr
        after = self._files()
        return {path for path in after if after[path] != before.get(path)}

    def check(self, *stacks: str) -> None:
        """Run the check, and see that it passes and knows of the stacks."""
        done = self._check()
        assert done.returncode == 0, done.stderr
        for stack in stacks:
            assert re.search(rf"^{stack}: .*\bok$", done.stdout, re.MULTILINE), stack

    def mistakes(self) -> str:
        """Run the check, and return the mistakes that it finds."""
        done = self._check()
        assert done.returncode == 1
        return "".join(line for line in done.stderr.splitlines(keepends=True) if not line.startswith("warning: "))

    def changed(self) -> set[str]:
        """Return the files that differ from those copied."""
        after = self._files()
        return {path for path in {*after, *self.before} if after.get(path) != self.before.get(path)}


@pytest.fixture
def copy(tmp_path: Path) -> Copy:
    return Copy(tmp_path)


def touched(change: str, **names: str) -> set[str]:
    """Return the files that a row names without parentheses, with names in place of its placeholders."""
    files = re.sub(r"\([^)]*\)", "", ROWS[change][0])
    return {re.sub(r"<(\w+)>", lambda match: names[match[1]], path) for path in re.findall(r"`([^`]+)`", files)}


def example(title: str, path: str) -> str:
    """Return the block below the line that names a file, in the section of an example."""
    section = GUIDE.text.partition(f"## Example: {title}\n")[2].partition("\n## ")[0]
    match = re.search(
        rf"`{re.escape(path)}`[^`]*?(?:`[^`]+`[^`]*?)*?\n\n( *)```\w+\n(.*?)^\1```$", section, re.DOTALL | re.MULTILINE
    )
    assert match, path
    return re.sub(rf"^{match[1]}", "", match[2], flags=re.MULTILINE)


STARTS = {
    "try-quay": "slipway:flavor: local\n  slipway:registry: {kind: quay, repository: quay.io/acme}",
    "try-ghcr": "slipway:flavor: local\n  slipway:registry: {kind: quay, repository: ghcr.io/acme}",
    "try-cuda": "slipway:flavor: nccl\n  slipway:cuda: 13.9.0",
    "try-mamba": "slipway:flavor: base\n  slipway:extras: {mamba: 2.2.4}",
}
"""Stacks that use what the examples add: that of `ghcr.io` has a mistake of its own."""


def _add_flavor(copy: Copy) -> set[str]:
    files = touched("flavor", flavor="hello", stack="hello", image="hello", check="10-greets")
    for path in files:
        copy.write(path, example("a flavor", path))
    return files


def _add_registry_kind(copy: Copy) -> set[str]:
    model = "stacks/config/registries/quay.py"
    copy.write(model, example("a registry kind", model))
    assert model in touched("registry kind", kind="quay")
    return {model}


def _add_cuda_release(copy: Copy) -> set[str]:
    rows = dict(re.findall(r"^\[(\w+)\]\n(.+\n)", example("a CUDA release", "stacks/versions/cuda.toml"), re.MULTILINE))
    for heading, row in rows.items():
        copy.insert("stacks/versions/cuda.toml", f"\n[{heading}]\n", row)
    return touched("CUDA release")


DOCKERFILE = "dockerfiles/torch-extras/Dockerfile"


def _add_extra(copy: Copy) -> set[str]:
    """Add all but what the Dockerfile reads."""
    contract = "maintenance/upstream/contracts/mamba.toml"
    for path in ("dockerfiles/wheels/sources/mamba", "dockerfiles/wheels/recipes/mamba", contract):
        copy.write(path, example("an extra", path))
    Contract.model_validate(tomllib.loads(example("an extra", contract)))
    row = "stacks/versions/extras.toml"
    copy.append(row, example("an extra", row))
    return touched("extra", extra="mamba") - {"tests/unit/dockerfiles/test_arguments.py", DOCKERFILE}


def test_examples_in_the_files_of_their_rows_pass_the_check(copy: Copy) -> None:
    """All in one copy, as each start of the check takes a second."""
    files: set[str] = set()
    for add in (_add_flavor, _add_registry_kind, _add_cuda_release, _add_extra):
        files |= add(copy)
        assert copy.changed() == files, add.__name__
    for name, settings in STARTS.items():
        copy.write(
            f"stacks/Pulumi.{name}.yaml", f"config:\n  {settings}\n  slipway:tagSuffix: {name.replace('-', '_')}\n"
        )
    mistakes = copy.mistakes().splitlines()
    [of_registry] = [line for line in mistakes if line.startswith("stack try-ghcr: ")]
    assert "quay.io/<organization>" in of_registry
    assert {*mistakes} - {of_registry} == {
        (
            f"stack try-mamba: torch-extras: {DOCKERFILE} does not read MAMBA_WHEEL_IMAGE, which names mamba-wheel; "
            "declare the argument, and take a stage from it"
        )
    }
    for name in STARTS:
        (copy.root / f"stacks/Pulumi.{name}.yaml").rename(copy.root / f"{name}.yaml")
    copy.repeat(DOCKERFILE, r"^(?:# XFORMERS_.*\nARG XFORMERS_.*|FROM \S+ AS xformers-wheel)\n", "xformers", "mamba")
    copy.repeat(DOCKERFILE, r"^    --mount=.*,target=/built/xformers \\\n", "xformers", "mamba")
    copy.repeat(DOCKERFILE, r"^RUN .*\n +--mount=.*/wheels/xformers,.*\n(?: +.*\n)+", "xformers", "mamba")
    readmes = {f"dockerfiles/{image}/README.md" for image in ("hello", "torch", "torch-extras")}
    assert copy.generate() <= {*GENERATED, "Pulumi.yaml", *readmes}
    for name in STARTS.keys() - {"try-ghcr"}:
        (copy.root / f"{name}.yaml").rename(copy.root / f"stacks/Pulumi.{name}.yaml")
    copy.check("hello", *STARTS.keys() - {"try-ghcr"})
