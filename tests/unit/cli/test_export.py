"""Images and wheels that are exported from a registry on loopback."""

from __future__ import annotations

import errno
import gzip
import io
import json
import os
import shutil
import signal
import stat
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.export import bake, layout, selection, self_contained, squashfs
from cli.export.filesystem import Filesystem
from cli.export.output import replacing
from cli.main import main
from containers.errors import SlipwayError
from containers.image.registry_image import fetch
from stacks import plan
from stacks.config.stack_file import read_stack
from tests.fakes.registry import Registry, digest_of, serve, skip_retry_waits
from tests.helpers import layers
from tests.helpers.every import every
from tests.helpers.layers import Item

CONFIG: Mapping[str, Any] = {
    "Env": ["PATH=/bin", "GREETING=hello you"],
    "WorkingDir": "/work/here",
    "Entrypoint": ["/init", "a b"],
    "Cmd": ["it's"],
    "Labels": {"title": "one\nexec evil"},
    "Volumes": {"/data": {}},
}
LAYERS = (
    [
        Item("etc", "directory", mode=0o755),
        Item("etc/passwd", "file", "old", 0o600),
        Item("etc/environment", "file", "NOT=this"),
        Item("a", "directory", mode=0o555),
        Item("a/one", "file", "one"),
        Item("a/same", "hardlink", "a/one"),
        Item("a/gone", "file", "gone"),
        Item("opaque/x", "file", "x"),
        Item("lib", "symlink", "usr/lib"),
        Item("dev/null", "file", ""),
        Item("tmp/dist/a-1-py3-none-any.whl", "file", "first"),
        Item("tmp/dist/b-1-py3-none-any.whl", "file", "second"),
    ],
    [
        Item("a/one", "file", "two"),
        Item("a/gone", "gone"),
        Item("opaque", "opaque"),
        Item("opaque/y", "file", "y"),
        Item("lib/z", "file", "z"),
        Item("etc/passwd", "file", "new", 0o644),
        Item("late", "hardlink", "a/same"),
        Item("tmp/dist/b-1-py3-none-any.whl", "gone"),
        Item("home/b/dist/c-1-py3-none-any.whl", "file", "not one of them"),
    ],
)


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    skip_retry_waits(monkeypatch)
    monkeypatch.setattr("signal.signal", lambda *_: None)  # pytest's own stay
    with serve() as served:
        yield served


@pytest.fixture
def reference(registry: Registry) -> str:
    registry.image("acme/app:1.0", list(map(layers.archive, LAYERS)), CONFIG)
    return f"{registry.address}/acme/app:1.0"


def export(*words: str | Path) -> int:
    return main(["export", *map(str, words)])


def tree(folder: Path) -> dict[str, bytes]:
    """Return the files below a folder, with what is in them."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def digests(folder: Path) -> None:
    """Assert that each blob of a layout is what its name says."""
    blobs = list((folder / "blobs/sha256").iterdir())
    assert blobs
    for blob in blobs:
        assert digest_of(blob.read_bytes()) == f"sha256:{blob.name}"


def read_layout(read: Any) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Return the descriptor, the manifest and the configuration of the one image in a layout."""
    (entry,) = json.loads(read("index.json"))["manifests"]
    manifest = json.loads(read(f"blobs/{entry['digest'].replace(':', '/')}"))
    return entry, manifest, json.loads(read(f"blobs/{manifest['config']['digest'].replace(':', '/')}"))


def test_export_oci_keeps_bytes_and_digest(registry: Registry, reference: str, tmp_path: Path) -> None:
    assert export(reference, "--format", "oci", "--output", tmp_path / "app") == 0
    assert json.loads((tmp_path / "app/oci-layout").read_text()) == {"imageLayoutVersion": "1.0.0"}
    digests(tmp_path / "app")
    entry, manifest, config = read_layout(lambda name: (tmp_path / "app" / name).read_bytes())
    assert entry["digest"] == registry.digests["acme/app:1.0"]
    assert entry["annotations"]["org.opencontainers.image.ref.name"] == "1.0"
    assert config["config"] == CONFIG
    assert [registry.blobs[layer["digest"]] for layer in manifest["layers"]] == [
        gzip.compress(layers.archive(layer), mtime=0) for layer in LAYERS
    ]
    assert names(tmp_path) == ["app"]


