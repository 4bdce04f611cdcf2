"""The lock: digests asked of a registry, written, and built on."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from containers.errors import SlipwayError
from containers.registry.client import digest, tag
from containers.registry.credentials import Login
from stacks import flavors, lock, plan
from stacks.config.fetching.mirrors import MirrorsConfig
from stacks.config.stack_config import StackConfig
from stacks.config.stack_file import read_stack
from stacks.identity import pip_packages
from stacks.spec import ImageSpec, Outside, Sibling
from stacks.tags import Suffix
from tests.fakes.package_index import Index, standins, wheel
from tests.fakes.registry import MANIFEST, Registry, skip_retry_waits
from tests.helpers.program_copy import copy_folders
from tests.helpers.refusals import refusal_line
from tests.helpers.sample_repository import Checkout as Repository

ONE, TWO = (f"sha256:{digit * 64}" for digit in "12")
VISION = "https://github.com/pytorch/vision#refs/tags/v0.15.2"


def image(**parents: str) -> ImageSpec:
    return ImageSpec(
        name="a",
        dockerfile="a/Dockerfile",
        parents={name: Outside(reference=reference) for name, reference in parents.items()} | {"S": Sibling(image="s")},
        description="d",
        licenses="MIT",
        suffix=Suffix(variant="base"),
    )


def stack_config(**keys: Any) -> StackConfig:
    return flavors.load({"flavor": "local", **keys}, "test")


def test_digest_of_tag_is_that_of_registry_or_index(registry: Registry) -> None:
    registry.digests["acme/base:1.0"] = ONE
    assert digest(f"{registry.address}/acme/base:1.0") == ONE
    assert registry.requests == ["HEAD /v2/acme/base/manifests/1.0"]
    assert registry.accepted.startswith("application/vnd.oci.image.index.v1+json, ")


def test_digest_fetches_anonymous_token_on_request(registry: Registry) -> None:
    registry.token = "anyone"
    registry.digests["acme/base:1.0"] = ONE
    assert digest(f"{registry.address}/acme/base:1.0") == ONE
    assert registry.requests == [
        "HEAD /v2/acme/base/manifests/1.0",
        "GET /token {'service': ['test'], 'scope': ['repository:acme/base:pull']}",
        "HEAD /v2/acme/base/manifests/1.0",
    ]


@pytest.mark.parametrize(
    ("response", "line"),
    [
        (404, "/acme/base:1.0: no such image, tag or digest in the registry; it may have been deleted (404)"),
        (403, "/acme/base:1.0: the registry requires a login with pull access; run `docker login HOST` (403)"),
        (429, "/acme/base:1.0: the registry's request limit is reached; try again later (429), sent 4 times in 0 s"),
        (500, "/acme/base:1.0: the registry responds with an error (500), sent 4 times in 0 s"),
        ("sha256:1", " sends no valid digest, but 'sha256:1'"),
    ],
)
def test_digest_refused_is_one_line(registry: Registry, response: str | int, line: str) -> None:
    registry.digests["acme/base:1.0"] = response
    with pytest.raises(SlipwayError) as caught:
        digest(f"{registry.address}/acme/base:1.0")
    assert str(caught.value).startswith(registry.address)
    assert str(caught.value).endswith(line.replace("HOST", registry.address))
    assert "\n" not in str(caught.value)


def test_digest_needing_login_is_one_line(registry: Registry) -> None:
    registry.digests["acme/base:1.0"] = 401
    with pytest.raises(
        SlipwayError, match=r"the registry requires a login with pull access; run `docker login \S+` \(401\)$"
    ):
        digest(f"{registry.address}/acme/base:1.0")


def test_tag_adds_name_and_keeps_bytes(registry: Registry) -> None:
    stored = registry.manifest("acme/base:1.0", MANIFEST, {"as": "it is"})
    registry.login = ("AWS", "token")
    for _ in range(2):
        tag(f"{registry.address}/acme/base@{stored}", "keep-t", Login(registry.address, "AWS", "token"))
    assert registry.digests["acme/base:keep-t"] == stored
    assert [line for line in registry.requests if line.startswith("PUT")] == [
        f"PUT /v2/acme/base/manifests/keep-t {MANIFEST}"
    ] * 2


@pytest.mark.parametrize(
    ("login", "line"),
    [
        (
            ("AWS", "hunter2"),
            "the registry rejected the login, or the login has no push access; check slipway:registry's",
        ),
        (
            None,
            "the registry rejected the login, or the login has no push access; check slipway:registry's credentials (401)",
        ),
        (("AWS", "token"), "no such image, tag or digest in the registry; it may have been deleted (404)"),
    ],
)
def test_tag_refused_is_one_line(registry: Registry, login: tuple[str, str] | None, line: str) -> None:
    registry.login = ("AWS", "token")
    with pytest.raises(SlipwayError) as caught:
        tag(f"{registry.address}/acme/base@{ONE}", "keep-t", Login(registry.address, *login) if login else None)
    assert str(caught.value).startswith(f"{registry.address}/acme/base@{ONE}: {line}")
    assert "\n" not in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_digest_of_unreachable_registry_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    skip_retry_waits(monkeypatch)
    with pytest.raises(SlipwayError, match=r"^127.0.0.1:9/a/b:1: request to 127.0.0.1:9 failed: .*refused"):
        digest("127.0.0.1:9/a/b:1")


def test_lock_is_read_back_sorted_and_empty_if_missing(tmp_path: Path) -> None:
    (tmp_path / "stacks").mkdir()
    assert lock.read(tmp_path) == {}
    lock.write(tmp_path, {"r/b:1": TWO, "r/a:1": ONE})
    assert lock.read(tmp_path) == {"r/a:1": ONE, "r/b:1": TWO}
    assert lock.path(tmp_path).read_text().splitlines()[1:] == [f'"r/a:1" = "{ONE}"', f'"r/b:1" = "{TWO}"']
    assert [path.name for path in (tmp_path / "stacks").iterdir()] == ["lock.toml"]


def test_lock_malformed_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "stacks").mkdir()
    lock.path(tmp_path).write_text("<<<<<<< ours\n")
    with pytest.raises(
        SlipwayError, match=r"^stacks/lock.toml: .*; take the file from git, or delete it and run `slipway lock`$"
    ):
        lock.read(tmp_path)


@pytest.mark.parametrize(
    "text", [f'"r/a:1" = "{ONE}"\n"r/a:1" = "{TWO}"\n', f"n = {'9' * 5000}\n", '[packages."a"]\n[packages."a"]\n']
)
def test_lock_with_a_repeated_entry_is_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "stacks").mkdir()
    lock.path(tmp_path).write_text(text)
    assert refusal_line(lock.read, tmp_path).startswith("stacks/lock.toml: ")


def test_lock_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    lock.path(tmp_path).mkdir(parents=True)
    message = refusal_line(lock.read, tmp_path)
    assert message == "stacks/lock.toml: Is a directory; take the file from git, or delete it and run `slipway lock`"


def test_lock_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    message = refusal_line(lock.write, tmp_path, {"r/a:1": ONE})
    assert message == "stacks/lock.toml cannot be written: No such file or directory"


def test_lock_without_room_leaves_no_part_of_it(tmp_path: Path) -> None:
    (tmp_path / "stacks").mkdir()
    (tmp_path / "stacks/lock.new").symlink_to("/dev/full")
    message = refusal_line(lock.write, tmp_path, {"r/a:1": ONE})
    assert message == "stacks/lock.toml cannot be written: No space left on device"
    assert not list((tmp_path / "stacks").iterdir())


@pytest.mark.parametrize(
    ("locked", "tables", "mistake"),
    [
        ({VISION: "<html>"}, lock.Tables(), f"{VISION}: '<html>' is not a commit of 40 hexadecimal digits"),
        (
            {"r/a:1": "sha256:1"},
            lock.Tables(),
            "r/a:1: 'sha256:1' is not a digest such as sha256:<64 hexadecimal digits>",
        ),
        ({}, lock.Tables({"k": {'http://f/a"': "0" * 64}}), "packages: k: 'http://f/a\"': '000"),
    ],
)
def test_lock_of_what_no_lock_can_have_stays(
    tmp_path: Path, locked: dict[str, str], tables: lock.Tables, mistake: str
) -> None:
    (tmp_path / "stacks").mkdir()
    lock.write(tmp_path, {"r/a:1": ONE})
    message = refusal_line(partial(lock.write, tables=tables), tmp_path, locked)
    assert message.startswith(f"stacks/lock.toml: what was received cannot be locked: {mistake}")
    assert message.endswith("; nothing is written")
    assert lock.read(tmp_path) == {"r/a:1": ONE}


def test_tagged_parents_have_the_names_they_are_pulled_by() -> None:
    spec = image(A="debian:12", B=f"r.example/x@{ONE}", C="scratch", D="nvidia/cuda:12", E="127.0.0.1:5000/x")
    mirrors = MirrorsConfig(images={"docker.io/nvidia": "m.example/nv"})
    assert lock.tagged_parents(spec, mirrors) == {"A": "docker.io/library/debian:12", "D": "m.example/nv/cuda:12"}


def test_pinned_uses_digest_of_same_registry_alone() -> None:
    locked = {"docker.io/library/debian:12": ONE}
    (pinned,) = lock.pinned([image(A="debian:12")], stack_config(), locked)
    assert pinned.parents["A"] == Outside(reference="debian:12", digest=ONE)
    elsewhere = stack_config(mirrors={"images": {"docker.io": "m.example"}})
    assert lock.pinned([image(A="debian:12")], elsewhere, locked) == [image(A="debian:12")]


class Checkout:
    """A copy of the stacks and Dockerfiles whose parents come from a registry on loopback."""

    def __init__(self, root: Path, registry: Registry) -> None:
        self.root, self.registry, self.mirrors = root, registry, dict[str, str]()
        copy_folders(root, "cli", "containers", "dockerfiles", "stacks", without=["lock.toml"])

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        mirrors = {"images": {"docker.io": self.registry.address}, **self.mirrors}
        return subprocess.run(
            [sys.executable, "-m", "stacks", *arguments],
            cwd=self.root,
            env={**os.environ, "SLIPWAY_MIRRORS": json.dumps(mirrors)},
            capture_output=True,
            text=True,
            check=False,
        )

    def images(self) -> dict[str, Any]:
        done = self.run("show", "base-cu121", "--json")
        assert (done.returncode, done.stderr) == (0, "")
        graph = json.loads(done.stdout)
        return {image["name"]: image for image in graph["images"]}


TAGS = {
    "pytorch/pytorch": ["v2.0.1", "v2.14.1"],
    "pytorch/vision": ["v0.15.2"],
    "pytorch/audio": ["v2.0.2", "v2.11.0"],
    "deepspeedai/DeepSpeed": ["v0.9.4"],
    "Dao-AILab/flash-attention": ["v2.0.2"],
    "NVIDIA/apex": [],
}
"""Tags that the stacks below are built from. Apex is built from a short commit."""


@pytest.fixture
def github(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with repositories, which git takes for GitHub. Each has a branch; some tags are annotated."""
    folder = tmp_path_factory.mktemp("github")
    first = Repository(folder / "first")
    first.root.mkdir()
    first.git("init", "-q", "--initial-branch=release/9")
    first.write("requirements.txt", "numpy\n-r requirements-build.txt\n")
    first.write("requirements-build.txt", "pyyaml\n")
    first.commit("README", "one")
    for name, tags in TAGS.items():
        repository = Repository(shutil.copytree(first.root, folder / name))
        for release in tags:
            repository.git("tag", *(["-m", "a release"] if name == "pytorch/pytorch" else []), release)
    for name, value in {"COUNT": "1", "KEY_0": f"url.{folder}/.insteadOf", "VALUE_0": "https://github.com/"}.items():
        monkeypatch.setenv(f"GIT_CONFIG_{name}", value)
    return folder


