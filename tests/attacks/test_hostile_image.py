"""An image from a stranger is exported: its files, links and settings reach nothing outside of what is written."""

from __future__ import annotations

import io
import json
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cli.export import squashfs, wheels
from cli.export.filesystem import Filesystem
from containers.errors import SlipwayError
from containers.image.binaries import contents
from containers.image.local_image import open_image
from containers.image.registry_image import fetch
from tests.fakes.registry import LAYER, MANIFEST, Registry, digest_of
from tests.fuzzing.hostile_images import CONTROL, DOCUMENTS, LAYERS, MEMORY, SECONDS, Recipe, inspect, inspected, write
from tests.helpers.machine_programs import have


def member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "", **more: Any) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, target, 5 if kind == tarfile.REGTYPE else 0
    for key, value in more.items():
        setattr(info, key, value)
    return info


def layer(*members: tarfile.TarInfo) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for each in members:
            archive.addfile(each, io.BytesIO(b"owned"))
    return content.getvalue()


def image(registry: Registry, *layers: bytes, **settings: Any) -> str:
    registry.image("a/b:1", list(layers), settings)
    return f"{registry.address}/a/b:1"


@pytest.fixture(autouse=True, scope="module")
def _tools() -> None:
    have("mksquashfs")


@pytest.mark.parametrize("conflicts", [[], ["etc", "work"]], ids=["", "with what is written too"])
def test_squashfs_of_escaping_paths_and_links_stays_inside(
    registry: Registry, tmp_path: Path, conflicts: list[str]
) -> None:
    """Each layer writes through what an earlier one has put in the way, to the folder of a victim."""
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "file").write_text("genuine")
    up = "../" * 30
    reference = image(
        registry,
        layer(
            member("d", tarfile.SYMTYPE, str(victim)),
            member("e", tarfile.SYMTYPE, f"{up}{victim}"),
            *(member(path, tarfile.SYMTYPE, str(victim)) for path in conflicts),
            member("f", tarfile.SYMTYPE, f"{victim}/file"),
        ),
        layer(
            *(member(f"{link}/written") for link in "de"),
            member("f"),
            member(f"{up}{victim}/written"),
            member(f"{victim}/absolute"),
            member(f"d/{up}{victim}/nested"),
        ),
        WorkingDir="/work/deep",
    )
    (tmp_path / "out").mkdir()
    if conflicts:
        with pytest.raises(SlipwayError, match=r"^mksquashfs: [^\n]*$"):
            squashfs.write(fetch(reference), tmp_path / "out/image.sqsh")
    else:
        squashfs.write(fetch(reference), tmp_path / "out/image.sqsh")
    assert {path.name: path.read_text() for path in victim.iterdir()} == {"file": "genuine"}
    assert {path.name for path in tmp_path.iterdir()} == {"victim", "out"}
    words = ["unsquashfs", "-no-xattrs", "-d", str(tmp_path / "root"), str(tmp_path / "out/image.sqsh")]
    subprocess.run(words, check=False, capture_output=True)
    assert {path.name: path.read_text() for path in victim.iterdir()} == {"file": "genuine"}


@pytest.mark.parametrize("target", ["/etc/shadow", "../../etc/shadow", "missing", "d/../../x"])
def test_hard_link_to_a_file_that_no_layer_has_is_refused(registry: Registry, tmp_path: Path, target: str) -> None:
    reference = image(registry, layer(member("x", tarfile.LNKTYPE, target)))
    with pytest.raises(SlipwayError, match=r"/x is a hard link to a missing file$"):
        squashfs.fill(io.BytesIO(), Filesystem(fetch(reference), tmp_path / "layers"), fetch(reference))


@pytest.mark.parametrize("mtime", ["inf", "nan", "-1", "1e300", "99999999999999999999"])
def test_file_of_any_time_and_device_is_exported(registry: Registry, tmp_path: Path, mtime: str) -> None:
    names = (("file", tarfile.REGTYPE), ("folder", tarfile.DIRTYPE), ("device", tarfile.CHRTYPE))
    members = [member(name, kind, pax_headers={"mtime": mtime}) for name, kind in names]
    reference = image(registry, layer(*members))
    written = io.BytesIO()
    squashfs.fill(written, Filesystem(fetch(reference), tmp_path / "layers"), fetch(reference))
    with tarfile.open(fileobj=io.BytesIO(written.getvalue())) as archive:
        assert {name for name, _ in names} <= set(archive.getnames())


