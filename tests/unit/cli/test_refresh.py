"""``python -m maintenance refresh`` against an index and a git host on this machine, shaped as the real ones."""

from __future__ import annotations

import functools
import gzip
import json
import os
import re
import shutil
import subprocess
import threading
import tomllib
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from cli import main
from containers.image.gpu.release_order import order
from maintenance.commands import maintenance
from maintenance.refresh import refresh, rows, table_text, torch_table
from stacks.config.load import environment_mirrors
from stacks.versions import tables
from stacks.versions.tables import table
from tests.helpers.every import every
from tests.helpers.refusals import refusal_line

CUDNN = ("9.0.0.312", "9.28.0.42", "9.99.1.7", "8.9.7.29", "9.100.0.1")
"""Releases on the index: two that the table has, two newer ones, and one of another major version."""


TAGS = (["25.06-py3", "latest"], ["99.01-py3", "99.01-py3-igpu"])
"""Two pages of tags, as nvcr.io has them."""


class Quiet(SimpleHTTPRequestHandler):
    """Serves a PEP 503 index, and a registry's list of tags in pages (distribution specification, "Listing Tags")."""

    def do_GET(self) -> None:
        if not self.path.startswith("/v2/nvidia/pytorch/tags/list?n=1000"):
            return super().do_GET()
        last = "last=" in self.path
        body = json.dumps({"name": "nvidia/pytorch", "tags": TAGS[last]}).encode()
        self.send_response(200)
        if not last:
            self.send_header("Link", '</v2/nvidia/pytorch/tags/list?n=1000&last=latest>; rel="next"')
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        return None

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def page(folder: Path, project: str, *links: str) -> None:
    """Write a project's page as pypi.org/simple has it: `data-yanked` on what was withdrawn."""
    (folder / project).mkdir(parents=True)
    (folder / project / "index.html").write_text("<!DOCTYPE html><html><body>\n" + "\n".join(links) + "</body></html>")


def link(name: str, attributes: str = "") -> str:
    return f'<a href="https://files.example/{name}#sha256=0" {attributes}>{name}</a><br />'


@pytest.fixture(scope="module")
def git_host(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a git host, which no test changes."""
    folder = tmp_path_factory.mktemp("git")
    repository = folder / "NVIDIA/nccl"
    git = ["git", "-C", str(repository), "-c", "user.name=n", "-c", "user.email=n@localhost"]
    repository.mkdir(parents=True)
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "x"], check=True)
    for tag in ("v2.18.3-1", "v2.99.1-1", "v2.3.4-1", "vfoo"):
        subprocess.run([*git, "tag", "-a", "-m", tag, tag], check=True)
    return folder


@pytest.fixture
def sources(tmp_path: Path, git_host: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The index and the git host."""
    name = "nvidia_cudnn_cu12-{}-py3-none-manylinux_2_27_x86_64.whl"
    page(
        tmp_path / "simple",
        "nvidia-cudnn-cu12",
        *(link(name.format(version)) for version in CUDNN),
        link(name.format("9.98.0.1"), 'data-yanked="broken"'),
        link("nvidia_cudnn_cu12-9.97.0.1-py3-none-win_amd64.whl"),
        link("nvidia_cudnn_cu12-9.96.0.1-py3-none-manylinux2014_aarch64.whl"),
    )
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(tmp_path)))
    threading.Thread(target=server.serve_forever, args=[0.01], daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}/simple"
    monkeypatch.setenv("PIP_INDEX_URL", address)
    monkeypatch.setattr(
        torch_table, "pip_index_url", lambda: address
    )  # a pip for each source; test_torch_table runs it
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    # A git host has any scheme; mirrors of builds have http alone.
    mirrors = {"git": f"file://{git_host}", "images": {"nvcr.io": f"127.0.0.1:{server.server_port}"}}
    monkeypatch.setattr(refresh, "environment_mirrors", lambda: mirrors)
    yield tmp_path
    server.shutdown()
    server.server_close()


@pytest.mark.usefixtures("sources")
def test_refresh_shows_new_releases_of_an_index(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["refresh", "cudnn", "--dry-run"], maintenance) == 1
    assert capsys.readouterr().out.splitlines()[:3] == [
        "cudnn release.12: nvidia-cudnn-cu12 on the Python index",
        "+ 9.99.1.7",
        "+ 9.100.0.1",
    ]


@pytest.mark.usefixtures("sources")
def test_refresh_of_missing_project_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["refresh", "cudnn", "--dry-run"], maintenance) == 1
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("cudnn release.13: http://127.0.0.1:")
    assert "/simple/nvidia-cudnn-cu13/ cannot be read: 404 Client Error: File not found" in last