def apex(github: Path) -> str:
    """Return the commit of Apex that ``base-cu121`` is built from."""
    return Repository(github / "NVIDIA/apex").git("rev-parse", "HEAD")


def short_key(commit: str) -> str:
    """Return the name in the lock of its first digits."""
    return f"https://github.com/NVIDIA/apex#{commit[:7]}^{{commit}}"


OF_STACKS: dict[str, list[tuple[str, list[str]]]] = {
    "torch": [("2.0.1", ["numpy", "nvidia-cublas-cu11"]), ("2.14.1", ["numpy"])],
    "torchvision": [("0.15.2", ["torch", "numpy"]), ("0.29.2", ["torch"])],
    "torchaudio": [("2.0.2", ["torch"]), ("2.11.0", ["torch"])],
    "triton": [("2.0.0", [])],
    "numpy": [("1.25", [])],
    "packaging": [("26.0", [])],
    "pydantic": [("1.10", []), ("2.14", [])],
}
"""Packages of the stacks below, by name: the versions, and what each requires."""
TOOLS = "cmake einops hjson mkl-include mkl-static ninja nvidia-cublas-cu11 psutil py-cpuinfo pyyaml tqdm wheel"
"""Packages that require nothing, at one version."""


@pytest.fixture
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Index]:
    folder = tmp_path_factory.mktemp("index")
    standins(folder)
    wheel(folder, "pip", "99.0")
    for name, versions in OF_STACKS.items():
        for version, requires in versions:
            wheel(folder, name, version, requires)
    for name in TOOLS.split():
        wheel(folder, name, "1.0")
    served = Index(folder)
    yield served
    served.close()


