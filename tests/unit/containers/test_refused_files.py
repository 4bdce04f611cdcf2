"""Files that glibc's loader finds and refuses; `images/test_public_defects.py` has one that people reported."""

from __future__ import annotations

from containers.image.binaries import loading
from containers.image.binaries.elf_file import AARCH64, X86_64
from tests.helpers.elf_writer import LOADER, elf, loader
from tests.helpers.every import every
from tests.helpers.image_files import SITE, Files, faults, image

GLIBC = "lib64/libc.so.6"
NEW: Files = {GLIBC: elf("libc.so.6", provides=["GLIBC_2.2.5", "GLIBC_2.41", "GLIBC_PRIVATE"])}
OLD: Files = {GLIBC: elf("libc.so.6", provides=["GLIBC_2.2.5", "GLIBC_2.34"])}
READ_WRITE, EXECUTABLE = 6, 7
EXTENSION = f"{SITE}/a/_a.so"
REFUSED = "needs an executable stack: glibc 2.41 opens no library that asks for one"


def refused(files: Files, environment: str = "") -> list[str]:
    return faults(files, {"Env": [environment]} if environment else None)


@every("stack", [EXECUTABLE, None])
def test_opened_library_with_executable_stack_is_a_fault(stack: int | None) -> None:
    assert refused({**NEW, EXTENSION: elf(stack=stack)}) == [f"/{EXTENSION}: {REFUSED}"]
    assert refused({**NEW, EXTENSION: elf(stack=READ_WRITE)}) == []
    assert refused({**OLD, EXTENSION: elf(stack=stack)}) == [], "the loader makes the stack executable"
    assert refused({EXTENSION: elf(stack=stack)}) == [], "nobody knows the release of glibc"


def test_executable_stack_of_a_needed_library_names_its_users() -> None:
    files = {
        **NEW,
        EXTENSION: elf(needed=["liba.so"], stack=READ_WRITE),
        "lib64/liba.so": elf("liba.so", stack=EXECUTABLE),
    }
    assert refused(files) == [f"/lib64/liba.so: {REFUSED}; needed by /{EXTENSION}"]


def test_executable_stack_of_a_starting_program_is_no_fault() -> None:
    program = elf(needed=["liba.so"], interpreter=LOADER, stack=READ_WRITE)
    files = {**NEW, "bin/p": program, "lib64/liba.so": elf("liba.so", stack=EXECUTABLE)}
    assert refused(files) == [], "the process starts with an executable stack"
    opened = elf(needed=["liba.so"], stack=READ_WRITE)
    assert refused({**files, EXTENSION: opened}) == [f"/lib64/liba.so: {REFUSED}; needed by /{EXTENSION}"]


def test_library_that_a_program_opens_by_name_is_a_fault() -> None:
    """cuDNN opens its parts, in a process whose stack is as it started."""
    cudnn, graph = "lib64/libcudnn.so.9", "lib64/libcudnn_graph.so.9"
    files = {
        **NEW,
        "bin/p": elf(needed=["libcudnn.so.9"], interpreter=LOADER, stack=READ_WRITE),
        cudnn: elf("libcudnn.so.9", stack=READ_WRITE),
        graph: elf("libcudnn_graph.so.9", stack=EXECUTABLE),
        "lib64/libcudnn_engines_runtime_compiled.so.9": elf("libcudnn_engines_runtime_compiled.so.9", stack=READ_WRITE),
    }
    assert [fault.partition(";")[0] for fault in refused(files)] == [f"/{graph}: {REFUSED}"]
    started = elf(needed=["libcudnn.so.9"], interpreter=LOADER, stack=EXECUTABLE)
    assert refused({**files, "bin/p": started}) == [], "the one process that has it starts with such a stack"


def test_library_that_a_thread_has_no_room_for_is_a_fault() -> None:
    """As jemalloc's (jemalloc/jemalloc#937). glibc's own libraries, and Python's, need a few bytes each."""
    large = elf("liba.so", threads=1728)
    opened = f"{SITE}/a/_a.abi3.so"
    files = {**OLD, opened: elf(needed=["liba.so"]), "lib64/liba.so": large}
    why = "glibc has no 1728 bytes of each thread left for it, once a process runs; preload it"
    assert refused(files) == [f"/lib64/liba.so: cannot be opened: {why}; needed by /{opened}"]
    assert refused({**OLD, "lib64/liba.so": large}) == [], "it may be preloaded"
    assert refused({**files, "lib64/liba.so": elf("liba.so", threads=1727)}) == []
    assert refused(files, "LD_PRELOAD=liba.so") == refused(files, "LD_PRELOAD=/lib64/liba.so") == []
    assert refused(files, "GLIBC_TUNABLES=glibc.rtld.optional_static_tls=2048") == []
    assert refused({**files, "bin/python": elf(needed=["liba.so"], interpreter=LOADER)}) == [], "there from the start"


def test_tunable_gives_each_process_an_executable_stack() -> None:
    files = {**NEW, EXTENSION: elf(stack=EXECUTABLE)}
    assert refused(files, "GLIBC_TUNABLES=glibc.malloc.check=1:glibc.rtld.execstack=2") == []
    assert refused(files, "GLIBC_TUNABLES=glibc.rtld.execstack=1") == [f"/{EXTENSION}: {REFUSED}"]


def test_file_of_aarch64_without_a_stack_asks_for_none() -> None:
    arm = {
        "lib/ld-linux-aarch64.so.1": elf("ld-linux-aarch64.so.1", machine=183, data=b"\0/lib64/\0/usr/lib64/\0"),
        GLIBC: elf("libc.so.6", machine=183, provides=["GLIBC_2.41"]),
    }
    for stack, expected in ((None, []), (EXECUTABLE, [f"/{EXTENSION}: {REFUSED}"])):
        read = image({EXTENSION: elf(machine=183, stack=stack)}, base=arm)
        assert [str(fault) for fault in loading.resolve(read, AARCH64).faults] == expected


@every(
    "shifted, page, fault",
    [
        (0x1000, 4096, ""),
        (0x10000, 65536, ""),
        (0x1000, 65536, "it is for pages of 4096 bytes, and those of the host have 65536"),
        (0x4000, 65536, "it is for pages of 16384 bytes, and those of the host have 65536"),
        (0x200, 4096, "it is for pages of 512 bytes, and those of the host have 4096"),
    ],
)
@every("interpreter", ["", LOADER])
def test_file_for_smaller_pages_is_a_fault(shifted: int, page: int, fault: str, interpreter: str) -> None:
    read = image({EXTENSION: elf(shifted=shifted, interpreter=interpreter)})
    lines = [str(each) for each in loading.resolve(read, X86_64, page=page).faults]
    assert lines == ([f"/{EXTENSION}: cannot be mapped: {fault}"] if fault else [])


def test_alignment_of_less_than_a_page_needs_a_new_glibc() -> None:
    files: Files = {EXTENSION: elf(alignment=16), "lib64/ld-linux-x86-64.so.2": loader()}
    assert refused({**NEW, **files}) == []
    expected = f"/{EXTENSION}: cannot be mapped: it is for pages of 16 bytes, and those of the host have 4096"
    assert refused({**OLD, **files}) == [expected]
