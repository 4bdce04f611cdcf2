"""Find the Dockerfiles' unneeded instructions: remove each in turn, and print what then fails, as a Markdown table.

``python -m tests.images.unneeded_instructions [DOCKERFILE[:FIRST-LAST]...]``, in the environment of ``.slipway/env``; lines count from 1.
It works in a copy of the checkout below ``.slipway/``, so several can run at once. If nothing fails
without an instruction, it is unneeded.

The tries, the quickest first: unit tests of Dockerfiles; builds of the images that tests build from it, with their
checks; the tests of those images.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from stacks.config.stack_file import ROOT
from tests.fakes.upstreams import ngc
from tests.fakes.upstreams.efa_upstreams import Upstreams as Efa
from tests.fakes.upstreams.megatron_upstreams import Upstreams as Megatron
from tests.fakes.upstreams.server import Server
from tests.fakes.upstreams.upstreams import World
from tests.images import chain
from tests.images.engine import CHECKED, DOCKERFILES, build
from tests.images.family import conftest as family
from tests.images.universal import conftest as universal

COPY = ".slipway/unneeded-instructions-"
FAST = (
    "tests/unit/dockerfiles/test_dockerfile_arguments.py",
    "tests/unit/dockerfiles/test_dockerfiles.py",
    "tests/unit/dockerfiles/test_arguments.py",
    "tests/unit/cli/test_readme_tables.py",
)
NOTHING = "**nothing**"

Build = tuple[dict[str, str], list[str]]
"""The arguments of a build, and its flags."""


@dataclass(frozen=True)
class Builds:
    """The builds of a Dockerfile's images, and the folder and address of their upstreams."""

    image: str
    folder: Path
    url: str
    builds: list[Build]

    def fail(self) -> str:
        """Run all builds, and return the reason of the first failure; ``NOTHING`` if none fails."""
        address = urlsplit(self.url)
        server = Server(self.folder, str(address.hostname), address.port or 0)
        assert server.url == self.url, "another run has the upstreams' port"
        try:
            for arguments, flags in self.builds:
                done = build("", arguments, *flags, image=self.image)
                if done.returncode != 0:
                    return reason(done.stdout)
        finally:
            server.close()
        return NOTHING


def reason(output: str) -> str:
    """Return why a build failed: its check, else the last line of a step, else the engine's last line."""
    lines = [line for line in output.splitlines() if line.strip()]
    steps = [match[1] for line in lines if (match := re.match(r"#\d+ [\d.]+ (\S.*)", line))]
    checks = [line for line in steps if line.startswith("check failed: ")]
    return f"the build: {(checks or steps[-1:] or lines[-1:])[-1]}"


def in_chains(dockerfile: str, world: World, variations: Iterable[chain.Variation]) -> Builds:
    """Build stacks' chains, and return the builds of a Dockerfile's images in them."""
    builds: list[Build] = []
    for stack, more in variations:
        built = chain.built(stack, world, **more)
        images = [image for image in built.planned.values() if image.spec.dockerfile == dockerfile]
        builds += [chain.build_arguments(image, built.names) for image in images]
        builds += [(chain.checks_arguments(image, built.names), [CHECKED]) for image in images if image.content.checks]
    world.server.close()
    return Builds(dockerfile.partition("/")[0], world.cache, world.server.url, builds)


def of_family(dockerfile: str) -> Builds:
    """Return the builds in the chains of the stacks for CUDA 12.1, one of them with all extras."""
    return in_chains(dockerfile, family.upstreams(), [("nccl-cu121", {}), ("base-cu121", family.XFORMERS)])


def of_universal(dockerfile: str) -> Builds:
    """Return the builds in the chain of the stack at the seed's versions."""
    return in_chains(dockerfile, universal.upstreams(), [("universal-cu113", {"train": universal.PEOPLE})])


def of_ngc(world: ngc.Upstreams, *more: dict[str, Any]) -> Builds:
    """Return the builds of a stack by default and with each set of further keys."""
    builds: list[Build] = [(world.arguments(**keys), flags) for keys in ({}, *more) for flags in ([], [CHECKED])]
    world.server.close()
    return Builds(world.image, world.cache, world.server.url, builds)


def of_efa(_: str) -> Builds:
    """Return the builds of the EFA image by default, and with all its options."""
    more = {"openmpi": {"pmix": "4.2.6"}, "efa": {"ofiNccl": "1.20.0"}, "extras": {"xformers": "0.0.35"}}
    return of_ngc(Efa(), {**more, "nccl": {"version": "2.32.3-1", "source": "build"}})