@pytest.fixture
def checkout(tmp_path: Path, registry: Registry, github: Path, index: Index) -> Checkout:
    registry.digests |= {
        "nvidia/cuda:12.1.1-base-ubuntu20.04": ONE,
        "nvidia/cuda:12.1.1-cudnn8-devel-ubuntu20.04": ONE,
        "library/debian:bookworm-slim": ONE,
    }
    served = Checkout(tmp_path, registry)
    stack = tmp_path / "stacks/Pulumi.base-cu121.yaml"
    stack.write_text(stack.read_text().replace("38a1269", f'"{apex(github)[:7]}"'))
    served.mirrors["pythonIndex"] = index.url
    return served


def test_lock_of_reachable_hosts_lists_what_is_left(checkout: Checkout) -> None:
    """One registry's entry stays as it was; a platform's or a tag's of others is new; the command says so, and fails."""
    base = f"{checkout.registry.address}/nvidia/cuda:12.1.1-base-ubuntu20.04"
    builder = f"{checkout.registry.address}/nvidia/cuda:12.1.1-cudnn8-devel-ubuntu20.04"
    lock.write(checkout.root, {base: TWO})
    checkout.registry.digests["nvidia/cuda:12.1.1-base-ubuntu20.04"] = 500
    whole = checkout.run("lock", "base-cu121", "--upgrade")
    assert whole.returncode == 1
    assert lock.read(checkout.root) == {base: TWO}
    done = checkout.run("lock", "base-cu121", "--upgrade", "--reachable")
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        f"{base} is left as it was: {base}: the registry responds with an error (500), sent 4 times in 3.5 s",
    ]
    locked = lock.read(checkout.root)
    assert (locked[base], locked[builder]) == (TWO, ONE)
    assert len(locked) > 5
    checkout.registry.digests["nvidia/cuda:12.1.1-base-ubuntu20.04"] = ONE
    assert checkout.run("lock", "base-cu121", "--upgrade", "--reachable").returncode == 0
    assert lock.read(checkout.root)[base] == ONE


def test_signed_parent_is_taken_by_the_signed_digest() -> None:
    """A registry says what the images of a signed index are, and nobody signed those: the index's digest is built on."""
    name = "quay.io/acme/base:1"
    spec = image(BASE_IMAGE=name).model_copy(update={"repository": "a", "platform": "linux/arm64"})
    tables = lock.Tables(platforms={lock.index_key(name, ONE): {"linux/arm64": TWO}})
    signed = {"trust": {"quay.io/acme": {"publicKey": "awskms:///alias/a"}}}
    for keys, expected in (({}, TWO), (signed, ONE)):
        config = stack_config(platforms=["linux/amd64", "linux/arm64"], **keys)
        (pinned,) = lock.pinned([spec], config, {name: ONE}, tables)
        parent = pinned.parents["BASE_IMAGE"]
        assert isinstance(parent, Outside)
        assert parent.digest == expected


def test_moved_parent_has_effect_if_upgraded_alone(checkout: Checkout) -> None:
    reference = f"{checkout.registry.address}/nvidia/cuda:12.1.1-base-ubuntu20.04"
    unlocked = checkout.images()["torch"]
    assert unlocked["parents"]["BASE_IMAGE"] == reference

    done = checkout.run("lock", "base-cu121")
    assert (done.returncode, done.stderr) == (0, "")
    assert f"{reference}: {ONE}" in done.stdout.splitlines()
    locked = checkout.images()["torch"]
    assert locked["parents"]["BASE_IMAGE"] == f"{reference}@{ONE}"
    assert locked["tag"] != unlocked["tag"]

    checkout.registry.digests["nvidia/cuda:12.1.1-base-ubuntu20.04"] = TWO
    assert checkout.run("lock", "base-cu121").stdout == (
        "stacks/lock.toml: nothing new to lock; `slipway lock --upgrade` takes what is newest now\n"
    )
    assert checkout.images()["torch"] == locked
    assert f"{reference}: {ONE} -> {TWO}" in checkout.run("lock", "--upgrade", "base-cu121").stdout.splitlines()
    moved = checkout.images()["torch"]
    assert moved["parents"]["BASE_IMAGE"] == f"{reference}@{TWO}"
    assert moved["tag"] != locked["tag"]


