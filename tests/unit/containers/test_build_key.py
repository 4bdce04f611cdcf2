"""The key of anybody's Dockerfile: edits within the reach change it, edits outside of it do not."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from cli.main import main
from containers.dockerfile.build_key import build_key
from tests.helpers.every import every

DOCKERFILE = """\
# syntax=docker/dockerfile:1
ARG PYTHON=3.12
FROM golang:1.23 AS tools
WORKDIR /src
COPY tools/go.mod tools/*.go ./
RUN go build -o /tool ./...

FROM node:22 AS web
COPY web/package.json web/package-lock.json /web/
RUN cd /web && npm ci
COPY web /web

FROM python:${PYTHON}-slim AS base
ARG TARGETARCH
ENV PATH=/venv/bin:$PATH
RUN --mount=type=bind,source=requirements.txt,target=/r.txt \\
    --mount=type=cache,target=/root/.cache/pip \\
    pip install -r /r.txt

FROM base AS app
ARG VERSION=dev
COPY --from=tools /tool /usr/local/bin/
COPY --chown=1000 app /app
COPY <<EOF /etc/app.conf
version=${VERSION}
EOF
CMD ["python", "-m", "app"]

FROM app AS test
COPY tests /tests
RUN pytest /tests
"""
FILES = {
    "Dockerfile": DOCKERFILE,
    ".dockerignore": "**/*.pyc\n**/node_modules\n!web/node_modules/keep\n.git\napp/secret*\n",
    "tools/go.mod": "module tools\n",
    "tools/main.go": "package main\n",
    "tools/README.md": "tools\n",
    "web/package.json": "{}\n",
    "web/package-lock.json": "{}\n",
    "web/index.html": "<p>\n",
    "requirements.txt": "einops\n",
    "app/__main__.py": "print(1)\n",
    "app/data/words.txt": "one\n",
    "app/run.sh": "#!/bin/sh\n",
    "tests/test_app.py": "def test(): ...\n",
    "README.md": "read\n",
    ".git/HEAD": "ref: main\n",
}


def edited(path: str, old: str, new: str) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        text = (folder / path).read_text()
        assert old in text
        (folder / path).write_text(text.replace(old, new))

    return edit


def written(path: str, text: str = "new\n") -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)

    return write


WITHIN: Mapping[str, Callable[[Path], object]] = {
    "file": edited("app/__main__.py", "1", "2"),
    "deep file": edited("app/data/words.txt", "one", "two"),
    "new file": written("app/more.py"),
    "removed file": lambda folder: (folder / "app/data/words.txt").unlink(),
    "renamed file": lambda folder: (folder / "app/data/words.txt").rename(folder / "app/data/w.txt"),
    "executable": lambda folder: (folder / "app/run.sh").chmod(0o755),
    "mode": lambda folder: (folder / "app/__main__.py").chmod(0o600),
    "mode of a mounted file": lambda folder: (folder / "requirements.txt").chmod(0o600),
    "mode of a folder": lambda folder: (folder / "app").chmod(0o700),
    "mode of a deep folder": lambda folder: (folder / "app/data").chmod(0o700),
    "empty folder": lambda folder: (folder / "app/empty").mkdir(),
    "link": lambda folder: (folder / "app/link").symlink_to("run.sh"),
    "file of another stage": edited("tools/main.go", "main", "tool"),
    "file of a pattern": written("tools/extra.go"),
    "mounted file": edited("requirements.txt", "einops", "einops==0.8"),
    "ignore file that lets in": edited(".dockerignore", "app/secret*\n", ""),
    "ignore file that keeps out": edited(".dockerignore", ".git\n", ".git\napp/data\n"),
    "command": edited("Dockerfile", '"-m", "app"', '"-m", "app", "-v"'),
    "run": edited("Dockerfile", "go build", "go build -trimpath"),
    "order": edited("Dockerfile", "WORKDIR /src\nCOPY tools", "COPY tools"),
    "heredoc": edited("Dockerfile", "version=$", "v=$"),
    "default": edited("Dockerfile", "PYTHON=3.12", "PYTHON=3.13"),
    "stage's default": edited("Dockerfile", "VERSION=dev", "VERSION=1"),
    "flag": edited("Dockerfile", "--chown=1000", "--chown=1001"),
    "parent": edited("Dockerfile", "golang:1.23", "golang:1.24"),
    "frontend": edited("Dockerfile", "dockerfile:1", "dockerfile:1.7"),
}
OUTSIDE: Mapping[str, Callable[[Path], object]] = {
    "comment": edited("Dockerfile", "FROM golang", "# tools\nFROM golang"),
    "blank lines": edited("Dockerfile", "\n\nFROM base", "\n\n\n\nFROM base"),
    "continued line": edited("Dockerfile", "go build -o", "\\\n  go build -o".replace("\\\n  ", "")),
    "order of flags": edited("Dockerfile", "target=/r.txt \\\n", "target=/r.txt   \\\n"),
    "other stage": edited("Dockerfile", "npm ci", "npm install"),
    "stage after": edited("Dockerfile", "pytest /tests", "pytest -v /tests"),
    "file of other stage": edited("web/index.html", "<p>", "<b>"),
    "tests": edited("tests/test_app.py", "...", "assert True"),
    "readme": edited("README.md", "read", "me"),
    "file beside a pattern": edited("tools/README.md", "tools", "more"),
    "ignored file": written("app/secret.txt"),
    "ignored kind": written("app/x.pyc"),
    "git": written(".git/index"),
    "new folder": written("docs/index.md"),
    "time": lambda folder: os.utime(folder / "app/__main__.py", (1, 1)),
    "mode of what nothing reads": lambda folder: (folder / "README.md").chmod(0o600),
    "mode of the folder above a file": lambda folder: (folder / "tools").chmod(0o700),
    "mode of the context": lambda folder: folder.chmod(0o700),
    "empty folder that nothing reads": lambda folder: (folder / "docs").mkdir(),
    "ignored folder": lambda folder: (folder / "app/secrets").mkdir(),
}