def test_export_tar_has_docker_manifest(reference: str, tmp_path: Path) -> None:
    assert export(reference, "--format", "tar", "--output", tmp_path / "app.tar") == 0
    with tarfile.open(tmp_path / "app.tar") as archive:
        archive.extractall(tmp_path / "app")
    digests(tmp_path / "app")
    (entry,) = json.loads((tmp_path / "app/manifest.json").read_text())
    assert entry["RepoTags"] == [reference]
    packed = [gzip.decompress((tmp_path / "app" / name).read_bytes()) for name in entry["Layers"]]
    assert packed == list(map(layers.archive, LAYERS))
    config = json.loads((tmp_path / "app" / entry["Config"]).read_bytes())
    assert config["rootfs"]["diff_ids"] == [digest_of(layer) for layer in packed]


def test_export_docker_manifest_becomes_oci_manifest(registry: Registry, tmp_path: Path) -> None:
    archive = layers.archive([Item("a", "file")])
    config = json.dumps({"os": "linux", "architecture": "amd64", "rootfs": {"diff_ids": [digest_of(archive)]}}).encode()
    layer = gzip.compress(archive)
    docker = "application/vnd.docker."
    content: dict[str, Any] = {
        "schemaVersion": 2,
        "mediaType": f"{docker}distribution.manifest.v2+json",
        "config": {
            "digest": registry.blob(config),
            "size": len(config),
            "mediaType": f"{docker}container.image.v1+json",
        },
        "layers": [
            {"digest": registry.blob(layer), "size": len(layer), "mediaType": f"{docker}image.rootfs.diff.tar.gzip"}
        ],
    }
    registry.manifest("acme/app:2", content["mediaType"], content)
    assert export(f"{registry.address}/acme/app:2", "--format", "oci", "--output", tmp_path / "app") == 0
    digests(tmp_path / "app")
    entry, manifest, _ = read_layout(lambda name: (tmp_path / "app" / name).read_bytes())
    assert entry["mediaType"] == manifest["mediaType"] == "application/vnd.oci.image.manifest.v1+json"
    assert manifest["config"]["mediaType"] == "application/vnd.oci.image.config.v1+json"
    assert manifest["layers"][0]["mediaType"] == "application/vnd.oci.image.layer.v1.tar+gzip"
    assert manifest["layers"][0]["digest"] == digest_of(layer)


def test_export_broken_connection_is_retried(registry: Registry, reference: str, tmp_path: Path) -> None:
    image = fetch(reference)
    registry.broken = 2
    layout.archive(image, tmp_path / "app.tar")
    assert registry.broken == 0
    with tarfile.open(tmp_path / "app.tar") as archive:
        archive.extractall(tmp_path / "app")
    digests(tmp_path / "app")