def test_lock_of_some_stacks_keeps_entries_of_others(checkout: Checkout, github: Path) -> None:
    lock.write(checkout.root, {"r.example/unused:1": TWO})
    assert checkout.run("lock", "base-cu121").returncode == 0
    assert lock.read(checkout.root)["r.example/unused:1"] == TWO
    for stack in (checkout.root / "stacks").glob("Pulumi.*.yaml"):
        if stack.name != "Pulumi.base-cu121.yaml":
            stack.unlink()
    assert checkout.run("lock").returncode == 0
    tags = {f"https://github.com/{name}#refs/tags/{tags[0]}" for name, tags in TAGS.items() if tags}
    tags.add(short_key(apex(github)))
    parents = {f"{checkout.registry.address}/{name}" for name in checkout.registry.digests}
    assert set(lock.read(checkout.root)) == parents | tags


WITHOUT = "; `slipway lock --reachable` writes what can be had without it\n"


def test_lock_with_missing_parent_writes_nothing(checkout: Checkout) -> None:
    del checkout.registry.digests["nvidia/cuda:12.1.1-base-ubuntu20.04"]
    done = checkout.run("lock", "base-cu121")
    assert done.returncode == 1
    assert re.fullmatch(
        r"\S+/nvidia/cuda:12.1.1-base-ubuntu20.04: no such image, tag or digest in the registry; it may have been deleted \(404\)"
        + re.escape(WITHOUT),
        done.stderr,
    )
    assert lock.read(checkout.root) == {}


BRANCH = "https://github.com/pytorch/vision#release/9"


@pytest.fixture
def vision(github: Path) -> Repository:
    return Repository(github / "pytorch/vision")


def test_lock_of_unmatched_trust_is_refused(checkout: Checkout) -> None:
    keys = "slipway:flavor: local\n  slipway:trust: {quay.io: {publicKey: 'awskms:///alias/a'}}"
    (checkout.root / "stacks/Pulumi.typo.yaml").write_text(f"config:\n  {keys}\n")
    done = checkout.run("lock", "typo")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("stack typo: slipway:trust: 'quay.io': no parent image comes from there")
    assert not (checkout.root / "stacks/lock.toml").exists()


def of_branch(checkout: Checkout, branch: str) -> dict[str, Any]:
    text = f"""config:
  slipway:flavor: universal
  slipway:cuda: false
  slipway:torch: {{version: 2.14.1, commits: {{vision: {branch}}}}}
"""
    (checkout.root / "stacks/Pulumi.branch.yaml").write_text(text)
    checkout.registry.digests |= {"library/ubuntu:24.04": ONE}
    done = checkout.run("show", "branch", "--json")
    return {image["name"]: image for image in json.loads(done.stdout)["images"]} if not done.returncode else {}


def test_branch_is_built_at_its_locked_commit(checkout: Checkout, vision: Repository) -> None:
    assert of_branch(checkout, "release/9") == {}
    assert checkout.run("show", "branch").stderr == (
        "stack branch: vision-source: the branch 'release/9' of https://github.com/pytorch/vision is not locked to a "
        "commit: run `slipway lock STACK`, and with `--upgrade` for a newer commit\n"
    )
    first = vision.git("rev-parse", "HEAD")
    assert f"{BRANCH}: {first}" in checkout.run("lock", "branch").stdout.splitlines()
    built = of_branch(checkout, "release/9")
    assert built["vision-source"]["args"]["COMMIT"] == first

    vision.commit("README", "two")
    assert of_branch(checkout, "release/9") == built
    checkout.run("lock", "branch", "--upgrade")
    newer = of_branch(checkout, "release/9")
    assert newer["vision-source"]["args"]["COMMIT"] == vision.git("rev-parse", "HEAD")
    moved = {name for name in newer if newer[name]["tag"] != built[name]["tag"]}
    assert moved == {"vision-source", "vision-wheel", "dist", "train"}


def test_branch_is_not_one_whose_name_ends_so(checkout: Checkout, vision: Repository) -> None:
    """To `git ls-remote` a name is a pattern: it lists `a/refs/heads/release/9` too, and before the other."""
    first = vision.git("rev-parse", "HEAD")
    vision.git("checkout", "-q", "-b", "a/refs/heads/release/9")
    vision.commit("README", "another")
    of_branch(checkout, "release/9")
    assert f"{BRANCH}: {first}" in checkout.run("lock", "branch").stdout.splitlines()
    of_branch(checkout, "refs/heads/release/9")
    assert checkout.run("lock", "branch").stderr == (
        "https://github.com/pytorch/vision has no branch 'refs/heads/release/9'" + WITHOUT
    )


def test_lock_of_missing_branch_is_one_line(checkout: Checkout, vision: Repository) -> None:
    of_branch(checkout, "release/8")
    done = checkout.run("lock", "branch")
    assert (done.returncode, done.stderr) == (1, f"{BRANCH.partition('#')[0]} has no branch 'release/8'" + WITHOUT)
    vision.root.rename(vision.root.with_name("moved"))
    done = checkout.run("lock", "branch")
    assert done.returncode == 1
    assert re.fullmatch(r"https://github.com/pytorch/vision: .+\n", done.stderr)


def test_plan_without_lock_file_has_no_digests(tmp_path: Path) -> None:
    (tmp_path / "stacks").mkdir()
    _, specs = plan.specs({"flavor": "base"}, "x", tmp_path)
    assert all(not isinstance(p, Outside) or p.digest is None for spec in specs for p in spec.parents.values())


@pytest.mark.parametrize("stack", ["local", "base-cu121", "nccl-cu121", "nccl-cu132"])
def test_refresh_date_is_an_argument_of_torch_alone(stack: str) -> None:
    _, ordered = plan.resolve(stack)
    refreshed = lock.with_refresh_date(ordered, "2026-11-21")
    assert [spec.name for spec in refreshed if lock.REFRESH_ARG in spec.args] == ["torch"]
    assert lock.with_refresh_date(ordered, None) == ordered
    for before, after in zip(ordered, refreshed, strict=True):
        assert before == after or before.args == {k: v for k, v in after.args.items() if k != lock.REFRESH_ARG}


