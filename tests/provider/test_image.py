"""Images built and pushed through the selected provider."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import tarfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import docker
import docker.errors
import pytest
import requests

from tests.helpers import registry_api
from tests.provider.conftest import PASSWORD, USER, Registry, write
from tests.provider.plugin import SELECTED, Failure, Line, Plugin
from toolchain.provider.provider_base import UNKNOWN, Properties, Secret, plain

PLATFORM = "linux/amd64"
SCRATCH = "FROM scratch\nCOPY . /\n"


@dataclass
class Maker:
    """Checks and creates images as the engine does: the result of Check goes to Create."""

    plugin: Plugin
    engine: docker.DockerClient
    folder: Path
    name: str
    images: set[str] = field(default_factory=set)

    def inputs(self, files: dict[str, str], **inputs: Any) -> dict[str, Any]:
        write(self.folder, files)
        build = {"context": self.folder.name, "platform": PLATFORM, **inputs.pop("build", {})}
        checked = self.plugin.check_raw({"imageName": f"{self.name}:v1", "build": build, **inputs})
        self.images.add(str(plain(checked["imageName"])))
        return checked

    def create(self, files: dict[str, str], **inputs: Any) -> Properties:
        ident, outputs = self.plugin.create(self.inputs(files, **inputs))
        assert ident == plain(outputs)["imageName"]
        return outputs

    def files(self, image: str) -> dict[str, tarfile.TarInfo]:
        """Return an image's files by path."""
        container = self.engine.api.create_container(image, command=["none"])
        try:
            stream = io.BytesIO(b"".join(self.engine.api.export(container["Id"])))
        finally:
            self.engine.api.remove_container(container["Id"])
        with tarfile.open(fileobj=stream) as archive:
            engine_files = {".dockerenv", "dev", "etc", "proc", "sys"}
            return {member.name: member for member in archive if member.name.split("/")[0] not in engine_files}

    def text(self, image: str, path: str) -> str:
        container = self.engine.api.create_container(image, command=["none"])
        try:
            stream = io.BytesIO(b"".join(self.engine.api.get_archive(container["Id"], path)[0]))
        finally:
            self.engine.api.remove_container(container["Id"])
        with tarfile.open(fileobj=stream) as archive:
            file = archive.extractfile(archive.next() or "")
            assert file is not None
            return file.read().decode()


@pytest.fixture
def maker(plugin: Plugin, engine: docker.DockerClient, folder: Path, repository: str) -> Iterator[Maker]:
    value = Maker(plugin, engine, folder, repository)
    yield value
    for name in value.images:
        with suppress(docker.errors.ImageNotFound, docker.errors.APIError):
            engine.images.remove(name, force=True)


def manifest(name: str) -> tuple[str, dict[str, Any]]:
    """Return the digest and the manifest of host/path:tag in a registry."""
    host, _, rest = name.partition("/")
    path, _, tag = rest.partition(":")
    kinds = "application/vnd.docker.distribution.manifest.v2+json, application/vnd.oci.image.manifest.v1+json"
    body = registry_api.fetch(f"{host}/{path}/manifests/{tag}", kinds)
    return f"sha256:{hashlib.sha256(body).hexdigest()}", json.loads(body)


def test_create_returns_outputs_and_inputs(maker: Maker) -> None:
    """Everything that is kept: the outputs a program sees, and the inputs that the next preview compares with."""
    inputs = maker.inputs({"Dockerfile": SCRATCH, "f": "x"}, build={"args": {"A": "1"}})
    ident, outputs = maker.plugin.create(inputs)
    digest, _ = manifest(f"{maker.name}:v1")
    assert ident == f"{maker.name}:v1"
    assert outputs == {
        "baseImageName": f"{maker.name}:v1",
        "context": maker.folder.name,
        "dockerfile": "Dockerfile",
        "imageName": f"{maker.name}:v1",
        "platform": PLATFORM,
        "registryServer": "",
        "repoDigest": f"{maker.name}@{digest}",
        "__inputs": Secret(plain(inputs)),
    }
    assert not maker.plugin.diff(outputs, inputs).detailedDiff, "what was just made is up to date"


