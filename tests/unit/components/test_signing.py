"""`slipway:signing`, `slipway:trust` and `slipway:extraTags`: what is taken, what is refused, and what provenance says."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ci.verbs.affected import lacking
from components.supply_chain.attestations import AttestProvenance
from components.supply_chain.image_signature import SignImage
from components.supply_chain.verified_parent import VerifyParent
from containers.engine.pool import Pool
from containers.errors import SlipwayError
from containers.evidence import cosign, programs, slsa
from containers.registry.client import Repository
from containers.registry.credentials import Login
from containers.registry.transport import RegistryUnreachable
from stacks import flavors, graph, plan
from stacks.checkout_source import source_of
from stacks.checks.collisions import shared_tags
from stacks.checks.trust import unlocked_parents, unmatched_keys
from stacks.config.signing import SignerConfig, SigningConfig, trusted
from stacks.plan import Plan
from tests.fakes import registry
from tests.fakes.pulumi_mocks import run
from tests.helpers.every import every

PUBLIC = "-----BEGIN PUBLIC KEY-----\nMFkw\nEwYH\n-----END PUBLIC KEY-----\n"
KMS = "awskms:///arn:aws:kms:eu-west-1:123456789012:key/1234abcd"
JOB = {
    "identity": "https://github.com/acme/slipway/.github/workflows/up.yml@refs/heads/main",
    "issuer": "https://token.actions.githubusercontent.com",
}

SIGNATURE = {"signature": "r.example/x/torch:sha256-a.sig", "by": f"public key {KMS}"}
SIGNED = {"signed": {"torch": {**SIGNATURE, "sbom": {}, "provenance": {}}}}


def load(**values: Any) -> Any:
    return flavors.load({"flavor": "local", **values}, "stack t")


def test_config_by_default_signs_tags_and_trusts_nothing() -> None:
    config = load()
    assert (config.signing, config.extra_tags, config.trust) == (None, (), {})


@every(
    "signing, who, log",
    [
        ({"key": "keys/cosign.key", "publicKey": PUBLIC}, "public key MFkwEwYH", False),
        (
            {"key": "env://COSIGN_PRIVATE_KEY", "publicKey": PUBLIC, "transparencyLog": True},
            "public key MFkwEwYH",
            True,
        ),
        ({"key": KMS}, f"public key {KMS}", False),
        (JOB, f"{JOB['identity']} (by {JOB['issuer']})", True),
        (
            {**JOB, "repository": "acme/images", "ref": "refs/tags/v1"},
            f"{JOB['identity']} (by {JOB['issuer']}, repository acme/images, ref refs/tags/v1)",
            True,
        ),
    ],
)
def test_signing_of_each_kind_names_its_signer(signing: dict[str, Any], who: str, log: bool) -> None:
    loaded = load(signing=signing).signing
    assert (loaded.who, loaded.transparency_log, loaded.sbom, loaded.provenance) == (who, log, True, True)


@every(
    "key, value, message",
    [
        ("signing", {}, "give publicKey, or identity and issuer"),
        ("signing", {"key": "cosign.key"}, "give publicKey, or identity and issuer"),
        ("signing", {"publicKey": PUBLIC}, "'key' is missing: where cosign finds the private key"),
        ("signing", {**JOB, "key": KMS}, "give publicKey, or identity and issuer"),
        ("signing", {**JOB, "key": "cosign.key"}, "give key, or identity and issuer"),
        ("signing", {"key": KMS, "repository": "acme/x"}, "repository: a key has no repository; leave this out"),
        ("trust", {"docker.io": {"publicKey": PUBLIC, "ref": "refs/heads/main"}}, "ref: a key has no ref; leave"),
        ("signing", {**JOB, "repository": "acme"}, "repository"),
        ("signing", {**JOB, "ref": "main"}, "ref"),
        ("signing", {"identity": "me"}, "'issuer' is missing: identity and issuer go together"),
        ("signing", {**JOB, "transparencyLog": False}, "without a key, only the log proves when"),
        ("signing", {"key": "vault://x", "publicKey": PUBLIC}, "expected a file's path, env://NAME, or a key of a KMS"),
        ("signing", {"key": "cosign.key", "publicKey": "keys/cosign.pub"}, "expected a public key as PEM"),
        ("signing", {"kye": "cosign.key"}, "unknown key 'kye' (did you mean 'key'?)"),
        (
            "trust",
            {"docker.io/": {"publicKey": PUBLIC}},
            "'docker.io/': expected a registry or repository without a tag",
        ),
        (
            "trust",
            {"debian": {"publicKey": PUBLIC}, "docker.io/library/debian": {"publicKey": PUBLIC}},
            "'debian' and 'docker.io/library/debian' name the same; leave one out",
        ),
        ("trust", {"docker.io": {}}, "give publicKey, or identity and issuer"),
    ],
)
def test_signing_invalid_is_refused_in_one_line(key: str, value: Any, message: str) -> None:
    with pytest.raises(SlipwayError, match=re.escape(message)) as caught:
        load(**{key: value})
    assert str(caught.value).startswith(f"stack t: slipway:{key}")
    assert "\n" not in str(caught.value)


def test_ecr_with_four_extra_tags_is_refused() -> None:
    registry = {"kind": "ecr", "repository": "123456789012.dkr.ecr.eu-west-1.amazonaws.com/ml"}
    assert load(registry=registry, extraTags=["a", "b", "c"]).extra_tags == ("a", "b", "c")
    with pytest.raises(SlipwayError, match="slipway:extraTags: .*at most 3 in ECR"):
        load(registry=registry, extraTags=["a", "b", "c", "d"])


def test_signing_key_in_clear_text_is_refused_and_not_shown() -> None:
    private = "-----BEGIN ENCRYPTED SIGSTORE PRIVATE KEY-----\nhunter2\n-----END ENCRYPTED SIGSTORE PRIVATE KEY-----\n"
    with pytest.raises(SlipwayError, match="a stack's file must hold no private key") as caught:
        load(signing={"key": private, "publicKey": PUBLIC})
    assert "hunter2" not in str(caught.value)


def test_trust_with_nested_prefixes_takes_the_longest() -> None:
    one, other = (SignerConfig.model_validate({"publicKey": PUBLIC, "transparencyLog": log}) for log in (True, False))
    trust = {"docker.io": one, "docker.io/nvidia": other}
    assert trusted(trust, "debian:bookworm-slim") is one
    assert trusted(trust, "nvidia/cuda:12.1.1-base-ubuntu20.04") is other
    assert trusted(trust, "docker.io/nvidiax/cuda:1") is one
    assert trusted(trust, "ghcr.io/acme/x:1") is None
    assert trusted({"docker.io/library/debian": one}, "debian@sha256:" + "a" * 64) is one


@every(
    "spelled, parents",
    [
        ("nvidia/cuda", ["nvidia/cuda:12.1.1-base-ubuntu20.04", "index.docker.io/nvidia/cuda:1"]),
        ("nvidia", ["nvidia/cuda:1"]),
        ("docker.io/debian", ["debian:12", "docker.io/library/debian:12", "docker.io/debian:12"]),
        ("debian", ["debian:12", "library/debian:12"]),
        ("index.docker.io", ["debian:12", "nvidia/cuda:1"]),
        ("index.docker.io/library/debian", ["debian:12"]),
        ("localhost:5000", ["localhost:5000/debian:12"]),
        ("localhost", ["localhost/debian:12"]),
    ],
)
def test_trust_prefix_is_read_as_docker_reads_a_name(spelled: str, parents: list[str]) -> None:
    signer = SignerConfig.model_validate({"publicKey": PUBLIC})
    for parent in parents:
        assert trusted({spelled: signer}, parent) is signer, parent
    for other in ("ghcr.io/nvidia/cuda:1", "acme.example/debian:12", "localhost:50000/debian:12", "localhost:80/x:1"):
        assert trusted({spelled: signer}, other) is None, other


def test_trust_of_one_official_image_precedes_that_of_all() -> None:
    one, other = (SignerConfig.model_validate({"publicKey": PUBLIC, "transparencyLog": log}) for log in (True, False))
    assert trusted({"docker.io/library": one, "docker.io/debian": other}, "debian:12") is other
    assert trusted({"library": one, "debian": other}, "ubuntu:24.04") is one


@every(
    "key, message",
    [
        ("quay.io", "no parent image comes from there; the parents are: docker.io/library/debian"),
        ("docker.io/library/debain", "no parent image comes from there (did you mean "),
        ("docker.io/library/debian/slim", "no parent image comes from there"),
    ],
)
def test_trust_prefix_without_a_parent_is_refused(key: str, message: str) -> None:
    with pytest.raises(SlipwayError, match=re.escape(message)) as caught:
        plan.specs({"flavor": "local", "trust": {key: {"publicKey": PUBLIC}}}, "stack t")
    assert str(caught.value).startswith(f"stack t: slipway:trust: '{key}': ")
    assert "\n" not in str(caught.value)


def test_trust_key_that_covers_one_of_two_parents_is_accepted() -> None:
    parents = [SimpleNamespace(reference=reference) for reference in ("debian:12", "quay.io/a/b:1")]
    graph: Any = SimpleNamespace(outside_parents=parents, specs=(), config=SimpleNamespace(trust={"quay.io": None}))
    assert list(unmatched_keys(graph)) == []


@every(
    "config, outputs, message",
    [
        ({}, {}, ""),
        ({}, {"signed": {"torch": {"signature": "s", "by": "anybody"}}}, ""),
        ({"signing": {"key": KMS}}, {}, "not signed as slipway:signing requires"),
        ({"signing": {"key": KMS}}, SIGNED, ""),
        ({"signing": JOB}, SIGNED, "not signed as slipway:signing requires"),
        (
            {"signing": {"key": KMS, "sbom": False}},
            {"signed": {"torch": SIGNATURE}},
            "not signed as slipway:signing requires",
        ),
        ({"signing": {"key": KMS, "sbom": False, "provenance": False}}, {"signed": {"torch": SIGNATURE}}, ""),
        ({"signing": {"key": KMS}}, {**SIGNED, "products": {"wheel": {}}}, "not signed as slipway:signing requires"),
        (
            {"signing": {"key": KMS}},
            {"signed": {**SIGNED["signed"], "wheel": SIGNATURE}, "products": {"wheel": {}}},
            "",
        ),
        ({"extraTags": ["latest"]}, {}, "not tagged as slipway:extraTags requires"),
        ({"extraTags": ["latest"]}, {"extraTags": {"torch": ["r.example/x/torch:latest"]}}, ""),
    ],
)
def test_affected_with_lacking_signatures_lists_the_images(
    config: dict[str, Any], outputs: dict[str, Any], message: str
) -> None:
    assert lacking(load(**config), outputs, config.get("extraTags", ())) == message


@every("digest", ["", "@sha256:" + "a" * 64])
def test_trust_of_a_parent_without_a_digest_is_refused(digest: str) -> None:
    trust = {"docker.io/acme": {"publicKey": PUBLIC}}
    unlocked = graph.unlocked({"flavor": "local", "base": f"docker.io/acme/base:1{digest}", "trust": trust}, "stack t")
    messages = list(unlocked_parents(unlocked))
    assert bool(messages) == (not digest)
    assert all(line.startswith("slipway:trust: docker.io/acme/base:1: its tag may move") for line in messages)


def test_extra_tag_of_two_stacks_is_refused() -> None:
    ours, theirs = frozenset({"r.example/x/torch:latest"}), frozenset({"r.example/x/torch:latest", "r.example/x/a:b"})
    (line,) = shared_tags({"one": ours, "two": theirs, "three": frozenset({"r.example/y/torch:latest"})})
    assert line.startswith(
        "stacks one and two: both move the tag r.example/x/torch:latest; take it out of slipway:extraTags"
    )


@every(
    "remote, uri",
    [
        ("https://me:hunter2@git.example/acme/images.git", "git+https://git.example/acme/images"),
        ("https://git.example:8443/acme/images", "git+https://git.example:8443/acme/images"),
        ("git@github.com:acme/images.git", "git+https://github.com/acme/images"),
        ("ssh://git@github.com/acme/images.git", "git+https://github.com/acme/images"),
        ("/somewhere/on/this/machine", ""),
        ("file:///somewhere", ""),
    ],
)
def test_provenance_source_has_no_credentials_or_paths(tmp_path: Path, remote: str, uri: str) -> None:
    for words in (["init", "-q", "-b", "topic"], ["remote", "add", "origin", remote]):
        subprocess.run(["git", "-C", str(tmp_path), *words], check=True)
    assert source_of(tmp_path) == {"uri": uri, "revision": "", "ref": "refs/heads/topic", "uncommitted": False}
    (tmp_path / "file").write_text("")
    assert source_of(tmp_path)["uncommitted"]


SOURCES = {"git+https://github.com/o/locked@refs/tags/v1": "c" * 40, "git+https://github.com/o/other@refs/tags/v1": ""}


def test_provenance_has_arguments_files_parents_and_date(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GITHUB_SERVER_URL", "GITHUB_WORKFLOW_REF", "SLIPWAY_WORKFLOW", "GITHUB_RUN_ID", "GITHUB_REF"):
        monkeypatch.delenv(name, raising=False)
    registry.skip_retry_waits(monkeypatch)
    digest = "sha256:" + "b" * 64
    contents = {
        "args": {"VERSION": "1"}, "labels": {"LABEL_TITLE": "torch"}, "files": {"torch/Dockerfile": "f" * 12},
        "platform": "linux/amd64", "target": "installed",
    }  # fmt: skip
    parents = {"BASE_IMAGE": "debian:bookworm-slim", "WHEEL": f"r.example/x/wheel@{digest}", "EMPTY": "scratch"}
    with registry.serve() as served:
        ref = served.image("torch:1", [])
        engines = ["ssh://me@builder-arm", "unix:///run/docker.sock"]
        file, by_hand = "dockerfiles/torch/Dockerfile", "urn:slipway:by-hand"
        build = slsa.Build(contents, file, parents, "machine", by_hand, SOURCES, engines)
        predicate = slsa.predicate(ref, build, source_of(tmp_path), None)
    definition = predicate["buildDefinition"]
    assert definition["externalParameters"]["request"]["args"] == {
        "build-arg:VERSION": "1", "build-arg:LABEL_TITLE": "torch", "target": "installed",
    }  # fmt: skip
    assert definition["internalParameters"]["files"] == contents["files"]
    assert definition["internalParameters"]["engines"] == ["ssh://builder-arm", "unix:///run/docker.sock"]
    assert definition["resolvedDependencies"] == [
        {"uri": "pkg:docker/docker.io/library/debian@bookworm-slim?platform=linux%2Famd64"},
        {"uri": f"pkg:docker/r.example/x/wheel@{digest}?platform=linux%2Famd64", "digest": {"sha256": "b" * 64}},
        {"uri": "git+https://github.com/o/locked@refs/tags/v1", "digest": {"gitCommit": "c" * 40}},
        {"uri": "git+https://github.com/o/other@refs/tags/v1"},
    ]
    assert predicate["runDetails"]["builder"] == {"id": "urn:slipway:by-hand"}
    assert slsa.summary(predicate) == {"source": "", "revision": "", "date": ""}
    assert definition["internalParameters"]["ref"] == ""
    subprocess.run(["git", "init", "-q", "-b", "topic", tmp_path], check=True)
    assert source_of(tmp_path)["ref"] == "refs/heads/topic"
    monkeypatch.setenv("GITHUB_REF", "refs/heads/main")
    assert source_of(tmp_path)["ref"] == "refs/heads/main"


def test_provenance_has_one_builder_whoever_calls_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A certificate's identity, or else the workflow that the job is written in, or else nobody's."""
    for name in ("GITHUB_SERVER_URL", "GITHUB_WORKFLOW_REF", "SLIPWAY_WORKFLOW"):
        monkeypatch.delenv(name, raising=False)
    key, job = (SigningConfig.model_validate(each) for each in ({"key": KMS}, JOB))
    assert slsa.builder(key) == "urn:slipway:by-hand"
    assert slsa.builder(job) == JOB["identity"]
    monkeypatch.setenv("GITHUB_SERVER_URL", "https://github.com")
    called = "acme/slipway/.github/workflows/up.yml@refs/heads/main"
    for caller in ("publish", "nightly"):
        monkeypatch.setenv("GITHUB_WORKFLOW_REF", f"acme/slipway/.github/workflows/{caller}.yml@refs/heads/main")
        monkeypatch.setenv("SLIPWAY_WORKFLOW", called)
        assert slsa.builder(key) == slsa.builder(job) == f"https://github.com/{called}"
        monkeypatch.setenv("SLIPWAY_WORKFLOW", "")  # GitHub Enterprise Server does not tell it
        assert slsa.builder(key).endswith(f"/{caller}.yml@refs/heads/main")


