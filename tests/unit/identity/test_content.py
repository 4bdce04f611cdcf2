"""What an image is made of: what its build can read, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from containers.dockerfile.context import Folder
from containers.errors import SlipwayError
from stacks.identity.content import CheckoutContents, Content
from stacks.identity.fingerprint import fingerprints
from stacks.spec import ImageSpec, Outside, Sibling
from stacks.tags import Suffix
from tests.helpers.every import every

TREE = {
    "a/Dockerfile.dockerignore": "*\n!a\n!common\na/Dockerfile*\na/README.md\n",
    "a/README.md": "about\n",
    "a/run": "run\n",
    "a/layers/one.sh": "one\n",
    "a/layers/two.txt": "two\n",
    "a/layers/deep/three.sh": "three\n",
    "common/check": "check\n",
    "b/other": "other\n",
}
DOCKERFILE = """\
ARG BASE_IMAGE
ARG TOOLS_IMAGE=scratch
FROM ${TOOLS_IMAGE} AS tools
RUN --mount=type=bind,source=common,target=/mnt /mnt/check
FROM ${BASE_IMAGE} AS final
ARG VERSION=1
COPY --chown=1:1 --chmod=0755 a/run \\
     /usr/bin/
ARG LABEL_TITLE
"""


def filled(tmp_path: Path) -> Path:
    for path, text in {**TREE, "a/Dockerfile": DOCKERFILE}.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    return tmp_path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return filled(tmp_path)


def spec(**fields: Any) -> ImageSpec:
    values: dict[str, Any] = {
        "name": "a",
        "dockerfile": "a/Dockerfile",
        "args": {"VERSION": "2"},
        "parents": {"BASE_IMAGE": Outside(reference="debian:12")},
        "description": "d",
        "licenses": "MIT",
        "suffix": Suffix(variant="v"),
    }
    return ImageSpec(**{**values, **fields})


def made(root: Path, dockerfile: str | None = None, **fields: Any) -> Content:
    if dockerfile is not None:
        (root / "a/Dockerfile").write_text(dockerfile)
    return CheckoutContents(lambda _: Folder(root)).of(spec(**fields))


def fingerprint(content: Content) -> str:
    return fingerprints([content])["a"]


def test_content_has_the_reached_stages_alone(root: Path) -> None:
    content = made(root)
    assert content.dockerfile == (
        "ARG BASE_IMAGE\nFROM ${BASE_IMAGE} AS final\nARG VERSION\n"
        "COPY --chmod=0755 --chown=1:1 a/run /usr/bin/\nARG LABEL_TITLE\n"
    )
    assert list(content.files) == ["a/run"]
    assert content.args == {"VERSION": "2"}
    assert content.labels == {"org.opencontainers.image.title": "a"}
    assert list(made(root, target="tools").files) == ["common/check"]
    assert made(root, target="tools").args == made(root, target="tools").labels == {}
    alone = made(root, "FROM debian:12\nARG LABEL_TITLE\n", args={}, parents={})
    assert alone.labels == content.labels


@every(
    "old, new",
    [
        ("ARG VERSION=1", "# A comment.\n\nARG VERSION=1"),
        ("ARG VERSION=1", "arg   VERSION=3"),
        ("\\\n     /usr", "\\\n# A comment.\n     /usr"),
        ("--chown=1:1 --chmod=0755", "--chmod=0755   --chown=1:1"),
        ("/mnt/check\n", "/mnt/other\n"),
        ("ARG TOOLS_IMAGE=scratch", "ARG TOOLS_IMAGE=debian:12"),
        ("\n", "\r\n"),
    ],
)
def test_fingerprint_of_unread_edit_stays(tmp_path: Path, old: str, new: str) -> None:
    root = filled(tmp_path)
    before = made(root)
    assert old in DOCKERFILE
    after = made(root, DOCKERFILE.replace(old, new))
    assert fingerprint(after) == fingerprint(before)
    assert after.folder == before.folder


@every(
    "old, new",
    [
        ("ARG LABEL_TITLE", "ENV A=b\nARG LABEL_TITLE"),
        ("0755", "0700"),
        ("a/run", "a/layers"),
        ("ARG BASE_IMAGE\n", "# escape=`\nARG BASE_IMAGE\n"),
        ("ARG VERSION=1\n", ""),
    ],
)
def test_fingerprint_of_read_edit_moves(tmp_path: Path, old: str, new: str) -> None:
    root = filled(tmp_path)
    before = made(root)
    assert old in DOCKERFILE
    after = made(root, DOCKERFILE.replace(old, new).replace("\\\n", "" if "escape" in new else "\\\n"))
    assert fingerprint(after) != fingerprint(before)


@every(
    "fields, moves",
    [
        ({"args": {"VERSION": "2", "UNREAD": "1"}}, False),
        ({"tuning": {"VERSION": "3"}}, False),
        ({"description": "other", "licenses": "other"}, False),
        ({"parents": {"BASE_IMAGE": Outside(reference="debian:12"), "TOOLS_IMAGE": Outside(reference="x")}}, False),
        ({"args": {"VERSION": "3"}}, True),
        ({"platform": "linux/arm64"}, True),
        ({"name": "b"}, True),
        ({"parents": {"BASE_IMAGE": Outside(reference="debian:13")}}, True),
        ({"parents": {"BASE_IMAGE": Outside(reference="debian:12", digest="sha256:1")}}, True),
    ],
)
def test_fingerprint_covers_what_the_build_reads(tmp_path: Path, fields: dict[str, Any], moves: bool) -> None:
    root = filled(tmp_path)
    (after,) = fingerprints([made(root, **fields)]).values()
    assert (after != fingerprint(made(root))) == moves


def test_fingerprint_of_sibling_covers_its_parent(root: Path) -> None:
    child = made(root, name="child", parents={"BASE_IMAGE": Sibling(image="a")})
    prints = [fingerprints([made(root, args={"VERSION": number}), child])["child"] for number in ("2", "2", "3")]
    assert prints[0] == prints[1] != prints[2]


@every(
    "source, files",
    [
        ("a/layers/", ["a/layers/deep/three.sh", "a/layers/one.sh", "a/layers/two.txt"]),
        ("/a/../a/run", ["a/run"]),
        ("../../common", ["common/check"]),
        (".", ["a/layers/deep/three.sh", "a/layers/one.sh", "a/layers/two.txt", "a/run", "common/check"]),
        ("a/layers/*.sh", ["a/layers/one.sh"]),
        ("a/*", ["a/layers/deep/three.sh", "a/layers/one.sh", "a/layers/two.txt", "a/run"]),
        ("a/layers/[!x]??.sh", []),
        ("a/layers/[^x]n[a-f].sh", ["a/layers/one.sh"]),
        ("a/r?n", ["a/run"]),
        ("a/layers/**/*.sh", ["a/layers/deep/three.sh", "a/layers/one.sh", "a/layers/two.txt"]),
        ("a/${WHICH}", ["a/run"]),
        ("a/link", ["a/layers/one.sh", "a/link"]),
        ("a/folder/one.sh", ["a/folder", "a/layers/one.sh"]),
        ("a/l*k", ["a/layers/one.sh", "a/link"]),
    ],
)
def test_source_names_files_of_the_context(tmp_path: Path, source: str, files: list[str]) -> None:
    root = filled(tmp_path)
    (root / "a/link").symlink_to("layers/one.sh")
    (root / "a/folder").symlink_to("../a/layers")
    if source == "a/*":
        files = [*files, "a/folder", "a/link"]
    if source == ".":
        files = [*files, "a/folder", "a/link"]
    content = made(root, f"FROM scratch\nARG WHICH=run\nCOPY {source} /\n")
    assert list(content.files) == sorted(files)


@every(
    "instruction, message",
    [
        ("COPY a/none /", "COPY: a/none: the context has no such file"),
        ("COPY a/README.md /", "COPY: a/README.md: the context has no such file"),
        ("COPY b /", "COPY: b: the context has no such file"),
        ("RUN --mount=type=bind,source=b,target=/b true", "RUN: b: the context has no such file"),
        ("COPY a/out /", "COPY: a/out: this link leads out of the context, to /etc/passwd"),
        ("COPY a/up /", "COPY: a/up: this link leads out of the context, to ../../x"),
        ("COPY a/round /", "COPY: a/round: more than 40 links"),
        ("COPY ${UNSET} /", "COPY: "),
    ],
)
def test_source_outside_the_context_is_refused(tmp_path: Path, instruction: str, message: str) -> None:
    root = filled(tmp_path)
    for name, target in {"out": "/etc/passwd", "up": "../../x", "round": "round"}.items():
        (root / "a" / name).symlink_to(target)
    with pytest.raises(SlipwayError) as caught:
        made(root, f"ARG BASE_IMAGE\nFROM ${{BASE_IMAGE}}\n{instruction}\n")
    assert str(caught.value).startswith(f"dockerfiles/a/Dockerfile:3: {message}")
    assert "\n" not in str(caught.value)


def test_content_without_dockerfile_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SlipwayError, match="a/Dockerfile: there is no such Dockerfile"):
        made(tmp_path)


CHECKED = f"""\
ARG CHECKED_IMAGE=final
{DOCKERFILE}
FROM ${{CHECKED_IMAGE}} AS Checks
ARG CHECKED=1
RUN --mount=type=bind,source=common,target=/mnt /mnt/check
FROM final
"""


def test_checks_are_made_of_their_files_and_the_image(root: Path) -> None:
    content = made(root, CHECKED)
    assert content.checks is not None
    assert content.checks.spec.target == "checks"
    assert content.checks.siblings == {"CHECKED_IMAGE": content.spec.name}
    assert list(content.checks.files) == ["common/check"]
    assert content.checks.arguments == {"CHECKED_IMAGE": "final", "CHECKED": "1"}
    assert content.checks.checks is None


@every(
    "path, text", [("common/check", "edited\n"), ("a/Dockerfile", CHECKED.replace("/mnt/check", "/mnt/check again", 2))]
)
def test_edit_of_checks_changes_their_content_alone(tmp_path: Path, path: str, text: str) -> None:
    root = filled(tmp_path)
    before = made(root, CHECKED)
    (root / path).write_text(text)
    after = made(root)
    assert fingerprint(after) == fingerprint(before)
    assert (after.folder, after.listing) == (before.folder, before.listing)
    assert before.checks
    assert after.checks
    assert after.checks.folder != before.checks.folder


def test_edit_of_image_leaves_the_content_of_its_checks(root: Path) -> None:
    before = made(root, CHECKED)
    (root / "a/run").write_text("edited\n")
    after = made(root)
    assert fingerprint(after) != fingerprint(before)
    assert before.checks
    assert after.checks
    assert after.checks.folder == before.checks.folder


def test_stage_named_checks_that_tries_no_image_is_no_gate(root: Path) -> None:
    assert made(root, CHECKED.replace("FROM ${CHECKED_IMAGE}", "FROM final")).checks is None


def test_content_runs_programs_of_its_stages_or_checks(root: Path) -> None:
    assert not made(root).runs_programs
    assert made(root, target="tools").runs_programs
    assert made(root, CHECKED).runs_programs
    assert not made(root, "FROM scratch\nONBUILD RUN true\nCOPY a/run /RUN\n").runs_programs


def test_image_without_checks_stage_has_none(root: Path) -> None:
    assert made(root).checks is None


@every("tried, gated", [("final", True), ("Final", True), ("tools", False)])
def test_product_has_checks_of_a_stage_in_its_target(tmp_path: Path, tried: str, gated: bool) -> None:
    root = filled(tmp_path)
    text = CHECKED.replace("ARG CHECKED_IMAGE=final", f"ARG CHECKED_IMAGE={tried}")
    assert (made(root, text, product=True).checks is not None) == gated


@every("tried", ["finall", "1", "${OTHER:-final}", ""])
def test_product_whose_checks_try_no_stage_is_refused(tmp_path: Path, tried: str) -> None:
    root = filled(tmp_path)
    text = CHECKED.replace("ARG CHECKED_IMAGE=final", f"ARG CHECKED_IMAGE={tried}")
    with pytest.raises(SlipwayError) as error:
        made(root, text, product=True)
    assert str(error.value) == (
        f"dockerfiles/a/Dockerfile: CHECKED_IMAGE is '{tried}' by default, which names no stage; name the one that the "
        "checks are for"
    )


def test_product_without_parents_of_others_checks_is_made(root: Path) -> None:
    text = CHECKED.replace("ARG CHECKED_IMAGE=final", "ARG CHECKED_IMAGE=tools\nARG BUILDER").replace(
        "FROM ${CHECKED_IMAGE} AS Checks", "FROM ${CHECKED_IMAGE} AS one\nFROM ${BUILDER} AS Checks"
    )
    assert made(root, text, product=True).checks is None


def test_image_has_checks_whatever_they_try_by_default(root: Path) -> None:
    assert made(root, CHECKED.replace("ARG CHECKED_IMAGE=final", "ARG CHECKED_IMAGE=tools")).checks is not None


def test_missing_file_of_checks_is_refused(root: Path) -> None:
    with pytest.raises(SlipwayError) as error:
        made(root, CHECKED.replace("FROM final\n", "COPY a/none /\nFROM final\n"))
    assert str(error.value).endswith("COPY: a/none: the context has no such file; see the ignore file too")


@every(
    "text, outside",
    [
        ("FROM debian:12\n", {"debian:12"}),
        ("ARG BASE_IMAGE\nFROM ${BASE_IMAGE}\n", set()),
        ("ARG IMAGE=debian:12\nFROM ${IMAGE}\n", {"debian:12"}),
        ("ARG VERSION\nFROM debian:${VERSION}\n", {"debian:2"}),
        (f"FROM debian:12@sha256:{'a' * 64}\n", set()),
        ("FROM scratch\nCOPY --from=busybox:1 /bin/sh /\n", {"busybox:1"}),
        ("FROM scratch\nCOPY --from=scratch / /\n", set()),
        ("FROM scratch AS one\nFROM scratch\nCOPY --from=one / /\nCOPY --from=0 / /\n", set()),
        ("FROM scratch\nRUN --mount=from=alpine:3,target=/mnt x\n", {"alpine:3"}),
        ("FROM scratch\nADD https://f.example/x.tgz /\n", {"https://f.example/x.tgz"}),
        (f"FROM scratch\nADD --checksum=sha256:{'a' * 64} https://f.example/x.tgz /\n", set()),
        ("FROM scratch\nADD https://g.example/a.git#main /\n", {"https://g.example/a.git#main"}),
        (f"FROM scratch\nADD https://g.example/a.git#{'a' * 40}:sub /\n", set()),
        ("FROM scratch\nADD git@g.example:a/b.git /\n", {"git@g.example:a/b.git"}),
        (f"FROM scratch\nADD git@g.example:a/b.git#{'a' * 40} /\n", set()),
        (f"FROM scratch\nADD https://f.example/x.tgz#{'a' * 40} /\n", {f"https://f.example/x.tgz#{'a' * 40}"}),
        ("FROM scratch\nARG SUM=\nADD --checksum=$SUM https://f.example/x.tgz /\n", {"https://f.example/x.tgz"}),
        ("FROM scratch\nADD --checksum=38a1269 https://g.example/a.git /\n", {"https://g.example/a.git"}),
        (f"FROM scratch\nADD --checksum={'a' * 40} https://g.example/a.git /\n", set()),
        (f"FROM scratch\nARG SUM=sha256:{'a' * 64}\nADD --checksum=$SUM https://f.example/x.tgz /\n", set()),
        ("# syntax=docker/dockerfile:1\nFROM scratch\n", {"docker/dockerfile:1"}),
        ("FROM debian:12 AS unused\nFROM scratch\n", set()),
    ],
)
def test_outside_is_what_the_dockerfile_names_itself(tmp_path: Path, text: str, outside: set[str]) -> None:
    root = filled(tmp_path)
    (root / "a/Dockerfile").write_text(text)
    assert CheckoutContents(lambda _: Folder(root)).of(spec()).outside == outside


def test_outside_has_the_frontend_of_a_build_argument(root: Path) -> None:
    """BuildKit takes it whether the Dockerfile declares the argument or not; the first word is the image."""
    frontends = CheckoutContents(lambda _: Folder(root)).of(spec(args={"BUILDKIT_SYNTAX": " r.example/frontend:1 x"}))
    assert frontends.outside == {"r.example/frontend:1"}
    pinned = f"r.example/frontend:1@sha256:{'a' * 64}"
    assert CheckoutContents(lambda _: Folder(root)).of(spec(args={"BUILDKIT_SYNTAX": pinned})).outside == set()