def test_create_without_push_returns_image_id(maker: Maker) -> None:
    """The digest is the bare id of the engine's image, and the registry knows nothing."""
    outputs = maker.create({"Dockerfile": SCRATCH, "f": "x"}, skipPush=True)
    assert outputs["repoDigest"] == maker.engine.images.get(f"{maker.name}:v1").id
    with pytest.raises(requests.HTTPError):
        manifest(f"{maker.name}:v1")


def test_name_without_tag_is_pushed_as_latest(maker: Maker) -> None:
    outputs = maker.create({"Dockerfile": SCRATCH, "f": "x"}, imageName=maker.name)
    assert outputs["imageName"] == maker.name
    assert outputs["repoDigest"] == f"{maker.name}@{manifest(f'{maker.name}:latest')[0]}"


def test_update_pushes_the_changed_image(maker: Maker) -> None:
    before = maker.create({"Dockerfile": SCRATCH, "f": "x"})
    inputs = maker.inputs({"f": "y"}, imageName=f"{maker.name}:v2")
    after = maker.plugin.update(before, inputs)
    assert after["imageName"] == f"{maker.name}:v2"
    assert after["repoDigest"] == f"{maker.name}@{manifest(f'{maker.name}:v2')[0]}"
    assert after["__inputs"] == Secret(plain(inputs))
    assert manifest(f"{maker.name}:v1")[0] in before["repoDigest"], "the old tag stays"


def test_context_keeps_modes_links_and_times(maker: Maker) -> None:
    """Modes, links, hard links, folders and times arrive; owners are root's."""
    write(maker.folder, {"dir/script": "#!", "dir/data": "data"})
    (maker.folder / "dir/script").chmod(0o755)
    (maker.folder / "empty").mkdir()
    (maker.folder / "link").symlink_to("dir/data")
    os.link(maker.folder / "dir/data", maker.folder / "dir/data2")
    os.utime(maker.folder / "dir/data", (1_000_000_000, 1_000_000_000))
    os.chown(maker.folder / "dir/script", os.getuid(), os.getgid())
    maker.create({"Dockerfile": SCRATCH}, skipPush=True)
    files = maker.files(f"{maker.name}:v1")
    assert files["dir/script"].mode & 0o7777 == 0o755
    assert (files["dir/script"].uid, files["dir/script"].gid) == (0, 0)
    assert files["empty"].isdir()
    assert files["link"].linkname == "dir/data"
    assert files["dir/data"].mtime == 1_000_000_000
    assert maker.text(f"{maker.name}:v1", "/dir/data2") == "data"


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone gives a file capabilities")
@pytest.mark.parametrize(
    ("revision", "owner"), [(2, b""), (3, (100_000).to_bytes(4, "little"))], ids=["of the host", "of a namespace"]
)
def test_context_keeps_capabilities(maker: Maker, revision: int, owner: bytes) -> None:
    """What lets a program do more than its user arrives, of whatever namespace it was. Without, it fails in the image."""
    sets = bytes.fromhex("00200000 80000000 ff000000 80000000")
    write(maker.folder, {"ping": "#!"})
    os.setxattr(maker.folder / "ping", "security.capability", b"\1\0\0" + bytes([revision]) + sets + owner)
    maker.create({"Dockerfile": SCRATCH}, skipPush=True)
    kept = maker.files(f"{maker.name}:v1")["ping"].pax_headers["SCHILY.xattr.security.capability"]
    assert kept.encode("utf-8", "surrogateescape") == b"\1\0\0\2" + sets


IGNORES = [
    ("none", {}, {"Dockerfile", "a.txt", "b.md", "sub", "sub/c.txt", "sub/d.md"}),
    ("some", {".dockerignore": "*.md\nsub/c.txt\n"}, {".dockerignore", "Dockerfile", "a.txt", "sub", "sub/d.md"}),
    ("taken back", {".dockerignore": "*\n!sub/d.md\n!a.txt\n"}, {"a.txt", "sub", "sub/d.md"}),
    (
        "the Dockerfile's own",
        {".dockerignore": "sub\n", "Dockerfile.dockerignore": "*.md\n*ignore\n"},
        {"Dockerfile", "a.txt", "sub", "sub/c.txt", "sub/d.md"},
    ),
]