def test_refresh_date_persists_and_changes_upgraded_tags(
    checkout: Checkout,
) -> None:
    assert checkout.run("lock", "base-cu121").returncode == 0
    before = checkout.images()
    assert checkout.run("lock", "base-cu121", "--refresh").returncode == 0
    date = lock.refresh_date(checkout.root)
    assert date is not None
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", date)
    after = checkout.images()
    assert after["torch"]["args"]["REFRESH"] == date
    changed = {name for name in before if before[name]["tag"] != after[name]["tag"]}
    assert changed == {"torch", "torch-extras"}
    assert checkout.run("lock", "base-cu121").returncode == 0
    assert lock.refresh_date(checkout.root) == date
    assert {f"{checkout.registry.address}/{name}" for name in checkout.registry.digests} < set(lock.read(checkout.root))


def test_lock_has_the_commit_of_an_annotated_tag(checkout: Checkout, github: Path) -> None:
    torch = Repository(github / "pytorch/pytorch")
    assert checkout.run("lock", "base-cu121").returncode == 0
    commit = lock.read(checkout.root)["https://github.com/pytorch/pytorch#refs/tags/v2.0.1"]
    assert commit == torch.git("rev-parse", "HEAD") != torch.git("rev-parse", "v2.0.1")


@pytest.mark.slow
def test_locked_source_alone_has_a_new_tag(checkout: Checkout, vision: Repository) -> None:
    before = checkout.images()
    lock.write(checkout.root, {VISION: vision.git("rev-parse", "HEAD")})
    after = checkout.images()
    moved = {name for name in before if before[name]["tag"] != after[name]["tag"]}
    assert moved == {"vision-source", "vision-wheel", "torch", "torch-extras"}
    lock.write(checkout.root, {VISION.replace("github.com", "git.example"): "0" * 40})
    assert checkout.images() == before


def test_moved_git_tag_is_refused_with_both_commits(checkout: Checkout, vision: Repository) -> None:
    assert checkout.run("lock", "base-cu121").returncode == 0
    before, first = lock.path(checkout.root).read_text(), vision.git("rev-parse", "HEAD")
    vision.commit("README", "two")
    vision.git("tag", "--force", "v0.15.2")
    second = vision.git("rev-parse", "HEAD")
    done = checkout.run("lock", "base-cu121", "--upgrade")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"{VISION} was moved from {first}, which the lock has, to {second}: find out why; to take the new "
        "commit, delete its line in stacks/lock.toml and run `slipway lock`\n"
    )
    assert lock.path(checkout.root).read_text() == before
    lock.write(checkout.root, {name: value for name, value in lock.read(checkout.root).items() if name != VISION})
    assert checkout.run("lock", "base-cu121").returncode == 0
    assert lock.read(checkout.root)[VISION] == second


def test_short_commit_is_locked_with_all_its_digits(checkout: Checkout, github: Path) -> None:
    repository, commit = Repository(github / "NVIDIA/apex"), apex(github)
    repository.git("checkout", "-q", "-b", commit[:7])  # whose name git prefers to the digits
    repository.commit("README", "another")
    line = (
        f"stack base-cu121: all of the commit '{commit[:7]}' of NVIDIA/apex is not in stacks/lock.toml (apex-source): "
    )
    assert line in checkout.run("check", "--locked", "base-cu121").stderr
    assert checkout.run("lock", "base-cu121").returncode == 0
    assert lock.read(checkout.root)[short_key(commit)] == commit
    assert line not in checkout.run("check", "--locked", "base-cu121").stderr

    locked = {**lock.read(checkout.root), short_key(commit): "0" * 40}
    message = refusal_line(lock.write, checkout.root, locked)
    assert f": {short_key(commit)}: '{'0' * 40}' is not a commit that begins with {commit[:7]};" in message
    other = commit[:39] + ("0" if commit[39] != "0" else "1")
    lock.write(checkout.root, {**locked, short_key(commit): other})
    assert checkout.run("lock", "base-cu121", "--upgrade").stderr.startswith(
        f"{short_key(commit)} was moved from {other}, which the "
    )


def test_lock_of_missing_short_commit_is_one_line(checkout: Checkout, github: Path) -> None:
    commit = apex(github)
    Repository(github / "NVIDIA/apex").git("commit", "-q", "--amend", "-m", "gone")
    done = checkout.run("lock", "base-cu121")
    assert (done.returncode, done.stderr) == (
        1,
        f"https://github.com/NVIDIA/apex has no commit '{commit[:7]}' on a branch, or several that begin so" + WITHOUT,
    )


def test_lock_of_missing_git_tag_writes_nothing(checkout: Checkout, vision: Repository) -> None:
    vision.git("tag", "--delete", "v0.15.2")
    done = checkout.run("lock", "base-cu121")
    assert (done.returncode, done.stderr) == (1, "https://github.com/pytorch/vision has no tag 'v0.15.2'" + WITHOUT)
    vision.root.rename(vision.root.with_name("moved"))
    done = checkout.run("lock", "base-cu121")
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
    assert done.stderr.startswith("https://github.com/pytorch/vision: ")
    assert not lock.path(checkout.root).exists()


def test_check_locked_has_a_line_for_each_thing(checkout: Checkout) -> None:
    done = checkout.run("check", "--locked", "base-cu121")
    assert done.returncode == 1
    assert (
        "stack base-cu121: the commit of the tag 'v0.15.2' of pytorch/vision is not in stacks/lock.toml "
        "(vision-source): run `slipway lock base-cu121`"
    ) in done.stderr.splitlines()
    unpinned = [line for line in done.stderr.splitlines() if "is not in stacks/lock.toml" in line]
    assert len(unpinned) == len(TAGS) + len(checkout.registry.digests) + 1
    assert all(line.startswith("stack base-cu121: ") for line in unpinned)


