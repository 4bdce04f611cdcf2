"""Take each instruction of the Dockerfiles away in turn, and say which test then fails: a table in Markdown.

``python -m tests.images.without [DOCKERFILE[:FIRST-LAST]...]``, in the environment of ``.slipway/env``; lines count from 1.
It works in a copy of the checkout, below ``.slipway/``, so that several can run at once. An instruction that no test misses
has no reason to be there.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from stacks.source import ROOT

COPY = ROOT / f".slipway/without-{os.getpid()}"
FAST = (
    "tests/unit/test_dockerfile_arguments.py",
    "tests/unit/test_dockerfiles.py",
    "tests/unit/test_dockerfile.py",
    "tests/unit/test_arguments.py",
)
BASE = ("tests/images/family", "-m", "not slow")
DOCKERFILES: dict[str, tuple[str, ...]] = {
    "nccl-tests/Dockerfile": ("tests/images/family", "-m", "", "-k", "nccl-cu121 or says_no"),
    "wheels/Dockerfile": BASE,
    "torch/Dockerfile": BASE,
    "torch-extras/Dockerfile": BASE,
    "efa/Dockerfile": ("tests/images/efa", "-m", ""),
    "megatron/Dockerfile": ("tests/images/megatron", "-m", ""),
    "universal-install/Dockerfile": ("tests/images/universal", "-m", ""),
    "universal/Dockerfile": ("tests/images/universal", "-m", ""),
}
"""A Dockerfile, and the tests of what is built of it; :data:`FAST` ones know of arguments, and run first for these."""
NOTHING = "**nothing**"


def instructions(text: str) -> Iterator[tuple[int, int]]:
    """Yield the first and the last line of each instruction, counted from 0."""
    lines = text.splitlines()
    number = 0
    while number < len(lines):
        first = number
        if lines[first].strip() and not lines[first].startswith("#"):
            while lines[number].endswith("\\"):
                number += 1
            yield first, number
        number += 1


def misses(tests: tuple[str, ...]) -> str:
    """Run tests on the copy and return the first that fails, with what it says; nothing if none does."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-x",
        "-q",
        "--tb=short",
        "-p",
        "no:cacheprovider",
        *tests,
    ]
    done = subprocess.run(command, cwd=COPY, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return NOTHING
    failed = re.search(r"^(?:FAILED|ERROR) \S*?(\w+\.py(?:::\S+)?)", done.stdout, re.MULTILINE)
    why = re.search(r"check failed: \S+", done.stdout) or re.search(r"^E +\S.*$", done.stdout, re.MULTILINE)
    said = why[0].removeprefix("E").strip() if why else ""
    return f"{failed[1] if failed else done.stdout[-200:]}: {said[:90]}"


def main() -> None:
    """Print a row for each instruction, as soon as it is known."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        (COPY / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, COPY / name)
    (COPY / ".slipway").mkdir(exist_ok=True)
    if not (COPY / ".slipway/venv").exists():
        (COPY / ".slipway/venv").symlink_to(ROOT / ".slipway/venv")
    subprocess.run(["git", "init", "-q"], cwd=COPY, check=True)
    subprocess.run(["git", "add", "-A"], cwd=COPY, check=True)
    author = ["-c", "user.name=Nobody", "-c", "user.email=nobody@localhost"]
    subprocess.run(["git", *author, "commit", "-q", "--allow-empty", "-m", "All of it"], cwd=COPY, check=True)
    for tests in dict.fromkeys(DOCKERFILES[asked.partition(":")[0]] for asked in sys.argv[1:] or DOCKERFILES):
        if (said := misses(tests)) != NOTHING:
            sys.exit(f"the tests fail as it is: {said}")
    print("| Dockerfile | without | misses it |\n| --- | --- | --- |", flush=True)
    for asked in sys.argv[1:] or DOCKERFILES:
        name, _, lines = asked.partition(":")
        low, _, high = lines.partition("-")
        path: Path = COPY / "dockerfiles" / name
        whole = path.read_text()
        for first, last in instructions(whole):
            if not int(low or 1) <= first + 1 <= int(high or low or 10**6):
                continue
            kept = whole.splitlines(keepends=True)
            what = " ".join(part.strip(" \\\n") for part in kept[first : last + 1])
            del kept[first : last + 1]
            path.write_text("".join(kept))
            first_asked, then_asked = (
                (FAST, DOCKERFILES[name]) if what.startswith("ARG ") else (DOCKERFILES[name], FAST)
            )
            said = misses(first_asked)
            said = misses(then_asked) if said == NOTHING else said
            print(f"| {name}:{first + 1} | `{what[:100]}` | {said} |", flush=True)
        path.write_text(whole)
    shutil.rmtree(COPY)


if __name__ == "__main__":
    main()
