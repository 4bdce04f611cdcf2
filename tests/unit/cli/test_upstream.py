"""``python -m maintenance upstream``: contracts held against folders, archives and git repositories, and a line for each bad input."""

from __future__ import annotations

import bz2
import errno
import gzip
import importlib.util
import io
import json
import lzma
import os
import subprocess
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from cli.locking import git_objects
from cli.main import main
from maintenance.commands import maintenance
from maintenance.upstream import contract, pins
from maintenance.upstream.contract import Contract, Row
from maintenance.upstream.findings import findings
from maintenance.upstream.upstream_files import ArchiveFiles, FolderFiles

TOOL = """
repository = "acme/tool"
read = "v1.0"

[[pin]]
version = "1.0"
tag = "v{}"

[[pin]]
version = "2.0"
tag = "v{}"

[[row]]
relies = "says where CUDA is"
stands = "dockerfiles/tool/build"
file = "Makefile"
line = 3
variable = "CUDA"

[[row]]
relies = "installs no more"
stands = "dockerfiles/tool/build"
file = "pyproject.toml"
requires = ["setuptools"]
since = "2.0"
"""

FILES = {
    "Makefile": "all:\n\ttrue\nCUDA ?= /usr/local/cuda\n",
    "pyproject.toml": '[build-system]\nrequires = ["Setuptools>=61"]\n',
    "src/one.c": "",
}


@pytest.fixture(autouse=True)
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Contracts with the upstreams `tool`, of acme/tool, and `other`."""
    folder = tmp_path / "contracts"
    folder.mkdir()
    (folder / "tool.toml").write_text(TOOL)
    (folder / "other.toml").write_text('archive = "Other"\nread = "1"\n[[pin]]\nversion = "1"\n' + row(member="a.sh"))
    monkeypatch.setattr(contract, "CONTRACTS", folder)


def row(**check: object) -> str:
    """Return a row of a contract."""
    fields = {"relies": "needs it", "stands": "dockerfiles/tool/build", **check}
    return "[[row]]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in fields.items())


def write(folder: Path, files: Mapping[str, str]) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return folder


def git(folder: Path, *arguments: str) -> str:
    identity = {
        f"GIT_{who}_{part}": "nobody@localhost" for who in ("AUTHOR", "COMMITTER") for part in ("NAME", "EMAIL")
    }
    done = subprocess.run(
        ["git", "-C", str(folder), *arguments],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, **identity},
    )
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A git repository whose tag v1.0 has the Makefile alone, and v2.0 all files."""
    folder = tmp_path / "hub/acme/tool"
    folder.mkdir(parents=True)
    git(folder, "init", "-q")
    for tag, files in {"v1.0": {"Makefile": FILES["Makefile"]}, "v2.0": FILES}.items():
        write(folder, files)
        git(folder, "add", "-A")
        git(folder, "commit", "-q", "-m", tag)
        git(folder, "tag", tag)
    for key in ("allowAnySHA1InWant", "allowFilter"):
        git(folder, "config", f"uploadpack.{key}", "true")
    return folder


@pytest.fixture
def hub(repository: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """That repository as GitHub's."""
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", f"url.file://{repository.parent.parent}/.insteadOf")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", "https://github.com/")
    return repository


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, list[str]]:
    """Return the exit status of ``python -m maintenance upstream`` and the lines that it prints."""
    status = main(["upstream", *map(str, arguments)], maintenance)
    captured = capsys.readouterr()
    return status, [*captured.out.splitlines(), *captured.err.splitlines()]