@every(
    "build_on, address, expected",
    [
        ("engine", None, "machine"),
        ("engine", "unix:///run/docker.sock", "machine"),
        ("engine", "tcp://r.example:2376", "remote"),
        ("engine", "ssh://r.example", "remote"),
        ("runners", None, "remote"),
    ],
)
def test_provenance_says_whether_another_machine_built(
    monkeypatch: pytest.MonkeyPatch, build_on: str, address: str | None, expected: str
) -> None:
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    if address is not None:
        monkeypatch.setenv("DOCKER_HOST", address)
    assert slsa.engine(build_on) == expected


@every(
    "engines, expected",
    [
        (["ssh://me@builder-arm"], "remote"),
        (["unix:///run/other.sock"], "machine"),
        (["unix:///run/other.sock", "tcp://builder:2375"], "remote"),
    ],
)
def test_provenance_says_where_configured_engines_are(engines: list[str], expected: str) -> None:
    """Level 2 of SLSA is of images that the job's own machine built."""
    assert slsa.engine("engine", engines) == expected


def test_provenance_names_engines_in_their_order() -> None:
    pool = [f"ssh://me@builder-{number}:22" for number in range(3)]
    signing = {"key": "awskms:///arn:aws:kms:eu-west-1:123456789012:key/1234abcd"}
    recorder, _ = run(signing=signing, engines={"linux/amd64": pool}, preview=True)
    provenances = recorder.of_type("pulumi-python:dynamic/image:Provenance")
    shared = Pool("linux/amd64", pool, ["torch", "extras"])
    for name in ("torch", "extras"):
        assert provenances[f"{name}-provenance"]["engines"] == shared.order(name)
    assert not {"engines", "buildOn"} & {*AttestProvenance.triggers}


