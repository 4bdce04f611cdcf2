"""A refresh: what the distribution has mended since the parent was published, and nothing from elsewhere."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.images.conftest import Built
from tests.images.engine import Image, base_image, docker, unique

PARENT = r"""
FROM {base}
RUN sed -i '/^Package: tzdata$/,/^$/s/^Version: .*/Version: 2020a-0/' /var/lib/dpkg/status && \
    mkdir -p /repo /foo/DEBIAN && \
    for version in 1 2; do \
      printf 'Package: foo\nVersion: %s\nArchitecture: all\nMaintainer: n <n@example.com>\nDescription: d\n' "$version" \
        > /foo/DEBIAN/control && dpkg-deb -b /foo "/repo/foo_$version.deb"; \
    done && \
    dpkg -i /repo/foo_1.deb && \
    (dpkg-deb -f /repo/foo_2.deb && echo "Filename: ./foo_2.deb" && echo "Size: $(stat -c %s /repo/foo_2.deb)" && \
      echo "SHA256: $(sha256sum /repo/foo_2.deb | cut -d' ' -f1)") > /repo/Packages && \
    echo 'deb [trusted=yes] file:/repo ./' > /etc/apt/sources.list.d/other.list
"""
"""An old parent: the distribution has a newer tzdata than its own, and another source a newer foo."""


def versions(image: Image) -> dict[str, str]:
    output = image.run("dpkg-query", "-W", "tzdata", "foo")
    return dict(line.split("\t") for line in output.splitlines())


@pytest.fixture
def parent() -> Iterator[Image]:
    tag = unique("parent")
    docker("build", "--tag", tag, "-", text=PARENT.format(base=base_image()))
    yield Image(tag)
    docker("rmi", "--force", tag)


def test_refresh_upgrades_distribution_packages_alone(parent: Image, built: Built) -> None:
    assert versions(parent) == {"foo": "1", "tzdata": "2020a-0"}
    after = versions(built(target="python", BASE_IMAGE=parent.tag, REFRESH="2026-11-21"))
    assert after["foo"] == "1"
    assert after["tzdata"] > "2020a-0"
