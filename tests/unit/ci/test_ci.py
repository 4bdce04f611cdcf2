"""``python -m ci`` against stand-ins of git remotes, GitHub's API and the issuer of identity tokens."""

from __future__ import annotations

import argparse
import http.client
import json
import shutil
import time
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
import yaml

from ci import actions, identity, machine, public_state, pulumi_stack, repository
from ci.arguments import main
from ci.verbs import comment, lock_date, preview, propose, published, record, resolve
from containers.errors import SlipwayError
from stacks import lock, plan
from stacks.config.stack_file import ROOT, read_stack
from stacks.identity import history
from stacks.identity.history import BRANCH_VARIABLE
from stacks.tags import Revision
from tests.fakes import google
from tests.fakes.github.rest_api import GitHub, serve
from tests.fakes.loopback import serving
from tests.helpers.every import every
from tests.helpers.sample_repository import Checkout

OF = {
    "conclusion": "success",
    "html_url": "https://github.com/acme/slipway/actions/runs/1",
    "head_branch": "feature/x",
    "head_sha": "1234567890",
    "head_repository": {"owner": {"login": "somebody"}},
}


@pytest.fixture
def github(monkeypatch: pytest.MonkeyPatch) -> Iterator[GitHub]:
    with serve() as served:
        monkeypatch.setenv("GITHUB_API_URL", served.address)
        monkeypatch.setenv("GITHUB_REPOSITORY", "acme/slipway")
        monkeypatch.setenv("GITHUB_REPOSITORY_OWNER", "acme")
        monkeypatch.setenv("GITHUB_TOKEN", "the-jobs-own-token")
        yield served


# resolve


@pytest.fixture
def no_history(monkeypatch: pytest.MonkeyPatch) -> None:
    """All images are of one commit: reading the history of each takes a minute, and none is resolved by its tag."""
    monkeypatch.setattr(history, "find", lambda _, prints, *__: dict.fromkeys(prints, Revision(commit="1234567")))


def image_of(folder: str, name: str = "", args: str = "", suffix: str = "") -> tuple[str, str]:
    return resolve.find(resolve.Query(folder, name, resolve.arguments(args), suffix))


@pytest.mark.usefixtures("no_history")
@pytest.mark.parametrize("folder", ["torch", "dockerfiles/torch", "./dockerfiles/torch/"])
def test_find_folder_and_suffix_returns_one_image(folder: str) -> None:
    assert image_of(folder, suffix="base-cuda12.1.1-torch2.0.1-vision0.15.2-audio2.0.2") == ("base-cu121", "torch")
    assert image_of(folder, "torch", "TORCH_VERSION=2.14.1") == ("local", "torch")


@pytest.mark.usefixtures("no_history")
def test_find_all_properties_returns_each_image() -> None:
    for stack, image in resolve._all():
        if image.spec.product:
            continue
        words = "\n".join(f"{key}={value}" for key, value in image.args.items())
        folder = image.spec.dockerfile.rpartition("/")[0]
        assert image_of(folder, image.spec.name, words, image.spec.suffix.render()) == (stack, image.spec.name)
        if image.spec.is_part:
            index = image.spec.published_name
            assert image_of(folder, index, words, image.spec.suffix.render()) == (stack, index)


@pytest.mark.usefixtures("no_history")
@pytest.mark.parametrize(
    ("words", "line"),
    [
        (
            ("torhc",),
            "folder 'torhc': no image has its Dockerfile there (did you mean 'torch'?); expected one of: ",
        ),
        (
            ("torch", "", "TORCH_VERSION=1.0"),
            "folder 'torch', build-args 'TORCH_VERSION=1.0': no image matches; the folder has",
        ),
        (
            ("torch", "torch-extras"),
            "folder 'torch', image-name 'torch-extras': no image matches; the folder has",
        ),
        (
            ("torch", "", "TORCH_VERSION=2.0.1"),
            "folder 'torch', build-args 'TORCH_VERSION=2.0.1': several images match: ",
        ),
        (("torch", "", "TORCH_VERSION"), "build-args: 'TORCH_VERSION': expected KEY=VALUE, one per line"),
    ],
)
def test_find_without_one_match_lists_candidates(words: tuple[str, ...], line: str) -> None:
    with pytest.raises(SlipwayError) as caught:
        image_of(*words)
    assert str(caught.value).startswith(line), caught.value
    assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("no_history")
def test_find_without_a_match_lists_five_candidates_at_most() -> None:
    for folder, count, more in (("universal", 5, " and 1 more; set "), ("megatron", 3, "); set ")):
        with pytest.raises(SlipwayError) as caught:
            image_of(folder, "other")
        candidates = str(caught.value).partition("the folder has: ")[2].partition("; set ")[0]
        assert len(candidates.split(", ")) == count
        assert more in str(caught.value)


# Pulumi


