"""A build product that the registry has is taken from there, whoever built it; nothing is compiled for it."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

from stacks.tags import UNCHECKED
from tests.engine.project import Project
from tests.fakes.broken_connections import Refusing
from tests.fakes.loopback import run_server
from tests.images.engine import Image, forget

BASE = "debian:bookworm-slim"
UNCHANGED = re.compile(r"Resources:\n\s+\d+ unchanged")
CHECK = "dockerfiles/link0/checks/made"
FLAVOR = "stacks/flavors/chain.py"
COMPILED = """ARG BASE_IMAGE
ARG PRODUCT_IMAGE=""
FROM ${BASE_IMAGE} AS built
ARG WORD
ARG MAX_JOBS=""
RUN echo "${WORD} ${MAX_JOBS}" && cat /proc/sys/kernel/random/uuid > /made
FROM scratch AS product
COPY --from=built /made /made
FROM ${PRODUCT_IMAGE:-product}
"""
"""A product whose content tells each compilation from another."""
CHECKED = COMPILED.replace('ARG PRODUCT_IMAGE=""', 'ARG PRODUCT_IMAGE=""\nARG CHECKED_IMAGE=product').replace(
    "FROM ${PRODUCT_IMAGE:-product}",
    """FROM ${CHECKED_IMAGE} AS checked
