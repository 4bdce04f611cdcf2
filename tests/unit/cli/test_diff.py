"""``slipway diff REF REF``: the differences of two images, and the layers that it reads."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import zstandard

from cli.diff import stack_diff
from cli.diff.comparison import Comparison, compare
from cli.diff.report import of_stack
from cli.diff.stack_diff import Change, StackDiff, diff
from cli.diff.stack_diff import _base as moved
from cli.diff.text import terminal
from cli.main import main
from containers.errors import SlipwayError
from containers.image.registry_image import fetch
from stacks import plan
from stacks.config.stack_file import ROOT
from stacks.plan import PlannedImage
from stacks.spec import ImageSpec, Outside
from stacks.tags import Suffix
from tests.fakes.registry import INDEX, Registry, compress, digest_of
from tests.helpers.contents import content
from tests.helpers.elf_writer import LOADER, elf, fatbin, loader
from tests.helpers.every import every
from tests.helpers.html_elements import Page
from tests.helpers.layers import Item, archive, files_archive
from tests.helpers.sample_repository import STACK, make

VENV = "opt/venv/lib/python3.11/site-packages"


def file(path: str, text: str = "x", mode: int = 0o644) -> Item:
    return Item(path, "file", text, mode)


def pip(name: str, version: str) -> Item:
    return file(f"{VENV}/{name}-{version}.dist-info/METADATA", f"Name: {name}\nVersion: {version}\n")


def dpkg(**versions: str) -> Item:
    paragraphs = [f"Package: {n}\nStatus: install ok installed\nVersion: {v}\n" for n, v in versions.items()]
    gone = "Package: gone\nStatus: deinstall ok config-files\nVersion: 1\n"
    return file("var/lib/dpkg/status", "\n".join([*paragraphs, gone]))


BASE = [file("bin/sh"), dpkg(openssl="3.0.1", zlib="1.2")]
LARGE = [file("opt/large", "large" * 1000), pip("torch", "2.14.0")]


def as_json(result: Comparison) -> dict[str, Any]:
    """Return a comparison as printed by `--json`."""
    read: dict[str, Any] = json.loads(json.dumps(result, default=lambda part: part.as_json()))
    return read


class Pair:
    """Compares two images in the registry."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry

    def compare(self, before: list[list[Item]], after: list[list[Item]], *, thorough: bool = False) -> dict[str, Any]:
        names = [
            self.registry.image(name, [*map(archive, layers)]) for name, layers in (("a:1", before), ("a:2", after))
        ]
        self.registry.requests.clear()
        return as_json(compare(*map(fetch, names), thorough=thorough))

    def read(self, layer: list[Item]) -> int:
        """Return the number of requests for a layer."""
        return self.registry.requests.count(f"GET /v2/a/blobs/{digest_of(compress(archive(layer)))}")


@pytest.fixture
def pair(registry: Registry) -> Pair:
    return Pair(registry)


