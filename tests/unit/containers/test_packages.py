"""The packages that files of an image record."""

from __future__ import annotations

import base64
import zlib

import pytest

from containers.image.layers.packages import PackageRecord, database, package_record
from tests.helpers.every import every
from tests.helpers.rpm_writer import endless, header, rpmdb


@every(
    "path, expected",
    [
        (
            "opt/venv/lib/python3.11/site-packages/torch-2.14.1+cu130.dist-info/METADATA",
            ("/opt/venv", "torch", "2.14.1+cu130"),
        ),
        ("opt/venv/lib/python3.11/site-packages/torch-2.14.1.dist-info", ("/opt/venv", "torch", "2.14.1")),
        ("usr/lib/python3/dist-packages/ruamel.yaml-0.17.egg-info/PKG-INFO", ("/usr", "ruamel-yaml", "0.17")),
        ("usr/lib/python3/dist-packages/PyGObject-3.42.2.egg-info", ("/usr", "pygobject", "3.42.2")),
        ("usr/lib64/python3.9/site-packages/dnf_plugins-4.3-py3.9.egg-info/PKG-INFO", ("/usr", "dnf-plugins", "4.3")),
        ("lib/python3.12/site-packages/a-1.dist-info/METADATA", ("", "a", "1")),
    ],
)
def test_listed_pip_and_conda_metadata_names_package(path: str, expected: tuple[str, str, str]) -> None:
    where, name, version = expected
    assert package_record(path, None) == PackageRecord("pip", where, {name: version})


@every(
    "path",
    [
        "opt/venv/lib/python3.11/site-packages/torch-2.14.1.dist-info/RECORD",
        "opt/venv/lib/python3.11/site-packages/setuptools/_vendor/wheel-0.43.dist-info/METADATA",
        "opt/venv/lib/python3.11/site-packages/torch/METADATA",
        "opt/conda/conda-meta/history",
        "var/lib/dpkg/status-old",
        "home/var/lib/dpkg/status",
        "var/lib/dpkg/status.d/base.md5sums",
    ],
)
def test_listed_other_file_returns_none(path: str) -> None:
    assert package_record(path, None) is None
    assert database(path) is None


STATUS = b"""Package: libc6
Status: install ok installed
Multi-Arch: same
Architecture: amd64
Version: 2.36-9
Description: library
 Package: not-this
 Version: 0

Package: bash
Status: install ok installed
Architecture: amd64
Version: 5.2.15-2+b7

Package: half
Status: install ok half-installed
Version: 1

Package: removed
Status: deinstall ok config-files
Version: 1
"""


def test_dpkg_status_lists_installed_packages() -> None:
    parse = database("var/lib/dpkg/status")
    assert parse is not None
    assert parse(STATUS) == {"libc6:amd64": "2.36-9", "bash": "5.2.15-2+b7"}
    assert parse(b"") == {}


def test_dpkg_status_of_distroless_lists_its_package() -> None:
    parse = database("var/lib/dpkg/status.d/base-files")
    assert parse is not None
    assert parse(b"Package: base-files\nVersion: 12.4\nArchitecture: amd64\n") == {"base-files": "12.4"}


@every("folder", ["var/lib", "usr/lib/sysimage"])
def test_rpm_sqlite_database_lists_packages(folder: str) -> None:
    parse = database(f"{folder}/rpm/rpmdb.sqlite")
    assert parse is not None
    content = rpmdb(
        header("bash", "5.1.8", "9.el9", "x86_64"),
        header("openssl", "3.0.7", "27.el9", "x86_64", epoch=1),
        header("gpg-pubkey", "fd431d51", "4ae0493b"),
        header("gpg-pubkey", "5a6340b3", "6229229e"),
    )
    assert parse(content) == {
        "bash.x86_64": "5.1.8-9.el9",
        "openssl.x86_64": "1:3.0.7-27.el9",
        "gpg-pubkey": "5a6340b3-6229229e, fd431d51-4ae0493b",
    }


OLDER = zlib.decompress(
    base64.b64decode(
        "eNrt279r20AUwPGnyHZTknIhdYcWDIHMFrYkC3vuf1A6dGqwGtUpManBFJw5S5ZsWULWQv+HjP0HSv+J/u6QpUvA9M46B/lMQpYQcL4f+5DeId"
        "+zBRreOywi4kmu+6QiD83Jmh7L+VxZ5p19+igyFum9ePnqz14+5xXWMSp6fD3aee3OAwAAAACAuzFfu9eUPLpQ/9S5Gqmh0hEAAAAAAItdGPt6"
        "1PThh+Sb2nbe/2njFRv/snHVxL1Brz74kO5m+/J2O46a262mxN2sEXeiVLySXdrsrW/oj/7Wx1Jh6WmqkpNq1Un12MZjGz+d1vLvB9necNiXZq"
        "Bfu9IJsn5bRu1kK4nFWzJXlIslvzlZmqn/65P6/0Qdq0N1oOpO/X+T/X+D/X8AAAAAwL3tB7S6SRQ30kiSMOzod5YX4/7n71Wz9Ommvty3uUp5"
        "UX9lrrKTa9VpCKybOO0OdyQO4iBs6EOxE+A5P0suew7flDzI1998fk3+ipN/xck/bVD8tfGzyb3ov0vfSBiEbQmjpPiFRgAAAAAA4FZIodXgX7"
        "YUTP3PvQEAAAAAYNHq//LMfxC++NT/wGI95wAAAADut/88oNMc"
    )
)
"""Five such headers as Berkeley DB 5.3 writes them (`db5.3_load` of Debian's db5.3-util, pages of 4 KiB), one of 9 KB."""


def test_rpm_berkeley_database_lists_packages() -> None:
    parse = database("var/lib/rpm/Packages")
    assert parse is not None
    assert parse(OLDER) == {
        "bash.x86_64": "4.4.20-4.el8",
        "glibc.x86_64": "2.28-236.el8",
        "gpg-pubkey": "5a6340b3-6229229e, fd431d51-4ae0493b",
        "openssl.x86_64": "1:1.1.1k-9.el8",
    }
    for end in range(0, len(OLDER), 997):
        with pytest.raises(ValueError, match="malformed rpm database"):
            parse(OLDER[:end])


@every("content", [b"", b"no database" * 100, rpmdb(b"no header"), rpmdb(header("a", "1", "1")[:30]), endless()])
def test_rpm_malformed_database_is_refused(content: bytes) -> None:
    parse = database("var/lib/rpm/rpmdb.sqlite")
    assert parse is not None
    with pytest.raises(ValueError, match="malformed rpm database"):
        parse(content)