def test_selected_image_has_its_ancestors_only() -> None:
    planned = plan.make("nccl-cu121")
    names = pulumi_stack.selected(planned, "torch")
    assert names[-1] == "torch"
    assert {"nccl-tests", "torch-source", "torch-wheel", "vision-wheel"} < set(names)
    assert not {"torch-extras", "deepspeed-wheel", "apex-source"} & set(names)


def test_published_index_is_scanned_by_platform(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("GITHUB_OUTPUT", raising=False)
    platforms = {platform: {"ref": f"r.example/multi@{platform[6:]}"} for platform in ("linux/amd64", "linux/arm64")}
    images = {"alone": {"ref": "r.example/alone@1"}, "multi": {"ref": "r.example/multi@index", "platforms": platforms}}
    monkeypatch.setattr(published, "names", lambda _: ["t"])
    monkeypatch.setattr(published, "stack", lambda *_: {"outputs": {"images": images}})
    assert published.run(argparse.Namespace()) == 0
    rows = json.loads(capsys.readouterr().out.partition("matrix=")[2])["include"]
    assert [(row["image"], row["ref"]) for row in rows] == [
        ("alone", "r.example/alone@1"),
        ("multi linux/amd64", "r.example/multi@amd64"),
        ("multi linux/arm64", "r.example/multi@arm64"),
    ]
    assert {row["host"] for row in rows} == {"r.example"}


def test_indexes_of_state_have_digest_and_tag() -> None:
    urn = "urn:pulumi:t::slipway::pulumi-python:dynamic/image:ImageIndex::torch"
    outputs = {"ref": "r.example/x/torch:1-local", "digest": "sha256:1", "index": "r.example/x/torch@sha256:1"}
    index = {"urn": urn, "type": "pulumi-python:dynamic/image:ImageIndex", "outputs": outputs}
    image = {"urn": "u::torch-amd64", "type": "docker:index/image:Image", "outputs": {}}
    state = {"deployment": {"resources": [index, {**index, "delete": True, "outputs": {}}, image]}}
    assert public_state.indexes(state) == {
        "torch": {"ref": outputs["index"], "digest": "sha256:1", "tag": "1-local"},
    }


BOTH = ["linux/amd64", "linux/arm64"]


@pytest.fixture(scope="module")
def both() -> plan.Plan:
    return plan.make("nccl-cu132", {**read_stack("nccl-cu132", ROOT), "platforms": BOTH}, search=False)


def test_selected_index_has_images_of_all_platforms(both: plan.Plan) -> None:
    names = pulumi_stack.selected(both, "torch")
    assert {"torch-source", "torch-wheel-amd64", "torch-wheel-arm64", "torch-amd64", "torch-arm64"} < {*names}
    assert names[-2:] == ["nccl-tests", "torch"]
    assert "torch-extras" not in names
    # A parent's index waits for the other platform's image, and so does its own.
    alone = pulumi_stack.selected(both, "torch-arm64")
    assert alone == [name for name in names if not name.endswith("-amd64") and name not in both.indexes]
    assert pulumi_stack.selected(both, "torch", "linux/arm64") == alone
    assert pulumi_stack.selected(both) == [*(image.spec.name for image in both.images), *both.indexes]


def test_selected_platform_leaves_out_the_other_and_indexes(both: plan.Plan) -> None:
    names = {platform: pulumi_stack.selected(both, platform=platform) for platform in BOTH}
    shared = {*names[BOTH[0]]} & {*names[BOTH[1]]}
    assert shared
    assert all(name.endswith("-source") for name in shared)
    assert {*names[BOTH[0]], *names[BOTH[1]]} == {image.spec.name for image in both.images}


@every(
    "image, platform, line",
    [
        ("torhc", "", "stack nccl-cu132 builds no image 'torhc' (did you mean 'torch'?); it builds: "),
        ("", "linux/arm/v7", "stack nccl-cu132 is not for linux/arm/v7; it is for linux/amd64 and linux/arm64"),
        ("torch-amd64", "linux/arm64", "stack nccl-cu132: torch-amd64 is not for linux/arm64 alone"),
    ],
)
def test_selected_refuses_what_stack_has_not(both: plan.Plan, image: str, platform: str, line: str) -> None:
    with pytest.raises(SlipwayError) as caught:
        pulumi_stack.selected(both, image, platform)
    assert str(caught.value).startswith(line)


def test_selected_platform_of_single_stack_is_all_of_it() -> None:
    planned = plan.make("local", search=False)
    assert pulumi_stack.selected(planned, platform="linux/amd64") == ["torch"]


def test_unpublished_config_has_no_secret_and_no_push() -> None:
    text = (
        "secretsprovider: awskms://x\nencryptedkey: AAAA\nencryptionsalt: v1:x\nconfig:\n  slipway:flavor: local\n"
        '  slipway:torch: {version: "2.10"}\n  slipway:registry: {kind: generic, repository: r.example/x, username: u,\n'
        "    password: {secure: v1:abc}}\n  slipway:runsOn: [a, b]\n"
    )
    assert yaml.load(pulumi_stack.unpublished(text), yaml.BaseLoader) == {
        "config": {
            "slipway:flavor": "local",
            "slipway:torch": {"version": "2.10"},
            "slipway:registry": {
                "kind": "generic",
                "repository": "r.example/x",
                "username": "u",
                "password": "[secret]",
            },
            "slipway:runsOn": ["a", "b"],
            "slipway:publish": "false",
        }
    }
    assert yaml.safe_load(pulumi_stack.unpublished(text))["config"]["slipway:publish"] is False


@every(
    "key, value",
    [
        ("runners", "{kind: kubernetes, github: {url: https://github.com/acme, token: {secure: v1:x}}}"),
        ("buildOn", "{kind: ec2, subnets: [subnet-1]}"),
        ("engines", "{linux/arm64: 'ssh://builder@10.0.0.8'}"),
    ],
)
def test_unpublished_config_reaches_no_other_machine(key: str, value: str) -> None:
    text = f"config:\n  slipway:flavor: local\n  slipway:{key}: {value}\n"
    assert yaml.safe_load(pulumi_stack.unpublished(text)) == {
        "config": {"slipway:flavor": "local", "slipway:publish": False}
    }


def test_defined_drops_empty_except_password_of_key() -> None:
    empty = {"AWS_ROLE_ARN": "", "COSIGN_PASSWORD": "", "PATH": "/bin"}
    assert pulumi_stack.defined({**empty, "COSIGN_PRIVATE_KEY": ""}) == {"PATH": "/bin"}
    key = {"COSIGN_PRIVATE_KEY": "-----BEGIN", "PATH": "/bin"}
    assert pulumi_stack.defined({**empty, **key}) == {**key, "COSIGN_PASSWORD": ""}


PREVIEW = """Previewing update (one):
 ~  slipway:image:ImageVariant b update [diff: ~files,tag]

Outputs:
  ~ plan     : {
        a: {
            tag: "1"
        }
      ~ b: {
          ~ tag   : "1" => "2"
            target: <null>
        }
      + c: {
          + tag: "1"
        }
    }

Resources:
    ~ 1 to update
"""


def test_changes_of_preview_omit_unchanged_outputs() -> None:
    unchanged = (
        "        a: {",
        '            tag: "1"',
        "        }",
        "            target: <null>",
        "    }",
        "          }",
    )
    kept = "\n".join(line for line in PREVIEW.splitlines() if line not in unchanged) + "\n"
    assert preview.changes(PREVIEW) == kept.replace("        }\n", "")
    assert preview.changes("error: no stack\n") == "error: no stack\n"


# Public state

ROOT_URN, COMPONENT, IMAGE, PROVIDER = (f"urn:pulumi:t::slipway::{rest}" for rest in (
    "pulumi:pulumi:Stack::slipway-t", "slipway:image:ImageVariant::a",
    "slipway:image:ImageVariant$docker:index/image:Image::a", "pulumi:providers:docker::default_5_2_0",
))  # fmt: skip
REGISTRY = "urn:pulumi:t::slipway::slipway:registry:PasswordRegistry::registry"
CLUSTER = "urn:pulumi:t::slipway::slipway:runners:KubernetesRunners::runners"
SECRET = {"4dabf18193072939515e22adb298388d": "1b47061264138c4ac30d75fd1eb44270", "ciphertext": "v1:AAAA"}


def exported(**outputs: Any) -> dict[str, Any]:
    resources = [
        {"urn": ROOT_URN, "type": "pulumi:pulumi:Stack", "custom": False, "outputs": {"images": {"a": {}}, **outputs}},
        {"urn": REGISTRY, "type": "slipway:registry:PasswordRegistry", "custom": False, "inputs": {"x": SECRET}},
        {"urn": PROVIDER, "type": "pulumi:providers:docker", "custom": True, "id": "1", "parent": CLUSTER,
         "inputs": {"version": "5.2.0", "host": "tcp://x"}, "outputs": {"version": "5.2.0", "host": "tcp://x"}},
        {"urn": COMPONENT, "type": "slipway:image:ImageVariant", "custom": False, "parent": ROOT_URN,
         "inputs": {"args": {"A": "1"}}, "outputs": {"ref": "r/a@sha256:1", "digest": "sha256:1", "tag": "t"}},
        {"urn": IMAGE, "type": "docker:index/image:Image", "custom": True, "id": "x", "parent": COMPONENT,
         "provider": f"{PROVIDER}::1", "dependencies": [REGISTRY, COMPONENT],
         "inputs": {"registry": SECRET}, "outputs": {"registry": SECRET, "repoDigest": "r/a@sha256:1", "imageName": "r/a"}},
    ]  # fmt: skip
    return {"version": 3, "deployment": {"secrets_providers": {"state": {"salt": "v1:x"}}, "resources": resources}}


def test_public_state_keeps_listed_keys_only() -> None:
    state = public_state.public(exported(more="of another"), "c" * 40)
    text = json.dumps(state)
    assert not any(hidden in text for hidden in ("ciphertext", "salt", "tcp://x", "registry", "of another"))
    assert state["commit"] == "c" * 40
    assert state["outputs"] == {"images": {"a": {}}}
    assert public_state.images(state) == {"a": {"ref": "r/a@sha256:1", "digest": "sha256:1", "tag": "t"}}


def test_public_state_names_an_image_as_it_was_pushed() -> None:
    """The official docker provider knows an image that another step pushes by its id, of which a preview knows nothing."""
    state = exported()
    (image,) = (each for each in state["deployment"]["resources"] if each["urn"] == IMAGE)
    image["outputs"]["repoDigest"] = "sha256:2"
    push = f"{COMPONENT.removesuffix('::a')}$pulumi-python:dynamic/image:CompressedPush::a-push"
    state["deployment"]["resources"].append(
        {"urn": push, "type": "pulumi-python:dynamic/image:CompressedPush", "custom": True, "id": "x", "parent": COMPONENT,
         "inputs": {"password": SECRET}, "outputs": {"pushed": "r/a@sha256:1"}},
    )  # fmt: skip
    resources = public_state.public(state, "c" * 40)["resources"]
    assert push not in {each["urn"] for each in resources}
    assert [each["outputs"]["repoDigest"] for each in resources if each["urn"] == IMAGE] == ["r/a@sha256:1"]


def test_public_state_has_checks_apart_from_images() -> None:
    state = exported()
    inputs = {"args": {}, "files": {"a/checks/one": "0123456789ab"}}
    checks = f"{COMPONENT.removesuffix('::a')}$slipway:checks:Checks::a-checks"
    build = f"{checks.removesuffix('::a-checks')}$docker:index/image:Image::a-checks"
    state["deployment"]["resources"] += [
        {"urn": checks, "type": "slipway:checks:Checks", "custom": False, "parent": COMPONENT, "inputs": inputs},
        {"urn": build, "type": "docker:index/image:Image", "custom": True, "id": "x", "parent": checks},
    ]
    public = public_state.public(state, "c" * 40)
    assert list(public_state.images(public)) == ["a"]
    assert public_state.checks(public) == {"a-checks": inputs}
    unbuilt = public_state.state(public, ["a-checks"])["deployment"]["resources"]
    assert {it["urn"] for it in unbuilt} == {ROOT_URN, PROVIDER, COMPONENT, IMAGE, checks}


def test_public_state_with_secret_is_refused() -> None:
    with pytest.raises(SlipwayError, match=r"^the stack's outputs have a secret, so they stay private; "):
        public_state.public(exported(plan={"a": {"args": {"TOKEN": SECRET}}}), "c" * 40)


def test_state_of_unbuilt_images_has_no_dangling_urn() -> None:
    state = public_state.public(exported(), "c" * 40)
    for unbuilt, urns in (((), {IMAGE}), (("a",), set())):
        resources = public_state.state(state, unbuilt)["deployment"]["resources"]
        assert {it["urn"] for it in resources} == {ROOT_URN, PROVIDER, COMPONENT} | urns
        for it in resources:
            assert {*it["dependencies"], it.get("parent", ROOT_URN)} <= {other["urn"] for other in resources}
        assert resources[0]["outputs"] == {"images": {"a": {}}}


# The comment


def reports(folder: Path, **texts: str) -> list[Path]:
    folder.mkdir(exist_ok=True)
    for name, text in texts.items():
        (folder / f"{name}.txt").write_text(text)
    return sorted(folder.glob("*.txt"))


@every(
    "text",
    [
        "```\n</details> @everyone ![x](https://x.example)\n```",
        "`" * 50,
        "\x1b[31mred\x1b[0m\r\n\x00",
        "\u202eevil",
        "~~~",
    ],
)
def test_comment_text_of_report_stays_inside_its_fence(tmp_path: Path, text: str) -> None:
    text = comment.text(OF, reports(tmp_path / "r", one=text))
    fence = next(line for line in text.splitlines() if line.endswith("text")).removesuffix("text")
    inside = text.partition(f"{fence}text\n")[2].partition(f"\n{fence}\n")
    assert fence not in inside[0]
    assert inside[2].split() == ["</details>"]
    assert all(character.isprintable() or character == "\n" for character in text)


def test_comment_text_of_long_reports_is_cut(tmp_path: Path) -> None:
    many = {f"stack{number}": "line\n" * 100_000 for number in range(30)}
    text = comment.text(OF, reports(tmp_path / "r", **many))
    assert len(text) <= 65_536
    assert text.count("... (cut: the log has the rest)") == text.count("<details>") == text.count("</details>") == 30


def test_comment_text_reports_failure_and_no_change(tmp_path: Path) -> None:
    text = comment.text({**OF, "conclusion": "failure"}, [])
    assert text.startswith(comment.MARK)
    assert "1234567 ended with **failure**: [log](https://github.com/acme/slipway/actions/runs/1)" in text
    assert text.endswith("\nUnknown: see the log.\n")
    assert comment.text(OF, []).endswith("\nNo image would change.\n")
    some = reports(tmp_path / "r", one="would change")
    assert "\nReports may be missing: see the log.\n" in comment.text({**OF, "conclusion": "failure"}, some)
    assert "missing" not in comment.text(OF, some)


def commenting(folder: Path, monkeypatch: pytest.MonkeyPatch, of: dict[str, Any]) -> int:
    event = folder / "event.json"
    event.write_text(json.dumps({"workflow_run": of}))
    monkeypatch.setenv("GITHUB_EVENT_PATH", str(event))
    return main(["comment", str(folder / "r")])


def test_comment_goes_only_to_pull_request_with_run_head(
    github: GitHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reports(tmp_path / "r", one="would change")
    github.open(1, "somebody", "feature/x", "another commit since")
    github.open(2, "another", "feature/x", OF["head_sha"])  # type: ignore[arg-type]
    assert commenting(tmp_path, monkeypatch, OF) == 0
    assert capsys.readouterr().out == "no open pull request has 1234567 as its head\n"
    assert github.comments == {1: [], 2: []}
    github.pulls[1]["head"]["sha"] = OF["head_sha"]
    assert commenting(tmp_path, monkeypatch, OF) == 0
    assert [len(github.comments[number]) for number in (1, 2)] == [1, 0]


def test_comment_again_updates_own_comment_only(
    github: GitHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports(tmp_path / "r", one="would change")
    github.open(1, "somebody", "feature/x", OF["head_sha"])  # type: ignore[arg-type]
    theirs = [{"id": number, "user": {"login": "x"}, "body": comment.MARK} for number in range(250)]
    github.comments[1] += theirs
    for _ in range(2):
        assert commenting(tmp_path, monkeypatch, OF) == 0
    assert len(github.comments[1]) == 251
    assert all(one["body"] == comment.MARK for one in github.comments[1][:250])


def test_comment_ignores_report_that_is_a_link(github: GitHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "secret").write_text("of this machine")
    reports(tmp_path / "r")
    (tmp_path / "r/one.txt").symlink_to(tmp_path / "secret")
    github.open(1, "somebody", "feature/x", OF["head_sha"])  # type: ignore[arg-type]
    assert commenting(tmp_path, monkeypatch, OF) == 0
    (created,) = github.comments[1]
    assert "of this machine" not in created["body"]


def test_api_refusal_is_one_line_without_token(
    github: GitHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reports(tmp_path / "r")
    github.refusal = 403
    assert commenting(tmp_path, monkeypatch, OF) == 1
    error = capsys.readouterr().err
    assert error.startswith("GET pulls?state=open&head=somebody%3Afeature%2Fx&per_page=100: 127.0.0.1:")
    assert error.endswith('responds 403: {"message": "Resource not accessible by integration"}\n')
    assert len(error.splitlines()) == 1


# Identity


class Issuer(BaseHTTPRequestHandler):
    """GitHub's issuer of tokens: each has its audience and a number."""

    count = 0

    def do_GET(self) -> None:
        assert self.headers["Authorization"] == "Bearer request"
        Issuer.count += 1
        body = json.dumps({"value": f"{self.path.partition('audience=')[2]}-{Issuer.count}"}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        return


@pytest.fixture
def issuer(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with serving(Issuer) as address:
        monkeypatch.setenv("ACTIONS_ID_TOKEN_REQUEST_URL", f"http://{address}/?api-version=2.0")
        monkeypatch.setenv("ACTIONS_ID_TOKEN_REQUEST_TOKEN", "request")
        yield


@pytest.mark.usefixtures("issuer")
def test_tokens_are_renewed_in_files_until_exit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity, "RENEW_SECONDS", 0.05)
    monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::1:role/slipway")
    monkeypatch.setenv("AZURE_CLIENT_ID", "")
    with identity.tokens(tmp_path) as variables:
        assert set(variables) == {"AWS_WEB_IDENTITY_TOKEN_FILE"}
        file = Path(variables["AWS_WEB_IDENTITY_TOKEN_FILE"])
        first = file.read_text()
        assert first.startswith("sts.amazonaws.com-")
        assert file.stat().st_mode & 0o777 == 0o600
        until = time.monotonic() + 10
        while file.read_text() == first:
            assert time.monotonic() < until
            time.sleep(0.01)
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("issuer")
@pytest.mark.parametrize("answer", [b"<html>", b'{"message": "later"}', b"[]"])
def test_tokens_malformed_response_is_reported_and_retried(
    answer: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(identity, "RENEW_SECONDS", 0.05)
    monkeypatch.setattr(identity, "RETRY_SECONDS", 0.05)
    monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::1:role/slipway")
    monkeypatch.delenv("AZURE_CLIENT_ID", raising=False)
    bad: list[bytes] = []

    def send(*arguments: Any) -> bytes:
        if len(bad) == 2:
            return actions.send(*arguments)
        bad.append(answer)
        return answer

    with identity.tokens(tmp_path) as variables:
        file = Path(variables["AWS_WEB_IDENTITY_TOKEN_FILE"])
        first = file.read_text()
        monkeypatch.setattr(identity, "RENEW_SECONDS", 60)  # the retries are sooner
        monkeypatch.setattr(identity, "send", send)
        until = time.monotonic() + 10
        while file.read_text() in {first, ""} or len(bad) < 2:
            assert time.monotonic() < until
            time.sleep(0.01)
    error = "the job's identity: GitHub's response has no token; try again"
    assert capsys.readouterr().err.splitlines() == [f"token not renewed, trying again: {error}"] * 2


@pytest.mark.usefixtures("issuer")
def test_tokens_broken_response_is_retried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RENEW_SECONDS", "RETRY_SECONDS"):
        monkeypatch.setattr(identity, name, 0.05)
    monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::1:role/slipway")
    with identity.tokens(tmp_path) as variables:
        file = Path(variables["AWS_WEB_IDENTITY_TOKEN_FILE"])
        first = file.read_text()
        broken = iter([http.client.IncompleteRead(b"{")])
        monkeypatch.setattr(identity, "token", lambda audience: _or_raise(next(broken, None)) or f"{audience}-later")
        until = time.monotonic() + 10
        while file.read_text() in {first, ""}:
            assert time.monotonic() < until
            time.sleep(0.01)


def _or_raise(error: Exception | None) -> None:
    if error:
        raise error


@pytest.mark.usefixtures("issuer")
def test_tokens_for_azure_have_its_audience(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ROLE_ARN", raising=False)
    monkeypatch.setenv("AZURE_CLIENT_ID", "00000000-0000-0000-0000-000000000000")
    with identity.tokens(tmp_path) as variables:
        assert Path(variables["AZURE_FEDERATED_TOKEN_FILE"]).read_text().startswith("api%3A%2F%2FAzureADTokenExchange-")


@pytest.mark.usefixtures("issuer")
def test_tokens_for_google_are_named_by_its_credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in identity.CLOUDS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("GOOGLE_SERVICE_ACCOUNT", raising=False)
    monkeypatch.setenv("GOOGLE_WORKLOAD_IDENTITY_PROVIDER", google.PROVIDER)
    with pytest.raises(SlipwayError, match=r"^GOOGLE_SERVICE_ACCOUNT is not set; "), identity.tokens(tmp_path):
        pass
    monkeypatch.setenv("GOOGLE_SERVICE_ACCOUNT", google.ACCOUNT)
    with identity.tokens(tmp_path) as variables:
        file = Path(variables["GOOGLE_APPLICATION_CREDENTIALS"])
        credentials = json.loads(file.read_text())
        assert credentials["audience"] == f"//iam.googleapis.com/{google.PROVIDER}"
        assert credentials["service_account_impersonation_url"].endswith(f"/{google.ACCOUNT}:generateAccessToken")
        token = Path(credentials["credential_source"]["file"])
        assert unquote(token.read_text()).startswith(f"https://iam.googleapis.com/{google.PROVIDER}-")
        assert {path.stat().st_mode & 0o777 for path in (file, token)} == {0o600}
    assert not list(tmp_path.iterdir())


def test_tokens_without_permission_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*identity.CLOUDS, "ACTIONS_ID_TOKEN_REQUEST_URL"):
        monkeypatch.delenv(name, raising=False)
    with identity.tokens(tmp_path) as variables:
        assert variables == {}
    monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::1:role/slipway")
    with pytest.raises(SlipwayError, match=r"^ACTIONS_ID_TOKEN_REQUEST_URL is not set; "), identity.tokens(tmp_path):
        pass


# The branch `published`


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Checkout:
    created = Checkout(tmp_path / "work")
    created.write("stacks/Pulumi.one.yaml", "config: {}\n")
    created.git("init", "-q", "-b", "main")
    created.git("init", "-q", "--bare", str(tmp_path / "remote.git"))
    created.git("remote", "add", "origin", str(tmp_path / "remote.git"))
    created.commit("README.md", "one")
    monkeypatch.setattr(record, "ROOT", created.root)
    return created


def recorded(checkout: Checkout, result: str, **commits: str) -> None:
    folder = checkout.root.parent / "states"
    shutil.rmtree(folder, ignore_errors=True)
    for stack, commit in commits.items():
        (folder / f"published-{stack}").mkdir(parents=True)
        (folder / f"published-{stack}" / f"{stack}.json").write_text(json.dumps({"commit": commit}))
    assert record.run(argparse.Namespace(folder=folder, result=result)) == 0


def published_files(checkout: Checkout) -> dict[str, str]:
    checkout.git("fetch", "-q", "origin", "published")
    names = checkout.git("ls-tree", "-r", "--name-only", "FETCH_HEAD").splitlines()
    return {name: checkout.git("show", f"FETCH_HEAD:{name}") for name in names}


def test_record_of_older_commit_keeps_later_state(checkout: Checkout) -> None:
    older = checkout.git("rev-parse", "HEAD")
    checkout.commit("README.md", "two")
    later = checkout.git("rev-parse", "HEAD")
    recorded(checkout, "success", one=later)
    checkout.git("checkout", "-q", older)
    recorded(checkout, "success", one=older)
    assert published_files(checkout) == {"commit": later, "stacks/one.json": json.dumps({"commit": later})}


def test_record_complete_run_removes_deleted_stacks(checkout: Checkout) -> None:
    old = checkout.root / "stacks/Pulumi.old.yaml"
    old.write_text("config: {}\n")
    head = checkout.git("rev-parse", "HEAD")
    recorded(checkout, "failure", one=head, old=head)
    assert set(published_files(checkout)) == {"stacks/one.json", "stacks/old.json"}
    old.unlink()
    recorded(checkout, "skipped")
    assert published_files(checkout) == {"commit": head, "stacks/one.json": json.dumps({"commit": head})}
    assert checkout.git("rev-list", "--count", "FETCH_HEAD") == "2"
    recorded(checkout, "skipped")
    assert checkout.git("rev-list", "--count", "origin/published") == "2"


def test_record_after_concurrent_push_keeps_both_states(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    head = checkout.git("rev-parse", "HEAD")
    push = repository.push
    raced: list[str] = []

    def slowly(root: Path, commit: str, branch: str) -> None:
        if not raced:
            raced.append(commit)
            other = repository.commit(root, None, {"stacks/other.json": json.dumps({"commit": head})}, "faster")
            assert other
            push(root, other, branch)
        push(root, commit, branch)

    monkeypatch.setattr(repository, "push", slowly)
    recorded(checkout, "failure", one=head)
    assert set(published_files(checkout)) == {"stacks/one.json", "stacks/other.json"}


def test_record_rejected_push_is_one_line(checkout: Checkout) -> None:
    hook = checkout.root.parent / "remote.git/hooks/pre-receive"
    hook.write_text("#!/bin/sh\necho protected branch >&2\nexit 1\n")
    hook.chmod(0o755)
    with pytest.raises(SlipwayError, match=r"^git push: ") as caught:
        recorded(checkout, "success", one=checkout.git("rev-parse", "HEAD"))
    assert "\n" not in str(caught.value)


def test_each_read_of_the_remote_has_the_jobs_login(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a private repository, which says to nobody else that it is there. A remote elsewhere gets none."""
    remote, asked = checkout.root.parent / "remote.git", list[str | None]()
    head = checkout.git("rev-parse", "HEAD")
    repository.push(checkout.root, head, "main")
    checkout.git(f"--git-dir={remote}", "update-server-info")

    class Private(SimpleHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.headers["Authorization"])
            if asked[-1] == "basic eC1hY2Nlc3MtdG9rZW46dGhlLWpvYnMtb3duLXRva2Vu":
                return super().do_GET()
            return self.send_error(404)

        def log_message(self, *_: object) -> None: ...

    with serving(partial(Private, directory=str(remote))) as place:
        address = f"http://{place}"
        checkout.git("remote", "set-url", "origin", address)
        monkeypatch.setenv("GITHUB_TOKEN", "the-jobs-own-token")
        monkeypatch.setenv("GITHUB_SERVER_URL", address)
        assert repository.fetch(checkout.root, "main") == head
        asked.clear()
        monkeypatch.setenv("GITHUB_SERVER_URL", "https://github.com")
        with pytest.raises(SlipwayError, match="not found"):
            repository.fetch(checkout.root, "main")
    assert set(asked) == {None}


# Proposals

REQUEST = argparse.Namespace(branch="parents", title="Parents or packages have moved", paths=["stacks/lock.toml"])
LOCK = "stacks/lock.toml"
MOVED = {"docker.io/library/debian:bookworm-slim": f"sha256:{'2' * 64}"}


@pytest.fixture
def night(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> Checkout:
    for module in (propose, lock_date):
        monkeypatch.setattr(module, "ROOT", checkout.root)
    monkeypatch.setenv("GITHUB_REF_NAME", "main")
    lock.write(checkout.root, {}, "2026-01-05")
    checkout.commit("README.md", "two")
    return checkout


def proposing(checkout: Checkout, title: str = REQUEST.title, **written: Any) -> str:
    """Propose a lock and return the branch's commit; the checkout is as it was."""
    lock.write(checkout.root, **written)
    assert propose.run(argparse.Namespace(**{**vars(REQUEST), "title": title})) == 0
    checkout.git("checkout", "-q", LOCK)
    return checkout.git("ls-remote", "origin", "refs/heads/parents").partition("\t")[0]


def test_propose_same_content_keeps_branch_and_pull(night: Checkout, github: GitHub) -> None:
    first = proposing(night, locked=MOVED)
    night.commit("README.md", "three")
    assert proposing(night, locked=MOVED) == first
    assert len(github.dispatched) == len(github.pulls) == 1
    assert proposing(night, locked=MOVED, refresh="2026-01-12") != first
    assert len(github.dispatched) == 2


def test_propose_says_where_to_see_what_is_built_again(night: Checkout, github: GitHub) -> None:
    proposing(night, locked=MOVED)
    assert [(pull["title"], pull["body"]) for pull in github.pulls.values()] == [
        (
            "Parents or packages have moved",
            "Written by the workflow `nightly`. The report of `preview` lists what is built again.",
        )
    ]


def test_propose_other_content_gives_the_pull_its_title(night: Checkout, github: GitHub) -> None:
    proposing(night, locked=MOVED)
    body = github.pulls[1]["body"]
    proposing(night, "Packages have been mended", locked=MOVED)
    assert github.pulls[1]["title"] == "Parents or packages have moved", "the content is that of the title"
    proposing(night, "Packages have been mended", locked=MOVED, refresh="2026-01-12")
    assert [*github.pulls] == [1]
    assert (github.pulls[1]["title"], github.pulls[1]["body"]) == ("Packages have been mended", body)


def test_propose_after_file_changed_on_main_pushes_again(night: Checkout, github: GitHub) -> None:
    first = proposing(night, locked=MOVED)
    lock.write(night.root, {}, "2026-01-12")
    night.commit("README.md", "three")
    assert proposing(night, locked=MOVED) != first
    night.git("fetch", "-q", "origin", "parents")
    assert night.git("rev-parse", "FETCH_HEAD~1") == night.git("rev-parse", "HEAD")
    github.pulls.clear()  # closed; what moves is proposed again
    assert proposing(night, locked=MOVED)
    assert len(github.pulls) == 1


@pytest.mark.parametrize(
    ("there", "kept"), [("2026-01-12", "2026-01-12"), ("2025-12-29", "2026-01-05"), (None, "2026-01-05")]
)
def test_lock_date_of_open_pull_is_kept(
    there: str | None, kept: str, night: Checkout, github: GitHub, capsys: pytest.CaptureFixture[str]
) -> None:
    proposing(night, locked=MOVED, refresh=there)
    capsys.readouterr()
    assert lock_date.run(REQUEST) == 0
    line = f"kept the refresh of {there} from the open pull request\n"
    assert (lock.refresh_date(night.root), capsys.readouterr().out) == (kept, line if kept == there else "")
    assert not lock.read(night.root), "the next lock looks up all digests"
    night.git("checkout", "-q", LOCK)
    github.pulls.clear()
    assert lock_date.run(REQUEST) == 0
    assert lock.refresh_date(night.root) == "2026-01-05", "a closed pull request does not count"


# Machines


@every("where", ["github-hosted", "self-hosted"])
def test_make_room_removes_tools_on_hosted_runners_only(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sudo").write_text('#!/bin/sh\nexec "$@"\n')
    (tmp_path / "sudo").chmod(0o755)
    tools = [tmp_path / name for name in ("there", "not there")]
    tools[0].mkdir()
    monkeypatch.setattr(machine, "UNUSED", tools)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("RUNNER_ENVIRONMENT", where)
    machine.make_room()
    assert tools[0].exists() == (where == "self-hosted")


# Command line


def test_publish_without_backend_variable_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PULUMI_BACKEND_URL", "")
    assert main(["publish", "local"]) == 1
    error = capsys.readouterr().err
    assert error.startswith("PULUMI_BACKEND_URL is not set; ")
    assert len(error.splitlines()) == 1


@every(
    "words, line",
    [
        (["publish", "lokal"], "there is no stack 'lokal' (did you mean 'local'?)"),
        (
            ["publish", "local", "--image", "torhc"],
            "stack local builds no image 'torhc' (did you mean 'torch'?); it builds: torch",
        ),
        (["preview", "lokal"], "there is no stack 'lokal' (did you mean 'local'?)"),
    ],
)
def test_main_unknown_name_is_one_line(
    words: list[str], line: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(BRANCH_VARIABLE, "")  # `preview` sets it; taken back afterwards
    assert main(words) == 1
    error = capsys.readouterr().err
    assert error.startswith(line)
    assert len(error.splitlines()) == 1


def test_output_with_line_break_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "output"
    monkeypatch.setenv("GITHUB_OUTPUT", str(file))
    actions.output("tag", "a\nmatrix={}")
    assert file.read_text() == "tag=a matrix={}\n"
