"""Plugins of Debian's packages without libraries that the packages do not depend on, and without symbols of other plugins."""

from __future__ import annotations

from containers.image.binaries import loading
from containers.image.binaries.elf_file import X86_64
from tests.helpers.elf_writer import LOADER, elf
from tests.helpers.every import every
from tests.helpers.image_files import Files, faults, image

PLUGIN = "usr/lib/collectd/amqp.so"
INFO = "var/lib/dpkg/info"


def status(**fields: str) -> str:
    """Return the status of collectd, of what it depends on, and of the C library."""
    own = {
        "Package": "collectd",
        "Status": "install ok installed",
        "Depends": "libc6 (>= 2.36), libudev1 | systemd:any",
        **fields,
    }
    rows = [
        own,
        {"Package": "libc6", "Status": "hold ok installed"},
        {"Package": "systemd", "Status": "install ok installed"},
    ]
    return "\n\n".join("\n".join(f"{name}: {value}" for name, value in row.items()) for row in rows)


SOUND: Files = {
    PLUGIN: elf("amqp.so", ["libyajl.so.2"]),
    f"{INFO}/collectd.list": f"/.\n/{PLUGIN}\n/usr/sbin/collectd",
    f"{INFO}/systemd.list": "/usr/lib64/libsystemd.so.0",
    f"{INFO}/curl.list": "/usr/lib64/libcurl.so.4",
    "var/lib/dpkg/status": status(),
}
OTHER = "usr/lib64/libamqp.so"
LOCAL = "usr/local/lib/collectd/amqp.so"
USER: Files = {"usr/bin/tool": elf(needed=["amqp.so"], interpreter=LOADER, runpath="/usr/lib/collectd")}


@every(
    "files, is_fault",
    [
        ({}, False),
        ({f"{INFO}/collectd.list": f"/{PLUGIN.removeprefix('usr/')}"}, False),  # before /usr was merged
        ({"opt/x/libyajl.so.2": elf("libyajl.so.2")}, False),
        ({PLUGIN: elf("amqp.so", ["libcurl.so.4"])}, False),  # of a package that it does not depend on
        ({PLUGIN: elf("amqp.so", ["libsystemd.so.0"])}, True),  # somebody has removed it
        ({"var/lib/dpkg/status": status(Depends="libc6 (>= 2.36), libyajl2")}, True),
        ({"var/lib/dpkg/status": status(Depends="libc6 (>= 2.36), udev", Provides="udev (= 1)")}, False),
        ({"var/lib/dpkg/status": status(Depends="python3")}, True),  # somebody has written it
        ({"var/lib/dpkg/status": status(Depends="libc6")}, True),
        (
            {
                "usr/sbin/collectd": elf(needed=["libcurl.so.4"], interpreter=LOADER),
                "usr/lib64/libcurl.so.4": elf("libcurl.so.4"),
            },
            True,
        ),
        (
            {
                "usr/sbin/collectd": elf(needed=["libsystemd.so.0"], interpreter=LOADER),
                "usr/lib64/libsystemd.so.0": elf("libsystemd.so.0"),
            },
            False,
        ),
        ({"var/lib/dpkg/status": status(Status="deinstall ok config-files")}, True),
        ({"var/lib/dpkg/status": status(Status="install ok unpacked")}, True),
        ({"var/lib/dpkg/status": "Package"}, True),
        ({f"{INFO}/collectd.list": "/usr/sbin/collectd"}, True),  # a file of nobody's
        ({PLUGIN: "", OTHER: elf("libamqp.so", ["libyajl.so.2"]), f"{INFO}/collectd.list": f"/{OTHER}"}, True),
        ({PLUGIN: "", LOCAL: elf("amqp.so", ["libyajl.so.2"]), f"{INFO}/collectd.list": f"/{LOCAL}"}, True),
        (USER, True),
    ],
)
def test_library_that_a_package_does_not_need_is_no_fault(files: Files, *, is_fault: bool) -> None:
    assert bool(faults({**SOUND, **files})) is is_fault


def test_library_that_a_plugin_may_miss_is_listed() -> None:
    assert loading.resolve(image(SOUND), X86_64).optional == {"libyajl.so.2": [f"/{PLUGIN}"]}


@every(
    "files, is_fault",
    [
        ({}, False),
        ({"usr/lib/collectd/libown.so": elf("libown.so"), PLUGIN: elf("amqp.so", ["libown.so"], runpath="$ORIGIN", undefined=["f"])}, True),
        ({"var/lib/dpkg/status": status(Depends="libc6 (>= 2.36), libyajl2")}, True),
        ({"usr/sbin/collectd": elf(undefined=["f"], interpreter=LOADER)}, True),  # which nothing opens
        ({PLUGIN: "", "usr/lib64/libown.so": elf("libown.so", undefined=["f"]), f"{INFO}/collectd.list": "/usr/lib64/libown.so"}, True),
        ({"usr/sbin/collectd": elf(needed=["amqp.so"], interpreter=LOADER, runpath="/usr/lib/collectd")}, True),
    ],
)  # fmt: skip
def test_symbol_of_another_plugin_is_no_fault(files: Files, *, is_fault: bool) -> None:
    plugin = {PLUGIN: elf("amqp.so", undefined=["lucene_index_iter_deinit"])}
    loader = {f"{INFO}/libc6.list": "/lib64/ld-linux-x86-64.so.2"}
    assert bool(faults({**SOUND, **plugin, **loader, **files})) is is_fault