def test_provenance_has_the_sources_of_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Plan, "sources", lambda _, image: SOURCES if image.spec.name == "torch" else {})
    signing = {"key": "awskms:///arn:aws:kms:eu-west-1:123456789012:key/1234abcd"}
    recorder, _ = run(signing=signing, preview=True)
    provenances = recorder.of_type("pulumi-python:dynamic/image:Provenance")
    assert [provenances[f"{name}-provenance"]["sources"] for name in ("torch", "extras")] == [SOURCES, {}]
    assert "sources" not in AttestProvenance.triggers


def test_login_of_an_image_is_for_its_registrys_host(monkeypatch: pytest.MonkeyPatch) -> None:
    hosts: list[str] = []
    monkeypatch.setattr(cosign, "verify", lambda _ref, _signer, login, _stated: hosts.append(login.host))
    for ref in ("acme/base:1@sha256:" + "a" * 64, "debian@sha256:" + "a" * 64, "r.example:5000/x@sha256:" + "a" * 64):
        VerifyParent().run({"ref": ref, "signer": {"publicKey": PUBLIC}, "username": "me", "password": "hunter2"})
    assert hosts == ["docker.io", "docker.io", "r.example:5000"]


@every("signer", [None, {"publicKey": PUBLIC}])
@every(
    "answer, kept",
    [
        (registry.digest_of(b"1"), True),
        (registry.digest_of(b"2"), False),
        (None, True),
        (RegistryUnreachable("r.example: no route"), True),
    ],
)
def test_refresh_forgets_a_parent_whose_tag_names_another(
    monkeypatch: pytest.MonkeyPatch, answer: str | RegistryUnreachable | None, kept: bool, signer: dict[str, str] | None
) -> None:
    def digest(_: Repository) -> str | None:
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(Repository, "visible_digest", digest)
    ref = "r.example/base/torch:1"
    props = {"ref": ref, "signer": signer, "pulled": f"r.example/base/torch@{registry.digest_of(b'1')}"}
    assert VerifyParent().read("x", props).outs == (props if kept else props | {"ref": ""})


