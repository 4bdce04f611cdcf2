"""Warm layers: which machine a cache fits, what an archive of caches may hold, and equal bytes of equal files."""

from __future__ import annotations

import io
import signal
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ci import published_branch, pulumi_stack
from ci.verbs import push_warm
from cli.warm import warm_build, warm_container, warm_evidence, warm_hook, warm_layer, warm_run
from cli.warm.warm_layer import LayerOwner
from cli.warm.warm_record import WarmRecord, combined_key
from cli.warm.warm_run import WarmMachine
from containers.blob import BlobUnreadable
from containers.errors import SlipwayError
from containers.evidence import cosign
from containers.registry.logins import stack_login
from stacks import flavors, plan
from tests.helpers.every import every

DIGEST = f"sha256:{'0' * 64}"
RECORD = WarmRecord("sha256:" + "0" * 64, "warm/steps.py", "f" * 64, "2.14.1", "3.8.0", ("processor x86_64 avx2",))


def archive(*members: tuple[str, bytes] | tarfile.TarInfo) -> io.BytesIO:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w|", format=tarfile.PAX_FORMAT) as target:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                target.addfile(member)
                continue
            header = tarfile.TarInfo(member[0])
            header.size = len(member[1])
            header.uid, header.mtime, header.mode = 77, 5, 0o6777
            target.addfile(header, io.BytesIO(member[1]))
    stream.seek(0)
    return stream


def special(kind: bytes, name: str = "triton/x") -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, "/etc/passwd"
    return member


def layer(*members: tuple[str, bytes]) -> bytes:
    contents, target = io.BytesIO(), io.BytesIO()
    files = warm_layer.read(archive(*members), contents, 1000)
    warm_layer.write(files, contents, target, "key", RECORD.machine, LayerOwner(1000, 100, "/opt/venv/modules"))
    return target.getvalue()


def test_bytecode_of_a_pod_is_not_taken() -> None:
    """A script has run there, as the same user."""
    claims = {
        "uid": 1,
        "gid": 1,
        "modules": "/usr/lib/site-packages",
        "torch": "",
        "triton": "",
        "bytecode": ["a-1", "AA"],
    }
    assert WarmMachine.of({**claims, "machine": ["processor x"]}).owner.bytecode == ("", b"")


def changed(change: Callable[[list[str]], Sequence[str]]) -> list[str]:
    return [*change(warm_hook.machine())]


@every(
    "change, fits",
    [
        (lambda lines: lines, True),
        (lambda lines: [*lines[:-1], " ".join(lines[-1].split()[:-1])], True),
        (lambda lines: [*lines[:-1], f"{lines[-1]} avx1024_next"], False),
        (lambda lines: [*lines[:-1], lines[-1].replace(lines[-1].split()[1], "riscv64")], False),
        (lambda lines: ["gpu NVIDIA H100 80GB HBM3", "driver 580", *lines], False),
        (lambda lines: ["driver 580", *lines], False),
    ],
    ["same", "older processor", "newer processor", "other architecture", "other GPU", "other driver"],
)
def test_cache_fits_where_its_code_runs(change: Callable[[list[str]], Sequence[str]], fits: bool) -> None:
    assert warm_hook.fits(changed(change)) is fits


def test_equal_caches_are_equal_bytes() -> None:
    files = [("triton/b/k.so", b"1"), ("inductor/a", b"22"), ("triton/a", b"")]
    assert layer(*files) == layer(*reversed(files)) != layer(*files[1:])
    with tarfile.open(fileobj=io.BytesIO(layer(*files))) as written:
        members = {member.name: member for member in written}
    assert {member.mtime for member in members.values()} == {warm_layer.EPOCH}
    assert {member.mode for member in members.values() if member.isreg()} == {0o644, 0o755}
    owners = {name: (member.uid, member.gid) for name, member in members.items()}
    assert owners["opt/slipway/warm/key/triton/b/k.so"] == owners["opt/slipway/warm/key/triton/b"] == (1000, 100)
    assert owners["opt/slipway/warm/key"] == owners["opt/slipway/warm/key/fits"] == (0, 0)