def filled(tmp_path: Path) -> Path:
    for path, text in FILES.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    return tmp_path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return filled(tmp_path)


def key(folder: Path, target: str | None = "app", **arguments: str) -> str:
    return build_key(folder / "Dockerfile", folder, target, arguments, "linux/amd64").key


@every("edit", WITHIN.values(), WITHIN)
def test_key_after_edit_within_reach_is_another(edit: Callable[[Path], object], tmp_path: Path) -> None:
    folder = filled(tmp_path)
    (folder / "app/secret1").write_text("hidden\n")
    before = key(folder)
    edit(folder)
    assert key(folder) != before


@every("edit", OUTSIDE.values(), OUTSIDE)
def test_key_after_edit_outside_reach_stays(edit: Callable[[Path], object], tmp_path: Path) -> None:
    folder = filled(tmp_path)
    before = key(folder)
    edit(folder)
    assert key(folder) == before


EQUAL = {
    "name of a stage": (
        "FROM a AS one\nFROM one\nCOPY --from=One /x /\nRUN --mount=from=one,target=/y y\n",
        "FROM a AS Other\nFROM other\nCOPY --from=0 x /\nRUN --mount=target=/y,from=other y\n",
    ),
    "options of a mount": (
        "FROM a\nRUN --mount=type=bind,src=app,dst=/y,ro y\n",
        "FROM a\nRUN --mount=destination=/y,readonly,source=app,type=bind y\n",
    ),
    "paths": ("FROM a\nCOPY app/ ./README.md .\n", 'FROM a\nCOPY ["app", "/README.md", "./"]\n'),
    "quotes": ('FROM a\nENV A="1" B=x\nLABEL c="d"\n', "FROM a\nENV A=1 B='x'\nLABEL c=d\n"),
    "quotes around a variable": (
        'ARG B="1"\nFROM a\nARG B\nENV A="${B}/x" C=$B\nCOPY --chown="${B}:$B" app /\n',
        'ARG B=1\nFROM a\nARG B\nENV A=${B}/x C="$B"\nCOPY --chown=${B}:$B app /\n',
    ),
    "quotes around a sentence": ("FROM a\nLABEL c='Jane <j@x.org>'\n", 'FROM a\nLABEL c="Jane <j@x.org>"\n'),
    "defaults of mounts": (
        "FROM a\nRUN --mount=type=bind,source=app,target=/y,readonly --mount=type=secret,id=s,required=false y\n",
        "FROM a\nRUN --mount=source=app,target=/y --mount=type=secret,id=s y\n",
    ),
    "access and sources of mounts": (
        "FROM a AS n\nFROM b\nRUN --mount=source=/app/,target=/x,ro=false --mount=from=n,source=.,target=/y,rw=false y\n",
        "FROM a AS n\nFROM b\nRUN --mount=source=app,target=/x,readwrite --mount=from=n,target=/y y\n",
    ),
    "sharing of a cache with a name": (
        "FROM a\nRUN --mount=type=cache,id=one,sharing=locked,target=/y y\n",
        "FROM a\nRUN --mount=type=cache,id=one,target=/y y\n",
    ),
    "default network": ("FROM a\nRUN --network=default --security=sandbox y\n", "FROM a\nRUN y\n"),
    "older form": ("FROM a\nENV A b\nLABEL c  1.0\n", "FROM a\nENV A=b\nLABEL c=1.0\n"),
    "older form with words": ("FROM a\nENV A b  c:$D\n", 'FROM a\nENV A="b  c:$D"\n'),
    "argument of the client": ("ARG BUILDKIT_SYNTAX=x\nARG BUILDKIT_INLINE_CACHE=1\nFROM a\n", "FROM a\n"),
    "mode": ("FROM a\nCOPY --chmod=755 app /\n", "FROM a\nCOPY --chmod=0755 app /\n"),
    "ports": ("FROM a\nEXPOSE 443 80/TCP\nEXPOSE 80\n", "FROM a\nEXPOSE 80 443\n"),
    "times": (
        "FROM a\nHEALTHCHECK --interval=90s --timeout=0s --retries=03 CMD [ 'x' ]\n",
        "FROM a\nHEALTHCHECK --interval=1m30s --retries=3 CMD  [ 'x' ]\n",
    ),
    "array of a check": (
        'FROM a\nHEALTHCHECK --start-period=1.5s cmd [ "x","y" ]\n',
        'FROM a\nHEALTHCHECK --start-period=1500ms CMD ["x", "y"]\n',
    ),
    "constants for variables": (
        "ARG B=a\nARG D=/x\nFROM $B:1 AS n\nARG D\nENV E=$D/y\nWORKDIR $D\nCOPY app ${D}/\nUSER ${U:-me}\n",
        "FROM a:1 AS n\nARG D=/x\nENV E=/x/y\nWORKDIR /x\nCOPY app /x/\nUSER ${U:-me}\n",
    ),
    "constants for an argument that ends": (
        "FROM a\nARG V=1\nCOPY app /$V\nLABEL v=$V\nEXPOSE 80$V\nVOLUME /v$V\n",
        'FROM a\nCOPY app /1\nLABEL v=1\nEXPOSE 801\nVOLUME ["/v1"]\n',
    ),
    "targets from the root": (
        "FROM a AS n\nWORKDIR /x\nFROM n\nCOPY app ./y\nWORKDIR z\nADD app .\n",
        "FROM a AS n\nWORKDIR /x\nFROM n\nCOPY app /x/y\nWORKDIR /x/z\nADD app /x/z/\n",
    ),
    "target with a dot": ("FROM a\nCOPY app ./y\n", "FROM a\nCOPY app y\n"),
    "pairs in one": ("FROM a\nENV A=1 B=2\nLABEL y=2 x=1\nLABEL x=3\n", "FROM a\nENV A=1\nENV B=2\nLABEL x=3 y=2\n"),
    "volumes": ("FROM a\nVOLUME /x /y\n", 'FROM a\nVOLUME ["/y", "/x"]\n'),
    "argument that a variable replaces": (
        'FROM a\nARG V=""\nENV V="$V"\nRUN x\n',
        "FROM a\nENV V=\nRUN x\n",
    ),
    "argument twice": ("FROM a\nARG V=1\nARG V=1\nRUN x\n", "FROM a\nARG V=1\nRUN x\n"),
    "place of settings": (
        'FROM a AS n\nCMD ["x"]\nLABEL v=1\nSTOPSIGNAL 9\nRUN y\nFROM n\nRUN z\n',
        'FROM a AS n\nRUN y\nCMD ["x"]\nLABEL v=1\nSTOPSIGNAL 9\nFROM n\nRUN z\n',
    ),
    "switches": (
        "FROM a\nCOPY --link=true app /\nCOPY --link=false --parents=false ./app /\n",
        "FROM a\nCOPY --link app /\nCOPY app /\n",
    ),
    "link beside a mode": (
        "FROM a\nARG M=755\nCOPY --link --chmod=$M app /\nCOPY --link --chmod= app /\n",
        "FROM a\nARG M=755\nCOPY --chmod=0755 app /\nCOPY --link app /\n",
    ),
    "link onto nothing": ("FROM scratch\nCOPY --link app /\n", "FROM scratch\nCOPY app /\n"),
    "port": ("FROM a\nEXPOSE 80 53/udp\n", "FROM a\nEXPOSE 80/tcp 53/udp\n"),
    "name of a script": ("FROM a\nRUN <<A\nx\n\ty\nA\n", "FROM a\nRUN <<'B'\nx\n\ty\nB\n"),
}
EQUAL |= {
    "platform that is chosen anyway": (
        "FROM --platform=linux/x86_64 a AS n\nFROM --platform=$TARGETPLATFORM b\nCOPY --from=n / /\n",
        "FROM a AS n\nFROM b\nCOPY --from=n / /\n",
    ),
    "platform of a child": ("FROM a AS n\nFROM --platform=linux/arm64 n\nRUN x\n", "FROM a AS n\nFROM n\nRUN x\n"),
    "argument without a value": ("FROM a\nARG A\nRUN x\nENV B=1\n", "FROM a\nRUN x\nENV B=1\nARG A\n"),
    "directive of the default": ("# escape=\\\nFROM a\nRUN x\n", "FROM a\nRUN x\n"),
    "directive of what is nowhere": ("# escape=`\nFROM a\nRUN x\n", "FROM a\nRUN x\n"),
    "folder of a repository": (
        "FROM a\nADD --keep-git-dir=false https://x.org/r.git#v1 /r\n",
        "FROM a\nADD https://x.org/r.git#v1 /r\n",
    ),
    "default of a cache": (
        "FROM a\nRUN --mount=type=cache,id=/y,target=/y z\nRUN --mount=type=cache,id=one,target=/y z\n",
        "FROM a\nRUN --mount=type=cache,target=/y z\nRUN --mount=type=cache,id=two,target=/y z\n",
    ),
    "tabs that a script drops": ("FROM a\nRUN <<-A\n\tx\n\tA\n", "FROM a\nRUN <<'A'\nx\nA\n"),
    "copied document": ("FROM a\nCOPY <<-A /x\n\ty\nA\n", "FROM a\nCOPY <<'A' /x\ny\nA\n"),
    "braces": ("FROM a\nENV P=/x:$P\nLABEL p $P\nWORKDIR $P\n", "FROM a\nENV P=/x:${P}\nLABEL p ${P}\nWORKDIR ${P}\n"),
    "braces of a platform": (
        "FROM --platform=$BUILDPLATFORM a\nRUN x\n",
        "FROM --platform=${BUILDPLATFORM} docker.io/library/a:latest\nRUN x\n",
    ),
    "name of an image in full": ("FROM a\nRUN x\n", "FROM docker.io/library/a:latest\nRUN x\n"),
}
EQUAL |= {
    "another name of a stage": (
        "FROM a AS n\nCOPY app /\nFROM n\nRUN x\n",
        "FROM a AS n\nFROM n AS o\nCOPY app /\nFROM o AS p\nFROM p\nRUN x\n",
    ),
    "stage in two": (
        "FROM a\nARG V=1\nWORKDIR /x\nUSER u\nENV A=1\nCOPY app y\n",
        "FROM a AS n\nARG V=1\nWORKDIR /x\nUSER u\nENV A=1\nFROM n\nCOPY app y\n",
    ),
    "files of another name of an image": (
        "FROM b AS n\nFROM a\nCOPY --from=n /x /\nRUN --mount=from=n,target=/y y\n",
        "FROM a\nCOPY --from=b:latest /x /\nRUN --mount=from=b,target=/y y\n",
    ),
    "mounts in another order": (
        "FROM a\nRUN --mount=source=app,target=/y --mount=type=tmpfs,target=/y/z --mount=type=secret,id=s y\n",
        "FROM a\nRUN --mount=type=tmpfs,target=/y/z --mount=type=secret,id=s --mount=source=app,target=/y y\n",
    ),
    "constant of all stages beside an unknown": (
        "FROM a\nENV P=/opt/x/bin:$P\nCOPY app /opt/x\n",
        "ARG D=/opt/x\nFROM a\nARG D\nENV P=$D/bin:${P}\nCOPY app $D\n",
    ),
    "settings twice": (
        "FROM a\nENV A=1\nUSER u\nLABEL l=1\nRUN x\nVOLUME /x\n",
        "FROM a\nENV A=1\nENV A=1\nUSER u\nUSER u\nLABEL l=1\nRUN x\nLABEL l=1\nUSER u\nVOLUME /x\nVOLUME /x\n",
    ),
    "shell in words": (
        'FROM a\nSHELL ["/bin/b", "-c"]\nRUN x y\n',
        'FROM a\nSHELL ["/bin/b", "-c"]\nRUN ["/bin/b", "-c", "x y"]\n',
    ),
    "variable of the engine that is never empty": (
        "FROM --platform=${BUILDPLATFORM:-x} a\nRUN x\n",
        "FROM --platform=$BUILDPLATFORM a\nRUN x\n",
    ),
    "range of ports": ("FROM a\nEXPOSE 80-82/udp\n", "FROM a\nEXPOSE 82/udp 81/udp 80/udp\n"),
    "path with a wildcard": ("FROM a\nCOPY ./tools/*.go /x/\n", "FROM a\nCOPY tools/*.go /x/\n"),
    "document with a constant": ("FROM a\nCOPY <<A /x\n1 2\nA\n", "FROM a\nARG Y=1\nCOPY <<A /x\n${Y} 2\nA\n"),
}
DIFFERENT = {
    "variable before another stage": (  # which sets again what the image of `a` sets: A may stand before P there
        "FROM a\nENV A=1\nRUN x\n",
        "FROM a AS n\nENV A=1\nFROM n\nRUN x\n",
    ),
    "argument before another stage": ("FROM a\nARG A=1\nRUN x\n", "FROM a AS n\nARG A=1\nFROM n\nRUN x\n"),
    "order of variables": ("FROM a\nENV A=1 B=1\nRUN x\n", "FROM a\nENV B=1 A=1\nRUN x\n"),
    "variable set last": ("FROM a\nENV A=1 B=1\nRUN x\n", "FROM a\nENV A=1 B=1\nENV A=1\nRUN x\n"),
    "folder twice": ("FROM a\nWORKDIR /x\nRUN y\n", "FROM a\nWORKDIR /x\nWORKDIR /x\nRUN y\n"),
    "who waits for a cache without a name": (  # BuildKit runs the step again: solver/llbsolver/ops/exec.go:86
        "FROM a\nRUN --mount=type=cache,sharing=locked,target=/y y\n",
        "FROM a\nRUN --mount=type=cache,target=/y y\n",
    ),
    "order of secrets": (
        "FROM a\nRUN --mount=type=secret,id=s --mount=type=secret,id=t y\n",
        "FROM a\nRUN --mount=type=secret,id=t --mount=type=secret,id=s y\n",
    ),
    "mounts in an unknown folder": (
        "FROM a\nRUN --mount=source=app,target=y --mount=source=tools,target=/m y\n",
        "FROM a\nRUN --mount=source=app,target=y --mount=source=tools,target=/n y\n",
    ),
    "variable that may be empty": ("FROM a\nENV A=$B\nENV C=${A:-x}\n", "FROM a\nENV A=$B\nENV C=$A\n"),
    "command after an entry point": ("FROM a\nCMD x\nENTRYPOINT y\n", "FROM a AS n\nCMD x\nFROM n\nENTRYPOINT y\n"),
    "platform": ("FROM --platform=linux/arm64 a\nRUN x\n", "FROM a\nRUN x\n"),
    "platform of the engine": ("FROM --platform=$BUILDPLATFORM a\nRUN x\n", "FROM a\nRUN x\n"),  # any engine's
    "argument of every build": ("FROM a\nARG TARGETARCH\nRUN x\n", "FROM a\nRUN x\nARG TARGETARCH\n"),
    "directive that counts": ("# escape=`\nFROM a\nENV A=\\y\n", "FROM a\nENV A=\\y\n"),
    "cache of another name": (
        "FROM a\nRUN --mount=type=cache,id=one,target=/y z\n",  # BuildKit blanks any name but the default's
        "FROM a\nRUN --mount=type=cache,target=/y z\n",
    ),
    # BuildKit sets Test to NONE in the image's configuration, whatever the parent has (dispatchHealthcheck).
    "no check": ("FROM a\nHEALTHCHECK NONE\n", "FROM a\n"),
    "copied document with a variable": ("FROM a\nCOPY <<A /x\n$Y\nA\n", "FROM a\nCOPY <<'A' /x\n$Y\nA\n"),
    "quoted braces": ("FROM a\nLABEL p='$P'\n", "FROM a\nLABEL p='${P}'\n"),
    "stages swapped": (
        "FROM a AS x\nFROM b AS y\nFROM c\nCOPY --from=x / /\nCOPY --from=y / /\n",
        "FROM a AS y\nFROM b AS x\nFROM c\nCOPY --from=x / /\nCOPY --from=y / /\n",
    ),
    "stage by a variable": (
        "ARG N=x\nFROM a AS x\nFROM b AS y\nFROM $N\nCOPY --from=y / /\nCOPY --from=x / /\n",
        "ARG N=x\nFROM a AS y\nFROM b AS x\nFROM $N\nCOPY --from=x / /\nCOPY --from=y / /\n",
    ),
    "image for a stage": ("FROM a AS x\nFROM x\nRUN y\n", "FROM a AS y\nFROM x\nRUN y\n"),
    "later mount's target": (
        "FROM a\nRUN --mount=source=app,target=/y,target=/z y\n",
        "FROM a\nRUN --mount=source=app,target=/z,target=/y y\n",
    ),
    "file or folder": ("FROM a\nCOPY README.md /x\n", "FROM a\nCOPY README.md /x/\n"),
    "sources in another order": ("FROM a\nCOPY app tools /x/\n", "FROM a\nCOPY tools app /x/\n"),
    "quotes with a variable": ("FROM a\nENV A='$B'\n", 'FROM a\nENV A="$B"\n'),
    "quotes with an escape": ('FROM a\nENV A="\\$B"\n', 'FROM a\nENV A="$B"\n'),
    "single quotes with a variable and a blank": ("FROM a\nENV A='$B c'\n", 'FROM a\nENV A="$B c"\n'),
    "arguments": ("FROM a\nARG A B\nRUN x\n", "FROM a\nARG A=B\nRUN x\n"),
    "mount that is written": (
        "FROM a\nRUN --mount=source=app,target=/y y\n",
        "FROM a\nRUN --mount=source=app,target=/y,rw y\n",
    ),
    "mount that is written and then is not": (
        "FROM a\nRUN --mount=source=app,target=/y,rw,readonly y\n",
        "FROM a\nRUN --mount=source=app,target=/y,rw y\n",
    ),
    "last of what a mount says": (
        "FROM a\nRUN --mount=source=app,target=/y,readwrite=false,ro=false y\n",
        "FROM a\nRUN --mount=source=app,target=/y,ro=false,readwrite=false y\n",
    ),
    "source of a mount": (
        "FROM a AS n\nFROM b\nRUN --mount=from=n,source=/x,target=/z y\n",
        "FROM a AS n\nFROM b\nRUN --mount=from=n,source=/X,target=/z y\n",
    ),
    "read-only cache": (
        "FROM a\nRUN --mount=type=cache,target=/y,readonly y\n",
        "FROM a\nRUN --mount=type=cache,target=/y y\n",
    ),
    "network": ("FROM a\nRUN --network=none y\n", "FROM a\nRUN y\n"),
    "older form with spaces": ("FROM a\nENV A b c\n", "FROM a\nENV A=b c=\n"),
    "older form with an equals sign": ("FROM a\nENV A b=c\n", "FROM a\nENV A=b=c\nENV c=\n"),
    "scan of a stage": ("ARG BUILDKIT_SBOM_SCAN_STAGE=true\nFROM a\n", "FROM a\n"),
    "modes": ("FROM a\nCOPY --chmod=755 app /\n", "FROM a\nCOPY --chmod=4755 app /\n"),
    "all and one replaced": ("FROM a\nARG X=a\nENV Y=${X/a/b}\n", "FROM a\nARG X=a\nENV Y=${X//a/b}\n"),
    "ports": ("FROM a\nEXPOSE 80\n", "FROM a\nEXPOSE 80/udp\n"),
    "times": ("FROM a\nHEALTHCHECK --interval=1m CMD x\n", "FROM a\nHEALTHCHECK --interval=1h CMD x\n"),
    "check by a shell": ('FROM a\nHEALTHCHECK CMD "x"\n', 'FROM a\nHEALTHCHECK CMD ["x"]\n'),
    "command before a child's": (
        'FROM a AS n\nCMD ["x"]\nENTRYPOINT ["y"]\nFROM n\n',
        'FROM a AS n\nCMD ["x"]\nFROM n\nENTRYPOINT ["y"]\n',
    ),
    "target in another folder": (
        "FROM a\nWORKDIR /x\nWORKDIR $Y\nCOPY app y\n",
        "FROM a\nWORKDIR /x\nWORKDIR $Y\nCOPY app /x/y\n",
    ),
    "target of another stage": (
        "FROM a AS n\nWORKDIR /x\nCOPY app y\nFROM b\nCOPY app y\nCOPY --from=n y /\n",
        "FROM a AS n\nWORKDIR /x\nCOPY app y\nFROM b\nCOPY app /x/y\nCOPY --from=n y /\n",
    ),
    "folder with a slash": ("FROM a\nWORKDIR /x/\n", "FROM a\nWORKDIR /x\n"),  # Docker 26.1.5 keeps it
    "variables that read the one before": (
        "FROM a\nENV P=/x:$P Q=$P\n",
        "FROM a\nENV P=/x:$P\nENV Q=$P\n",
    ),
    "arguments in turn": (
        "FROM a\nARG V=1\nARG V=2\nARG V=1\nRUN x\n",
        "FROM a\nARG V=1\nARG V=2\nRUN x\n",
    ),
    "variables in another order": ("FROM a\nENV A=1 B=2\n", "FROM a\nENV B=2 A=1\n"),
    "target that ends in a dot": ("FROM a\nCOPY app /y/.\n", "FROM a\nCOPY app /y/\n"),
    "later command": ('FROM a\nCMD x\nCMD ["y"]\n', 'FROM a\nCMD ["y"]\nCMD x\n'),
    "command before its shell": ('FROM a\nCMD x\nSHELL ["y"]\n', 'FROM a\nSHELL ["y"]\nCMD x\n'),
    "later label": ("FROM a\nLABEL x=1\nLABEL x=$Y\n", "FROM a\nLABEL x=$Y\nLABEL x=1\n"),
    "label of the parent's variable": (
        "FROM a\nLABEL x=$PATH\nENV PATH=/x:$PATH\n",
        "FROM a\nENV PATH=/x:$PATH\nLABEL x=$PATH\n",
    ),
    "argument that a command sees": ("FROM a\nARG V=1\nCOPY app /\nRUN x\n", "FROM a\nCOPY app /\nRUN x\n"),
    "argument of a child": ("FROM a AS n\nARG V=1\nFROM n\nRUN x\n", "FROM a AS n\nFROM n\nRUN x\n"),
    "argument after a variable": (
        "FROM a\nARG V=1\nENV V=2\nRUN x\n",
        "FROM a\nENV V=2\nARG V=1\nRUN x\n",
    ),
    "argument of a script": ("FROM a\nARG V=1\nCOPY <<E /x\n$V\nE\n", "FROM a\nCOPY <<E /x\n$V\nE\nARG V=1\n"),
    "argument before the first stage": ("ARG V=1\nFROM a\nARG V\nRUN x\n", "ARG V=2\nFROM a\nARG V\nRUN x\n"),
    "platform by an argument": (
        "ARG P=linux/arm64\nFROM --platform=$P a\n",
        "ARG P=linux/amd64\nFROM --platform=$P a\n",
    ),
    "value with a variable's sign": ("FROM a\nLABEL x='$Y'\n", "FROM a\nLABEL x=$Y\n"),
    "script's end": ("FROM a\nRUN <<A\nx\nA\nRUN y\n", "FROM a\nRUN <<A\nx\nRUN y\nA\n"),
    "tabs of a script": ("FROM a\nRUN <<A\n\tx\nA\n", "FROM a\nRUN <<-A\n\tx\nA\n"),
    "name of a program": ("FROM a\nRUN <<A\n#!/x\nA\n", "FROM a\nRUN <<B\n#!/x\nB\n"),
    "name of a copied script": ("FROM a\nCOPY <<A /x/\n1\nA\n", "FROM a\nCOPY <<B /x/\n1\nB\n"),
    "owner of what is added": ("FROM a\nARG U=1\nADD --chown=$U app /\n", "FROM a\nARG U=2\nADD --chown=$U app /\n"),
    "mode of what is added": ("FROM a\nARG M=1\nADD --chmod=$M app /\n", "FROM a\nARG M=2\nADD --chmod=$M app /\n"),
    "checksum": (
        f"FROM a\nARG C=sha256:{'a' * 64}\nADD --checksum=$C https://x.org/f /\n",
        f"FROM a\nARG C=sha256:{'b' * 64}\nADD --checksum=$C https://x.org/f /\n",
    ),
    "empty folder": ('FROM a\nWORKDIR /x\nWORKDIR ""\n', "FROM a\nWORKDIR /x\nWORKDIR /\n"),
    "target in an empty folder": (
        'FROM a\nARG E=""\nWORKDIR /x\nWORKDIR $E\nCOPY app y\n',
        'FROM a\nARG E=""\nWORKDIR /x\nWORKDIR $E\nCOPY app /y\n',
    ),
    "unknown folder with a slash": ("FROM a\nWORKDIR /x\nWORKDIR $Y/\n", "FROM a\nWORKDIR /x\nWORKDIR $Y\n"),
    "name of the target": (
        "FROM a AS one\nARG TARGETSTAGE\nRUN x $TARGETSTAGE\n",
        "FROM a AS two\nARG TARGETSTAGE\nRUN x $TARGETSTAGE\n",
    ),
    "stage beside a script": (
        "FROM a AS x\nFROM b AS y\nFROM c\nCOPY --from=x f <<E /d/\n1\nE\nCOPY --from=y f <<E /e/\n1\nE\n",
        "FROM a AS y\nFROM b AS x\nFROM c\nCOPY --from=x f <<E /d/\n1\nE\nCOPY --from=y f <<E /e/\n1\nE\n",
    ),
    "stages of mounts with a target twice": (
        "FROM a AS x\nFROM b AS y\nFROM c\nRUN --mount=from=x,target=/v,target=/w --mount=from=y,target=/,target=/u z\n",
        "FROM a AS y\nFROM b AS x\nFROM c\nRUN --mount=from=x,target=/v,target=/w --mount=from=y,target=/,target=/u z\n",
    ),
    "variable whose name is an array": ('FROM a\nENV ["A", "1"] B=$X\n', "FROM a\nENV A=1 B=$X\n"),
    "link": ("FROM a\nCOPY --link app /\n", "FROM a\nCOPY app /\n"),
    "link beside a mode of the parent": (
        "FROM a\nCOPY --link --chmod=$M app /\n",
        "FROM a\nCOPY --chmod=$M app /\n",
    ),
    "mode of nobody": ("FROM a\nCOPY --chmod=0 app /\n", "FROM a\nCOPY app /\n"),
    "parents of a path": ("FROM a\nCOPY --parents ./app/./data /x/\n", "FROM a\nCOPY --parents app/data /x/\n"),
}


