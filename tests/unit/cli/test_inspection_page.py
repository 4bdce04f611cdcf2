"""``slipway inspect --html``: one page, whatever the image's files are called."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pytest

from cli.inspection.inspection_page import _space
from cli.main import main
from containers.image.layers.space import Space
from tests.fakes.registry import Registry
from tests.helpers.elf_writer import LOADER, elf, fatbin, loader
from tests.helpers.html_elements import Page
from tests.helpers.layers import files_archive

BASE: Final = {LOADER.lstrip("/"): loader()}
HOSTILE: Final = (
    "<script>document.title='run'</script>",
    "</style><style>body{display:none}",
    "x' onload='alert(1)\" onclick=\"alert(2)",
    "<!--",
    "a&lt;b",
    "line\nbreak\x1b[31m",
    "\u202egnp.os",
    "\udcff\udcfe",
    "n" * 90 + "/" + "m" * 200,
)


def page_of(registry: Registry, files: Mapping[str, bytes], capsys: pytest.CaptureFixture[str], *options: str) -> Page:
    """Return the page of an image, whose elements are closed."""
    reference = registry.image("a:1", [files_archive({**BASE, **files})])
    main(["inspect", reference, "--html", *options])
    page, text = Page(), capsys.readouterr().out
    assert text.startswith('<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">')  # else as the browser likes
    page.feed(text)
    assert page.open == []
    return page


def test_page_of_image_without_fault_says_so(registry: Registry, capsys: pytest.CaptureFixture[str]) -> None:
    page = page_of(registry, {}, capsys)
    assert "no fault" in page.text
    assert "details" not in page.tags
    assert page.tags.count("svg") == 1


def test_page_has_faults_plugins_and_gpu_code(registry: Registry, capsys: pytest.CaptureFixture[str]) -> None:
    files = {
        "bin/p": elf(needed=["liba.so"], interpreter=LOADER),
        "lib64/libnccl.so.2": elf("libnccl.so.2", gpu=fatbin((2, 90, 0), (1, 90, 0))),
        "opt/libnccl-net.so": elf("libnccl-net.so"),
        "lib64/libold.so": elf("libold.so", gpu=fatbin((2, 80, 0))),
        "usr/lib/x.a": b"!<arch>",
    }
    page = page_of(registry, files, capsys, "--gpu", "H100,B200")
    assert {"3 faults", "Faults (3)", "/bin/p", "missing liba.so", "not in the image"} <= set(page.text)
    assert {"Plugins (7)", "/opt/libnccl-net.so is in no folder that is searched"} & set(page.text)
    rows = page.rows()
    assert ["/lib64/libnccl.so.2", "yes", "PTX", "90", "90"] in rows
    assert ["/lib64/libold.so", "none", "none", "80", ""] in rows
    assert ["/usr/lib/x.a", "static libraries", "7 B"] in rows


@pytest.mark.parametrize("name", HOSTILE)
def test_page_of_hostile_names_has_them_as_text(
    name: str, registry: Registry, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = page_of(registry, {"opt/plain.so": elf("p.so", [name])}, capsys)
    page = page_of(registry, {f"opt/{name}.so": elf("p.so", [name], undefined=[name])}, capsys)
    assert page.tags == plain.tags
    assert all(character.isprintable() or character == "\n" for text in page.text for character in text)


def test_bar_of_space_is_as_wide_as_each_kind_takes() -> None:
    picture = _space(Space(1000, {"static libraries": {"a": 150, "b": 50}, "hidden files": {"c": 300}}))
    parts = [(part.get("class"), part.get("x"), part.get("width"), part[0].text) for part in picture.iter("rect")]
    assert parts == [
        ("used", "0.00", "500.00", "500 B what a container may need"),
        ("unneeded", "500.00", "300.00", "300 B hidden files"),
        ("unneeded", "800.00", "200.00", "200 B static libraries"),
    ]
    assert [*_space(Space()).iter("rect")] == []