@every(
    "members, reason",
    [
        *(
            ((special(kind),), "is no regular file")
            for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.BLKTYPE, tarfile.DIRTYPE)
        ),
        ((("/triton/x", b""),), "is in no cache"),
        ((("triton", b""),), "is in no cache"),
        ((("triton/../../x", b""),), "is in no cache"),
        ((("home/x", b""),), "is in no cache"),
        ((("triton/.wh..wh..opq", b""),), "by which a layer removes files"),
        ((("triton/a\nb", b""),), "cannot be printed"),
        ((("triton/" + "x" * 256, b""),), "too long"),
        ((("triton/x", b"1"), ("triton/x", b"2")), "is there twice"),
        ((("triton/x", b"1"), ("triton/x/y", b"2")), "as a file and as a folder"),
        ((("triton/x", b"1" * 600), ("triton/y", b"2" * 600)), "more than 1,000 bytes"),
    ],
)
def test_archive_of_anything_else_is_refused(members: Sequence[tuple[str, bytes]], reason: str) -> None:
    with pytest.raises(SlipwayError, match=reason):
        warm_layer.read(archive(*members), io.BytesIO(), 1000)


def test_broken_archive_is_refused() -> None:
    whole = archive(("triton/x", b"1" * 900)).getvalue()
    for part in (b"", whole[:700], b"x" * 600):
        with pytest.raises(BlobUnreadable):
            warm_layer.read(io.BytesIO(part), io.BytesIO(), 1000)


def test_record_is_read_from_history_and_not_if_changed() -> None:
    entry = RECORD.history()
    assert WarmRecord.of(entry) == RECORD
    assert WarmRecord.of({**entry, "comment": entry["comment"].replace("2.14.1", "2.14.0")}) is None
    assert [WarmRecord.of(each) for each in ({}, {"comment": "buildkit.dockerfile.v0"}, {"comment": "[]"})] == [
        None
    ] * 3
    assert combined_key([RECORD]) != combined_key([RECORD, RECORD])


