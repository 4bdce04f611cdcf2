"""A step with a login only fetches: none of them runs upstream's code, and none comes after one that did."""

from __future__ import annotations

import re

from containers.dockerfile.instructions import Instruction, json_array, parse
from stacks.config.stack_file import ROOT
from stacks.spec import CONTEXT
from tests.helpers.every import every
from tests.unit.dockerfiles.test_dockerfile_arguments import DOCKERFILES

FOLDER = ROOT / CONTEXT

FETCHING = {
    "efa": {
        "/srv/apt-install": "downloads",
        "/srv/sealed /mnt/install-system": "downloads",
        # Packages of NVIDIA's, or those that are made here: dpkg runs their scripts, as apt-get does.
        "/srv/sealed /mnt/install-nccl": "downloads",
        # The installer, which itself calls apt-get.
        "/srv/sealed /mnt/install-efa": "downloads",
        "/srv/layers/sealed /mnt/fetch-nccl": "downloads git",
        "/srv/layers/sealed /mnt/fetch-openmpi": "downloads",
        "/srv/layers/sealed /srv/build/fetch-source": "git",
    },
    "hpc-tools": {
        "/srv/layers/apt-install": "downloads",
        "/srv/layers/trust-ca": "",
        "/srv/build/make-venv": "index",
        "/srv/layers/sealed /mnt/unpack": "downloads",
        "/srv/layers/sealed /srv/build/fetch-source": "git",
    },
    "megatron": {
        "/srv/sealed /mnt/install-system": "downloads",
        "/srv/sealed /mnt/install-doca": "downloads",
        "/srv/sealed /mnt/install-packages": "index",
        "/srv/sealed /mnt/install-topology": "downloads",
        "/srv/layers/sealed /mnt/fetch-megatron": "git index",
        "/srv/layers/sealed /mnt/launcher": "git index",
        "/srv/layers/sealed /srv/build/fetch-source": "git",
    },
    "nccl-builder": {
        "/srv/sealed /mnt/install-system": "downloads",
        "/srv/sealed /srv/install-cudnn": "downloads",
        "/srv/sealed /srv/install-nccl": "downloads",
    },
    "nccl-tests": {"/srv/sealed /mnt/install-system": "downloads", "/srv/sealed /mnt/install-dcgm": "downloads"},
    "packages": {"/srv/sealed /mnt/install-apt": "downloads", "/srv/sealed /mnt/install-pip": "index"},
    "serve": {"/mnt/resolve": "index", "/srv/sealed /mnt/install-system": "downloads"},
    "torch": {
        "/mnt/resolve": "index",
        "/srv/sealed /mnt/setup": "downloads index",
        "/srv/sealed /srv/install-component": "downloads",
    },
    "torch-extras": {"/mnt/resolve": "index", "/srv/sealed /srv/install-component": "downloads"},
    "universal": {
        "/mnt/fetcher": "downloads",
        "/srv/sealed /mnt/fetch-micromamba": "downloads",
        "/srv/sealed /mnt/system": "downloads",
        "/srv/sealed /mnt/conda": "downloads",
        "/srv/sealed /mnt/wheels": "downloads index",
        "/srv/sealed /mnt/packages": "downloads",
        "/srv/sealed /mnt/pip": "index",
    },
    "universal-install": {
        "/srv/sealed /mnt/system": "downloads",
        "/srv/sealed /mnt/fetch-micromamba": "downloads",
        "/srv/sealed /mnt/conda-create": "downloads",
        "/srv/sealed /mnt/magma": "downloads",
        "/srv/layers/sealed /mnt/environment": "index",
    },
    "wheels": {
        "/srv/layers/apt-install": "downloads",
        "/srv/layers/trust-ca": "",
        "/mnt/setup": "downloads index",
        "/mnt/install-torch": "index",
        "/srv/layers/sealed /mnt/fetch": "git",
        "/srv/layers/sealed /mnt/install-needs": "downloads index",
    },
}
"""By folder, the programs that a step with logins may start, and what each fetches from: read in its script and in those
that it calls. Each fetches, and installs what is published.

Of that some runs: EFA's installer, scripts of packages, and the `setup.py` of what pip finds as source alone."""

BUILDS = r"/mnt/(build|needs|nccl|openmpi|ofi-nccl|tests|xformers|megatron|transformer-engine)$|/srv/build/nccl-tests$"
"""The programs that run what upstream wrote of its build."""


def programs(run: Instruction) -> set[str]:
    """Return the programs of a step, each with what `sealed` starts."""
    words = json_array(run.rest)
    parts = [words] if words else [part.split() for part in re.split(r"&&|\|\||\\\n", run.rest)]
    started = [part for part in parts if part and part[0].startswith("/")]
    return {" ".join(part[:2]) if part[0].endswith("/sealed") else part[0] for part in started}