def test_export_corrupt_layer_leaves_no_file(
    registry: Registry, reference: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = digest_of(gzip.compress(layers.archive(LAYERS[1]), mtime=0))
    registry.blobs[wrong] = registry.blobs[wrong][:-1] + b"?"
    for form in ("tar", "oci"):
        assert export(reference, "--format", form, "--output", tmp_path / "app") == 1
        error = capsys.readouterr().err.splitlines()[-1]
        assert error.startswith(f"{reference}: a blob is corrupt: its digest is sha256:")
    assert names(tmp_path) == []


def test_export_existing_output_needs_force(reference: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "app.tar"
    output.write_text("precious")
    assert export(reference, "--format", "tar", "--output", output) == 1
    assert capsys.readouterr().err == f"{output}: exists; choose another output, or replace it with --force\n"
    assert output.read_text() == "precious"
    assert export(reference, "--format", "tar", "--output", output, "--force") == 0
    assert tarfile.is_tarfile(output)
    assert names(tmp_path) == ["app.tar"]


def test_export_with_force_replaces_whole_folder(registry: Registry, reference: str, tmp_path: Path) -> None:
    registry.image("acme/other:1", [layers.archive([Item("other", "file")])])
    output = tmp_path / "app"
    for source in (reference, f"{registry.address}/acme/other:1"):
        assert export(source, "--format", "oci", "--output", output, "--force") == 0
    digests(output)
    assert len(list((output / "blobs/sha256").iterdir())) == 3
    assert names(tmp_path) == ["app"]


@pytest.mark.parametrize("form", [("--format", "oci", "--output"), ("--wheels",)])
@pytest.mark.parametrize(
    ("interrupted", "left"),
    [((), "new"), ((1,), "old"), ((2,), "new"), ((1, 2), "old")],
    ids=["never", "the old one is away", "the new one is there", "and the old one is back"],
)
def test_export_signal_after_rename_leaves_whole_folder(
    registry: Registry,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    form: tuple[str, ...],
    interrupted: tuple[int, ...],
    left: str,
) -> None:
    renamed = 0
    rename = Path.rename

    def renames(path: Path, target: Path) -> Path:
        nonlocal renamed
        renamed += 1
        moved = rename(path, target)
        if renamed in interrupted:
            signal.raise_signal(signal.SIGINT)
        return moved

    output, held = tmp_path / "app", {}
    for name in ("old", "new"):
        reference = f"{registry.address}/acme/{name}:1"
        registry.image(f"acme/{name}:1", [layers.archive([Item(f"dist/{name}-1-py3-none-any.whl", "file", name)])])
        assert export(reference, *form, tmp_path / name) == 0
        held[name] = tree(tmp_path / name)
    assert held["old"] != held["new"]
    assert export(f"{registry.address}/acme/old:1", *form, output) == 0
    monkeypatch.setattr(Path, "rename", renames)
    assert export(f"{registry.address}/acme/new:1", *form, output, "--force") == (130 if interrupted else 0)
    assert renamed == max(interrupted, default=2) + (interrupted == (1,))
    assert tree(output) == held[left]
    assert bool(list(tmp_path.glob(".app.*.partial"))) is (interrupted == (1, 2))


@pytest.mark.parametrize("form", [("--format", "oci", "--output"), ("--format", "tar", "--output"), ("--wheels",)])
def test_export_with_force_keeps_other_folders(
    reference: str, form: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "thesis.tex").write_text("precious")
    (tmp_path / "link").symlink_to(home)
    for output in (home, tmp_path / "link"):
        assert export(reference, *form, output, "--force") == 1
        assert capsys.readouterr().err.splitlines()[-1] == (
            f"{output}: exists and is not what this command writes; choose another output"
        )
        assert export(reference, *form, output) == 1
        assert "--force" not in capsys.readouterr().err
    assert (home / "thesis.tex").read_text() == "precious"
    assert names(tmp_path) == ["home", "link"]


def test_export_without_parent_folder_is_one_line(
    reference: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "none/app.tar"
    assert export(reference, "--format", "tar", "--output", output) == 1
    assert capsys.readouterr().err == f"{output}: no folder {output.parent}; create it first\n"


def test_export_to_small_disk_fails_before_download(
    registry: Registry,
    reference: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    usage = type("Usage", (), {"free": 700})
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage)
    output = tmp_path / "app.tar"
    assert export(reference, "--format", "tar", "--output", output) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"{output}: needs ")
    assert error.endswith(", but its disk has 700 B free\n")
    assert [path for path in registry.requests if "/blobs/" in path] == [  # the configuration
        f"GET /v2/acme/app/blobs/{fetch(reference).manifest.content['config']['digest']}"
    ]
    assert names(tmp_path) == []


def test_folder_copied_to_a_full_disk_is_one_line_and_no_file(tmp_path: Path) -> None:
    """copytree's error has the text of each file's, and no number."""
    full = shutil.Error([("a", "b", str(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))))])

    def copied() -> None:
        with replacing(tmp_path / "app", force=False) as new:
            new.mkdir()
            raise full

    with pytest.raises(SlipwayError, match="app: no space left on its disk; nothing was kept"):
        copied()
    assert names(tmp_path) == []


def unpacked(reference: str, folder: Path) -> Path:
    """Unpack what becomes an image's squashfs."""
    image = fetch(reference)
    buffer = io.BytesIO()
    squashfs.fill(buffer, Filesystem(image, folder / "layers"), image)
    buffer.seek(0)
    with tarfile.open(fileobj=buffer) as archive:
        archive.extractall(folder / "root")
    return folder / "root"