@pytest.mark.parametrize(("ignores", "expected"), [case[1:] for case in IGNORES], ids=[case[0] for case in IGNORES])
def test_ignored_file_is_not_in_the_image(maker: Maker, ignores: dict[str, str], expected: set[str]) -> None:
    """Ignored files are not in the context; the Dockerfile is still read."""
    files = {"Dockerfile": SCRATCH, "a.txt": "", "b.md": "", "sub/c.txt": "", "sub/d.md": "", **ignores}
    maker.create(files, skipPush=True)
    needed = {"Dockerfile", ".dockerignore"}  # the tools differ in whether they send these when they are ignored
    assert set(maker.files(f"{maker.name}:v1")) - needed == expected - needed


def test_dockerfile_in_subfolder_builds(maker: Maker) -> None:
    build = {"dockerfile": f"{maker.folder.name}/docker/My.Dockerfile"}
    outputs = maker.create({"docker/My.Dockerfile": SCRATCH, "f": "x"}, build=build, skipPush=True)
    assert outputs["dockerfile"] == "docker/My.Dockerfile"


@pytest.mark.parametrize("builder", ["BuilderBuildKit", "BuilderV1"])
def test_dockerfile_outside_context_builds(maker: Maker, builder: str) -> None:
    """It has an ignore file in the same folder."""
    files = {"out/Dockerfile": SCRATCH, "out/Dockerfile.dockerignore": "no\n", "ctx/yes": "", "ctx/no": ""}
    top = maker.folder.name
    build = {"context": f"{top}/ctx", "dockerfile": f"{top}/out/Dockerfile", "builderVersion": builder}
    outputs = maker.create(files, build=build, skipPush=True)
    assert outputs["dockerfile"] == "../out/Dockerfile"
    paths = {path for path in maker.files(f"{maker.name}:v1") if not path.startswith(".docker")}
    assert paths == {"yes"}


def test_linked_context_and_dockerfile_build(maker: Maker) -> None:
    write(maker.folder, {"real/Dockerfile.real": SCRATCH, "real/f": "x"})
    (maker.folder / "real/Dockerfile").symlink_to("Dockerfile.real")
    (maker.folder / "ctx").symlink_to("real")
    outputs = maker.create({}, build={"context": f"{maker.folder.name}/ctx"}, skipPush=True)
    assert outputs["context"] == f"{maker.folder.name}/ctx"
    assert outputs["dockerfile"] == "Dockerfile.real"


def with_shell(maker: Maker, shell: Path, *steps: str) -> dict[str, str]:
    """Files of an image from scratch that can run steps, none of which the engine has in its cache."""
    shutil.copy(shell, maker.folder / "sh")
    return {"Dockerfile": "\n".join(["FROM scratch", "COPY sh /bin/sh", f"ENV TEST={maker.name}", *steps]) + "\n"}


@pytest.mark.parametrize("builder", ["BuilderBuildKit", "BuilderV1"])
def test_arguments_reach_the_build_unchanged(maker: Maker, shell: Path, builder: str) -> None:
    """They reach the build as they are written, whatever characters they hold."""
    value = "a 'b' \"c\" $D `e` \\ ;|&\n\té 🐳"
    files = with_shell(maker, shell, "ARG V", 'RUN printf %s "$V" > /v')
    maker.create(files, build={"args": {"V": value, "UNUSED": ""}, "builderVersion": builder}, skipPush=True)
    assert maker.text(f"{maker.name}:v1", "/v") == value


def test_argument_before_from_selects_the_parent(maker: Maker) -> None:
    base = Maker(maker.plugin, maker.engine, maker.folder / "base", f"{maker.name}-base")
    base.folder.mkdir()
    name = f"{maker.folder.name}/base"
    digest = base.create({"Dockerfile": SCRATCH, "below": "x"}, build={"context": name})["repoDigest"]
    maker.create(
        {"Dockerfile": "ARG B\nFROM ${B}\nCOPY Dockerfile /above\n"}, build={"args": {"B": digest}}, skipPush=True
    )
    assert {"below", "above"} <= set(maker.files(f"{maker.name}:v1"))