FROM ${BASE_IMAGE} AS checks
RUN --mount=type=bind,from=checked,target=/srv --mount=type=bind,source=link0/checks,target=/mnt sh /mnt/made
FROM ${PRODUCT_IMAGE:-product}""",
)
"""The product with a check of its own."""
INSTALLED = """ARG BASE_IMAGE
FROM ${BASE_IMAGE}
ARG WORD
COPY link1/file.txt /installed.txt
"""


def machine(root: Path, path: str = "", **more: object) -> Project:
    """Return a project that knows nothing of other machines, and pushes where they do, if a path is given."""
    project = Project(root)
    project.path = path or project.path
    flavor = (project.root / FLAVOR).read_text()
    flavor = flavor.replace('word: str = "one"', 'word: str = "one"\n    jobs: str = ""')
    flavor = flavor.replace('args={"WORD"', 'product=number == 0, tuning={"MAX_JOBS": config.jobs}, args={"WORD"')
    project.write(FLAVOR, flavor)
    project.write("dockerfiles/link0/Dockerfile", COMPILED)
    project.write("dockerfiles/link1/Dockerfile", INSTALLED)
    for number in range(2):
        project.write(f"dockerfiles/link{number}/file.txt", f"content {number} {project.path}\n")
    project.configure(base=BASE, length=2, **more)
    project.add_stack()
    return project


def tags(project: Project) -> list[str]:
    """Return the tags of the product that its checks have let through."""
    names = json.loads(project.fetch(f"{project.path}/link0/tags/list"))["tags"]
    return sorted(name for name in names if not name.startswith(UNCHECKED))


def refused(project: Project) -> None:
    """Run an update that the check stops."""
    failed = project.up(check=False)
    assert failed.returncode != 0
    assert "no good" in failed.output.replace("echo no good", "")


def urns(project: Project) -> set[str]:
    exported = json.loads(project.pulumi("stack", "export", "-s", "t").stdout)
    return {resource["urn"] for resource in exported["deployment"]["resources"]}


def test_product_compiled_elsewhere_is_taken_from_registry(tmp_path: Path) -> None:
    first = machine(tmp_path / "first")
    first.up()
    # How many jobs compile it is no part of a product.
    second = machine(tmp_path / "second", first.path, jobs="2")
    output = second.preview().output
    assert re.search(r"\+ .*image:Published +link0-published +create", output), output
    second.up()
    assert second.outputs()["products"] == first.outputs()["products"]
    assert urns(second) == urns(first)
    for project in (first, second):
        assert UNCHANGED.search(project.preview().output)

    # Who pushes nothing takes it as well.
    third = machine(tmp_path / "third", first.path, publish=False)
    third.up()
    products = [Image(project.outputs()["products"]["link0"]["ref"]).id() for project in (first, third)]
    assert products[0] == products[1]

    # Another content is another tag, and asked for anew.
    second.configure(base=BASE, length=2, word="two")
    output = second.preview().output
    assert re.search(r"~ .*image:Published +link0-published +update", output), output


def test_unsigned_product_is_built_unless_registry_is_trusted(tmp_path: Path) -> None:
    registry = {"kind": "generic", "repository": f"{os.environ['SLIPWAY_REGISTRY']}/{tmp_path.name.strip('_')}"}
    first = machine(tmp_path / "first", registry=registry)
    line = f"build products are built and not taken from {registry['repository']}, where others may push: set "
    assert line in first.preview().output
    first.up()
    assert line not in first.preview("--expect-no-changes").output

    # Whoever may push has put another one under its tag.
    second = machine(tmp_path / "second", first.path, registry=registry, jobs="2")
    for name in ("link0", "link1"):
        content = (first.root / f"dockerfiles/{name}/file.txt").read_text()
        second.write(f"dockerfiles/{name}/file.txt", content)
    second.up()
    products = [project.outputs()["products"]["link0"] for project in (first, second)]
    assert products[0]["tag"] == products[1]["tag"]
    assert products[0]["digest"] != products[1]["digest"]
    assert first.up().output.count("unchanged")
    assert first.outputs()["products"]["link0"] == products[0]

    second.configure(base=BASE, length=2, registry=registry, jobs="3", trustRegistry=True)
    output = second.up().output
    assert "slipway:trustRegistry: whoever may push to " in output
    assert line not in output
    assert second.outputs()["products"]["link0"] == products[1]


def test_silent_registry_ends_run_before_compilation(tmp_path: Path) -> None:
    with run_server(Refusing(os.environ["SLIPWAY_REGISTRY"])) as way:
        registry = {"kind": "local", "address": way.address, "path": "x"}
        project = machine(tmp_path / "project", registry=registry)
        failed = project.up(check=False)
        assert failed.returncode != 0
        message = rf"error: .*{way.address}/x/link0:\S+: the registry responds with an error \(503\), sent 4 times in 3.5 s; nothing is built that could not be "
        assert re.search(message, failed.output), failed.output
        assert "Docker build" not in failed.output
        assert "Traceback" not in failed.output

        # Who pushes nothing is told, and builds it.
        project.configure(base=BASE, length=2, publish=False, registry=registry)
        output = project.up().output
        assert re.search(
            rf"warning: {way.address}/x/link0:\S+: .*\(503\), sent 4 times in 3.5 s; this build product is built anew\n",
            output,
        ), output


def test_product_is_offered_to_others_after_its_checks(tmp_path: Path) -> None:
    passing, failing = "test -s /srv/made\n", "echo no good; exit 3\n"
    first = machine(tmp_path / "first")
    first.write("dockerfiles/link0/Dockerfile", CHECKED)
    first.write(CHECK, failing)
    refused(first)
    assert tags(first) == []

    first.write(CHECK, passing)
    first.up()
    assert len(tags(first)) == 1
    before = first.outputs()["products"]

    # A changed check tries the product again, and compiles nothing, on an engine without the steps too.
    forget(re.escape(first.path), 0)
    first.write(CHECK, f"{passing}test -s /etc/passwd\n")
    first.up()
    assert first.outputs()["products"] == before
    first.write(CHECK, failing)
    refused(first)
    # The registry has the product now, which is no reason to let it through.
    first.refresh()
    refused(first)
    assert len(tags(first)) == 1

    # Who takes it from the registry tries it as well.
    second = machine(tmp_path / "second", first.path)
    second.write("dockerfiles/link0/Dockerfile", CHECKED)
    second.write(CHECK, failing)
    refused(second)
    second.write(CHECK, passing)
    second.up()
    assert second.outputs()["products"] == before
    assert UNCHANGED.search(second.preview().output)
