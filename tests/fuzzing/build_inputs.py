"""Harnesses of what a build is made from: Dockerfiles, the scripts that they run, and ignore files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import NamedTemporaryFile

from containers.dockerfile import context, declarations, ignore, instructions
from containers.errors import SlipwayError
from stacks.identity import git_sources
from stacks.identity.content import CheckoutContents
from stacks.identity.fingerprint import fingerprints
from stacks.spec import ImageSpec, Outside
from stacks.tags import Suffix

_SPEC = ImageSpec(
    name="a",
    dockerfile="a/Dockerfile",
    args={"VERSION": "2", "GIVEN": "x y"},
    parents={"BASE_IMAGE": Outside(reference="debian:12")},
    description="d",
    licenses="MIT",
    suffix=Suffix(variant="v"),
)
_FILES = {"a/layers/one.sh": b"one\n", "common/check": b"check\n", git_sources.SCRIPT: b"#!/bin/sh\n"}
_LINKS = {"a/link": "layers", "a/out": "../../x", "a/round": "round"}


class _Tree:
    """A build context in memory."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self._files = files

    def paths(self, dockerfile: str) -> Sequence[str]:
        del dockerfile
        return sorted([*self._files, *_LINKS])

    def read(self, path: str) -> bytes:
        if path not in self._files:
            raise context.no_dockerfile(path)
        return self._files[path]

    def digest(self, path: str) -> str:
        return context.digest(self._files.get(path) or _LINKS.get(path, "").encode(), link=path in _LINKS)

    def link(self, path: str) -> str | None:
        return _LINKS.get(path)


def dockerfile(data: bytes) -> None:
    """Find out what the build of a Dockerfile is made of."""
    instructions.parse.cache_clear()
    instructions.split_words.cache_clear()
    tree = _Tree({**_FILES, "a/Dockerfile": data, "a/run": SCRIPTS[0]})
    contents = CheckoutContents(lambda _: tree)
    with suppress(SlipwayError):
        content = contents.of(_SPEC)
        assert fingerprints([content])
        assert content.listing
    with NamedTemporaryFile(suffix="Dockerfile") as file:
        file.write(data)
        file.flush()
        declarations.arguments(Path(file.name))
        declarations.argument_comments(Path(file.name))


def script(data: bytes) -> None:
    """Find out what a script fetches of git."""
    scripts = {"a/run": data.decode(errors="replace"), "a/sources/x": data.decode(errors="replace")}
    for source in git_sources.refs(scripts, {"VERSION": "2", "ABSENT": "", "UNKNOWN": None}):
        assert source
    git_sources.prologue({data.decode(errors="replace"): "a" * 40})


_PATHS = 5
"""Paths that are compared with the patterns: the work is their product."""


def ignore_file(data: bytes) -> None:
    """Compare paths with the patterns of an ignore file; the paths follow a zero byte, a line each."""
    patterns, _, paths = data.partition(b"\0")
    with suppress(ignore.PatternError):
        matcher = ignore.Matcher(ignore.parse(patterns))
        matcher.tops()
        for path in [*paths.decode(errors="surrogateescape").split("\n")[:_PATHS], "a/b/c.py", "a.txt"]:
            matcher.ignores(path[:255])
            matcher.prunes(path[:255])


SCRIPTS = [
    b'[ -n "$VERSION" ] && [ "$ABSENT" = build ] || exit 0\n. ./names\nexec fetch-source owner/name "${C:-v$VERSION}" /src\n',
    b"repository=owner/x\ntag=v$VERSION\nread -r ABSENT\nfor i in 1; do fetch-source $repository $tag /src; done\n",
]
DOCKERFILES = [
    b"""# syntax=docker/dockerfile:1
# escape=`
ARG BASE_IMAGE
ARG D=${E:-scratch}
FROM ${D} AS tools
COPY common /
FROM --platform=$BUILDPLATFORM ${BASE_IMAGE} AS last
ENV A=1 B="$A" C='x'
ARG VERSION
RUN --mount=type=bind,from=tools,source=/,target=/x `
  --mount=type=bind,source=a,target=/y /y/run $A
""",
    b"""FROM scratch
COPY --chmod=0755 ["a/[bl]*", "/x"]
COPY a/l?yers/*.sh a/link common/build /y/
ADD https://h.example/x#1 git@h.example:x.git#v1 /z/
RUN <<A <<-B
one
A
	two
	B
HEALTHCHECK --interval=1s CMD true
ONBUILD RUN x
LABEL a=b
""",
    b"""# COMPONENT (the stack) Which.
ARG A="x"
FROM scratch AS a
ARG A
ENV B=${A:+$A$A}
COPY a/run /
FROM a
COPY --from=0 /x /
""",
]
IGNORE_FILES = [
    b"# comment\n*\n!a\n!common/**/b*\na/*.md\n[a-c]?/\\*\n\0common/x/b1\na/README.md\nbx/*",
    b"**/a*b*c*/**/[^x]\n**/**\n\0q/aabbcc/d/x",
]