@every(
    "registry, kept",
    [
        ({"kind": "ecr", "repository": "123456789012.dkr.ecr.eu-west-1.amazonaws.com/ml"}, ["keep-prod-nccl-warm"]),
        ({"kind": "ghcr", "repository": "ghcr.io/acme"}, []),
    ],
)
def test_newest_warm_image_is_kept_in_ecr(
    registry: dict[str, str], kept: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tagged: list[tuple[str, str]] = []

    class Fake:
        def __init__(self, ref: str, *_: object, **__: object) -> None:
            self.ref = ref

        def tag(self, name: str) -> None:
            tagged.append((self.ref, name))

    monkeypatch.setattr(warm_build, "Repository", Fake)
    config = flavors.load({"flavor": "local", "registry": registry}, "stack prod")
    target: Any = SimpleNamespace(config=config, name="nccl", login=None)
    warm_build._keep(target, "prod", "r.example/nccl@sha256:1")
    assert tagged == [("r.example/nccl@sha256:1", name) for name in kept]


@every(
    "status, printed, expected",
    [
        (-signal.SIGKILL, "x", "warm.py: it was not done in 90 s: slipway:warm.seconds is the limit"),
        (warm_container.FULL, "x", "warm.py: its caches have no room left in 2,048 bytes: see slipway:warm.size"),
        (3, "first\n\nlast\n", "warm.py: it failed with status 3: last"),
        (3, "", "warm.py: it failed with status 3: it printed nothing"),
        (
            137,
            "x",
            "warm.py: its container was killed, by hand, with its engine or because this machine has no memory left",
        ),
    ],
)
def test_script_that_fails_says_why(status: int, printed: str, expected: str) -> None:
    limits = warm_run.WarmLimits(seconds=90, size=2048)
    assert str(warm_run._failure("r.example/a", Path("warm.py"), status, printed, limits)) == expected


def with_plan(monkeypatch: pytest.MonkeyPatch, signing: object = None) -> None:
    """Let stack ``prod`` have one image, ``torch``."""
    planned = SimpleNamespace(
        stack="prod",
        config=SimpleNamespace(warm="set", every_platform=("linux/amd64",), registry=None, signing=signing),
        image=lambda *_: SimpleNamespace(spec=SimpleNamespace(name="torch"), repository="r.example/images/torch"),
    )
    monkeypatch.setattr(plan, "make", lambda *_, **__: planned)
    monkeypatch.setattr(stack_login, "configured", lambda _: None)


@every(
    "repository, signed, reason",
    [
        ("r.example/other/torch", True, "not an image of r.example/images/torch, where the stack publishes it"),
        ("r.example/images/torch", False, "no signature"),
    ],
)
def test_image_of_somebody_else_is_not_warmed(
    repository: str, signed: bool, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever may write what says what is published would have their own image signed."""
    asked = []

    def verify(ref: str, signing: object, login: object, stated: object) -> None:
        asked.append((ref, signing, login, stated))
        if not signed:
            raise SlipwayError(f"{ref}: no signature")

    monkeypatch.setattr(cosign, "verify", verify)
    built = {"ref": f"{repository}@{DIGEST}", "tag": "1-cpu"}
    with_plan(monkeypatch, signing="the stack's")
    with pytest.raises(SlipwayError, match=reason):
        warm_build._target("prod", None, Path(), None, {"images": {"torch": built}})
    assert asked == ([] if signed else [(built["ref"], "the stack's", None, {"tag": "1-cpu"})])


def test_layers_that_are_kept_are_those_attested(monkeypatch: pytest.MonkeyPatch) -> None:
    """`--onto` names an image to add to: of a stack that signs, what it did not attest is not taken over."""
    attested = [SimpleNamespace(layer="first"), SimpleNamespace(layer="second")]
    target: Any = SimpleNamespace(
        repository="r.example/torch",
        image=None,
        login=None,
        config=SimpleNamespace(signing="the stack's"),
    )
    monkeypatch.setattr(warm_build, "fetch", lambda *_: None)
    monkeypatch.setattr(warm_evidence, "attested_layers", lambda *_: attested)
    assert warm_build._others(target, f"r.example/torch@{DIGEST}") == ["first", "second"]  # type: ignore[comparison-overlap]


@every("state", [{}, [], {"outputs": None}, {"outputs": "x"}])
def test_state_of_a_branch_of_another_shape_is_one_line(monkeypatch: pytest.MonkeyPatch, state: object) -> None:
    """Without outputs there, none of Pulumi's own state count in their place."""
    options: Any = SimpleNamespace(stack="prod", image="", onto="", to="", caches=None)
    monkeypatch.setattr(published_branch, "stack", lambda *_: state)
    monkeypatch.setattr(push_warm, "has_gpu", lambda: True)
    with pytest.raises(SlipwayError, match=r"^branch published: stacks/prod.json: what is recorded has another shape"):
        push_warm.run(options)
    monkeypatch.setattr(push_warm, "has_gpu", lambda: False)
    with pytest.raises(
        SlipwayError, match=r"^stack prod: this machine has no driver of NVIDIA's GPUs, .* a runner that"
    ):
        push_warm.run(options)


def test_claims_of_a_pod_are_text_in_the_summary(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A job names its GPUs, and the summary is of the job that signs."""
    options: Any = SimpleNamespace(stack="local", image="", onto="", to=tmp_path, caches=tmp_path)
    line = "torch: 1 file for H100](https://a.example) `<b>`"
    monkeypatch.setattr(published_branch, "outputs", lambda *_: {})
    monkeypatch.setattr(warm_build, "warm", lambda *_: [line])
    monkeypatch.setattr(pulumi_stack, "prepared", lambda *_, **_options: {})
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary"))
    push_warm.run(options)
    assert (tmp_path / "summary").read_text() == "- `torch: 1 file for H100](https://a.example) '<b>'`\n"


@every(
    "before, reason",
    [
        ({"images": {"torch": {"ref": f"r.example/other/torch@{DIGEST}", "tag": "1"}}}, "not an image of r.example/im"),
        ({"images": {"torch": {"ref": f"r.example/images/torch@{DIGEST}"}}}, r"what is recorded has another .*KeyErr"),
        (
            {"images": {"torch": {"ref": 5, "tag": "1"}}},
            "stack prod: outputs: torch: what is recorded has another shape",
        ),
        ({"images": [1]}, "what is recorded has another shape than `slipway` records"),
        ({"images": None}, "what is recorded has another shape than `slipway` records"),
    ],
)
def test_outputs_of_a_branch_are_held_against_the_plan(
    monkeypatch: pytest.MonkeyPatch, before: dict[str, Any], reason: str
) -> None:
    with_plan(monkeypatch)
    with pytest.raises(SlipwayError, match=reason):
        next(warm_build.warm("prod", None, Path(), None, None, warm_run.EngineCaches(gpu=False), before))
    with pytest.raises(SlipwayError, match=reason):
        warm_build.in_pod("prod", None, Path(), before)


@every("script", ["warm/no-such-file.py", "stacks"])
def test_script_that_is_not_there_is_refused(script: str) -> None:
    values = {"flavor": "local", "warm": {"script": script}}
    with pytest.raises(SlipwayError) as caught:
        plan.make("local", values)
    assert str(caught.value) == (
        f"stack local: slipway:warm.script: '{script}': the checkout has no such file: write it, or leave slipway:warm out"
    )
    assert plan.make("local", {**values, "warm": {"script": "pyproject.toml"}}).config.warm
