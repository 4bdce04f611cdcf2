"""Files under the names of extensions of Python that are none; tests/images/test_imports.py has a real Python beside them."""

from __future__ import annotations

from containers.image.binaries import loading
from containers.image.binaries.elf_file import AARCH64, ARM, X86_64, ElfMachine
from containers.image.owners import contradictions
from tests.helpers.elf_writer import LOADER, elf
from tests.helpers.every import every
from tests.helpers.image_files import SITE, Files, faults, image

SUFFIX = "cpython-311-x86_64-linux-gnu.so"
NAME = f"{SITE}/app/_fast.{SUFFIX}"
PYTHON: Files = {"usr/local/bin/python3.11": elf(interpreter=LOADER)}


@every(
    "content, reason",
    [
        ("GROUP ( libc.so.6 )", "it is no ELF file"),
        ("", "it is empty"),
        (b"\x7fEL", "it is no ELF file"),
        (b"MZ" + bytes(64), "it is no ELF file"),
        (elf(interpreter=LOADER), "it is a program"),
        (elf()[:16] + b"\1" + elf()[17:56] + bytes(2) + elf()[58:], "it is an object file"),
    ],
)
def test_file_under_an_extension_s_name_is_a_fault(content: bytes | str, reason: str) -> None:
    assert faults({NAME: content}) == [f"/{NAME}: cannot be imported: {reason}"]


@every("size", [4, 40, 100, -5000])
def test_truncated_extension_is_a_fault(size: int) -> None:
    assert len(faults({NAME: elf(data=bytes(8192))[:size]})) == 1


@every(
    "path",
    [
        f"{SITE}/app/_fast.abi3.so",
        f"usr/lib/python3/dist-packages/_fast.{SUFFIX}",
        "usr/local/lib/python3.13t/site-packages/_fast.cpython-313t-x86_64-linux-musl.so",
        "usr/lib/python3.7/site-packages/_fast.cpython-37m-x86_64-linux-gnu.so",
        "usr/lib64/python3.11/lib-dynload/_ssl.cpython-311-x86_64-linux-gnu.so",
        f"app/_fast.{SUFFIX}",
    ],
)
def test_extension_counts_where_python_imports_it(path: str) -> None:
    config = {"WorkingDir": "/app"}
    assert faults({**PYTHON, path: "text"}, config) == [f"/{path}: cannot be imported: it is no ELF file"]


@every(
    "files",
    [
        {f"{SITE}/app/libc.so": "GROUP ( libc.so.6 )", f"{SITE}/app/_fast.so": "", f"{SITE}/app/fast.so.1": ""},
        {f"{SITE}/app/_fast.abi3.so": b"\xcf\xfa\xed\xfe" + bytes(64)},
        {f"{SITE}/app/_fast.abi3.so": b"MZ" + bytes(64)},
        {NAME: "", f"{SITE}/app/_fast/__init__.{SUFFIX}": elf()},
        {f"root/.cache/uv/x/lib/python3.11/site-packages/_fast.{SUFFIX}": ""},
        {f"{SITE}/app/_fast.cpython-310-x86_64-linux-gnu.so": ""},
        {f"{SITE}/app/_fast.cpython-311-aarch64-linux-gnu.so": ""},
        {f"{SITE}/app/_fast.cpython-311-darwin.so": ""},
        {"usr/lib/python3/dist-packages/_fast.cpython-313-x86_64-linux-gnu.so": ""},
        {f"{SITE}/app/_fast.pypy311-pp73-x86_64-linux-gnu.so": ""},
        {f"{SITE}/app/tests/data/_fast.{SUFFIX}": ""},
        {f"{SITE}/app/_fast.abi3.so": "", NAME: elf()},
        {NAME: "", f"{SITE}/app/_fast/__init__.py": ""},
        {"usr/lib/python3.13t/site-packages/_fast.abi3.so": ""},
        {f"srv/_fast.{SUFFIX}": ""},
        {NAME: elf(interpreter=LOADER, defined=["PyInit__fast"])},
    ],
)
def test_file_that_python_passes_over_is_no_fault(files: Files) -> None:
    assert faults({**PYTHON, **files}, {"WorkingDir": "/app"}) == []


def test_file_in_a_folder_of_pythonpath_is_a_fault() -> None:
    path = f"srv/code/app/_fast.{SUFFIX}"
    config = {"Env": ["PYTHONPATH=/opt:/srv/code"]}
    assert faults({path: "x"}, config) == [], "no Python of that release"
    assert faults({**PYTHON, path: "x"}, config) == [f"/{path}: cannot be imported: it is no ELF file"]


@every("machine, platform", [(X86_64, "x86_64"), (AARCH64, "aarch64"), (ARM, "arm")])
def test_text_is_a_fault_by_the_processor_in_its_name(machine: ElfMachine, platform: str) -> None:
    path = f"{SITE}/_fast.cpython-311-{platform}-linux-gnu.so"
    assert [fault.file for fault in loading.resolve(image({path: "text"}), machine).faults] == [f"/{path}"]


def test_extension_for_another_processor_than_named_is_a_fault() -> None:
    record = f"app/_fast.{SUFFIX},sha256=AAAA,1\napp/_other.{SUFFIX},,\n"
    files: Files = {
        NAME: elf(machine=183),
        f"{SITE}/app/_other.{SUFFIX}": elf(),
        f"{SITE}/app-1.0.dist-info/RECORD": record,
        f"{SITE}/app-1.0.dist-info/METADATA": "Name: app\nVersion: 1.0\n",
    }
    (one,) = contradictions.unmet(image(files), "amd64")
    assert str(one.fault()) == f"/{NAME}: app 1.0 requires aarch64 by its build: /opt/venv has Python for x86-64"
    files[f"{SITE}/app/_arm.cpython-311-aarch64-linux-gnu.so"] = elf(machine=183)
    files[NAME] = elf()
    assert contradictions.unmet(image(files), "amd64") == []