def of_megatron(_: str) -> Builds:
    """Return the builds of the Megatron-LM image by default, and with another TransformerEngine."""
    return of_ngc(Megatron(), {"transformerEngine": "2.12"})


FAMILY = ("tests/images/family", "-m", "", "-k", "cu121 or off or cache or failing")
UNIVERSAL = ("tests/images/universal/test_universal.py", "-m", "", "-k", "not cu102 and not cu132")
NCCL = ("tests/images/family", "-m", "", "-k", "nccl-cu121 or faulty or failing")
BUILDS: dict[str, tuple[Callable[[str], Builds], tuple[str, ...]]] = {
    "hpc-tools/Dockerfile": (of_family, NCCL),
    "nccl-builder/Dockerfile": (of_family, NCCL),
    "nccl-tests/Dockerfile": (of_family, NCCL),
    "torch/Dockerfile": (of_family, ("tests/images/test_layers.py", *FAMILY[:-1], f"{FAMILY[-1]} or layers")),
    "torch-extras/Dockerfile": (of_family, FAMILY),
    "efa/Dockerfile": (of_efa, ("tests/images/efa", "-m", "")),
    "megatron/Dockerfile": (of_megatron, ("tests/images/megatron", "-m", "")),
    "wheels/Dockerfile": (of_universal, UNIVERSAL),
    "universal-install/Dockerfile": (of_universal, UNIVERSAL),
    "universal/Dockerfile": (of_universal, UNIVERSAL),
}
"""By Dockerfile: the function that returns its builds, and the tests of its images."""


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
    """Run tests, and return the first that fails with its message; ``NOTHING`` if none fails."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--tb=short", "-p", "no:cacheprovider", *tests]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return NOTHING
    failed = re.search(r"^(?:FAILED|ERROR) \S*?(\w+\.py(?:::\S+)?)", done.stdout, re.MULTILINE)
    why = re.search(r"check failed: \S+", done.stdout) or re.search(r"^E +\S.*$", done.stdout, re.MULTILINE)
    message = why[0].removeprefix("E").strip() if why else ""
    return f"{failed[1] if failed else done.stdout[-200:]}: {message}"


def copy() -> Path:
    """Return a copy of the checkout's tracked files as a new repository, with this checkout's virtual environment."""
    folder = ROOT / f"{COPY}{os.getpid()}"
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name, follow_symlinks=False)
    (folder / ".slipway").mkdir()
    (folder / ".slipway/venv").symlink_to(ROOT / ".slipway/venv")
    author = ["-c", "user.name=Nobody", "-c", "user.email=nobody@localhost"]
    for command in (["init", "-q"], ["add", "-A"], [*author, "commit", "-q", "-m", "Copy"]):
        subprocess.run(["git", *command], cwd=folder, check=True)
    return folder


def main() -> None:
    """Print a row for each instruction as soon as its result is known."""
    if COPY not in str(ROOT):
        folder = copy()
        done = subprocess.run(
            [sys.executable, "-m", "tests.images.unneeded_instructions", *sys.argv[1:]], cwd=folder, check=False
        )
        shutil.rmtree(folder)
        sys.exit(done.returncode)
    print("| Dockerfile | without | what fails |\n| --- | --- | --- |", flush=True)
    for argument in sys.argv[1:] or BUILDS:
        name, _, lines = argument.partition(":")
        low, _, high = lines.partition("-")
        builder, tests = BUILDS[name]
        builds = builder(name)
        if (failure := builds.fail()) != NOTHING:
            sys.exit(f"{name} does not build before any change: {failure}")
        path = DOCKERFILES / name
        text = path.read_text()
        for first, last in instructions(text):
            if not int(low or 1) <= first + 1 <= int(high or low or 10**6):
                continue
            remaining = text.splitlines(keepends=True)
            instruction = " ".join(part.strip(" \\\n") for part in remaining[first : last + 1])
            del remaining[first : last + 1]
            path.write_text("".join(remaining))
            attempts = (partial(misses, FAST), builds.fail, partial(misses, tests))
            failure = next((failure for attempt in attempts if (failure := attempt()) != NOTHING), NOTHING)
            print(f"| {name}:{first + 1} | `{instruction[:100]}` | {failure[:160]} |", flush=True)
        path.write_text(text)


if __name__ == "__main__":
    main()