@every(
    "texts, equal",
    [*((each, True) for each in EQUAL.values()), *((each, False) for each in DIFFERENT.values())],
    [*EQUAL, *DIFFERENT],
)
def test_key_follows_what_a_text_builds(texts: tuple[str, str], equal: bool, tmp_path: Path) -> None:
    folder = filled(tmp_path)
    keys = []
    for text in texts:
        (folder / "Dockerfile").write_text(text)
        keys.append(key(folder, None))
    assert (keys[0] == keys[1]) is equal


def _relinked(path: str, target: str) -> Callable[[Path], None]:
    def relink(folder: Path) -> None:
        (folder / path).unlink()
        (folder / path).symlink_to(target)

    return relink


@every(
    "edit, moved",
    [
        (_relinked("now", "two"), False),
        (_relinked("now", "./one"), False),
        (_relinked("now", "three"), True),
        (_relinked("file", "two/x"), False),
        (_relinked("file", "three/x"), True),
        (lambda folder: ((folder / "file").unlink(), written("file", "1\n")(folder)), False),
        (written("one/x", "2\n"), True),
        (lambda folder: (folder / "one/x").chmod(0o600), True),
        (lambda folder: (folder / "one").chmod(0o700), True),
    ],
)
def test_key_is_of_what_a_link_leads_to(edit: Callable[[Path], None], moved: bool, tmp_path: Path) -> None:
    folder = filled(tmp_path)
    for name, text in {"one": "1\n", "two": "1\n", "three": "3\n"}.items():
        written(f"{name}/x", text)(folder)
    (folder / "now").symlink_to("one")
    (folder / "file").symlink_to("one/x")
    (folder / "Dockerfile").write_text("FROM a\nCOPY now file /x/\nRUN --mount=source=now,target=/y y\n")
    before = key(folder, None)
    edit(folder)
    assert (key(folder, None) != before) is moved