def packages(result: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    keys = ("manager", "where", "name", "before", "after", "certain")
    return [tuple(package[key] for key in keys) for package in result["packages"]]


def test_compare_packages_of_own_layers_skips_shared_layers(pair: Pair) -> None:
    before = [BASE, LARGE, [pip("numpy", "1.26"), pip("PyYAML", "6.0")]]
    after = [BASE, LARGE, [pip("numpy", "2.0"), pip("ruamel_yaml", "0.18")]]
    result = pair.compare(before, after)
    assert packages(result) == [
        ("pip", "/opt/venv", "numpy", "1.26", "2.0", True),
        ("pip", "/opt/venv", "pyyaml", "6.0", None, False),
        ("pip", "/opt/venv", "ruamel-yaml", None, "0.18", False),
    ]
    assert (pair.read(BASE), pair.read(LARGE)) == (0, 0)
    assert len(result["unread"]) == len(result["reused"]) == 2

    result = pair.compare(before, after, thorough=True)
    assert all(package[-1] for package in packages(result))
    assert (pair.read(BASE), pair.read(LARGE)) == (1, 1)
    assert result["unread"] == []


def test_compare_package_replacing_shared_one_is_changed(pair: Pair) -> None:
    upgrade = [Item(f"{VENV}/torch-2.14.0.dist-info", "gone"), pip("torch", "2.14.1")]
    assert packages(pair.compare([BASE, LARGE], [BASE, LARGE, upgrade])) == [
        ("pip", "/opt/venv", "torch", "2.14.0", "2.14.1", True)
    ]
    assert pair.read(LARGE) == 0
    again = [Item(f"{VENV}/torch-2.14.0.dist-info", "opaque"), pip("torch", "2.14.0")]
    assert packages(pair.compare([BASE, LARGE], [BASE, LARGE, again])) == []


def test_compare_own_package_database_reads_shared_one(pair: Pair) -> None:
    top = [dpkg(openssl="3.0.2", zlib="1.2", curl="8")]
    result = pair.compare([BASE, LARGE], [BASE, LARGE, top])
    assert packages(result) == [
        ("dpkg", "", "curl", None, "8", True),
        ("dpkg", "", "openssl", "3.0.1", "3.0.2", True),
    ]
    assert (pair.read(BASE), pair.read(LARGE)) == (1, 1)  # the database is in the lowest layer
    result = pair.compare([LARGE, BASE, [file("a", "1")]], [LARGE, BASE, [file("a", "2")], top])
    assert len(packages(result)) == 2
    assert (pair.read(BASE), pair.read(LARGE)) == (1, 0)
    both = pair.compare([BASE, [dpkg(a="1")]], [BASE, [dpkg(a="2")]])
    assert packages(both) == [("dpkg", "", "a", "1", "2", True)]
    assert pair.read(BASE) == 0


def test_compare_conda_packages_reads_file_names(pair: Pair) -> None:
    def record(name: str) -> Item:
        return file(f"opt/conda/conda-meta/{name}.json", "{}")

    result = pair.compare([[record("ca-certificates-2024.1-h06a4308_0")]], [[record("ca-certificates-2025.2-0")]])
    assert packages(result) == [("conda", "/opt/conda", "ca-certificates", "2024.1", "2025.2", True)]


def test_compare_files_lists_sizes_and_new_permissions(pair: Pair) -> None:
    before = [[file("a", "1"), file("b"), file("ping"), file("same"), file("su", "x", 0o4755)]]
    after = [
        [
            file("a", "12", 0o4755),
            file("c", "x", 0o666),
            Item("ping", "file", "x", headers={"SCHILY.xattr.security.capability": "\x01\0\0\x02\0 \0\0"}),
            file("same"),
            file("su", "y", 0o4755),
            Item("open", "directory", mode=0o777),
            Item("tmp", "directory", mode=0o1777),
        ]
    ]
    result = pair.compare(before, after)
    assert {each["path"]: each["change"] for each in result["files"]} == {
        "/a": "changed",
        "/b": "removed",
        "/c": "added",
        "/open": "added",
        "/ping": "changed",
        "/su": "changed",
    }
    a = result["files"][0]
    assert (a["before"]["size"], a["after"]["size"], a["after"]["mode"]) == (1, 2, "4755")
    assert result["risks"] == [
        {"kind": "setuid", "path": "/a"},
        {"kind": "world-writable", "path": "/c"},
        {"kind": "world-writable", "path": "/open"},
        {"kind": "capabilities", "path": "/ping"},
    ]


def test_compare_lists_settings_layers_sizes_and_base(registry: Registry) -> None:
    base, label = archive(BASE), "org.opencontainers.image.base.name"
    before = registry.image(
        "a:1",
        [base],
        {"Env": ["A=1", "B=2"], "User": "root", "ExposedPorts": {"22/tcp": {}}, "Labels": {label: "debian:12"}},
    )
    after = registry.image(
        "a:2",
        [base, archive(LARGE)],
        {"Env": ["A=1", "B=3", "C=x=y"], "Entrypoint": ["/bin/sh", "-c"], "Labels": {label: "debian:13"}},
    )
    result = as_json(compare(fetch(before), fetch(after)))
    assert [(each["name"], each["before"], each["after"]) for each in result["settings"]] == [
        ("env B", "2", "3"),
        ("user", "root", None),
        ("port 22/tcp", "", None),
        (f"label {label}", "debian:12", "debian:13"),
        ("env C", None, "x=y"),
        ("entry point", None, "/bin/sh -c"),
    ]
    assert result["base"] == {"before": "debian:12", "after": "debian:13", "moved": False}
    assert (len(result["reused"]), len(result["pushed"])) == (1, 1)
    sizes = [sum(layer["size"] for layer in result[side]["layers"]) for side in ("before", "after")]
    assert result["after"]["size"] - result["before"]["size"] > sizes[1] - sizes[0] - 200
    image = result["after"]
    config = image["size"] - sizes[1]
    assert [(name, each["layers"], each["size"]) for name, each in result["pull"].items()] == [
        ("withPublished", 1, image["layers"][1]["size"] + config),
        ("empty", 2, image["size"]),
    ]
    same = as_json(compare(fetch(after), fetch(after)))["pull"]["withPublished"]
    assert (same["layers"], same["size"], same["seconds"]) == (0, 0, 0)
    moved = registry.image("a:3", [archive([file("other")])])
    assert compare(fetch(before), fetch(moved)).base_moved


@pytest.mark.parametrize(
    ("pack", "suffix"),
    [
        (gzip.compress, "+gzip"),
        (zstandard.ZstdCompressor().compress, "+zstd"),
        (bytes, ""),
        (lambda layer: gzip.compress(layer[:700]) + gzip.compress(layer[700:]), "+gzip"),
    ],
)
def test_compare_reads_every_compression_of_layers(registry: Registry, pack: Any, suffix: str) -> None:
    before, after = (
        registry.image(f"a:{number}", [archive([pip("a", number)])], pack=pack, suffix=suffix) for number in "12"
    )
    assert [(each.before, each.after) for each in compare(fetch(before), fetch(after)).packages] == [("1", "2")]


def test_compare_recompressed_layer_is_pushed_but_not_read(registry: Registry) -> None:
    layer = archive(LARGE)
    before = registry.image("a:1", [layer])
    after = registry.image("a:2", [layer], pack=zstandard.ZstdCompressor().compress, suffix="+zstd")
    registry.requests.clear()
    result = compare(fetch(before), fetch(after))
    assert (len(result.pushed), result.files) == (1, ())
    assert sum("/blobs/" in path for path in registry.requests) == 2  # the configurations


def mistake(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["diff", *words]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert len(printed.err.splitlines()) == 1, printed.err
    return printed.err.strip()


def test_diff_of_index_is_refused_with_its_platforms(registry: Registry, capsys: pytest.CaptureFixture[str]) -> None:
    one, other = (registry.image(f"a:{arch}", [archive(BASE)], platform=("linux", arch)) for arch in ("amd64", "arm64"))
    entries = [
        {"digest": ref.partition("@")[2], "platform": {"os": "linux", "architecture": arch}}
        for ref, arch in ((one, "amd64"), (other, "arm64"))
    ]
    attestation = {"digest": one.partition("@")[2], "platform": {"os": "unknown", "architecture": "unknown"}}
    registry.manifest("a:all", INDEX, {"manifests": [*entries, attestation]})
    name = f"{registry.address}/a:all"
    assert mistake(capsys, name, one) == (
        f"{name}: an index of several images; choose one with --platform, or name one by its digest: "
        f"linux/amd64 ({entries[0]['digest']}), linux/arm64 ({entries[1]['digest']})"
    )
    assert fetch(name, platform="linux/arm64").digest == entries[1]["digest"]
    with pytest.raises(SlipwayError, match="an index without an image for linux/s390x: linux/amd64"):
        fetch(name, platform="linux/s390x")
    assert mistake(capsys, one, other) == (
        f"{one} is for linux/amd64 and {other} for linux/arm64: compare images of one platform, or those of one "
        "reference with --platform and --against"
    )
    assert main(["diff", name, "--platform", "linux/arm64", "--against", "linux/amd64", "--json"]) == 0
    across = json.loads(capsys.readouterr().out)
    assert [across[side]["digest"] for side in ("before", "after")] == [entry["digest"] for entry in entries]
    assert main(["diff", one, name, "--platform", "linux/amd64", "--json"]) == 0
    same = json.loads(capsys.readouterr().out)
    assert same["before"]["digest"] == same["after"]["digest"] == entries[0]["digest"]
    assert mistake(capsys, name, "--platform", "linux/s390x", "--against", "linux/amd64").startswith(
        f"{name}: an index without an image for linux/s390x: linux/amd64"
    )
    assert mistake(capsys, name, "--against", "linux/amd64") == (
        "--against takes --platform too: the platform that is compared with it"
    )
    assert mistake(capsys, name, name, "--platform", "linux/arm64", "--against", "linux/amd64").startswith(
        "diff compares a stack with what it published, STACK [IMAGE], two images"
    )


def test_diff_of_stack_takes_index_and_platform(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is published, so each image is new."""

    def names(*words: str | None) -> list[str]:
        return [image.name for image in diff("local-multi", ROOT, *words, before={}).images]

    assert names() == names("torch") == ["torch-amd64", "torch-arm64"]
    assert names("torch", "linux/arm64") == names(None, "linux/arm64") == ["torch-arm64"]
    assert mistake(capsys, "local-multi", "--platform", "linux/s390x") == (
        "stack local-multi: all of it is for linux/amd64 and linux/arm64, not for linux/s390x"
    )
    assert mistake(capsys, "local-multi", "torch-amd64", "--platform", "linux/arm64") == (
        "stack local-multi: torch-amd64 is for linux/amd64, not for linux/arm64"
    )


@pytest.mark.parametrize("named", ["the index", "one platform", "nothing"])
def test_diff_names_an_index_whose_tag_was_moved(
    registry: Registry, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its platforms' images are there as before."""
    monkeypatch.setenv("SLIPWAY_REGISTRY", registry.address)
    monkeypatch.setattr(stack_diff, "_base", Mock(return_value=None))  # the parent's registry is another one
    parts = {
        f"linux/{arch}": {"ref": registry.image(f"a:{arch}", [archive(BASE)], platform=("linux", arch)), "tag": arch}
        for arch in ("amd64", "arm64")
    }
    entries = [{"digest": part["ref"].partition("@")[2]} for part in parts.values()]
    digest = registry.manifest("a:1", INDEX, {"manifests": entries})
    if named == "one platform":
        registry.digests["a:1"] = entries[0]["digest"]
    elif named == "nothing":
        del registry.digests["a:1"]
    image = {"ref": f"{registry.address}/a@{digest}", "digest": digest, "tag": "1", "platforms": parts}
    before = {"images": {"torch": image}}

    result = diff("local-multi", ROOT, before=before)
    (of_index,) = result.indexes
    assert (of_index.name, of_index.state, of_index.published) == ("torch", "changed", digest)
    assert json.dumps(result, default=lambda part: part.as_json())
    printed = terminal(of_stack(result))
    assert f"  index  {of_index.planned}" in printed
    moved = {
        "the index": "",
        "one platform": f"  tag    names {entries[0]['digest']}, not {digest}: `pulumi refresh` and the next update",
        "nothing": f"  tag    is not in the registry, not {digest}: `pulumi refresh` and the next update mend it",
    }[named]
    assert moved in printed
    assert ("index torch: changed, moved by hand\n" in printed) == of_index.moved == bool(moved)
    assert diff("local-multi", ROOT, "torch-arm64", before=before).indexes == ()
    assert diff("local-multi", ROOT, "torch", "linux/arm64", before=before).indexes == ()

    (new,) = diff("local-multi", ROOT, "torch", before={}).indexes
    assert (new.state, new.moved) == ("new", False)


def test_published_images_are_of_the_named_platforms(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    platforms = {
        f"linux/{arch}": {"ref": registry.image(f"a:{arch}", [archive(BASE)], platform=("linux", arch))}
        for arch in ("amd64", "arm64")
    }
    outputs = Mock(return_value={"images": {"torch": {"platforms": platforms}}})
    monkeypatch.setattr(stack_diff, "outputs", outputs)
    images = stack_diff.published_images("local-multi", ROOT, None, platforms)
    assert [image.digest for image in images] == [built["ref"].partition("@")[2] for built in platforms.values()]
    outputs.assert_called_once()
    monkeypatch.setattr(stack_diff, "outputs", lambda *_: {})
    with pytest.raises(SlipwayError, match="stack local-multi has published nothing yet: `slipway up local-multi`"):
        stack_diff.published_images("local-multi", ROOT, "torch", ["linux/arm64"])


def test_diff_corrupt_layer_is_an_error(registry: Registry, capsys: pytest.CaptureFixture[str]) -> None:
    before, after = (registry.image(f"a:{n}", [archive([file("a", n)])]) for n in "12")
    (digest,) = (layer.digest for layer in fetch(after).layers)
    good = registry.blobs[digest]
    for bad in (gzip.compress(archive([file("a", "3")])), good[:-4], good[:40], b"", good + b"\0"):
        registry.blobs[digest] = bad
        corrupt = f"{after}: a blob is corrupt: its digest is {digest_of(bad)}, not {digest}"
        larger = f"{after}: {digest}: has more bytes than its manifest states, {len(good)}"
        assert mistake(capsys, before, after) == (larger if len(bad) > len(good) else corrupt)


def test_diff_of_other_media_type_is_one_line(registry: Registry, capsys: pytest.CaptureFixture[str]) -> None:
    image = registry.image("a:1", [archive(BASE)])
    registry.manifest("a:chart", "application/vnd.cncf.helm", {"schemaVersion": 2, "config": {}})
    registry.manifest("a:empty", "application/vnd.oci.image.manifest.v1+json", {})
    address = registry.address
    assert (
        mistake(capsys, f"{address}/a:chart", image)
        == f"{address}/a:chart: not an image, its media type is 'application/vnd.cncf.helm'"
    )
    assert "malformed manifest or configuration: KeyError('config')" in mistake(capsys, f"{address}/a:empty", image)
    assert "may have been deleted (404)" in mistake(capsys, f"{address}/a:none", image)
    assert "expected an image reference with a tag or a digest" in mistake(capsys, f"{address}/a", image)
    assert "two images by their references" in mistake(capsys, image)
    assert "two images by their references" in mistake(capsys, "local", image)


def output_of(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["diff", *words]) == 0
    return capsys.readouterr().out


NASTY = "a|b`<script>alert(1)</script>\n\x1b[31m"


def test_report_formats_agree_and_escape_content(registry: Registry, capsys: pytest.CaptureFixture[str]) -> None:
    before = registry.image("a:1", [archive(BASE), archive([pip("numpy", "1.26")])])
    after = registry.image(
        "a:2", [archive(BASE), archive([pip("numpy", "2.0"), file(f"opt/{NASTY}")])], {"Labels": {NASTY: NASTY}}
    )
    text = output_of(capsys, before, after)
    assert re.search(r"~ +numpy +pip /opt/venv +1\.26 +2\.0\n", text)
    assert "1 of 2 reused" in text
    assert re.search(r"pull +1 layer, [\d.]+ k?B, 0\.0 s where the image before is, 2 layers, .* at 1 Gbit/s", text)
    assert "?: unread shared layers (1, " in text

    marked = output_of(capsys, before, after, "--markdown")
    assert "| `~` | `numpy` | `pip /opt/venv` | `1.26` | `2.0` |" in marked
    outside_of_code = re.sub(r"`[^`\n]*`", "", marked)
    assert "script" not in outside_of_code

    page = Page()
    raw = output_of(capsys, before, after, "--html")
    page.feed(raw)
    assert page.open == []
    assert page.tags.count("svg") == 1
    assert page.tags.count("rect") == 4
    assert "script" not in page.tags
    assert {"numpy", "1.26", "2.0"} <= set(page.text)

    for form in (text, marked, raw):
        assert "\x1b" not in form
    assert json.loads(output_of(capsys, before, after, "--json"))["packages"][0]["name"] == "numpy"


def test_base_lookup_failure_is_reported(registry: Registry) -> None:
    published = fetch(registry.image("a:1", [archive(BASE), archive(LARGE)]))
    registry.image("base:1", [archive(BASE)])
    registry.image("base:2", [archive(LARGE)])

    def base_change(base: str) -> str | None:
        spec = ImageSpec(
            name="a",
            dockerfile="a/Dockerfile",
            parents={"BASE_IMAGE": Outside(reference=base)},
            description="d",
            licenses="MIT",
            suffix=Suffix(variant="base"),
        )
        return moved(PlannedImage(content(spec), "r/a", "1", {"BASE_IMAGE": base}, {}, "f" * 64), published, None)

    assert base_change(f"{registry.address}/base:1") is None
    assert base_change("scratch") is None
    assert re.fullmatch(r"\S+/base:2 has moved to sha256:\S+, .*", base_change(f"{registry.address}/base:2") or "")
    assert (base_change(f"{registry.address}/base:3") or "").startswith("lookup failed: ")


@pytest.mark.parametrize("answer", [401, 403, 404])
def test_diff_after_registry_change_reads_published_images(registry: Registry, tmp_path: Path, answer: int) -> None:
    """GHCR and Docker Hub answer 401 or 403 for a repository that does not exist yet."""
    checkout = make(tmp_path, program=False)
    where = {"kind": "local", "address": registry.address, "path": "new"}
    checkout.write(STACK, json.dumps({"config": {"slipway:flavor": "local", "slipway:registry": where}}))
    checkout.write("stacks/lock.toml", f'"docker.io/library/debian:bookworm-slim" = "sha256:{"0" * 64}"\n')
    registry.digests[f"new/torch:{checkout.tag()}"] = answer
    then = {"images": {"torch": {"ref": registry.image("old/torch:1", [archive(BASE)])}}}
    (image,) = diff("local", checkout.root, before=then).images
    assert (image.state, image.content) == ("changed", None)
    assert image.changes[0] == Change("repository", f"{registry.address}/old/torch", f"{registry.address}/new/torch")


def test_diff_of_equal_images_has_no_difference(registry: Registry, capsys: pytest.CaptureFixture[str]) -> None:
    image = registry.image("a:1", [archive(BASE)])
    assert "no difference in packages, settings and files" in output_of(capsys, image, image)


def test_report_of_stack_without_images_has_none() -> None:
    [part] = of_stack(StackDiff("runners-eks", (), ())).parts
    assert part.facts == [("images", "none: the stack builds no image")]


BINARIES = {LOADER.lstrip("/"): loader(), "bin/p": elf(needed=["liba.so"], interpreter=LOADER)}


def loading(registry: Registry, before: Mapping[str, bytes], after: Mapping[str, bytes], *options: str) -> list[str]:
    """Return the command that compares two images with glibc's loader and a program that needs a library."""
    images = [
        registry.image(name, [files_archive({**BINARIES, **files})])
        for name, files in (("a:1", before), ("a:2", after))
    ]
    return ["diff", *images, "--inspect", *options]


def test_diff_inspected_names_new_fault_and_gpu_code(registry: Registry, capsys: pytest.CaptureFixture[str]) -> None:
    library = elf("liba.so", gpu=fatbin((2, 80, 0), (2, 90, 0)))
    other = elf("liba.so", gpu=fatbin((2, 90, 0), (2, 100, 0)))
    faulty = {"opt/liba.so": library}
    assert main(loading(registry, {"lib64/liba.so": library}, faulty, "--json")) == 0
    assert json.loads(capsys.readouterr().out)["loading"] == [
        {"name": "/bin/p: missing liba.so", "before": None, "after": "/opt/liba.so is in no folder that is searched"}
    ]
    main(loading(registry, {"lib64/liba.so": library}, {"lib64/liba.so": other}, "--json"))
    assert json.loads(capsys.readouterr().out)["loading"] == [
        {"name": "GPU code sm_80", "before": "1 file", "after": None},
        {"name": "GPU code sm_100", "before": None, "after": "1 file"},
    ]


def test_diff_of_stack_is_held_to_what_it_compiles_now(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLIPWAY_REGISTRY", registry.address)
    planned = plan.make("efa").image()
    archs = planned.spec.compiled["/opt/nccl-tests/*"]
    assert archs == "8.0 8.6 8.9 9.0 10.0 10.3"
    name = planned.reference.partition("/")[2].rpartition(":")[0]

    def push(tag: str, *archs: int) -> str:
        program = elf("", gpu=fatbin(*((2, arch, 0) for arch in archs)))
        return registry.image(f"{name}:{tag}", [files_archive({"opt/nccl-tests/all_reduce_perf": program})])

    published = {"images": {planned.spec.name: {"ref": push("old", 80, 90, 100, 120), "tag": "old"}}}
    push(planned.tag, 90, 100, 120)
    (image,) = stack_diff.diff("efa", ROOT, planned.spec.name, inspect=True, before=published).images
    assert image.content
    assert image.content.loading
    program = "/opt/nccl-tests/all_reduce_perf"
    faults = [(row.name, row.before, row.after) for row in image.content.loading if row.name.startswith(f"{program}: ")]
    reason = f"it has sm_90, sm_100, sm_120; /opt/nccl-tests/* is compiled for {archs}"
    assert faults == [(f"{program}: missing code for {arch}", None, reason) for arch in ("8.0", "8.6", "8.9")]


def test_diff_inspected_is_a_table_or_a_line(registry: Registry, capsys: pytest.CaptureFixture[str]) -> None:
    library = {"lib64/liba.so": elf("liba.so")}
    main(loading(registry, library, {}))
    text = capsys.readouterr().out
    assert re.search(r"loading\n +library +before +after\n +\+ +/bin/p: missing liba.so +not in the image\n", text), (
        text
    )
    main(loading(registry, library, library))
    assert "no difference in what loads, GPU code and driver" in capsys.readouterr().out


def test_diff_not_inspected_says_nothing_of_loading(pair: Pair) -> None:
    assert pair.compare([BASE], [LARGE])["loading"] is None


@every(
    "script, expected",
    [
        ("""echo '{"images": {}}'""", {"images": {}}),
        ("echo 'error: no stack named local found' >&2; exit 255", {}),
        (
            "echo warning >&2; echo 'error: the passphrase is wrong' >&2; exit 255",
            "stack local: pulumi cannot read the published outputs: error: the passphrase is wrong",
        ),
        (
            "echo 'no such backend' >&2; exit 255",
            "stack local: pulumi cannot read the published outputs: no such backend",
        ),
    ],
)
def test_outputs_are_those_that_pulumi_prints(
    script: str, expected: Mapping[str, Any] | str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pulumi").write_text(f"#!/bin/sh\n{script}\n")
    (tmp_path / "pulumi").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    if isinstance(expected, str):
        with pytest.raises(SlipwayError, match=f"^{expected}$"):
            stack_diff.outputs("local", tmp_path)
    else:
        assert stack_diff.outputs("local", tmp_path) == expected