def test_target_selects_the_stage(maker: Maker) -> None:
    dockerfile = "FROM scratch AS one\nCOPY f /one\nFROM scratch AS two\nCOPY f /two\n"
    maker.create({"Dockerfile": dockerfile, "f": "x"}, build={"target": "one"}, skipPush=True)
    assert set(maker.files(f"{maker.name}:v1")) == {"one"}


def test_added_host_is_in_hosts_file(maker: Maker, shell: Path) -> None:
    files = with_shell(maker, shell, "RUN /bin/sh -c 'while read l; do echo \"$l\"; done < /etc/hosts > /hosts'")
    maker.create(files, build={"addHosts": ["db.example:10.1.2.3"]}, skipPush=True)
    assert "10.1.2.3\tdb.example" in maker.text(f"{maker.name}:v1", "/hosts")


def interfaces(table: str) -> set[str]:
    """Return the names in /proc/net/dev, without those that every network of some kernels has."""
    names = {line.split(":")[0].strip() for line in table.splitlines()[2:]}
    return names - {"tunl0", "gre0", "gretap0", "erspan0", "sit0", "ip6tnl0", "ip6gre0", "ip_vti0", "ip6_vti0"}


@pytest.mark.parametrize("network", ["none", "default", "host"])
def test_network_gives_its_interfaces(maker: Maker, shell: Path, network: str) -> None:
    """A step has no interface, a private one, or the machine's."""
    before = interfaces(Path("/proc/net/dev").read_text())
    files = with_shell(maker, shell, 'RUN while read l; do echo "$l"; done < /proc/net/dev > /dev.txt')
    maker.create(files, build={"network": network}, skipPush=True)
    actual = interfaces(maker.text(f"{maker.name}:v1", "/dev.txt"))
    if network == "host":
        assert before & interfaces(Path("/proc/net/dev").read_text()) <= actual
    else:
        assert actual == {"none": {"lo"}, "default": {"lo", "eth0"}}[network]


def test_other_platform_is_built(maker: Maker) -> None:
    outputs = maker.create({"Dockerfile": SCRATCH, "f": "x"}, build={"platform": "linux/arm64"}, skipPush=True)
    assert outputs["platform"] == "linux/arm64"
    assert maker.engine.images.get(f"{maker.name}:v1").attrs["Architecture"] == "arm64"


def test_step_with_same_inputs_is_cached(maker: Maker, shell: Path) -> None:
    """A touched file or an ignored one rebuilds nothing; the digest stays."""
    step = "RUN read u < /proc/sys/kernel/random/uuid; echo $u > /u"
    files = {**with_shell(maker, shell, "COPY f /f", step), "f": "x", ".dockerignore": "ignored\n"}
    first = maker.create(files)["repoDigest"]
    os.utime(maker.folder / "f", (1, 1))
    assert maker.create({"ignored": "new"})["repoDigest"] == first
    assert maker.create({"f": "other"})["repoDigest"] != first


def test_cache_from_image_replaces_lost_cache(maker: Maker, shell: Path) -> None:
    """An image with an inline cache in the registry replaces the engine's lost cache."""
    step = f"RUN : {maker.name}; read u < /proc/sys/kernel/random/uuid; echo $u > /u"
    files = with_shell(maker, shell, step)
    inline = {"args": {"BUILDKIT_INLINE_CACHE": "1"}}
    maker.create(files, build=inline)
    uuid = maker.text(f"{maker.name}:v1", "/u")
    maker.engine.images.remove(f"{maker.name}:v1", force=True)
    records = maker.engine.api.df()["BuildCache"]
    forget = [record["ID"] for record in records if maker.name in record["Description"]]
    assert forget, "the step is in the engine's cache"
    for record in forget:
        maker.engine.api.prune_builds(all=True, filters={"id": [record]})  # type: ignore[arg-type]  # the stubs know few filters
    cache = {"cacheFrom": {"images": [f"{maker.name}:v1", f"{maker.name}:nowhere"]}}
    maker.plugin.engine.lines.clear()
    maker.create({}, build={**inline, **cache}, imageName=f"{maker.name}:v2")
    assert maker.text(f"{maker.name}:v2", "/u") == uuid
    assert any(f"cacheFrom image {maker.name}:nowhere not available" in line for line in maker.plugin.lines())