def test_key_counts_a_link_that_is_copied_as_one(folder: Path) -> None:
    for name in ("one", "two"):
        written(f"app/{name}/x", "1\n")(folder)
    (folder / "app/now").symlink_to("one")
    (folder / "Dockerfile").write_text("FROM a\nCOPY app/now /x\nCOPY app /y\n")
    before = key(folder, None)
    _relinked("app/now", "two")(folder)
    assert key(folder, None) != before


def test_key_counts_folders_above_where_they_are_copied(folder: Path) -> None:
    (folder / "Dockerfile").write_text("FROM a\nCOPY --parents app/data/words.txt /\n")
    before = key(folder, None)
    (folder / "app").chmod(0o700)
    assert key(folder, None) != before


def test_key_counts_folders_above_beside_another_copy(folder: Path) -> None:
    text = "FROM a\nCOPY --parents app/data/words.txt /x/\nCOPY app/data/words.txt /y/\n"
    (folder / "Dockerfile").write_text(text)
    before = key(folder, None)
    (folder / "app").chmod(0o700)
    assert key(folder, None) != before


@every(
    "path, moved",
    [
        ("app/**/*.txt", True),
        ("./app/**/words.txt", True),
        ("app/./**/*.txt", True),
        ("**/*.py", False),
        ("app/**/*.py", False),
    ],
)
def test_key_counts_what_a_deep_pattern_copies(path: str, moved: bool, tmp_path: Path) -> None:
    folder = filled(tmp_path)
    (folder / "Dockerfile").write_text(f"FROM a\nCOPY --parents {path} /x/\n")
    before = key(folder, None)
    written("app/data/words.txt", "two\n")(folder)
    assert (key(folder, None) != before) is moved


