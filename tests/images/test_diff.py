"""What ``diff`` says of the packages of real images, against what dpkg, pip and rpm say inside them."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from cli.diff.comparison import Comparison, compare
from containers.image.registry_image import fetch
from tests.images.conftest import Built
from tests.images.engine import Image, base_image, docker, pushed

DEB = "mkdir -p /d/DEBIAN && printf 'Package: %s\\nVersion: %s\\nArchitecture: all\\nMaintainer: t\\nDescription: t\\n' {} {} > /d/DEBIAN/control && dpkg-deb --build /d /d.deb && dpkg -i /d.deb && rm -rf /d /d.deb"

BEFORE = f"""FROM {{parent}}
USER root
RUN {DEB.format("slipway-one", "1.0")}
RUN {DEB.format("slipway-two", "1.0")}
"""
AFTER = f"""FROM {{parent}}
USER root
RUN {DEB.format("slipway-one", "2.0~rc1")}
RUN {DEB.format("slipway-three", "1:3")} && dpkg --remove slipway-three && {DEB.format("slipway-four", "4")}
RUN python -m pip uninstall -y torchvision
RUN chmod u+s /bin/cat && touch /etc/open && chmod 666 /etc/open
"""


def dpkg(image: Image) -> dict[str, str]:
    output = image.run("dpkg-query", "-W", "-f", "${db:Status-Status} ${binary:Package} ${Version}\n")
    rows = [line.split() for line in output.splitlines()]
    return {name: version for status, name, version in rows if status == "installed"}


def pip(image: Image) -> dict[str, str]:
    output = image.run("python", "-m", "pip", "list", "--format", "json", "--disable-pip-version-check")
    return {each["name"].lower().replace("_", "-").replace(".", "-"): each["version"] for each in json.loads(output)}


def versions(comparison: Comparison, manager: str) -> dict[str, tuple[str | None, str | None]]:
    listed = [each for each in comparison.packages if each.manager == manager]
    assert all(each.certain for each in listed)
    return {each.name: (each.before, each.after) for each in listed}


def differing(before: dict[str, str], after: dict[str, str]) -> dict[str, tuple[str | None, str | None]]:
    names = {**before, **after}
    return {name: (before.get(name), after.get(name)) for name in names if before.get(name) != after.get(name)}


@pytest.fixture
def images(built: Built) -> Iterator[tuple[Image, Image, Image]]:
    """The torch image, of stand-ins' wheels, and two that stand on it, whose packages differ."""
    parent = built().tag
    plain, before, after = (pushed(text.format(parent=parent), "diff") for text in ("FROM {parent}\n", BEFORE, AFTER))
    yield plain, before, after
    docker("rmi", "--force", plain.tag, before.tag, after.tag)


@pytest.mark.slow
def test_compare_packages_equals_dpkg_and_pip_lists(images: tuple[Image, Image, Image]) -> None:
    parent, before, after = images
    comparison = compare(fetch(before.tag), fetch(after.tag), thorough=True)
    assert versions(comparison, "dpkg") == differing(dpkg(before), dpkg(after))
    assert set(versions(comparison, "dpkg")) == {"slipway-one", "slipway-two", "slipway-four"}
    assert versions(comparison, "pip") == differing(pip(before), pip(after))
    assert set(versions(comparison, "pip")) == {"torchvision"}
    assert {(risk.kind, risk.path) for risk in comparison.risks} == {
        ("setuid", next(file.path for file in comparison.files if file.path.endswith("bin/cat"))),
        ("world-writable", "etc/open"),
    }

    comparison = compare(fetch(before.tag), fetch(after.tag))
    assert len(comparison.unread) == len(fetch(parent.tag).layers)
    assert versions(comparison, "dpkg") == differing(dpkg(before), dpkg(after))  # both write a status of their own
    removed = [each for each in comparison.packages if each.manager == "pip"]
    assert [(each.name, each.after) for each in removed] == [("torchvision", None)]

    # Against the parent, which has its status in a layer far below.
    comparison = compare(fetch(parent.tag), fetch(before.tag))
    assert versions(comparison, "dpkg") == {"slipway-one": (None, "1.0"), "slipway-two": (None, "1.0")}


RPM = """FROM {parent}
RUN apt-get update && apt-get install -y --no-install-recommends rpm && rpm --dbpath /var/lib/rpm --initdb
RUN printf 'Name: one\\nVersion: 1.2\\nRelease: 3\\nEpoch: 4\\nSummary: t\\nLicense: MIT\\nBuildArch: noarch\\n%%description\\nt\\n%%files\\n' > /s.spec \\
 && rpmbuild -bb --define "_rpmdir /r" /s.spec && rpm --dbpath /var/lib/rpm -i --nodeps /r/noarch/*.rpm
"""


@pytest.mark.slow
def test_compare_rpms_equals_rpm_list() -> None:
    image = pushed(RPM.format(parent=base_image()), "diff")
    try:
        output = image.run(
            "rpm", "--dbpath", "/var/lib/rpm", "-qa", "--qf", "%{NAME}.%{ARCH} %{EPOCH}:%{VERSION}-%{RELEASE}\n"
        )
        comparison = compare(fetch(base_image()), fetch(image.tag))
        assert versions(comparison, "rpm") == {"one.noarch": (None, "4:1.2-3")}
        assert output.split() == ["one.noarch", "4:1.2-3"]
    finally:
        docker("rmi", "--force", image.tag)