@pytest.mark.usefixtures("sources")
def test_refresh_shows_new_tags_of_a_repository() -> None:
    [entry, *_] = refresh.news(["nccl"])
    assert entry.lines == ["nccl release: tags of NVIDIA/nccl", "+ 2.99.1-1"]


@pytest.mark.usefixtures("sources")
def test_refresh_reads_tags_of_an_image_page_by_page() -> None:
    [entry] = refresh.news(["ngc"])
    assert entry.lines == [
        "ngc: tags of nvcr.io/nvidia/pytorch",
        "? 99.01: not written, tags say nothing of what is in the image",
    ]


def test_refresh_of_table_that_has_all_says_so(sources: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page(sources / "simple", "nvidia-cudnn-cu13", link("nvidia_cudnn_cu13-9.28.1.4-py3-none-manylinux_2_27_x86_64.whl"))
    assert main.main(["refresh", "cudnn", "--dry-run"], maintenance) == 0
    assert (
        capsys.readouterr().out.splitlines()[-1] == "cudnn release.13: has all (nvidia-cudnn-cu13 on the Python index)"
    )


def test_refresh_source_with_other_names_is_an_error(sources: Path) -> None:
    page(sources / "simple", "nvidia-cudnn-cu13", link("nvidia_cudnn_cu13-10.0.0.1-py3-none-manylinux_2_27_x86_64.whl"))
    assert "nvidia-cudnn-cu13 on the Python index: there is no release like" in list(refresh.news(["cudnn"]))[-1].error


def test_refresh_of_unreachable_host_names_it(sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refresh, "environment_mirrors", lambda: {"git": f"file://{sources}/gone"})
    [entry] = refresh.news(["micromamba"])
    assert entry.error.startswith(f"file://{sources}/gone/mamba-org/micromamba-releases cannot be read: ")


def test_refresh_of_unknown_table_suggests_one() -> None:
    assert refusal_line(list, refresh.news(["nccll"])).startswith(
        "no table 'nccll' that a source can be asked for (did you mean 'nccl'?); there are: cuda, ngc, torch, cudnn, nccl, "
    )


@every("source", refresh.sources())
def test_source_matches_rows_of_its_table(source: refresh.ReleaseSource) -> None:
    assert table(source.table)
    groups = re.findall(r"\(([^()]*(?:\(\?:[^()]*\)[^()]*)*)\)", source.pattern)
    for release, key in source.known:
        assert re.fullmatch(groups[0], release)
        assert re.fullmatch(groups[1], key) if source.keyed else not key


APT = """Package: libnccl2
Version: 2.30.7-1+cuda13.3
Description: known, and several lines
 of text: Version: 9.9.9-1+cuda13.3

Package: libnccl-dev
Version: 2.99.9-1+cuda13.3

Package: libnccl2
Version: 2.99.1-1+cuda13.3

Package: libnccl2
Version: 2.99.1-1+cuda13.9
"""


def archive(folder: Path, name: str, text: str) -> None:
    place = folder / "apt" / "compute/cuda/repos" / name
    place.mkdir(parents=True)
    (place / "Packages.gz").write_bytes(gzip.compress(text.encode()))


def copies(folder: Path) -> Path:
    """Return a folder with copies of the tables, and keep their texts."""
    place = folder / "tables"
    shutil.copytree(Path(tables.__file__).parent, place, ignore=lambda _, names: [n for n in names if ".toml" not in n])
    return place


def test_refresh_writes_new_releases_and_keeps_the_rest(sources: Path) -> None:
    page(sources / "simple", "nvidia-cudnn-cu13", link("nvidia_cudnn_cu13-9.28.1.4-py3-none-manylinux_2_27_x86_64.whl"))
    place = copies(sources)
    before = (place / "cudnn.toml").read_text()
    assert refresh.write(list(refresh.news(["cudnn"])), place) == ["stacks/versions/cudnn.toml: written"]
    after = (place / "cudnn.toml").read_text()
    assert tomllib.loads(after) == {
        **tomllib.loads(before),
        "release": {**table("cudnn")["release"], "12": [*table("cudnn")["release"]["12"], "9.99.1.7", "9.100.0.1"]},
    }
    assert [line for line in before.splitlines() if line.startswith("#")] == [
        line for line in after.splitlines() if line.startswith("#")
    ]
    assert max(len(line) for line in after.splitlines() if line.startswith("  ")) <= 120
    assert [path.name for path in place.iterdir() if path.suffix != ".toml"] == []


def test_refresh_leaves_table_of_a_source_that_is_down(sources: Path) -> None:
    place = copies(sources)
    before = (place / "cudnn.toml").read_text()
    assert refresh.write(list(refresh.news(["cudnn"])), place) == [
        "stacks/versions/cudnn.toml: left as it is, as a source of it could not be asked"
    ]
    assert (place / "cudnn.toml").read_text() == before


@pytest.mark.parametrize(("arguments", "written"), [([], 1), (["--dry-run"], 0)])
def test_refresh_dry_run_writes_nothing(
    arguments: list[str], written: int, sources: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page(sources / "simple", "nvidia-cudnn-cu13", link("nvidia_cudnn_cu13-9.28.1.4-py3-none-manylinux_2_27_x86_64.whl"))
    calls: list[Path] = []
    monkeypatch.setattr(table_text, "replace", lambda path, _: calls.append(path))
    assert main.main(["refresh", "cudnn", *arguments], maintenance) == 0
    assert len(calls) == written


def apt_source(monkeypatch: pytest.MonkeyPatch, sources: Path, text: str) -> refresh.ReleaseSource:
    address = urlsplit(os.environ["PIP_INDEX_URL"]).netloc
    mirrors = {"downloads": {"https://developer.download.nvidia.com": f"http://{address}/apt/"}}
    monkeypatch.setenv("SLIPWAY_MIRRORS", json.dumps(mirrors))
    monkeypatch.setattr(refresh, "environment_mirrors", environment_mirrors)
    source = next(source for source in refresh.sources() if source.name == "nccl apt")
    for number, address in enumerate(source.apt):
        archive(sources, address.partition("/repos/")[2], "" if number else text)
    return source


def test_refresh_reads_archives_of_apt(sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = apt_source(monkeypatch, sources, APT).news()
    assert entry.lines[1:] == ["+ 13.3: 2.99.1-1", "+ 13.9: 2.99.1-1"]
    text = entry.written((Path(tables.__file__).parent / "nccl.toml").read_text())
    assert tomllib.loads(text)["apt"] == {
        **table("nccl")["apt"],
        "13.3": [*table("nccl")["apt"]["13.3"], "2.99.1-1"],
        "13.9": ["2.99.1-1"],
    }


def test_refresh_of_cut_apt_index_is_one_line(sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = apt_source(monkeypatch, sources, APT)
    path = next(iter((sources / "apt/compute/cuda/repos").rglob("ubuntu2004/x86_64/Packages.gz")))
    path.write_bytes(path.read_bytes()[:40])
    assert "Packages.gz cannot be read: " in refusal_line(source.news)


def test_cuda_row_has_what_tags_say_and_marks_the_driver() -> None:
    names = [
        "13.4.9-base-ubuntu24.04",
        "13.4.9-devel-ubuntu24.04",
        "13.4.9-cudnn-devel-ubuntu24.04",
        "13.4.9-base-ubi10",
    ]
    assert rows.cuda_rows("docker.io/nvidia/cuda", ["13.4.9", "99.1.0"], names) == {
        "13.4.9": {
            "driver": table("cuda")["release"]["13.4.2"]["driver"],
            "distros": ["ubi10", "ubuntu24.04"],
            "cudnn": {"cudnn": "9"},
            "weak": ["driver"],
            "source": "tags of docker.io/nvidia/cuda; driver of 13.4.2",
        }
    }


@every("name", sorted({source.table for source in refresh.sources() if not source.by_hand}))
def test_new_row_stands_behind_older_ones(name: str) -> None:
    text = (Path(tables.__file__).parent / f"{name}.toml").read_text()
    for source in refresh.sources():
        if source.table != name or source.by_hand:
            continue
        release, key = max(source.known, key=lambda pair: (order(pair[1]), order(pair[0])))
        row = {release + "9": {"python": ["3.12"], "cudnn": {}}} if source.make else {}
        renewed = refresh.News(source, ((release + "9", key),), row).written(text)
        values = functools.reduce(lambda rows, part: rows[part], source.keys, tomllib.loads(renewed))
        assert list(values[key] if key else values)[-1] == release + "9"
        assert len(renewed.splitlines()) - len(text.splitlines()) in {0, 1, 2}


@every(
    "text, lost",
    [
        ('[a]\nb = ["1"]\n[c]\nd = "x"\n', "a.b would be lost"),
        ('[a]\nb = ["2", "1"]\n[c]\nd = "x"\n', "a.b would be lost"),
        ('[a]\nb = ["1", "2"]\n', "c would be lost"),
        ('[a]\nb = ["1", "2"]\n[c]\nd = "y"\n', "c.d would be lost"),
        ("[a\n", "the new rows do not fit"),
    ],
)
def test_table_that_would_lose_a_row_is_not_written(tmp_path: Path, text: str, lost: str) -> None:
    path = tmp_path / "t.toml"
    path.write_text('[a]\nb = ["1", "2"]\n[c]\nd = "x"\n')
    before = path.read_text()
    line = refusal_line(table_text.replace, path, text)
    assert lost in line
    assert line.endswith("nothing was written")
    assert path.read_text() == before