HELD: list[tuple[dict[str, object], str]] = [
    ({"file": "src/one.c"}, ""),
    ({"file": "src"}, ""),
    ({"file": "src/*.c"}, ""),
    ({"file": "lib/one.c"}, "lib/one.c is not there; it may have moved to src/one.c"),
    ({"file": "*/two.c"}, "*/two.c is not there"),
    ({"file": "Makefile", "pattern": "^CUDA "}, ""),
    ({"file": "Makefile", "pattern": "^CUDA="}, "Makefile has no '^CUDA='"),
    ({"file": "Makefile", "absent": "^HIP"}, ""),
    ({"file": "Makefile", "absent": "^CUDA"}, "Makefile:3 has 'CUDA' now"),
    ({"file": "setup.py", "variable": "MAX_JOBS"}, ""),
    ({"file": "setup.py", "variable": "JOBS"}, "setup.py does not read JOBS"),
    ({"file": "setup.py", "variable": "OLD_JOBS"}, "setup.py does not read OLD_JOBS"),
    ({"file": "pyproject.toml", "requires": ["setuptools"]}, ""),
    ({"file": "pyproject.toml", "requires": ["wheel"]}, "pyproject.toml requires setuptools to build"),
    ({"file": "setup.py", "requires": ["ninja", "packaging"]}, ""),
    ({"file": "setup.py", "requires": ["ninja"]}, "setup.py requires packaging to build"),
    ({"file": "requirements.txt", "requires": ["py-cpuinfo", "torch"]}, ""),
    ({"file": "requirements.txt", "requires": ["torch"]}, "requirements.txt requires py-cpuinfo to build"),
    ({"file": "broken.toml", "requires": []}, "broken.toml requires what cannot be read: it is no TOML to build"),
    ({"file": "yaml.so", "symbol": "PyInit__yaml"}, ""),
    ({"file": "yaml.so", "symbol": "PyInit__xaml"}, "yaml.so does not export PyInit__xaml"),
    ({"file": "Makefile", "symbol": "main"}, "Makefile is no library"),
]


@pytest.mark.parametrize(("check", "missing"), HELD, ids=lambda value: str(value)[:50])
def test_row_says_what_is_missing(check: dict[str, object], missing: str, tmp_path: Path) -> None:
    folder = write(
        tmp_path / "tree",
        {
            **FILES,
            "setup.py": "# reads OLD_JOBS\nos.getenv('MAX_JOBS')\nsetup(setup_requires=['Packaging>1', os.name, 3, 'ninja'])\n",
            "requirements.txt": "# of all\n-r more.txt\npy_cpuinfo  # CPU\ntorch>=2\n",
            "broken.toml": "= 1",
        },
    )
    extension = importlib.util.find_spec("yaml._yaml")
    assert extension
    assert extension.origin
    (folder / "yaml.so").write_bytes(Path(extension.origin).read_bytes())
    checked = Row.model_validate({"relies": "", "stands": "", **check})
    (finding,) = findings([checked], FolderFiles(folder))
    assert finding.missing == missing


@pytest.mark.parametrize(
    ("fields", "mistake"),
    [
        ({}, "a row names a file or a member"),
        ({"file": "a", "member": "b"}, "a row names a file or a member"),
        ({"file": "a", "pattern": "b", "variable": "c"}, "a row has one of pattern, absent"),
    ],
)
def test_row_with_no_or_two_checks_is_refused(fields: dict[str, str], mistake: str) -> None:
    with pytest.raises(ValueError, match=mistake):
        Row.model_validate({"relies": "", "stands": "", **fields})


def test_row_applies_between_since_and_until() -> None:
    limited = Row.model_validate({"relies": "", "stands": "", "file": "a", "since": "1.2", "until": "2.0"})
    assert [version for version in ("1.1.9", "1.2", "v1.2.3-1", "1.10", "2.0") if limited.applies(version)] == [
        "1.2",
        "v1.2.3-1",
        "1.10",
    ]
    assert not limited.applies(None)


def test_commit_is_newest_unless_listed() -> None:
    known = Contract.model_validate(
        {
            "repository": "acme/tool",
            "read": "v1",
            "pin": [],
            "commits": {"0123456": "1.4"},
            "row": [{"relies": "", "stands": "", "file": "a"}],
        }
    )
    assert [known.version(tag) for tag in ("0123456789abcdef", "fedcba9", "v2.1", "main")] == [
        "1.4",
        None,
        "v2.1",
        None,
    ]