@pytest.mark.parametrize(
    "volume",
    [
        "/data none none\n/root/.ssh /stolen none bind",
        "/data /x none bind\t0",
        "/data#",
        "/${HOME}",
        "/data\\040x",
        "/x\x1b]0;title\x07",
        "/",
    ],
)
def test_volume_that_mounts_the_host_is_refused(volume: str) -> None:
    with pytest.raises(SlipwayError, match=r"^volume '.*' of the image: expected a path of ") as error:
        squashfs.configuration({"Volumes": {volume: {}}})
    assert "\n" not in str(error.value)
    assert "\x1b" not in str(error.value)


@pytest.mark.parametrize("volume", ["/../../../root/.ssh", "../../root/.ssh", "/a/../../root/.ssh", "//root/.ssh"])
def test_volume_leads_nowhere_above_the_container(volume: str) -> None:
    lines = squashfs.configuration({"Volumes": {volume: {}}})["etc/fstab"]
    assert lines == "${ENROOT_ROOTFS}/root/.ssh /root/.ssh none x-create=dir,bind,rw,nosuid,nodev\n"


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"Env": 5}, "is of another type"),
        ({"Env": ["A=b", 5]}, "is of another type"),
        ({"Env": {"A": "b"}}, "is of another type"),
        ({"Entrypoint": "sh"}, "is of another type"),
        ({"Cmd": [None]}, "is of another type"),
        ({"Volumes": ["/data"]}, "is of another type"),
        ({"Labels": {"a": 1}}, "is of another type"),
        ({"Labels": "x"}, "is of another type"),
        ({"WorkingDir": 5}, "is of another type"),
        ({"User": []}, "is of another type"),
        ({"Env": ["A=b\0c"]}, "has a zero byte"),
        ({"Entrypoint": ["/bin/p", "a\0b"]}, "has a zero byte"),
        ({"Cmd": ["\0"]}, "has a zero byte"),
        ({"WorkingDir": "/a\0b"}, "has a zero byte"),
    ],
    ids=ascii,
)
def test_malformed_settings_are_one_line(registry: Registry, settings: dict[str, Any], why: str) -> None:
    reference = image(registry, layer(member("x")), **settings)
    with pytest.raises(SlipwayError, match=f"malformed manifest or configuration: .*{why}") as error:
        fetch(reference)
    assert "\n" not in str(error.value)


def lying(folder: Path, change: Callable[[dict[str, Any], dict[str, Any]], None], name: str = "") -> str:
    """Write a layout of one layer whose manifest and configuration a change has made lie; return its path."""
    content = layer(member(name or "x"))
    blobs = folder / "layout/blobs/sha256"
    blobs.mkdir(parents=True)

    def blob(body: bytes) -> dict[str, Any]:
        (blobs / digest_of(body).removeprefix("sha256:")).write_bytes(body)
        return {"digest": digest_of(body), "size": len(body), "mediaType": LAYER}

    config: dict[str, Any] = {"os": "linux", "architecture": "amd64", "rootfs": {"diff_ids": [digest_of(content)]}}
    manifest: dict[str, Any] = {"mediaType": MANIFEST, "layers": [blob(content)]}
    change(manifest, config)
    manifest["config"] = blob(json.dumps(config).encode()) | manifest.pop("config", {})
    (folder / "layout/index.json").write_text(json.dumps({"manifests": [blob(json.dumps(manifest).encode())]}))
    return str(folder / "layout")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (
            lambda _, config: config["rootfs"].update(diff_ids=["sha256:" + "0" * 64]),
            "its archive has the digest sha256:",
        ),
        (lambda _, config: config["rootfs"].update(diff_ids=["x"]), "expected sha256: and 64 hex digits"),
        (lambda _, config: config["rootfs"].update(diff_ids=[5]), "malformed manifest or configuration"),
        (lambda _, config: config["rootfs"].update(diff_ids=[]), "1 layers, 0 diff_ids"),
        (
            lambda manifest, _: manifest["layers"][0].update(size=99_999),
            "has 10,240 bytes, and its manifest states 99,999",
        ),
        (lambda manifest, _: manifest["layers"][0].update(size=1), "has more bytes than its manifest states, 1"),
        (lambda manifest, _: manifest.update(config={"size": 9_999}), "and its manifest states 9,999; push the image"),
        (lambda manifest, _: manifest.update(config={"size": 9}), "has more bytes than its manifest states, 9"),
        (lambda manifest, _: manifest.update(config={"size": 1 << 30}), "at most 4,194,304 are read"),
        (lambda manifest, _: manifest["layers"][0].update(size=True), "size True, expected a whole number of bytes"),
        (lambda manifest, _: manifest["layers"][0].update(size=1e3), "size 1000.0, expected a whole number of bytes"),
        (lambda manifest, _: manifest["layers"][0].update(size=float("nan")), "is not JSON"),
        (lambda _, config: config.update(x=float("inf")), "is not JSON"),
    ],
)
def test_image_that_lies_about_its_layer_is_one_line(
    tmp_path: Path, change: Callable[[dict[str, Any], dict[str, Any]], None], why: str
) -> None:
    with pytest.raises(SlipwayError) as error:
        contents.read(open_image(lying(tmp_path, change)))
    assert why in str(error.value)
    assert "\n" not in str(error.value)