@pytest.mark.slow
def test_check_locked_names_what_the_lock_cannot_have(checkout: Checkout) -> None:
    stack = checkout.root / "stacks/Pulumi.base-cu121.yaml"
    stack.write_text(stack.read_text().replace("{version: 2.0.1,", "{commits: {vision: 04a5102}, version: 2.0.1,"))
    (unknown,) = [line for line in _refused(checkout, "base-cu121") if line.startswith("what pip installs ")]
    assert unknown == (
        "what pip installs (vision-wheel, audio-wheel, deepspeed-wheel, flash-attention-wheel, apex-wheel, torch, "
        "torch-extras) is not known before the build, and the lock cannot have it; docs/guides/parents-and-mirrors.md says "
        "what it can have; of an extra, [<extra>.packages] in stacks/versions/extras.toml says it"
    )
    assert (
        "stack aks-megatron: the hash of each wheel that pip installs is not in stacks/lock.toml (megatron-lm): run "
        "`slipway lock aks-megatron`"
    ) in checkout.run("check", "--locked", "aks-megatron").stderr.splitlines()
    assert "stack base-cu120: " in checkout.run("check", "--locked").stderr
    assert checkout.run("check", "--locked", "base-cu999").stderr.startswith("there is no stack 'base-cu999'")


def test_check_locked_names_what_a_dockerfile_fetches(checkout: Checkout) -> None:
    dockerfile = checkout.root / "dockerfiles/torch/Dockerfile"
    text = dockerfile.read_text()
    dockerfile.write_text(f"# syntax=docker/dockerfile:1\n{text}COPY --from=busybox:1 /bin/true /\n")
    lines = [line for line in _refused(checkout, "base-cu121") if line.startswith("dockerfiles/torch/Dockerfile ")]
    ending = "itself (torch), which the lock cannot have: make an image a parent, by an argument, or write a digest or checksum"
    assert {
        f"dockerfiles/torch/Dockerfile fetches '{name}' {ending}" for name in ("busybox:1", "docker/dockerfile:1")
    } == {*lines}


def _refused(checkout: Checkout, stack: str) -> list[str]:
    """Return what `check --locked` says of a stack."""
    lines = checkout.run("check", "--locked", stack).stderr.splitlines()
    return [line.removeprefix(f"stack {stack}: ") for line in lines if line.startswith(f"stack {stack}: ")]


@pytest.mark.slow
def test_check_locked_accepts_compiled_wheels(checkout: Checkout, index: Index) -> None:
    stack = checkout.root / "stacks/Pulumi.base-cu121.yaml"
    done = checkout.run("lock", "base-cu121")
    assert (done.returncode, done.stderr) == (0, "")
    assert _refused(checkout, "base-cu121") == []
    packages = lock.read_tables(checkout.root).packages
    (torch,) = (files for key, files in packages.items() if " -r pytorch/pytorch v2.0.1 requirements.txt " in key)
    assert [address for address in torch if "/pyyaml-" in address]  # of requirements-build.txt
    every = [address for files in packages.values() for address in files]
    assert not [address for address in every if re.search(r"/torch(vision|audio)?-", address)]
    assert [address for address in every if "/pydantic-1.10-" in address]

    # What wheels are compiled with stays, so that a new lock compiles none; images take the new release.
    wheel(index.folder, "numpy", "1.26")
    assert checkout.run("lock", "base-cu121", "--upgrade").returncode == 0
    kept = {
        key
        for key, files in lock.read_tables(checkout.root).packages.items()
        if any("/numpy-1.25-" in address for address in files)
    }
    assert kept == {key for key in packages if "cmake<4" in key}
    assert len(packages) - len(kept) == 2

    lock.write(checkout.root, lock.read(checkout.root), tables=lock.Tables({key: {} for key in packages}))
    assert len(_refused(checkout, "base-cu121")) == 1
    assert checkout.run("lock", "base-cu121").returncode == 0
    assert _refused(checkout, "base-cu121") == []

    older = "version: 2.0.0, vision: 0.15.1, audio: 2.0.1"
    stack.write_text(stack.read_text().replace("version: 2.0.1, vision: 0.15.2, audio: 2.0.2", older))
    (stale,) = [line for line in _refused(checkout, "base-cu121") if line.startswith("the hash of each wheel")]
    assert stale == (
        "the hash of each wheel that pip installs is not in stacks/lock.toml (torch-wheel, vision-wheel, audio-wheel, "
        "deepspeed-wheel, flash-attention-wheel, apex-wheel, torch, torch-extras): run `slipway lock base-cu121`"
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("-r requirements-none.txt\n", " has no list of requirements 'requirements-none.txt' at v2.0.1"),
        ("-r ../../etc/passwd\n", " has no list of requirements '../../etc/passwd' at v2.0.1"),
        ("--requirement=https://f.example/a.txt\n", " has no list of requirements 'https:/f.example/a.txt' at v2.0.1"),
        ("numpy\n--index-url https://f.example\n", ": requirements.txt at v2.0.1 has an option '--index-url'"),
    ],
)
def test_lock_of_bad_list_of_torch_writes_nothing(checkout: Checkout, github: Path, text: str, line: str) -> None:
    torch = Repository(github / "pytorch/pytorch")
    torch.commit("requirements.txt", text)
    torch.git("tag", "--force", "-m", "a release", "v2.0.1")
    done = checkout.run("lock", "base-cu121")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"https://github.com/pytorch/pytorch{line}\n"
    assert not lock.path(checkout.root).exists()


@pytest.mark.slow
def test_check_locked_accepts_published_wheels_and_vllm(checkout: Checkout) -> None:
    stack, locked = "vllm-cu130", checkout.root / "stacks/Pulumi.vllm-cu130.yaml"
    _, specs = plan.specs(read_stack(stack), "test")
    mirrors = MirrorsConfig.model_validate({"pythonIndex": checkout.mirrors["pythonIndex"]})
    packages = {
        lock.packages_key(spec.packages, spec.platform, mirrors): {"https://f.example/a-1-py3-none-any.whl": "0" * 64}
        for spec in specs
        if spec.packages
    }
    parent = f"{checkout.registry.address}/nvidia/cuda:13.0.3-base-ubuntu24.04"
    lock.write(checkout.root, {parent: ONE}, tables=lock.Tables(packages))
    assert _refused(checkout, stack) == []

    # The lock is of another Python then.
    locked.write_text(locked.read_text().replace("ubuntu24.04", 'ubuntu22.04\n  slipway:python: "3.11"'))
    assert (
        f"the hash of each wheel that pip installs is not in stacks/lock.toml (torch, serve): run `slipway lock {stack}`"
    ) in _refused(checkout, stack)