def test_upstream_that_holds_is_one_line_a_tag(hub: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert hub.is_dir()
    lines = ["tool: acme/tool v1.0: all rows hold (1)", "tool: acme/tool v2.0: all rows hold (2)"]
    assert run(capsys, "tool") == (0, lines)


def test_upstream_without_component_holds_all(hub: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert hub.is_dir()
    status, lines = run(capsys)
    assert status == 0
    assert lines[0] == "other: Other 1: give the archive with --from"
    assert len(lines) == 3


def test_broken_row_names_file_line_and_recipe(hub: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(hub, {"config/Makefile": "", "pyproject.toml": '[build-system]\nrequires = ["hatch"]'})
    git(hub, "rm", "-q", "--cached", "Makefile")
    git(hub, "add", "config", "pyproject.toml")
    git(hub, "commit", "-q", "-m", "moved")
    git(hub, "tag", "v3.0")
    status, lines = run(capsys, "tool", "--at", "v3.0")
    assert status == 1
    moved = "Makefile is not there; it may have moved to config/Makefile (last seen: Makefile:3 at v1.0)"
    more = "pyproject.toml requires hatch to build (last seen: pyproject.toml at v1.0)"
    assert lines == [
        f"tool: acme/tool v3.0: {moved}; dockerfiles/tool/build says where CUDA is",
        f"tool: acme/tool v3.0: {more}; dockerfiles/tool/build installs no more",
    ]


@pytest.mark.parametrize("length", [40, 10])
def test_commit_is_fetched_by_its_name(length: int, hub: Path, capsys: pytest.CaptureFixture[str]) -> None:
    commit = git(hub, "rev-parse", "v2.0")[:length]
    assert run(capsys, "tool", "--at", commit) == (0, [f"tool: acme/tool {commit}: all rows hold (2)"])


def test_json_has_every_row(hub: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (hub / "Makefile").write_text("\n\n\n\nCUDA = 1\n")
    git(hub, "commit", "-q", "-a", "-m", "later")
    git(hub, "tag", "v1.5")
    status, lines = run(capsys, "tool", "--at", "v1.5", "--json")
    assert status == 0
    (result,) = json.loads("\n".join(lines))
    (only,) = result["rows"]
    assert (result["component"], result["tag"], only["file"], only["holds"]) == ("tool", "v1.5", "Makefile", True)
    assert (only["line"], only["read"]) == (5, {"tag": "v1.0", "line": 3})


def test_from_repository_reads_tags(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(repository, {"Makefile": ""})  # what is checked out does not count
    lines = [f"tool: {repository} {tag}: all rows hold ({count})" for tag, count in (("v1.0", 1), ("v2.0", 2))]
    assert run(capsys, "tool", "--from", repository) == (0, lines)
    bare = repository.parent / "bare.git"
    git(repository, "clone", "-q", "--bare", str(repository), str(bare))
    assert run(capsys, "tool", "--from", bare, "--at", "v1.0") == (0, [f"tool: {bare} v1.0: all rows hold (1)"])


def test_from_folder_reads_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write(tmp_path / "unpacked", FILES)
    assert run(capsys, "tool", "--from", folder) == (0, [f"tool: {folder}: all rows hold (2)"])
    assert run(capsys, "tool", "--from", folder, "--at", "v1.0") == (0, [f"tool: {folder} v1.0: all rows hold (1)"])


COMPRESS: Mapping[str, Callable[[bytes], bytes]] = {
    ".tar": bytes,
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".tbz": bz2.compress,
}


def packed(path: Path, top: str) -> Path:
    """Write FILES below the folder ``top`` into an archive of the form that its name says, and return it."""
    if path.suffix in {".zip", ".whl"}:
        with zipfile.ZipFile(path, "w") as archive:
            for name, text in FILES.items():
                archive.writestr(top + name, text)
        return path
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        for name, text in FILES.items():
            member = tarfile.TarInfo(top + name)
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text.encode()))
    path.write_bytes(COMPRESS[path.suffix](content.getvalue()))
    return path


@pytest.mark.parametrize("name", ["a.tar", "a.tar.gz", "a.tar.xz", "a.tbz", "a.zip", "a.whl"])
@pytest.mark.parametrize("top", ["", "./", "tool-2.0/", "./tool-2.0/"])
def test_from_archive_reads_members(name: str, top: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = packed(tmp_path / name, top)
    assert run(capsys, "tool", "--from", path) == (0, [f"tool: {path}: all rows hold (2)"])


def test_archive_follows_links(tmp_path: Path) -> None:
    path = tmp_path / "linked.tar"
    with tarfile.open(path, "w") as tar:
        for name, target in {"top/lib/a.so": "a.so.1", "top/lib/broken.so": "gone.so"}.items():
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.SYMTYPE, target
            tar.addfile(link)
        library = tarfile.TarInfo("top/lib/a.so.1")
        library.size = 3
        tar.addfile(library, io.BytesIO(b"ELF"))
    files = ArchiveFiles(path)
    assert (files.content("lib/a.so"), files.content("lib/broken.so"), files.content("lib")) == (b"ELF", b"", b"")


def test_members_are_of_archives_alone(tmp_path: Path, repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = contract.CONTRACTS / "tool.toml"
    path.write_text(TOOL + row(member="configure"))
    archive = packed(tmp_path / "tool.tar.gz", "tool/")
    status, lines = run(capsys, "tool", "--from", archive)
    assert status == 1
    assert [line.partition(" (")[0] for line in lines] == [f"tool: {archive}: configure is not there"]
    assert run(capsys, "tool", "--from", repository, "--at", "v2.0")[0] == 0


@pytest.mark.parametrize("name", ["a.tar.gz", "a.tar.xz", "a.tbz", "a.zip"])
def test_truncated_archive_is_one_line(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = packed(tmp_path / name, "tool/")
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    status, (line,) = run(capsys, "tool", "--from", path)
    assert status == 1
    assert line.startswith(f"{path}: no archive, or not a whole one: ")
    assert line.endswith("; fetch it again")


def test_folder_of_other_upstream_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write(tmp_path / "wrong", {"README.md": ""})
    line = f"{folder} is no checkout of acme/tool: it has none of its files, such as Makefile, pyproject.toml"
    assert run(capsys, "tool", "--from", folder) == (1, [line])


def test_missing_folder_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = f"--from: there is no folder or archive {tmp_path / 'gone'}"
    assert run(capsys, "tool", "--from", tmp_path / "gone") == (1, [line])


def test_tag_that_is_gone_is_one_line(hub: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = "tool: https://github.com/acme/tool has no tag or commit 'v9': it is gone, or was never released there"
    assert run(capsys, "tool", "--at", "v9") == (1, [line])
    here = f"tool: {hub} has no tag 'v9'; its newest tags are: "
    status, (local,) = run(capsys, "tool", "--from", hub, "--at", "v9")
    assert (status, local[: len(here)]) == (1, here)


def test_repository_of_other_owner_is_one_line(
    repository: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    status, lines = run(capsys, "tool", "--from", repository)
    assert status == 1
    assert lines[0].startswith(f"tool: {repository} cannot be read: fatal: detected dubious ownership")


def test_unreadable_file_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write(tmp_path / "unpacked", FILES)

    def denied(_: Path) -> bytes:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", denied)
    assert run(capsys, "tool", "--from", folder) == (1, [f"{folder}/Makefile cannot be read: Permission denied"])


def test_encrypted_archive_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = packed(tmp_path / "tool.zip", "")
    content = bytearray(path.read_bytes())
    content[content.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(bytes(content))
    status, (line,) = run(capsys, "tool", "--from", path)
    assert status == 1
    assert line.startswith(f"{path}: no archive, or not a whole one: ")


def test_short_commit_that_is_gone_is_one_line(hub: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert hub.is_dir()
    line = "tool: https://github.com/acme/tool has no commit '0123456' on a branch, or several that begin so"
    assert run(capsys, "tool", "--at", "0123456") == (1, [line])


def test_repository_that_is_gone_is_a_line_a_tag(hub: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hub.rename(tmp_path / "renamed")
    status, lines = run(capsys, "tool")
    assert status == 1
    assert len(lines) == 2
    for line in lines:
        assert line.startswith("tool: https://github.com/acme/tool cannot be read: ")
        assert line.endswith("; give a checkout of it with --from")


def test_repository_that_is_gone_names_no_option(tmp_path: Path) -> None:
    with pytest.raises(git_objects.HostUnreadable, match=r"/none/acme/tool cannot be read: fatal: [^;]*$"):
        git_objects.fetched("acme/tool", "v1.0", tmp_path, f"{tmp_path}/none")


def test_unknown_component_names_allowed(capsys: pytest.CaptureFixture[str]) -> None:
    line = "no contract with an upstream 'tol' (did you mean 'tool'?); there are: other, tool"
    assert run(capsys, "tol") == (1, [line])


@pytest.mark.parametrize("option", ["--at", "--from"])
def test_option_without_component_is_wrong_usage(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, lines = run(capsys, option, "v1.0")
    assert status == 2
    assert lines[-1] == "Error: --at and --from take the names of components"


def test_pins_follow_stacks_and_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    images = (("torch", {"VERSION": "2.1"}), ("torch", {"VERSION": "2.0"}), ("audio", {"VERSION": "0.9"}))
    monkeypatch.setattr(pins, "_arguments", lambda: images)
    monkeypatch.setattr(pins, "table", lambda name: {"launcher": {"24.03": {}, "24.12": {}}} if name == "nemo" else {})
    pinned = [
        {"argument": "VERSION", "component": "torch", "tag": "v{}"},
        {"argument": "COMMIT", "component": "torch"},
        {"table": "nemo.launcher", "newest": True},
        {"version": "hpcx-v2.26-gcc", "match": "hpcx-v([0-9.]+)-"},
    ]
    rows = [{"relies": "", "stands": "", "file": "a"}]
    terms = Contract.model_validate({"repository": "acme/tool", "read": "v1", "pin": pinned, "row": rows})
    assert pins.tags(terms) == ["v2.0", "v2.1", "2.26", "24.12"]


def test_mirror_of_git_is_read(
    repository: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SLIPWAY_MIRRORS", '{"git": "https://git.example"}')
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", f"url.file://{repository.parent.parent}/.insteadOf")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", "https://git.example/")
    assert run(capsys, "tool", "--at", "v1.0") == (0, ["tool: acme/tool v1.0: all rows hold (1)"])


IMAGES = """
repository = "acme/images"
host = "https://git.acme.test"
branch = "main"
read = "main"

[[pin]]
version = "1.2"

[[pin]]
version = "1.3"

[[row]]
relies = "names it so"
stands = "dockerfiles/tool/build"
file = "tags.md"
pattern = '^{version}$'

[[row]]
relies = "reads the release"
stands = "dockerfiles/tool/build"
file = "dist/{version}/*/Dockerfile"
line = 1
pattern = '^ENV RELEASE={version}$'
"""


@pytest.fixture
def images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository without tags, on a host of its own, whose folders are its versions; and its contract."""
    (tmp_path / "contracts/images.toml").write_text(IMAGES)
    folder = tmp_path / "own/acme/images"
    folder.mkdir(parents=True)
    git(folder, "init", "-q", "--initial-branch", "main")
    git(folder, "config", "uploadpack.allowFilter", "true")
    write(
        folder,
        {
            "tags.md": "1.2\n1.3\n",
            "dist/1.2/deb/Dockerfile": "ENV RELEASE=1.2\n",
            "dist/1.3/deb/Dockerfile": "ENV RELEASE=1x3\n",
        },
    )
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "images")
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", f"url.file://{tmp_path / 'own'}/.insteadOf")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", "https://git.acme.test/")
    return folder


@pytest.mark.parametrize("local", [False, True])
def test_branch_has_a_folder_for_each_version(*, local: bool, images: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, lines = run(capsys, "images", *(["--from", images] if local else []))
    where = images if local else "acme/images"
    assert status == 1
    assert lines[0] == f"images: {where} 1.2: all rows hold (2)"
    assert lines[1] == (
        rf"images: {where} 1.3: dist/1.3/deb/Dockerfile has no '^ENV RELEASE=1\.3$' (last seen: dist/1.3/*/Dockerfile:1 at main); "
        "dockerfiles/tool/build reads the release"
    )


def test_version_that_moved_names_row_and_recipe(images: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, lines = run(capsys, "images", "--at", "1.1", "--from", images)
    assert status == 1
    assert lines[0] == (
        rf"images: {images} 1.1: tags.md has no '^1\.1$' (last seen: tags.md at main); dockerfiles/tool/build names it so"
    )
    assert lines[1] == (
        f"images: {images} 1.1: dist/1.1/*/Dockerfile is not there; it may have moved to dist/1.2/deb/Dockerfile, "
        "dist/1.3/deb/Dockerfile (last seen: dist/1.1/*/Dockerfile:1 at main); dockerfiles/tool/build reads the release"
    )


def test_commit_of_branch_is_of_any_version(images: Path, capsys: pytest.CaptureFixture[str]) -> None:
    commit = git(images, "rev-parse", "HEAD")
    assert run(capsys, "images", "--at", commit, "--from", images) == (
        0,
        [f"images: {images} {commit}: all rows hold (2)"],
    )


def test_branch_that_is_gone_is_one_line(images: Path, capsys: pytest.CaptureFixture[str]) -> None:
    git(images, "branch", "-m", "trunk")
    assert run(capsys, "images", "--at", "1.2") == (
        1,
        ["images: https://git.acme.test/acme/images has no branch 'main': it is gone, or was never there"],
    )
    assert run(capsys, "images", "--at", "1.2", "--from", images) == (1, [f"images: {images} has no branch 'main'"])


def test_pin_of_parent_follows_stacks() -> None:
    terms = Contract.model_validate(
        {
            "repository": "a/b",
            "read": "1",
            "pin": [{"parent": "nvidia/cuda", "match": "^([0-9.]+)-"}],
            "row": [{"relies": "x", "stands": "y", "file": "z"}],
        }
    )
    assert {"12.9.1", "13.2.1"} <= set(pins.tags(terms))