def test_wheels_of_names_that_no_wheel_has_are_left(registry: Registry, tmp_path: Path) -> None:
    hostile = ["a\x1b[2J.whl", "b\n.whl", "c c.whl", "x" * 300 + ".whl", "\udcff.whl", "é.whl", ".whl"]
    names = ["dist/good-1-py3-none-any.whl", *(f"dist/{name}" for name in hostile), "dist/../../../escaped.whl"]
    reference = image(registry, layer(*map(member, names)))
    assert wheels.write([fetch(reference)], tmp_path / "out") == ["good-1-py3-none-any.whl"]
    assert not list(tmp_path.rglob("*escaped*"))


LONG = {
    *(
        "attributes",
        "files",
        "folders",
        "global headers",
        "GPU code",
        "hard links",
        "headers",
        "large library",
        "libraries",
    ),
    *("links", "loader configuration", "names", "packages", "records", "whiteouts", "zeros"),
}
"""Features that take minutes to make, or the whole of the processor's time, at their hostile size."""


@pytest.mark.parametrize(
    "feature",
    [pytest.param(name, marks=[pytest.mark.slow] if name in LONG else []) for name in {**LAYERS, **DOCUMENTS}],
)
def test_inspect_of_hostile_size_stays_in_budget(feature: str) -> None:
    """The real command, at the size that `tests.fuzzing.hostile_images` has for each feature."""
    size = {**LAYERS, **DOCUMENTS}[feature][0]
    assert inspect(Recipe([(feature, size)])).fault() == ""


@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=[pytest.mark.slow] if seed > 7 else []) for seed in range(24)]
)
def test_inspect_of_any_hostile_image_stays_in_budget(seed: int) -> None:
    recipe = Recipe.of(seed)
    recipe.features = [(name, min(size, 3000)) for name, size in recipe.features]
    assert inspect(recipe).fault() == ""


def test_inspect_of_sums_of_names_is_refused(registry: Registry) -> None:
    """480 names of a size that an engine takes, in twelve layers."""
    content = b"".join(
        member(f"{number}" + "x" * 1_040_000).tobuf(tarfile.PAX_FORMAT) + bytes(512) for number in range(40)
    )
    result = inspected(image(registry, *[content] * 12))
    assert result.memory < MEMORY
    assert result.processor < SECONDS
    assert result.fault() == ""


@pytest.mark.parametrize("place", ["FIFO", "device", "endless registry", "index of an index"])
def test_blob_that_never_ends_is_one_line(place: str) -> None:
    result = inspect(Recipe([], place=place))
    assert (result.status, result.output.count(b"\n"), result.fault()) == (1, 1, "")


@pytest.mark.parametrize("name", ["/etc/hostname", "../secret", "link"])
def test_layout_reads_nothing_outside_of_its_folder(tmp_path: Path, name: str) -> None:
    layout = write(Recipe([], place="docker archive"), tmp_path).with_name("layout")
    (tmp_path / "secret").write_text('{"canary": 1}')
    (layout / "link").symlink_to(tmp_path / "secret")
    (layout / "manifest.json").write_text(f'[{{"Config": "{name}", "Layers": []}}]')
    result = inspected(str(layout))
    assert b"leads out of the folder" in result.output
    assert (result.status, b"canary" in result.output) == (1, False)


@pytest.mark.parametrize("form", ["", "--json", "--markdown", "--html"])
@pytest.mark.parametrize("feature", ["control characters", "labels", "platform", "media type"])
def test_nothing_printed_controls_a_terminal_or_a_job(feature: str, form: str) -> None:
    result = inspect(Recipe([(feature, 50)], options=[form] if form else []))
    assert result.output
    assert result.fault() == ""
    lines = result.output.decode().split("\n")
    assert not [line for line in lines if line.strip().startswith("::") or "##[" in line]
    assert CONTROL not in result.output.decode()