@pytest.mark.parametrize(
    ("line", "form"),
    [
        (f'"r/a:1" = "{ONE[:-1]}"', "a digest such as"),
        ('"r/a:1" = 1', "a digest such as"),
        (f'"r/a:1" = 0x{"f" * 5000}', "a digest such as"),
        (f'"r/a:1" = "sha256:{"١" * 64}"', "a digest such as"),
        (f'platforms = "{ONE}"', "a platform's digest"),
        ("packages = [[1]]", "the SHA-256 of a file with an address"),
        ('refresh = "2026-13-01"', "a date such as"),
        ('refresh = "٢٠٢٦-٠١-٣١"', "a date such as"),
        ("[r]", "a digest such as"),
        (f'"{VISION}" = "v0.15.2"', "a commit of 40"),
        (f'"{VISION}" = "$(reboot)"', "a commit of 40"),
        ('refresh = "today"', "a date such as"),
    ],
)
def test_lock_edited_by_hand_is_one_line(tmp_path: Path, line: str, form: str) -> None:
    (tmp_path / "stacks").mkdir()
    lock.path(tmp_path).write_text(f'"r/b:1" = "{TWO}"\n{line}\n')
    with pytest.raises(SlipwayError, match=rf"^stacks/lock.toml: \S+: .* is not {form}.*; take the file from git") as e:
        lock.read(tmp_path)
    assert "\n" not in str(e.value)


@pytest.fixture
def local(checkout: Checkout) -> Checkout:
    """A checkout with the stack ``l``, of torch's stand-ins."""
    keys = "slipway:flavor: local\n  slipway:torch: {version: 2.1.0, vision: 0.16.0, audio: 2.1.0}"
    (checkout.root / "stacks/Pulumi.l.yaml").write_text(f"config:\n  {keys}\n")
    return checkout


def image_of(local: Checkout) -> dict[str, Any]:
    (built,) = json.loads(local.run("show", "l", "--json").stdout)["images"]
    return dict(built)


@pytest.mark.slow
def test_python_packages_are_locked_by_hash(local: Checkout, index: Index) -> None:
    lock.write(local.root, {f"{local.registry.address}/library/debian:bookworm-slim": ONE})
    before = image_of(local)
    unpinned = local.run("check", "--locked", "l").stderr
    assert (
        "stack l: the hash of each wheel that pip installs is not in stacks/lock.toml (torch): run `slipway lock l`"
    ) in unpinned.splitlines()
    done = local.run("lock", "l")
    assert (done.returncode, done.stderr) == (0, "")
    ((key, files),) = lock.read_tables(local.root).packages.items()
    assert key == (
        f"linux/amd64 {index.url.rstrip('/')} pip setuptools torch==2.1.0 torchvision==0.16.0 torchaudio==2.1.0 "
        "numpy<2 setuptools<82 python3.11 glibc2.36"
    )
    for address, sha256 in files.items():
        content = (index.folder / address.rpartition("/")[2]).read_bytes()
        assert sha256 == hashlib.sha256(content).hexdigest()
    names = {address.rpartition("/")[2].partition("-")[0] for address in files}
    assert {"pip", "torch", "torchvision", "torchaudio", "mpmath", "setuptools", "nvidia_nvjitlink"} <= names
    assert f"{index.address}/files/setuptools-81.0-py3-none-any.whl" in files
    assert "is not in stacks/lock.toml" not in local.run("check", "--locked", "l").stderr
    assert image_of(local)["tag"] != before["tag"]
    lock.write(local.root, lock.read(local.root))
    assert image_of(local) == before


@pytest.mark.slow
def test_lock_of_other_stacks_keeps_python_packages(local: Checkout) -> None:
    assert local.run("lock", "l").returncode == 0
    packages = lock.read_tables(local.root).packages
    assert local.run("lock", "base-cu121").returncode == 0
    assert packages.items() < lock.read_tables(local.root).packages.items()


@pytest.mark.slow
def test_lock_without_an_index_writes_nothing(local: Checkout, index: Index) -> None:
    index.close()
    done = local.run("lock", "l")
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (1, "", 1)
    assert f"uv finds no packages on {index.url.rstrip('/')}: error: " in done.stderr
    assert not lock.path(local.root).exists()


def test_package_without_a_wheel_is_left_out_of_the_lock(local: Checkout, index: Index) -> None:
    (index.folder / "mpmath-1.3-py3-none-any.whl").unlink()
    done = local.run("lock", "l")
    assert (done.returncode, len(done.stderr.splitlines())) == (0, 1)
    assert done.stderr.startswith("warning: stack l: torch: no Python packages in the lock, so built as without one")
    assert "mpmath" in done.stderr
    assert lock.read(local.root) == {f"{local.registry.address}/library/debian:bookworm-slim": ONE}
    assert lock.read_tables(local.root) == lock.Tables({}, {})
    assert "the hash of each wheel that pip installs is not in" in local.run("check", "--locked", "l").stderr


def test_lock_of_added_packages_moves_no_other_image(local: Checkout, index: Index) -> None:
    parent = f"{local.registry.address}/library/debian:bookworm-slim"
    stack = local.root / "stacks/Pulumi.l.yaml"
    text, before = stack.read_text(), image_of(local)
    stack.write_text(f"{text}  slipway:packages: {{pip: [hjson]}}\n")
    assert local.run("lock", "--packages", "l").returncode == 0
    torch, added = json.loads(local.run("show", "l", "--json").stdout)["images"]
    assert (torch, lock.read(local.root)) == (before, {})
    (files,) = lock.read_tables(local.root).packages.values()
    assert (added["name"], pip_packages.versions(files)) == ("torch-packages", {"hjson": "1.0"})

    # Neither does it where all is locked, and there are newer ones.
    assert "`slipway lock --packages` locks added packages alone" in local.run("lock", "l").stderr
    everything = lock.read_tables(local.root).packages
    local.registry.digests["library/debian:bookworm-slim"] = TWO
    wheel(index.folder, "mpmath", "1.4")
    wheel(index.folder, "newer", "1.0", ["mpmath>=1.4"])
    stack.write_text(f"{text}  slipway:packages: {{pip: [newer]}}\n")
    done = local.run("lock", "--packages", "l")
    assert (done.returncode, "nothing that the image has is replaced" in done.stderr) == (1, True), done.stderr
    assert "(torch-packages): run `slipway lock --packages l`" in local.run("check", "--locked", "l").stderr
    assert (lock.read(local.root), lock.read_tables(local.root).packages) == ({parent: ONE}, everything)


