"""Who owns files of an image by rpm's records; test_binaries.py has those of pip, conda and dpkg."""

from __future__ import annotations

import io
import struct

from containers.image.binaries import contents
from containers.image.owners import ownership
from containers.image.owners.ownership_records import Owned, Owner, RecordedContent, Unread
from containers.image.owners.rpm_records import of_database
from tests.helpers.elf_writer import elf
from tests.helpers.every import every
from tests.helpers.image_files import SITE, Files, image
from tests.helpers.rpm_writer import endless, header, rpmdb

PATH = "usr/lib64/liba.so"
DATABASE = "var/lib/rpm/rpmdb.sqlite"
LIBRARY = elf("liba.so")
A, B = "a" * 64, "b" * 64


def contested(*headers: bytes, **files: str) -> list[str]:
    content: Files = {PATH: LIBRARY, DATABASE: rpmdb(*headers), **files}
    return [str(one.fault()) for one in ownership.contested(image(content))]


def test_rpm_files_of_two_packages_are_contested() -> None:
    first = header("a", "1", "1.el9", "x86_64", files={"/usr/bin/a": (A, 1), f"/{PATH}": (A, len(LIBRARY))})
    second = header("b", "2", "1.el9", "x86_64", files={f"/{PATH}": (B, 9), "/usr": ("", 0)})
    assert contested(first, second) == [
        f"/{PATH}: owned by a 1-1.el9 and b 2-1.el9 with different content: it has that of a 1-1.el9"
    ]
    same = header("b", "2", "1.el9", "x86_64", files={f"/{PATH}": (A, 9)})
    assert contested(first, same) == []


@every("state, owners", [(0, 2), (1, 2), (2, 1), (3, 1), (4, 1)])
def test_rpm_file_that_is_not_installed_has_no_owner(state: int, owners: int) -> None:
    """Of libraries for two machines rpm installs one (`RPMFILE_STATE_WRONGCOLOR`); 1 is for one that it replaced."""
    first = header("a", "1", "1.el9", files={f"/{PATH}": (A, 1), "/usr/bin/a": (A, 1)}, states=(state, 0))
    second = header("b", "2", "1.el9", files={f"/{PATH}": (B, 9)})
    assert len(contested(first, second)) == owners - 1


def test_rpm_file_that_pip_replaced_is_contested() -> None:
    first = header("a", "1", "1", files={f"/{PATH}": (A, len(LIBRARY))})
    record = "../../../lib64/liba.so,sha256=" + "B" * 43 + ",7\n"
    files = {"usr/lib/python3/site-packages/b-2.dist-info/RECORD": record}
    assert contested(first, **files) == [
        f"/{PATH}: owned by b 2 and a 1-1 with different content: it has that of a 1-1"
    ]


def damaged(tag: int, kind: int, count: int) -> bytes:
    """Return a header of a file, in which one tag is of another kind or count."""
    content = bytearray(header("a", "1", "1", files={f"/{PATH}": (A, 1)}))
    (entries,) = struct.unpack_from(">I", content)
    for place in range(8, 8 + 16 * entries, 16):
        if struct.unpack_from(">I", content, place)[0] == tag:
            struct.pack_into(">I", content, place + 4, kind)
            struct.pack_into(">I", content, place + 12, count)
    return bytes(content)


@every(
    "content",
    [
        b"",
        b"no database" * 100,
        rpmdb(b"no header"),
        endless(),
        *(rpmdb(damaged(tag, 4, 1 << 31)) for tag in (1000, 1116, 1117, 1035)),
        *(rpmdb(damaged(tag, 8, 1 << 31)) for tag in (1000, 1116, 1117, 1118)),
        rpmdb(damaged(1116, 4, 0)),
        rpmdb(damaged(1116, 6, 1)),
    ],
)
def test_rpm_malformed_database_is_named(content: bytes) -> None:
    read = image({DATABASE: content})
    assert read.unread[DATABASE].startswith("malformed: ")
    assert ownership.contested(read) == []


def test_rpm_own_format_is_not_read() -> None:
    path = "usr/lib/sysimage/rpm/Packages.db"
    assert image({path: "RpmP"}).unread == {path: "a database in the format ndb of rpm"}


@every("path", ["var/lib/dpkg/status", f"{SITE}/a-1.dist-info/RECORD"])
def test_record_that_is_too_large_is_unread(path: str) -> None:
    known = contents.facts(path, (32 << 20) + 1, io.BytesIO(b"a"))
    assert known == Unread("33554433 bytes, at most 33554432 are read")


def test_rpm_digest_is_of_algorithm_that_header_names() -> None:
    read = of_database(DATABASE, rpmdb(header("a", "1", "1", files={"/a": (A, 5)})))
    assert read == [Owned(Owner("rpm", "a", "1-1"), {"a": RecordedContent(f"sha256:{A}", 5)})]


@every(
    "other, version, winners, left, works",
    [
        ("tool-cpu", "2.1", "aa", "tool/z.so", True),
        ("tool-cpu", "2.1.4", "bb", "", True),
        ("tool-headless", "2.1", "bb", "", True),
        ("tool-contrib-headless", "2.1", "bb", "", True),
        ("tool-cpu", "2.2", "aa", "", True),
        ("tool-cpu", "2.2", "aa", "tool_cpu.libs/libz-0123abcd.so.1", True),
        ("tool-cpu", "2.2", "aa", "cv2/qt/plugins/platforms/libqxcb.so", True),
        ("tool-cpu", "2.2", "aa", "tool/z.so", False),
        ("tool", "2.2", "aa", "", False),
        ("tool-cpu", "2.1", "ab", "", False),
        ("tool-gpu", "2.1", "aa", "", False),
        ("tool-cu13", "2.1", "aa", "", False),
    ],
)
def test_builds_of_one_package_work_if_one_has_won(
    other: str, version: str, winners: str, left: str, *, works: bool
) -> None:
    """As tensorflow-cpu with tensorflow, which tf-keras requires, and OpenCV of two releases."""
    site = "opt/venv/lib/python3.11/site-packages"
    sizes = {"a": 200, "b": 300}

    def record(mark: str) -> str:
        return "".join(f"tool/{name}.so,sha256={mark * 43},{sizes[mark]}\n" for name in "xy")

    files: Files = {
        f"{site}/tool-2.1.dist-info/RECORD": record("a"),
        f"{site}/{other}-{version}.dist-info/RECORD": record("b") + (f"{left},sha256={'c' * 43},1\n" if left else ""),
    }
    files |= {f"{site}/{left}": elf()} if left else {}
    files |= {
        f"{site}/tool/{name}.so": elf().ljust(sizes[winner], b"\0")[: sizes[winner]]
        for name, winner in zip("xy", winners, strict=True)
    }
    rows = ownership.contested(image(files))
    assert [row.is_fault for row in rows] == [not works] * 2


def test_owner_of_contested_file_is_the_one_that_has_won() -> None:
    """As of cuDNN for CUDA 12 and 13, which both have nvidia/cudnn: each part of it is the winner's."""
    site = "opt/venv/lib/python3.11/site-packages"
    library = elf("liba.so")
    files: Files = {f"{site}/liba.so": library}
    for name, size in (("a", 1), ("b", len(library)), ("c", 2)):
        files[f"{site}/{name}-1.dist-info/RECORD"] = f"liba.so,sha256={name * 43},{size}\n"
    path = f"{site}/liba.so"
    assert ownership.owners(image(files), [path])[path].name == "b"