def test_squashfs_of_any_layers_equals_unpacked_layers(registry: Registry) -> None:
    @given(st.lists(layers.drawn(links=True), max_size=4))
    def holds(stack: list[layers.Layer]) -> None:
        registry.image("acme/drawn:1", list(map(layers.archive, stack)))
        with tempfile.TemporaryDirectory() as folder:
            expected = Path(folder) / "expected"
            expected.mkdir()
            layers.unpack(stack, expected)
            actual = layers.file_states(unpacked(f"{registry.address}/acme/drawn:1", Path(folder)))
            for path, (kind, mode, text) in layers.file_states(expected).items():
                assert actual.pop(path) == (kind, 0o755 if kind == "directory" and mode is None else mode, text)
        assert {path.partition("/")[0] for path in actual} == {"etc"}

    holds()


def test_squashfs_has_container_files_and_enroot_config(reference: str, tmp_path: Path) -> None:
    root = unpacked(reference, tmp_path)
    actual = {path: (kind, text) for path, (kind, _, text) in layers.file_states(root).items() if kind != "directory"}
    script = actual.pop("etc/rc")[1]
    assert actual.pop("etc/rc.local")[0] == "file"
    assert actual == {
        "a/one": ("file", "two"),
        "a/same": ("file", "one"),
        "late": ("file", "one"),
        "etc/passwd": ("file", "new"),
        "etc/environment": ("file", "PATH=/bin\nGREETING=hello you\n"),
        "etc/fstab": ("file", "${ENROOT_ROOTFS}/data /data none x-create=dir,bind,rw,nosuid,nodev\n"),
        "opaque/y": ("file", "y"),
        "lib": ("symlink", "usr/lib"),
        "usr/lib/z": ("file", "z"),
        "tmp/dist/a-1-py3-none-any.whl": ("file", "first"),
        "home/b/dist/c-1-py3-none-any.whl": ("file", "not one of them"),
    }
    assert (root / "late").samefile(root / "a/same")
    assert (root / "work/here").is_dir()
    assert (root / "dev").is_dir()
    assert stat.S_IMODE((root / "a").stat().st_mode) == 0o755
    assert script.startswith("# title one\\nexec evil\n\nmkdir -p ")


def test_squashfs_rc_has_folder_entry_point_and_command(reference: str, tmp_path: Path) -> None:
    script = unpacked(reference, tmp_path) / "etc/rc"
    text = script.read_text().replace("/work/here", str(tmp_path)).replace("/init", "printf '<%s>' \"$PWD\"")
    for words, expected in (((), ["a b", "it's"]), (("x y",), ["a b", "x y"])):
        done = subprocess.run(["sh", "-c", text, "rc", *words], capture_output=True, text=True, check=True)
        assert done.stdout == "".join(f"<{word}>" for word in [str(tmp_path), *expected])