@pytest.mark.parametrize(
    "entry",
    [
        f'"https://me:hunter2@f.example/a.whl" = "{"0" * 64}"',
        f'"https://f.example/a.whl#1" = "{"0" * 64}"',
        f'"https://f.example/ä.whl" = "{"0" * 64}"',
        '"https://f.example/a.whl" = "1"',
        '"https://f.example/\'$(id)" = "' + "0" * 64 + '"',
        '"a.whl" = 1',
    ],
)
def test_packages_edited_by_hand_are_one_line(tmp_path: Path, entry: str) -> None:
    (tmp_path / "stacks").mkdir()
    lock.path(tmp_path).write_text(f'[packages."linux/amd64 a==1"]\n{entry}\n')
    with pytest.raises(SlipwayError, match=r"^stacks/lock.toml: packages: linux/amd64 a==1: .* take the file from git"):
        lock.read(tmp_path)


BOTH = ("linux/amd64", "linux/arm64")


@pytest.fixture
def several(local: Checkout) -> Checkout:
    """A checkout with the stack ``m`` for two platforms, whose parent is an index of both."""
    text = (local.root / "stacks/Pulumi.l.yaml").read_text()
    (local.root / "stacks/Pulumi.m.yaml").write_text(text + f"  slipway:platforms: [{', '.join(BOTH)}]\n")
    publish_index(local, *BOTH)
    return local


def publish_index(checkout: Checkout, *platforms: str, mark: str = "1") -> dict[str, str]:
    """Publish the parent as an index of platforms; return the digest of each."""
    digests = {platform: f"sha256:{mark * 63}{place}" for place, platform in enumerate(platforms)}
    manifests = [
        {
            "mediaType": MANIFEST,
            "size": 1,
            "digest": digest,
            "platform": dict(zip(("os", "architecture"), platform.split("/"), strict=True)),
        }
        for platform, digest in digests.items()
    ]
    kind = "application/vnd.oci.image.index.v1+json"
    checkout.registry.manifest(
        "library/debian:bookworm-slim", kind, {"schemaVersion": 2, "mediaType": kind, "manifests": manifests}
    )
    return digests


def parents_of(checkout: Checkout) -> dict[str, str]:
    images = json.loads(checkout.run("show", "m", "--json").stdout)["images"]
    return {image["platform"]: image["parents"]["BASE_IMAGE"].partition("@")[2] for image in images}


@pytest.mark.slow
def test_platform_of_several_gets_its_own_digest(several: Checkout) -> None:
    parent = f"{several.registry.address}/library/debian:bookworm-slim"
    index = several.registry.digests["library/debian:bookworm-slim"]
    digests = publish_index(several, *BOTH)
    lock.write(several.root, {parent: str(index)})
    assert parents_of(several) == dict.fromkeys(BOTH, index)
    unpinned = several.run("check", "--locked", "m").stderr
    assert "the digest of the parent debian:bookworm-slim for linux/arm64 is not in stacks/lock.toml" in unpinned

    done = several.run("lock", "m")
    assert (done.returncode, done.stderr) == (0, "")
    assert lock.read(several.root)[parent] == index
    assert lock.read_tables(several.root).platforms == {f"{parent}@{index}": digests}
    assert parents_of(several) == digests
    assert "is not in stacks/lock.toml" not in several.run("check", "--locked", "m").stderr

    publish_index(several, *BOTH, mark="2")
    assert parents_of(several) == digests


@pytest.mark.slow
def test_stack_of_one_platform_keeps_the_index(several: Checkout) -> None:
    index = several.registry.digests["library/debian:bookworm-slim"]
    assert several.run("lock", "m", "l").returncode == 0
    assert image_of(several)["parents"]["BASE_IMAGE"].partition("@")[2] == index


@pytest.mark.slow
def test_parent_without_a_platform_names_those_it_has(several: Checkout) -> None:
    publish_index(several, "linux/amd64")
    done = several.run("lock", "m")
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (1, "", 1)
    assert "an index without an image for linux/arm64: linux/amd64 (sha256:" in done.stderr
    several.registry.manifest("library/debian:bookworm-slim", MANIFEST, {"schemaVersion": 2, "mediaType": MANIFEST})
    done = several.run("lock", "m")
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
    assert "one image for one platform, where the stack builds for linux/amd64 and linux/arm64" in done.stderr
    assert not lock.path(several.root).exists()


def test_pinned_has_files_and_digest_of_the_platform() -> None:
    config = stack_config(platforms=[*BOTH])
    spec = flavors.flavor("local").images(stack_config())[0]
    assert spec.packages
    tables = lock.Tables(
        {lock.packages_key(spec.packages, "linux/amd64", config.mirrors): {"https://f.example/a.whl": "0" * 64}},
        {f"docker.io/library/debian:bookworm-slim@{ONE}": {"linux/amd64": TWO}},
    )
    locked = {"docker.io/library/debian:bookworm-slim": ONE}
    whole, part, other = lock.pinned(
        [
            spec,
            spec.model_copy(update={"repository": "torch"}),
            spec.model_copy(update={"repository": "torch", "platform": "linux/arm64"}),
        ],
        config,
        locked,
        tables,
    )
    digests = [it.parents["BASE_IMAGE"].model_dump()["digest"] for it in (whole, part, other)]
    assert digests == [ONE, TWO, ONE]
    assert [bool(it.packages and it.packages.files) for it in (whole, part, other)] == [True, True, False]