def stages(dockerfile: str) -> dict[str, tuple[str, list[Instruction]]]:
    """Return each stage's parent and steps."""
    found: dict[str, tuple[str, list[Instruction]]] = {}
    for instruction in parse((FOLDER / dockerfile).read_bytes(), dockerfile).instructions:
        if instruction.keyword == "FROM":
            parent, *name = instruction.words
            current: list[Instruction] = []
            found[name[-1] if name else ""] = (parent, current)
        elif instruction.keyword == "RUN":
            current.append(instruction)
    return found


def has_login(run: Instruction) -> bool:
    return any("type=secret" in flag or "type=ssh" in flag for flag in run.flags)


@every("dockerfile", DOCKERFILES)
def test_step_with_login_starts_what_fetches_alone(dockerfile: str) -> None:
    runs = [run for _, steps in stages(dockerfile).values() for run in steps if has_login(run)]
    started = {program for run in runs for program in programs(run)}
    named = {*FETCHING.get(dockerfile.partition("/")[0], ())}
    assert started == named, (
        f"{dockerfile}: steps with logins start {sorted(started - named)}, and FETCHING of this file does not name them; "
        f"it names {sorted(named - started)}, and no step starts them. A program that runs what upstream wrote is a step "
        "of its own, without --mount=type=secret"
    )


@every("dockerfile", DOCKERFILES)
def test_step_has_logins_of_what_it_fetches_alone(dockerfile: str) -> None:
    fetching = FETCHING.get(dockerfile.partition("/")[0], {})
    for run in (run for _, steps in stages(dockerfile).values() for run in steps if has_login(run)):
        sources = {source for program in programs(run) for source in fetching[program].split()}
        (secret,) = [flag for flag in run.flags if "type=secret" in flag]
        assert secret == f"--mount=type=secret,id={'-'.join(('netrc', *sorted(sources)))},target=/dev/netrc,mode=0444"


@every("dockerfile", DOCKERFILES)
def test_step_that_builds_has_no_login_before_or_after(dockerfile: str) -> None:
    by_name = stages(dockerfile)
    for name, (first, own) in by_name.items():
        parent, steps = first, list(own)
        while parent in by_name:
            parent, older = by_name[parent]
            steps = [*older, *steps]
        builds = [number for number, run in enumerate(steps) if any(re.search(BUILDS, each) for each in programs(run))]
        late = [run.rest for run in steps[min(builds) :] if has_login(run)] if builds else []
        assert not late, f"{dockerfile}: stage {name}: {late}"


def test_every_dockerfile_that_compiles_has_a_step_that_builds() -> None:
    compile_ = {
        name.partition("/")[0]
        for name in DOCKERFILES
        for _, steps in stages(name).values()
        for run in steps
        if any(re.search(BUILDS, each) for each in programs(run))
    }
    assert compile_ == {"efa", "hpc-tools", "megatron", "wheels"}


def test_script_of_step_with_login_calls_no_compiler() -> None:
    """The scripts of this repository that these steps start, by their names."""
    compilers = re.compile(r"^\s*(?:\S+=\S* )*(make|cmake|\./configure|\./autogen\S*|python setup\.py)\b", re.MULTILINE)
    names = {each.split()[-1].rpartition("/")[2] for steps in FETCHING.values() for each in steps}
    scripts = [
        path for path in FOLDER.rglob("*") if path.name in names and path.is_file() and "checks" not in path.parts
    ]
    assert len(scripts) > 20
    assert [str(path) for path in scripts if compilers.search(path.read_text())] == []


def with_login(dockerfile: str) -> set[str]:
    """Return the components whose step in the stage `installed` has a login."""
    steps = [run for run in stages(dockerfile)["installed"][1] if "/wheels/" in " ".join(run.flags)]
    sources = {re.sub(r".*,source=/wheels/([^,]+),.*", r"\1", " ".join(run.flags)): run for run in steps}
    assert len(sources) == len(steps) > 1
    return {component for component, run in sources.items() if has_login(run)}


def test_only_component_with_packages_has_their_login() -> None:
    """With a login, Docker 26.1.5 hashes the whole image below the step: BuildKit from moby/buildkit@ab17c1dd to @157efce4."""
    rows = (line.split() for line in (FOLDER / "torch/wheels/components.txt").read_text().splitlines())
    packaged = {row[0] for row in rows if len(row) == 2 and (row[1] == "*" or row[1].startswith("deb:"))}
    assert with_login("torch/Dockerfile") == packaged == {"cublas", "cuda", "cudnn", "comm", "rest"}
    assert "rest" not in with_login("torch-extras/Dockerfile")