@every(
    "copy, moved",
    [
        ("--exclude=*.txt app", True),
        ("--exclude=**/*.txt app", False),
        ("--exclude=data ./app/", False),
        ("--exclude=data/words.txt ap?", False),
        ("--exclude=app/data .", False),
        ("--exclude=app/data app", True),
        ("--exclude=data --exclude=!data/words.txt app", True),
        ("--exclude=words.txt app/data/words.txt", True),
        ("--exclude=app/data --parents app", True),
    ],
)
def test_key_leaves_out_what_a_copy_excludes(copy: str, moved: bool, tmp_path: Path) -> None:
    folder = filled(tmp_path)
    (folder / "Dockerfile").write_text(f"FROM a\nCOPY {copy} /x/\n")
    before = key(folder, None)
    written("app/data/words.txt", "two\n")(folder)
    assert (key(folder, None) != before) is moved
    (folder / "Dockerfile").write_text(f"FROM a\nCOPY app /y/\nCOPY {copy} /x/\n")
    before = key(folder, None)
    written("app/data/words.txt", "three\n")(folder)
    assert key(folder, None) != before


@every("path", ["now/*.txt", "deep/now/d?ta/*", "./now/data/w*"])
def test_key_counts_files_of_a_pattern_behind_a_link(path: str, tmp_path: Path) -> None:
    folder = filled(tmp_path)
    written("app/words.txt")(folder)
    (folder / "now").symlink_to("app" if path == "now/*.txt" else "app/.")
    (folder / "deep").symlink_to(".")
    (folder / "Dockerfile").write_text(f"FROM a\nCOPY {path} /x/\n")
    before = key(folder, None)
    written("app/words.txt", "other\n")(folder)
    written("app/data/words.txt", "other\n")(folder)
    assert key(folder, None) != before


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone gives a file capabilities")
def test_key_counts_capabilities(folder: Path) -> None:
    before = key(folder)
    sets = bytes.fromhex("00200000 00000000 00000000 00000000")
    os.setxattr(folder / "app/run.sh", "security.capability", b"\1\0\0\2" + sets)
    assert key(folder) != before


