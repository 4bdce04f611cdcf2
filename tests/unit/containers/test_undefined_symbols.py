"""Symbols that nothing defines: of torch, of Python, and of other environments, on written ELF files."""

from __future__ import annotations

from collections.abc import Mapping

from tests.helpers.elf_writer import LOADER, elf
from tests.helpers.every import every
from tests.helpers.image_files import SITE, Files, faults

OTHER = "opt/other/lib/python3.11/site-packages"
OLDER, NEWER = "_ZN3c105ErrorC2ENS_14SourceLocationESs", "_ZN3c105ErrorC2ENS_14SourceLocationENSt7__cxx11E"


def torch(symbol: str, site: str = SITE) -> Files:
    return {f"{site}/torch/lib/libc10.so": elf("libc10.so", defined=[symbol])}


def extension(symbol: str, *needed: str, **options: str) -> bytes:
    return elf("_C.so", needed or ["libc10.so"], undefined=[symbol], defined=["PyInit__C"], **options)  # type: ignore[arg-type]


def of_another(path: str, symbol: str, place: str = "/opt/venv") -> str:
    return f"/{path}: missing symbol {symbol}: it is built for another torch, and torch of {place} does not define it"


@every("symbol", [OLDER, "_ZNK2at10TensorBase8data_ptrEv", "_ZTIN5torch8autograd4NodeE", "aoti_torch_new"])
def test_extension_of_another_torch_is_a_fault(symbol: str) -> None:
    """As most extensions, it has no RUNPATH: torch must be imported before it."""
    path = f"{SITE}/ext/_C.so"
    assert faults({**torch(NEWER), path: extension(symbol)}) == [of_another(path, symbol)]
    assert faults({**torch(symbol), path: extension(symbol)}) == []


def test_extension_beside_its_torch_elsewhere_is_a_fault() -> None:
    """Python opens neither the torch of another environment nor another extension before it for all."""
    files = {**torch(NEWER), **torch(OLDER, OTHER), f"{SITE}/ext/_C.so": extension(OLDER)}
    assert faults(files) == [of_another(f"{SITE}/ext/_C.so", OLDER)]
    assert faults({**files, f"{SITE}/more/_D.so": elf("_D.so", defined=[OLDER])}) == [
        of_another(f"{SITE}/ext/_C.so", OLDER)
    ]
    own = {f"{SITE}/ext/_C.so": extension(OLDER, "libc10.so", "libown.so", runpath="$ORIGIN")}
    assert faults({**files, **own, f"{SITE}/ext/libown.so": elf("libown.so", defined=[OLDER])}) == []


@every(
    "config, texts",
    [
        ({"Env": [f"PYTHONPATH=/{OTHER}"]}, {}),
        ({}, {"opt/venv/pyvenv.cfg": "home = /usr/bin\ninclude-system-site-packages = true\n"}),
    ],
)
def test_environments_of_one_python_define_together(config: Mapping[str, list[str]], texts: Files) -> None:
    files: Files = {f"{SITE}/a/_A.so": elf("_A.so", undefined=["f"]), f"{OTHER}/b/_B.so": elf("_B.so", defined=["f"])}
    assert faults({**files, **texts}, config) == []
    assert faults(files) == [f"/{SITE}/a/_A.so: missing symbol f: no library defines it"]


@every("name", ["libg_pytorch_2.{}.0.so", "libg_torch2{}-cpu.so", "g_torch2{}.abi3.so", "pg_2_{}_0.abi3.so"])
def test_one_of_the_files_for_each_torch_must_load(name: str) -> None:
    files = {f"{SITE}/g/{name.format(minor)}": extension(f"_ZN2at{minor}fEv") for minor in (1, 2)}
    assert len(faults({**torch(NEWER), **files})) == 2
    assert faults({**torch("_ZN2at2fEv"), **files}) == []
    assert len(faults({**torch("_ZN2at2fEv"), **files, f"{SITE}/h/libg_pytorch_2.3.0.so": extension(OLDER)})) == 1


def test_long_name_takes_no_minutes() -> None:
    """A name of 4,000 characters is compared as a whole: from each of its characters on, it took four minutes."""
    assert faults({f"{SITE}/{'_1' * 2000}x.so": elf("a.so")}) == []


def test_extension_of_another_python_is_a_fault() -> None:
    python = elf(needed=["libpython3.11.so.1.0"], interpreter=LOADER)
    library = elf("libpython3.11.so.1.0", defined=["PyList_New"])
    files: Files = {"usr/bin/python3.11": python, "usr/lib64/libpython3.11.so.1.0": library}
    path = f"{SITE}/ext/_C.abi3.so"
    module = elf("", undefined=["PyList_New", "PyType_Freeze"], defined=["PyInit__C"])
    assert faults({**files, path: module}) == [
        f"/{path}: missing symbol PyType_Freeze: it is built for another Python, and Python 3.11 of /opt/venv does not define it"
    ]
    assert faults({path: module}) == [], "an image may have a package and no Python"
    other = path.replace(".abi3", ".cpython-314-x86_64-linux-gnu")
    assert faults({**files, other: module}) == [], "Python 3.11 passes over it"
    library = elf("libpython3.11.so.1.0", defined=["PyList_New", "PyType_Freeze"])
    assert faults({**files, "usr/lib64/libpython3.11.so.1.0": library, path: module}) == []


def test_plugin_of_a_compiler_takes_its_symbols_from_it() -> None:
    plugin = elf("libcp1plugin.so.0", undefined=["_Z22finish_enum_value_listP9tree_node"])
    assert faults({"usr/lib/gcc/x86_64-linux-gnu/12/plugin/libcp1plugin.so.0.0.0": plugin}) == []
    assert len(faults({"usr/lib/libcp1plugin.so.0.0.0": plugin})) == 1
