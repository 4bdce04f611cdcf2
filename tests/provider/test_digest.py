"""The context's digest: its inputs, and its equality with the official provider's."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.provider.conftest import write
from tests.provider.plugin import Failure, Plugin

TREE = {
    "Dockerfile": "FROM scratch\nCOPY . /\n",
    "main.go": "package main\n",
    "docs/readme.md": "hello\n",
    "docs/api/v1.md": "one\n",
    "src/a.txt": "a",
    "src/b.txt": "b",
    "src/deep/c.txt": "c",
}


@dataclass(frozen=True)
class Case:
    """A change to TREE and the digest that results, as recorded from the official provider."""

    id: str
    change: Callable[[Path], object]
    digest: str


def ignoring(*lines: str, name: str = ".dockerignore") -> Callable[[Path], object]:
    return lambda root: (root / name).write_text("\n".join(lines) + "\n")


def combined(*changes: Callable[[Path], object]) -> Callable[[Path], object]:
    return lambda root: [change(root) for change in changes]


def mode(path: str, bits: int) -> Callable[[Path], object]:
    return lambda root: (root / path).chmod(bits)


def link(path: str, target: str) -> Callable[[Path], object]:
    return lambda root: (root / path).symlink_to(target)


def content(path: str, text: str) -> Callable[[Path], object]:
    return lambda root: write(root, {path: text})


CASES = [
    Case("as it is", lambda _: None, "5837353aebdaef4166bb7a7caaa52e975ca867f37d6aa572fd94fd84a2d9fb3b"),
    Case(
        "content",
        content("main.go", "package other\n"),
        "7aa94af61c48c17196b1f65b29f98fd168cc4b7ca5e79f36409511d657092e9a",
    ),
    Case(
        "renamed",
        lambda root: (root / "main.go").rename(root / "other.go"),
        "9c5686559863e43ba1e9ab4f336ed6e5544367b171508c2dfe79cb53a0acc49f",
    ),
    Case("executable", mode("main.go", 0o755), "bb62f6cc21510f40fe233f26a15ede6967782e345aaf71b3486cab25d76f8670"),
    Case(
        "setuid, setgid and sticky",
        combined(mode("main.go", 0o4755), mode("src/a.txt", 0o2644), mode("src/b.txt", 0o1644)),
        "ba9c760185eab675bbea1d34f498998ff3fba1c69f85dffb7628c553d74df4b7",
    ),
    Case("new file", content("new", ""), "73d02e065b0e666af13f3d231126c359177ed27bb739a85fb3cab65e5e68837d"),
    Case(
        "empty folder",
        lambda root: (root / "empty").mkdir(),
        "5837353aebdaef4166bb7a7caaa52e975ca867f37d6aa572fd94fd84a2d9fb3b",
    ),
    Case("ignored", ignoring("docs", "*.go"), "a4d33653956e09794fead47a2a59ab15513810e1cb6522eeaac89643dca69c40"),
    Case("ignored deep", ignoring("**/*.md"), "f4a94af35c9c1a1fd6a2ee898571a344805bf5b1323093980fb9b3c64d91ca2d"),
    Case("ignored below", ignoring("src/**"), "d5f1fdab479903c772e01fa76640a2ee0f9943e06b4479704aa873cd781a0f3d"),
    Case(
        "ignored one level", ignoring("src/*.txt"), "e907d971015dd709b1b51ae98afa18be295fd2e61ea91c3528aa9417b401dfb3"
    ),
    Case(
        "taken back",
        ignoring("docs", "!docs/readme.md"),
        "2c4fa68618a86c9c4f7a9faf7d551a915cc1247cd5ee8cb71db7eecbafcf3e6d",
    ),
    Case(
        "taken back by a pattern",
        ignoring("*", "!**/*.md"),
        "bfe232cae4a8efeda0b861b024a25c0c03934675d0933db744a6b82ff988ba46",
    ),
    Case(
        "taken back and ignored again",
        ignoring("*", "!docs", "docs/api"),
        "f504c1d2aeffd962680d5c0ba99d477855da29237d1ea77c0d28e959716503b9",
    ),
    Case(
        "everything but",
        ignoring("*", "!src/deep/c.txt"),
        "f2cbef3dbfbfe251bedfbec9faeae084dc8f1aaf2e50ff599d286f024fdd4d46",
    ),
    Case(
        "comments, blanks, slashes",
        ignoring("# docs", "", "  /docs/  ", "./src//b.txt", "!  docs/readme.md"),
        "729ffbea77b55b8d2cf8f9c527cc1055818c42332d1280b5a93615447dcd997d",
    ),
    Case(
        "classes and escapes",
        ignoring("src/[ab].txt", "main\\.go", "doc?"),
        "804b1bbd0eaab627b94e8c73a0cd560d2c9862d457a3bb128123502db347f4d5",
    ),
    Case(
        "windows lines and a mark",
        lambda root: (root / ".dockerignore").write_bytes(b"\xef\xbb\xbfdocs\r\nsrc\r\n"),
        "2447b19715afb8b39bd3f873e4c7da93d7b2761d2a0c5336730b48df4eac2d6c",
    ),
    Case(
        "the Dockerfile's own ignore file wins",
        combined(ignoring("docs"), ignoring("src", name="Dockerfile.dockerignore")),
        "b335da76d7bb733fff8712b90b7ec4d407cc661e5f2020c07cb4bc70a4371e61",
    ),
    Case(
        "an empty one wins too",
        combined(ignoring("docs"), ignoring("", name="Dockerfile.dockerignore")),
        "2edbeaa4ef366aabddf425a2b5505b920dca73fec95590a6b07a79f2693a285c",
    ),
    Case(
        "the Dockerfile counts though ignored",
        combined(ignoring("Dockerfile"), content("Dockerfile", "FROM scratch\n")),
        "31739da0cf60c79dc14aabf22cf3c88f2690f819f6c264fc64693e80de13ec9a",
    ),
    Case(
        "link to a file", link("link", "src/a.txt"), "cf9833478ff85e9a2cd7e8f816f28fbd3fa8b0db847c5a8133b519440462b881"
    ),
    Case("link to a folder", link("link", "docs"), "76a649edd1ceb98ef21863896e6497c510a93efbb483b0dba417c4e967904932"),
    Case(
        "link upwards",
        link("src/deep/link", "../../docs/readme.md"),
        "f852a43285696461ddd8e8bc9577d0658dcc6422a5919e5eed1277ef997f91f4",
    ),
    Case(
        "link through a link",
        combined(link("one", "src"), link("two", "one/deep/c.txt")),
        "3f5c79232e1e141ecd5ea8dbc66255c6788e98c44a1204beeafa7f703004fcae",
    ),
    Case(
        "link out of the context",
        link("link", "/etc"),
        "81532f0053e41028450ccc45ca1e4497bf5a1c9d8980e7522f2bf1babbf1cb0d",
    ),
    Case(
        "link that leads nowhere hides its folder's rest",
        combined(link("lost", "nowhere"), content("z", "z")),
        "3091d0c5ede10233e6b58431c50f3668fd74fd8d654dd7a77fde9ee3463fbb75",
    ),
    Case(
        "names beyond ASCII",
        combined(content("é/ü.txt", "x"), content("e", "y")),
        "7675d0140949389401d352eac6101e77aac167c29b14391c5f81e7616e9fd8af",
    ),
    Case(
        "pipe",
        lambda root: os.mkfifo(root / "pipe"),
        "47d4585e584932581bd4c88328d1adad1f7583a5c180f2e46078ebc50e52874c",
    ),
    Case(
        "hard link",
        lambda root: os.link(root / "main.go", root / "again.go"),
        "8abe77d7a4a425b7d2aa68d869157dbbef8cb128d27cd9430d56bf7b75570676",
    ),
]


@pytest.fixture
def context(program: Path) -> Path:
    """TREE, at the one place and with the one mode the recorded digests are for."""
    os.umask(0o022)
    shutil.rmtree(program / "ctx", ignore_errors=True)
    return write(program / "ctx", TREE)


def digest(plugin: Plugin, context: str = "ctx", dockerfile: str = "ctx/Dockerfile") -> str:
    build = {"context": context, "dockerfile": dockerfile, "platform": "linux/amd64"}
    result: str = plugin.check({"imageName": "x", "skipPush": True, "build": build})["build"]["contextDigest"]
    return result


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_digest_equals_the_official_providers(plugin: Plugin, context: Path, case: Case) -> None:
    case.change(context)
    assert digest(plugin) == case.digest


def test_digest_ignores_place_of_dockerfile(plugin: Plugin, context: Path, program: Path) -> None:
    """Its content counts, not its name; a Dockerfile outside the context is no file of it."""
    text = (context / "Dockerfile").read_text()
    (context / "Dockerfile").unlink()
    write(program, {"one.Dockerfile": text, "sub/two": text})
    assert digest(plugin, dockerfile="one.Dockerfile") == digest(plugin, dockerfile="sub/two")


def test_digest_ignores_times_of_files(plugin: Plugin, context: Path) -> None:
    before = digest(plugin)
    os.utime(context / "main.go", (1, 1))
    assert digest(plugin) == before


def test_digest_follows_content_of_same_size_and_time(plugin: Plugin, context: Path) -> None:
    """A cached digest must not outlive a file's content."""
    path = context / "src/a.txt"
    os.utime(path, (1, 1))
    before = digest(plugin)
    for text in "xyz":
        path.write_text(text)
        os.utime(path, (1, 1))
        after = digest(plugin)
        assert after != before
        before = after


def test_digest_reads_no_ignored_file(plugin: Plugin, context: Path) -> None:
    """A socket cannot be read; an ignored one need not be."""
    ignoring("run")(context)
    before = digest(plugin)
    (context / "run").mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(context / "run/s"))
        assert digest(plugin) == before
    ignoring("nothing")(context)
    with pytest.raises(Failure, match="run/s"):
        digest(plugin)


@pytest.mark.parametrize("line", ["!", "[", "a\\", "[]x]", "[a-]"])
def test_digest_with_malformed_pattern_fails(plugin: Plugin, context: Path, line: str) -> None:
    ignoring(line)(context)
    with pytest.raises(Failure, match="syntax error in pattern|illegal exclusion pattern"):
        digest(plugin)


def test_digest_of_circular_links_fails(plugin: Plugin, context: Path) -> None:
    combined(link("one", "two"), link("two", "one"))(context)
    with pytest.raises(Failure, match="too many links"):
        digest(plugin)