def lasting(plugin: Plugin) -> list[Line]:
    """Return the lasting lines, without the one of the official provider at each push with containerd's store."""
    noise = "Push completed without reporting a digest" if SELECTED == "official" else None
    return [line for line in plugin.engine.lines if not (line.ephemeral or (noise and line.message.startswith(noise)))]


def test_progress_of_build_and_push_is_printed(maker: Maker, shell: Path) -> None:
    """Builds and pushes report progress; a successful build leaves no lasting line."""
    maker.plugin.engine.lines.clear()
    maker.create(with_shell(maker, shell, "RUN echo before; sleep 0.7; echo now doing the work; sleep 0.7"))
    assert not lasting(maker.plugin)
    progress = "\n".join(maker.plugin.lines(ephemeral=True))
    for expected in ("Starting Docker build", "now doing the work", "Push"):
        assert expected in progress


LOGIN = {"username": USER, "password": Secret(PASSWORD)}


def test_credentials_of_program_push_and_stay_secret(maker: Maker, locked_registry: Registry) -> None:
    """They push. They are secret in the state, and no output has them."""
    name = f"{locked_registry.address}/parity/a"
    maker.plugin.engine.lines.clear()
    outputs = maker.create(
        {"Dockerfile": SCRATCH, "f": "x"},
        imageName=f"{name}:v1",
        registry={"server": locked_registry.address, **LOGIN},
    )
    assert outputs["repoDigest"].startswith(f"{name}@sha256:")
    assert outputs["registryServer"] == locked_registry.address
    assert PASSWORD not in repr({key: value for key, value in outputs.items() if not isinstance(value, Secret)})
    assert PASSWORD not in "\n".join([*maker.plugin.lines(), *maker.plugin.stderr])


@pytest.fixture
def locked_parent(engine: docker.DockerClient, locked_registry: Registry, repository: str) -> str:
    """An image only in the locked registry."""
    name = f"{locked_registry.address}/{repository.partition('/')[2]}"
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("below"))
    engine.api.import_image_from_data(stream.getvalue(), repository=name, tag="v1")
    output = engine.api.push(name, tag="v1", auth_config={"username": USER, "password": PASSWORD})
    assert "error" not in output
    engine.images.remove(f"{name}:v1", force=True)
    return f"{name}:v1"


def test_parent_behind_password_is_pulled(maker: Maker, locked_parent: str) -> None:
    """A build that pulls from the image's own registry uses the image's credentials."""
    host = locked_parent.partition("/")[0]
    outputs = maker.create(
        {"Dockerfile": f"FROM {locked_parent}\nCOPY Dockerfile /above\n"},
        imageName=f"{host}/parity/child:v1",
        registry={"server": f"http://{host}", **LOGIN},
    )
    assert outputs["repoDigest"].startswith(f"{host}/parity/child@sha256:")
    assert {"below", "above"} <= set(maker.files(f"{host}/parity/child:v1"))


def test_parent_behind_password_without_it_fails(maker: Maker, locked_parent: str) -> None:
    with pytest.raises(
        Failure, match=r"(?s)no basic auth credentials|authorization failed|401|authentication required"
    ):
        maker.create({"Dockerfile": f"FROM {locked_parent}\nCOPY Dockerfile /above\n"}, skipPush=True)


def test_username_without_password_warns(maker: Maker) -> None:
    maker.plugin.engine.lines.clear()
    maker.create({"Dockerfile": SCRATCH, "f": "x"}, registry={"server": maker.name.split("/")[0], "username": "u"})
    (line,) = lasting(maker.plugin)
    assert line.severity == "WARNING"
    assert "password was not set, although username was" in line.message