@every("signer", [None, {"publicKey": PUBLIC}])
def test_unreachable_parent_is_by_tag_unless_signed(
    monkeypatch: pytest.MonkeyPatch, signer: dict[str, str] | None
) -> None:
    def digest(_: Repository) -> str:
        raise RegistryUnreachable("r.example: no route")

    monkeypatch.setattr(Repository, "visible_digest", digest)
    props = {"ref": "r.example/base/torch:1", "signer": signer}
    if signer:
        with pytest.raises(RegistryUnreachable, match="no route"):
            VerifyParent().run(props)
    else:
        assert VerifyParent().run(props) == {"by": None, "pulled": props["ref"]}


def test_cosign_failure_is_one_line_and_has_its_own_login(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a stand-in of cosign that shows what it was given."""
    program = tmp_path / "cosign"
    program.write_text(
        '#!/bin/sh\ncat "$DOCKER_CONFIG/config.json" >&2 || true\necho "WARNING: beside" >&2\n'
        'echo "Error: no signatures found" >&2\necho "main.go:62: error during command execution" >&2\nexit 1\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    for image, name in {"r.example/x": "r.example", "docker.io/x": "https://index.docker.io/v1/"}.items():
        config = json.loads(programs._configuration(image, Login(image.partition("/")[0], "me", "hunter2")))
        assert list(config["auths"]) == [name]
        others = Login("elsewhere.example", "me", "hunter2")
        assert programs._configuration(image, others) == programs._configuration(image, None)
    login = Login("r.example", "me", "hunter2")
    ref = "r.example/x@sha256:" + "a" * 64
    with pytest.raises(SlipwayError) as caught:
        cosign.verify(ref, SignerConfig.model_validate({"publicKey": PUBLIC}), login)
    assert str(caught.value) == f"{ref}: cosign verify: no signatures found"


@every("status, unsigned", [(1, 0), (9, 0), (10, 1), (11, 1), (12, 1), (13, 1), (14, 0)])
def test_image_is_unsigned_by_four_statuses_of_cosign(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int, unsigned: bool
) -> None:
    """With any other, nothing is known of its signatures (sigstore/cosign v2.6.3, cmd/cosign/errors/exit_codes.go)."""
    program = tmp_path / "cosign"
    program.write_text(f"#!/bin/sh\necho 'Error: it failed' >&2\nexit {status}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(SlipwayError, match="cosign verify: it failed") as caught:
        cosign.verify(f"r.example/x@sha256:{'a' * 64}", SignerConfig.model_validate({"publicKey": PUBLIC}), None)
    assert isinstance(caught.value, cosign.Unsigned) == unsigned


def test_image_is_signed_again_under_another_tag() -> None:
    new: dict[str, Any] = {
        "ref": "r.example/x/torch@sha256:1",
        "signing": {"key": KMS},
        "signature": "s",
        "annotations": {"tag": "1-base", "fingerprint": "f" * 64},
    }
    assert not SignImage().diff("", new, new).changes
    assert SignImage().diff("", new, {**new, "annotations": {**new["annotations"], "tag": "2-base"}}).changes


@every(
    "stated, difference",
    [
        ([None], "the signature states no tag: Slipway did not make it, and it may be another image's"),
        ([{"tag": "0", "fingerprint": "b"}], "signed with the tag 0, not 1; this is another image, or an older one"),
        ([{"tag": "0"}, None], "signed with the tag 0, not 1; this is another image, or an older one"),
        (
            [{"tag": "1", "fingerprint": "b"}],
            "signed with the fingerprint b, not a; this is another image, or an older",
        ),
        ([{"tag": "1", "fingerprint": "b"}, {"tag": "0", "fingerprint": "a"}], "no signature has all of tag 1, "),
    ],
)
def test_verify_of_another_name_says_what_was_signed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stated: list[Any], difference: str
) -> None:
    program = tmp_path / "cosign"
    answer = json.dumps([{"optional": each} for each in stated])
    program.write_text(f"#!/bin/sh\ncase $* in *--annotations*) exit 12 ;; esac\nprintf '%s' '{answer}'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    ref = "r.example/x@sha256:" + "a" * 64
    for needed in ({"tag": "1", "fingerprint": "a"}, {"fingerprint": "a", "tag": "1"}):  # Pulumi gives either
        with pytest.raises(cosign.Unsigned) as caught:
            cosign.verify(ref, SignerConfig.model_validate({"publicKey": KMS}), None, needed)
        assert str(caught.value).startswith(f"{ref}: {difference}")
        assert "\n" not in str(caught.value)


def test_trust_in_a_registry_is_warned_of_and_no_signing() -> None:
    registry = {"kind": "ghcr", "repository": "ghcr.io/acme/images"}
    assert not load(registry=registry).registry.trusted
    assert not load(registry=registry).warnings
    (line,) = load(registry=registry, trustRegistry=True).warnings
    assert line.startswith(
        "slipway:trustRegistry: whoever may push to ghcr.io/acme/images can replace the build products"
    )
    message = "slipway:signing says already whose build products count; leave trustRegistry out"
    with pytest.raises(SlipwayError, match=f"^stack t: slipway:trustRegistry: .*{message}$"):
        load(registry=registry, trustRegistry=True, signing={"key": KMS})


@every(
    "address, trusted",
    [("127.0.0.1:5000", True), ("localhost:1", True), ("10.0.0.7:5000", False), ("127.1:5", False)],
)
def test_trust_of_a_local_registry_is_that_of_loopback(address: str, trusted: bool) -> None:
    assert load(registry={"kind": "local", "address": address}).registry.trusted is trusted