def test_export_sqsh_without_recent_mksquashfs_is_refused(
    registry: Registry,
    reference: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    monkeypatch.setenv("PATH", str(tools))
    words = (reference, "--format", "sqsh", "--output", tmp_path / "app.sqsh")
    assert export(*words) == 1
    assert capsys.readouterr().err == ("mksquashfs is not on PATH; install squashfs-tools 4.5 or newer\n")
    (tools / "mksquashfs").write_text("#!/bin/sh\necho SYNTAX: mksquashfs source1 source2 ...\n")
    (tools / "mksquashfs").chmod(0o755)
    assert export(*words) == 1
    assert capsys.readouterr().err == "mksquashfs cannot read an archive; install squashfs-tools 4.5 or newer\n"
    assert registry.requests == []


def test_export_wheels_omits_removed_ones(reference: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert export(reference, "--wheels", tmp_path / "wheels") == 0
    assert capsys.readouterr().out == f"{tmp_path}/wheels/a-1-py3-none-any.whl\n"
    assert [path.read_text() for path in (tmp_path / "wheels").iterdir()] == ["first"]
    assert names(tmp_path) == ["wheels"]


def test_export_wheels_of_image_without_any_is_one_line(
    registry: Registry, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    registry.image("acme/none:1", [layers.archive([Item("a", "file")])])
    reference = f"{registry.address}/acme/none:1"
    assert export(reference, "--wheels", tmp_path / "wheels") == 1
    assert capsys.readouterr().err.splitlines()[-1] == f"no wheel in /dist or /tmp/dist of {reference}"
    assert names(tmp_path) == []


def of_stack(stack: str, registry: Registry, monkeypatch: pytest.MonkeyPatch) -> plan.Plan:
    """Have a stack whose registry is this one."""
    monkeypatch.setenv("SLIPWAY_REGISTRY", registry.address)
    return plan.make(stack)


def test_selection_wheels_are_products_that_images_install(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for image in of_stack("base-cu132", registry, monkeypatch).images:
        name = image.reference.removeprefix(f"{registry.address}/")
        wheel = f"dist/{image.spec.name}-1-py3-none-any.whl"
        registry.image(name, [layers.archive([Item(wheel, "file", "w"), Item("dist/packages", "file", "p")])])
    assert export("base-cu132", "--wheels", tmp_path / "wheels") == 0
    parts = (
        "apex",
        "audio",
        "deepspeed",
        "flash-attention",
        "flash-attention3",
        "torch",
        "transformer-engine",
        "vision",
    )
    assert names(tmp_path / "wheels") == [f"{part}-wheel-1-py3-none-any.whl" for part in parts]
    assert export("base-cu132", "vision-wheel", "--wheels", tmp_path / "vision") == 0
    assert names(tmp_path / "vision") == ["vision-wheel-1-py3-none-any.whl"]
    assert export("base-cu132", "--format", "oci", "--output", tmp_path / "last") == 0
    entry, _, _ = read_layout(lambda path: (tmp_path / "last" / path).read_bytes())
    assert "/torch-extras:" in entry["annotations"]["io.containerd.image.name"]
    capsys.readouterr()
    assert export("local", "--wheels", tmp_path / "none") == 1
    assert capsys.readouterr().err == "stack local builds no wheels; it installs published ones\n"


def test_selection_wheels_of_nccl_leaves_tools_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "_pushed", lambda _, image: image)
    images: list[Any] = selection.wheels(plan.make("nccl-cu121"), None)
    parts = ("torch", "vision", "audio", "deepspeed", "flash-attention", "apex")
    assert {image.spec.name for image in images} == {f"{part}-wheel" for part in parts}


def test_selection_of_platforms_needs_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "_pushed", lambda _, image: image)
    platforms = ["linux/amd64", "linux/arm64"]
    planned = plan.make("nccl-cu132", {**read_stack("nccl-cu132"), "platforms": platforms}, search=False)
    wheels: list[Any] = selection.wheels(planned, None, "linux/arm64")
    assert wheels
    assert {image.spec.platform for image in wheels} == {"linux/arm64"}
    last: Any = selection.image(planned, None, "linux/arm64")
    assert last.spec.name == "torch-extras-arm64"
    for choose in (selection.wheels, selection.image):
        with pytest.raises(SlipwayError, match="is for linux/amd64 and linux/arm64: choose one with --platform$"):
            choose(planned, None)
    with pytest.raises(SlipwayError, match="is for linux/amd64 and linux/arm64"):
        selection.wheels(planned, None, "linux/arm/v7")


def test_selection_wheels_without_runnable_image(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "_pushed", lambda _, image: image)
    people: list[list[dict[str, Any]]] = [[], [{}]]
    for train in people:
        planned = plan.make("universal-cu132", {**read_stack("universal-cu132"), "train": train})
        images: list[Any] = selection.wheels(planned, None)
        assert [image.spec.name for image in images] == ["dist"]


def test_export_of_unpushed_or_unknown_image_is_one_line(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    planned = of_stack("local", registry, monkeypatch)
    to = ("--format", "tar", "--output", tmp_path / "app.tar")
    for words, error in (
        (
            ("local", *to),
            f"stack local: torch: {planned.images[0].reference} is not in the registry; `slipway up local` builds and pushes it, or name an older image by its reference",
        ),
        (("local", "torhc", *to), "stack local builds no image 'torhc' (did you mean 'torch'?); it builds: torch"),
        (("local", "torch", "more", *to), "export takes one image: STACK [IMAGE], or its reference, REF"),
        (("a/b:1", "torch", *to), "export takes one image: STACK [IMAGE], or its reference, REF"),
        (("local", "--format", "tar"), "export takes --format with --output, or --wheels alone"),
        (("local", "--wheels", "w", "--output", "o"), "export takes --format with --output, or --wheels alone"),
    ):
        assert export(*words) == 1
        assert capsys.readouterr().err == f"{error}\n"
    planned = plan.make("local", {**read_stack("local"), "publish": False})
    monkeypatch.setattr("stacks.plan.make", lambda _: planned)
    assert export("local", *to) == 1
    assert capsys.readouterr().err == "stack local: torch: not pushed, because of slipway:publish: false\n"
    assert names(tmp_path) == []


def test_export_bake_keeps_an_image_named_as_checks() -> None:
    values = {"flavor": "local", "images": [{"name": "torch-checks", "packages": {"apt": ["htop"]}}]}
    document = bake.document(plan.make("local", values))
    images = ["torch", "torch-checks"]
    assert document["group"]["default"]["targets"] == images
    assert all("tags" in document["target"][name] for name in images)
    assert not {*document["group"]["checks"]["targets"]} & {*images}


@every("words, file", [(("bake", "local"), "docker-bake.json"), (("dockerfile", "local", "torch"), "files/a")])
def test_export_with_force_keeps_what_was_edited(
    words: tuple[str, ...], file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nor does it replace a user's own folder with such a file. Another umask, as of a clone of the folder, is no edit."""
    own, output = tmp_path / "own", tmp_path / "out"
    (own / file).parent.mkdir(parents=True)
    (own / file).write_text("precious")
    assert export(*words, "--output", str(own), "--force") == 1
    assert "exists and is not what this command writes" in capsys.readouterr().err
    assert (own / file).read_text() == "precious"
    assert export(*words, "--output", str(output)) == 0
    for path in output.rglob("*"):
        path.chmod(path.stat().st_mode & 0o700)
    assert export(*words, "--output", str(output), "--force") == 0
    script = next(path for path in output.rglob("*") if os.access(path, os.X_OK) and path.is_file())
    mode, added = script.stat().st_mode, output / "docker-bake.override.hcl"
    edits: list[tuple[Callable[[], None], Callable[[], None]]] = [
        (added.touch, added.unlink),
        (lambda: script.chmod(0o600), lambda: script.chmod(mode)),
        (script.unlink, lambda: None),
    ]
    for edit, back in edits:
        edit()
        assert export(*words, "--output", str(output), "--force") == 1
        assert "changed by hand since the export: " in capsys.readouterr().err
        back()
    assert not script.exists()


@every("files, origin", [({}, ""), ({"a": "0" * 64}, ",from=torch.context")])
def test_exported_dockerfile_mounts_the_files_that_it_has(files: dict[str, str], origin: str) -> None:
    """A build that reads no file has no stage of files, and mounts its own empty context."""
    image = plan.make("local", {"flavor": "local"}).images[0]
    text = "FROM scratch\nRUN --mount=type=bind,target=/x --mount=type=cache,target=/c --mount=target=/y x\n"
    content = replace(image.content, dockerfile=text, files=files)
    lines = self_contained.text([replace(image, content=content)]).splitlines()
    assert any(line.startswith("COPY ") for line in lines) == bool(files)
    mounts = f"--mount=type=bind,target=/x{origin} --mount=type=cache,target=/c --mount=target=/y{origin}"
    assert lines[-1] == f"RUN {mounts} x"


@every("line", ["ADD a /b", "COPY a <<E /b\nx\nE"])
def test_file_that_no_other_stage_can_give_is_refused(line: str) -> None:
    """Neither an archive that is unpacked, nor a written file beside one of the context."""
    image = plan.make("local", {"flavor": "local"}).images[0]
    content = replace(image.content, dockerfile=f"FROM scratch\n{line}\n", files={"a": "0" * 64})
    with pytest.raises(SlipwayError, match="only a build from its own context can say this; `slipway export bake`"):
        self_contained.text([replace(image, content=content)])