def test_secret_argument_is_masked_in_output(maker: Maker, shell: Path) -> None:
    """The embedded provider masks it in a build's output and step names, in each of its lines."""
    value = "hush-hush\n" + "very-long-secret-" * 20 + "\nthe-end"
    files = with_shell(maker, shell, "ARG TOKEN", 'RUN sleep 0.7; echo "$TOKEN is the token"; sleep 0.7')
    maker.plugin.engine.lines.clear()
    outputs = maker.create(files, build={"args": {"TOKEN": Secret(value)}}, skipPush=True)
    output = "\n".join(maker.plugin.lines())
    assert "hush-hush" not in repr(outputs)
    if SELECTED == "embedded":
        for part in ("hush-hush", "very-long-secret", "the-end"):
            assert part not in output
        assert "[secret] is the token" in output


def test_secret_name_makes_outputs_secret(maker: Maker) -> None:
    """Outputs derived from it are secret too. The official provider leaves the name to the engine, and the rest is plain."""
    outputs = maker.create({"Dockerfile": SCRATCH, "f": "x"}, imageName=Secret(f"{maker.name}:v1"))
    if SELECTED == "embedded":
        assert {key for key, value in outputs.items() if isinstance(value, Secret)} == {
            "imageName", "baseImageName", "repoDigest", "__inputs",
        }  # fmt: skip


def test_preview_builds_nothing(maker: Maker) -> None:
    inputs = maker.inputs({"Dockerfile": "FROM nonsense.invalid/x\n"})
    ident, outputs = maker.plugin.create(inputs, preview=True)
    assert (ident, outputs) == ("", inputs)
    assert maker.plugin.update({}, inputs, preview=True) == inputs


def test_preview_with_build_on_preview_builds(maker: Maker) -> None:
    """A preview never pushes."""
    inputs = maker.inputs({"Dockerfile": SCRATCH, "f": "x"}, buildOnPreview=True)
    _, outputs = maker.plugin.create(inputs, preview=True)
    assert outputs["repoDigest"] == maker.engine.images.get(f"{maker.name}:v1").id
    with pytest.raises(requests.HTTPError):
        manifest(f"{maker.name}:v1")


UNRESOLVED: list[dict[str, Any]] = [
    {"imageName": UNKNOWN},
    {"build": {"args": {"A": UNKNOWN}}},
    {"build": {"dockerfile": UNKNOWN}},
]


@pytest.mark.parametrize("unknown", UNRESOLVED, ids=str)
def test_preview_with_unknown_input_builds_nothing(maker: Maker, unknown: dict[str, Any]) -> None:
    inputs = maker.inputs({"Dockerfile": "FROM nonsense.invalid/x\n"}, buildOnPreview=True, **unknown)
    maker.plugin.engine.lines.clear()
    _, outputs = maker.plugin.create(inputs, preview=True)
    assert outputs == inputs
    (line,) = maker.plugin.engine.lines
    assert line.severity == "WARNING"
    assert "Minimum inputs for build are unresolved" in line.message


def test_read_and_delete_leave_everything(maker: Maker) -> None:
    """A refresh changes nothing, and a pushed image outlives its resource."""
    from pulumi.runtime.proto import provider_pb2

    from tests.provider.plugin import URN
    from toolchain.provider.provider_base import decode_struct, encode_struct

    inputs = maker.inputs({"Dockerfile": SCRATCH, "f": "x"})
    ident, outputs = maker.plugin.create(inputs)
    request = provider_pb2.ReadRequest(
        id=ident, urn=URN, properties=encode_struct(outputs), inputs=encode_struct(inputs)
    )
    read = maker.plugin.call("Read", request)
    assert (read.id, decode_struct(read.inputs), decode_struct(read.properties)) == (ident, inputs, outputs)
    maker.plugin.call("Delete", provider_pb2.DeleteRequest(id=ident, urn=URN, properties=encode_struct(outputs)))
    assert manifest(f"{maker.name}:v1")[0] in outputs["repoDigest"]