def test_key_of_empty_folder_is_known(folder: Path) -> None:
    (folder / "Dockerfile").write_text("FROM a\nCOPY empt? /\n")
    (folder / "empty").mkdir()
    before = key(folder, None)
    (folder / "empty/more").mkdir()
    assert key(folder, None) != before


def test_key_counts_arguments_that_are_read(folder: Path) -> None:
    assert key(folder, OTHER="1") == key(folder)
    assert key(folder, VERSION="2") != key(folder)
    assert key(folder, VERSION="2") != key(folder, VERSION="3")
    assert key(folder, "test") != key(folder)
    arm = build_key(folder / "Dockerfile", folder, "app", {}, "linux/arm64")
    assert arm.key != key(folder)
    assert set(arm.outside) == {"docker/dockerfile:1", "golang:1.23", "python:3.12-slim"}
    assert set(arm.files) == {
        "app",
        "app/__main__.py",
        "app/data",
        "app/data/words.txt",
        "app/run.sh",
        "requirements.txt",
        "tools/go.mod",
        "tools/main.go",
    }


def test_key_of_dockerfile_outside_context_is_known(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "docker"
    other.mkdir()
    (folder / "Dockerfile").rename(other / "app.Dockerfile")
    words = ["key", str(other / "app.Dockerfile"), "--context", str(folder), "--target", "app"]
    assert main(words) == 0
    first = capsys.readouterr().out
    assert len(first.strip()) == 64
    (other / "app.Dockerfile.dockerignore").write_text("app/data\n")
    assert main(words) == 0
    assert capsys.readouterr().out != first


@every(
    "text, message",
    [
        ("FROM a\nCOPY gone /\n", "the context has no such file"),
        ("FROM a\nCOPY $X /\n", ":2: COPY: "),
        ("FROM a\nONBUILD COPY . /\nFROM 0\n", ""),
        ("FRM a\n", "no such instruction"),
        (f"FROM a\nEXPOSE {'1' * 5000}\nHEALTHCHECK --retries={'1' * 5000} CMD x\n", ""),
    ],
)
def test_key_that_nobody_knows_is_one_line(
    text: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "Dockerfile").write_text(text)
    status = main(["key", str(tmp_path / "Dockerfile")])
    printed = capsys.readouterr()
    if message:
        assert (status, printed.out) == (1, "")
        assert message in printed.err
        assert printed.err.count("\n") == 1


def test_key_of_missing_file_is_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["key", "gone"]) == 1
    assert capsys.readouterr().err == "gone: there is no such Dockerfile\n"
    (tmp_path / "Dockerfile").touch()
    assert main(["key", str(tmp_path / "Dockerfile"), "--context", "gone"]) == 1
    assert capsys.readouterr().err == "gone: there is no such folder for --context\n"
