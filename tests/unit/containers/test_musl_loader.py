"""Programs of musl, by the rules of its loader; files are written, and have no code."""

from __future__ import annotations

from containers.image.binaries import loading
from containers.image.binaries.contents import Contents
from containers.image.binaries.elf_file import X86_64
from containers.image.binaries.loading import Loading
from containers.image.binaries.musl_loader import MuslLoader
from tests.helpers.elf_writer import LOADER, elf
from tests.helpers.every import every
from tests.helpers.image_files import Files, image

MUSL = "/lib/ld-musl-x86_64.so.1"
BASE: Files = {"lib/ld-musl-x86_64.so.1": elf("libc.musl-x86_64.so.1", defined=["puts"])}


def alpine(files: Files, *environment: str) -> Contents:
    """Return an image with musl's loader alone."""
    return image({**BASE, **files}, {"Env": list(environment)}, base={})


def resolved(files: Files, *environment: str) -> Loading:
    return loading.resolve(alpine(files, *environment), X86_64)


def program(*needed: str, rpath: str = "", runpath: str = "") -> bytes:
    """Return a program that needs libraries and the C library."""
    names = [*needed, "libc.musl-x86_64.so.1"]
    return elf(needed=names, rpath=rpath, runpath=runpath, interpreter=MUSL, undefined=["puts"])


def objects(files: Files, *environment: str) -> list[str]:
    """Return the names of the libraries of the program /bin/p."""
    process = MuslLoader(alpine(files, *environment), X86_64).process("bin/p")
    return [loaded.place.name for loaded in process.objects[1:]]


def test_loader_itself_is_c_library() -> None:
    files: Files = {"bin/p": elf(needed=["libc.so", "libm.so.6", "libpthread.so.0"], interpreter=MUSL)}
    assert objects(files) == [MUSL]
    result = resolved({**files, "bin/q": program()})
    assert (result.faults, result.loader, result.resolved) == ([], MUSL, 3)


@every(
    "text, expected",
    [
        (None, ["/usr/local/lib/liba.so"]),
        ("/opt\n/usr/lib", ["/opt/liba.so"]),
        ("/usr/lib:/opt", ["/usr/lib/liba.so"]),
        ("", []),
    ],
)
def test_default_folders_are_those_of_path_file(text: str | None, expected: list[str]) -> None:
    files: Files = {f"{folder}/liba.so": elf() for folder in ("opt", "usr/local/lib", "usr/lib")}
    files |= {"bin/p": program("liba.so")} | ({} if text is None else {"etc/ld-musl-x86_64.path": text})
    assert objects(files) == [*expected, MUSL]


def test_environment_comes_before_path_of_program() -> None:
    files: Files = {"bin/p": program("liba.so", rpath="/one"), "one/liba.so": elf(), "two/liba.so": elf()}
    assert objects(files)[0] == "/one/liba.so"
    assert objects(files, "LD_LIBRARY_PATH=:/two")[0] == "/two/liba.so"


@every("kind, ignored", [("rpath", ""), ("runpath", ""), ("runpath", "/nowhere")])
def test_path_is_inherited_whatever_its_kind(kind: str, ignored: str) -> None:
    path = {"rpath": ignored} | {kind: "${ORIGIN}/../opt"}
    files: Files = {
        "bin/p": program("liba.so", **path),
        "opt/liba.so": elf(needed=["libb.so"]),
        "opt/libb.so": elf(),
    }
    assert objects(files) == ["/bin/../opt/liba.so", MUSL, "/bin/../opt/libb.so"]


def test_path_with_unknown_token_does_not_count() -> None:
    files: Files = {"bin/p": program("liba.so", rpath="/opt:/opt/$LIB"), "opt/liba.so": elf()}
    assert [str(fault) for fault in resolved(files).faults] == [
        "/bin/p: missing liba.so: /opt/liba.so is in no folder that is searched"
    ]


def test_first_file_counts_even_for_other_machine() -> None:
    files: Files = {"bin/p": program("liba.so"), "lib/liba.so": elf(machine=183), "usr/lib/liba.so": elf()}
    assert [str(fault) for fault in resolved(files).faults] == ["/bin/p: missing liba.so: /lib/liba.so is for aarch64"]


def test_library_counts_by_name_of_file() -> None:
    """Unlike glibc's loader, musl's looks for a name again that an open library has as its soname."""
    files: Files = {
        "bin/p": program("libx.so", "liba.so.1"),
        "lib/libx.so": elf("liba.so.1"),
        "lib/liba.so.1": elf("liba.so.1"),
    }
    assert objects(files) == ["/lib/libx.so", "/lib/liba.so.1", MUSL]


def test_versions_of_symbols_do_not_count() -> None:
    user = elf(needed=["liba.so"], needs={"liba.so": ["V2"]})
    files: Files = {"bin/p": program("libu.so"), "lib/libu.so": user, "lib/liba.so": elf(provides=["V1"])}
    assert resolved(files).faults == []


def test_missing_preloaded_library_is_ignored() -> None:
    files: Files = {"bin/p": program(), "opt/libpre.so": elf(), "etc/ld.so.preload": "/opt/libother.so"}
    assert objects(files, "LD_PRELOAD=/opt/libgone.so:/opt/libpre.so") == ["/opt/libpre.so", MUSL]
    assert resolved(files, "LD_PRELOAD=/opt/libgone.so").ignored == {"/opt/libgone.so": "not in the image"}


def test_image_of_both_resolves_each_by_its_loader() -> None:
    """/opt/lib is in the path file of musl alone."""
    files: Files = {
        **BASE,
        "bin/p": program("liba.so"),
        "bin/q": elf(needed=["liba.so"], interpreter=LOADER),
        "opt/lib/liba.so": elf(needed=["libc.so"]),
        "etc/ld-musl-x86_64.path": "/opt/lib",
    }
    result = loading.resolve(image(files), X86_64)
    assert [str(fault) for fault in result.faults] == [
        "/bin/q: missing liba.so: /opt/lib/liba.so is in no folder that is searched"
    ]
    assert result.loader == f"{LOADER} and {MUSL}"


def test_program_of_glibc_where_musl_is_alone_misses_loader() -> None:
    files: Files = {"bin/q": elf(interpreter=LOADER)}
    assert [str(fault) for fault in resolved(files).faults] == [f"/bin/q: missing {LOADER}: no such loader"]
