"""Files under the names of extensions, and preloaded stubs, beside a real Python and the real loader in a container."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from containers.image.binaries import contents, loading
from containers.image.binaries.elf_file import X86_64
from containers.image.owners import contradictions
from tests.helpers import folder_image
from tests.helpers.elf_writer import elf
from tests.images import package_layers
from tests.images.engine import base_image, docker, remove
from tests.images.package_layers import DebianImage
from tests.images.test_start import PYTHON

SUFFIX = "cpython-311-x86_64-linux-gnu.so"
FOLDER = "usr/lib/python3/dist-packages"
REAL = "usr/lib/python3.11/lib-dynload/_json.cpython-311-x86_64-linux-gnu.so"


@pytest.fixture(scope="module")
def debian(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DebianImage]:
    made = package_layers.files_of(tmp_path_factory.mktemp("debian"), PYTHON.format(base=base_image()))
    yield made
    remove(made.image)


def content(debian: DebianImage, path: str) -> bytes:
    return base64.b64decode(docker("run", "--rm", debian.image.tag, "base64", path).stdout)


@pytest.fixture(scope="module")
def real(debian: DebianImage) -> bytes:
    """An extension of Debian's Python."""
    return content(debian, f"/{REAL}")


def are_refused(debian: DebianImage, folder: Path, modules: Mapping[str, str]) -> dict[str, tuple[bool, bool]]:
    """Return, by folder of a module, whether the inspection has a fault, and whether Python fails."""
    lines = "".join(
        f"(cd /x/{name} && python3 -c 'import {module}') && echo {name}\n" for name, module in modules.items()
    )
    command = ("run", "--rm", "--interactive", f"--volume={folder}:/x:ro", debian.image.tag, "sh")
    imported = docker(*command, text=f"{lines}true\n").stdout.splitlines()
    refused = {}
    for name in modules:
        read = contents.of([debian.files, folder_image.index(folder / name, FOLDER)], {})
        unmet = [one for one in contradictions.unmet(read, "amd64") if one.files]
        refused[name] = bool(loading.resolve(read, X86_64).faults or unmet), name not in imported
    return refused


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (f"_json.{SUFFIX}", {"real": False, "text": True, "empty": True, "short": True, "half": True, "arm": True}),
        ("_json.abi3.so", {"real": False, "text": True, "empty": True, "program": True}),
        (f"_json.{SUFFIX}", {"program": True, "object": True, "shadowed": True}),
    ],
)
def test_extension_is_refused_as_by_python(
    debian: DebianImage, real: bytes, tmp_path: Path, name: str, expected: dict[str, bool]
) -> None:
    kinds = {
        "real": real,
        "shadowed": b"text",
        "text": b"GROUP ( libc.so.6 )\n",
        "empty": b"",
        "short": real[:40],
        "half": real[: len(real) // 2],
        "arm": real[:18] + b"\xb7\0" + real[20:],
        "program": elf(interpreter="/lib64/ld-linux-x86-64.so.2"),
        "object": real[:16] + b"\1" + real[17:],
    }
    for kind in expected:
        folder = tmp_path / kind
        folder.mkdir()
        (folder / name).write_bytes(kinds[kind])
        if kind == "shadowed":
            (folder / "_json.py").write_text("")
    refused = are_refused(debian, tmp_path, dict.fromkeys(expected, "_json"))
    assert refused == {kind: (fails, fails) for kind, fails in expected.items()}


def test_text_that_python_passes_over_is_no_fault(debian: DebianImage, tmp_path: Path) -> None:
    files = tmp_path / "files"
    (files / "packed").mkdir(parents=True)
    for name in ("extra.cpython-310-x86_64-linux-gnu.so", "extra.cpython-311-aarch64-linux-gnu.so"):
        (files / name).write_text("text")
    (files / "extra.py").write_text("")
    (files / "packed/__init__.py").write_text("")
    (files / f"packed.{SUFFIX}").write_text("text")
    assert are_refused(debian, tmp_path, {"files": "extra, packed"}) == {"files": (False, False)}


def test_preloaded_stub_is_what_a_process_gets(debian: DebianImage, tmp_path: Path) -> None:
    """The real loader gives the preloaded file for the driver's name, whatever the host has."""
    stubs = tmp_path / "stubs"
    stubs.mkdir()
    for source, name in (("libzstd.so.1", "stubs/libcuda.so"), ("libapt-pkg.so.6.0", "user.so")):
        library = content(debian, f"/usr/lib/x86_64-linux-gnu/{source}")
        (tmp_path / name).write_bytes(library.replace(b"\0libzstd.so.1\0", b"\0libcuda.so.1\0"))
    read = contents.of([debian.files, folder_image.index(tmp_path, "x")], {"Env": ["LD_PRELOAD=/x/stubs/libcuda.so"]})
    assert [fault.file for fault in loading.resolve(read, X86_64).faults] == ["/x/stubs/libcuda.so"]
    loader = ["/lib64/ld-linux-x86-64.so.2", "--preload", "/x/stubs/libcuda.so", "--list", "/x/user.so"]
    listed = docker("run", "--rm", f"--volume={tmp_path}:/x:ro", debian.image.tag, *loader).stdout
    assert "/x/stubs/libcuda.so (" in listed
    assert "libcuda.so.1 =>" not in listed
