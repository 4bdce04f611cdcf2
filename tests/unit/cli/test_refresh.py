"""``slipway refresh`` against an index and a git host on this machine, shaped as the real ones."""

from __future__ import annotations

import functools
import json
import re
import subprocess
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from cli import completion, main
from cli.refresh import refresh
from stacks.versions.tables import table
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


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
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
    repository = tmp_path / "git/NVIDIA/nccl"
    git = ["git", "-C", str(repository), "-c", "user.name=n", "-c", "user.email=n@localhost"]
    repository.mkdir(parents=True)
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "x"], check=True)
    for tag in ("v2.18.3-1", "v2.99.1-1", "v2.3.4-1", "vfoo"):
        subprocess.run([*git, "tag", "-a", "-m", tag, tag], check=True)
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(tmp_path)))
    threading.Thread(target=server.serve_forever, args=[0.01], daemon=True).start()
    monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{server.server_port}/simple")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    # A git host has any scheme; mirrors of builds have http alone.
    mirrors = {"git": f"file://{tmp_path}/git", "images": {"nvcr.io": f"127.0.0.1:{server.server_port}"}}
    monkeypatch.setattr(refresh, "environment_mirrors", lambda: mirrors)
    yield tmp_path
    server.shutdown()
    server.server_close()


@pytest.mark.usefixtures("sources")
def test_refresh_shows_new_releases_of_an_index(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["refresh", "cudnn"]) == 1
    assert capsys.readouterr().out.splitlines()[:3] == [
        "cudnn release.12: nvidia-cudnn-cu12 on the Python index",
        "+ 9.99.1.7",
        "+ 9.100.0.1",
    ]


@pytest.mark.usefixtures("sources")
def test_refresh_of_missing_project_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["refresh", "cudnn"]) == 1
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("cudnn release.13: http://127.0.0.1:")
    assert last.endswith("/simple/nvidia-cudnn-cu13/ cannot be read: HTTP Error 404: File not found")


@pytest.mark.usefixtures("sources")
def test_refresh_shows_new_tags_of_a_repository() -> None:
    [entry, *_] = refresh.news(["nccl"])
    assert entry.lines == ["nccl release: tags of NVIDIA/nccl", "+ 2.99.1-1"]


@pytest.mark.usefixtures("sources")
def test_refresh_reads_tags_of_an_image_page_by_page() -> None:
    [entry] = refresh.news(["ngc"])
    assert entry.lines == ["ngc: tags of nvcr.io/nvidia/pytorch", "+ 99.01"]


def test_refresh_of_table_that_has_all_says_so(sources: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page(sources / "simple", "nvidia-cudnn-cu13", link("nvidia_cudnn_cu13-9.28.1.4-py3-none-manylinux_2_27_x86_64.whl"))
    assert main.main(["refresh", "cudnn"]) == 0
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


@pytest.mark.parametrize("source", refresh.sources(), ids=lambda source: source.name)
def test_source_matches_rows_of_its_table(source: refresh.Source) -> None:
    release = re.search(r"\((.*)\)", source.pattern)
    assert release
    assert table(source.table)
    assert [name for name in source.known if not re.fullmatch(release[1], name)] == []


def test_completion_offers_tables_with_a_source() -> None:
    offered = [item.value for item in completion.tables(None, None, "n")]  # type: ignore[arg-type]
    assert offered == ["ngc", "nccl", "nemo"]
