"""The git tags that builds fetch: known from their scripts, and replaced by the commits of the lock."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from containers.dockerfile.context import Folder
from stacks import flavors, lock, plan
from stacks.config.fetching.mirrors import MirrorsConfig
from stacks.config.stack_file import ROOT, read_stack, stack_names
from stacks.identity import staged_context
from stacks.identity.content import CheckoutContents, contexts
from stacks.identity.fingerprint import fingerprints
from stacks.identity.git_sources import SCRIPT, refs
from stacks.spec import CONTEXT
from tests.helpers.every import every
from tests.helpers.sample_repository import Checkout
from tests.unit.identity.test_content import spec

CALL = 'exec /srv/build/fetch-source owner/name "v$VERSION" /src\n'


@every(
    "script, expected",
    [
        (CALL, ["owner/name v2"]),
        ('commit=$(/srv/fetch-source owner/name "$RELEASE" "$1$place" | tail -n 1)\n', ["owner/name 24.12"]),
        ('fetch-source owner/name "${COMMIT:-v$VERSION}" /src\n', ["owner/name v2"]),
        ('fetch-source owner/name "${SHORT:-v$VERSION}" /src\n', ["owner/name 38a1269"]),
        ('fetch-source owner/name "v$ABSENT" /src\n', []),
        ("# fetch-source REPOSITORY REF DIRECTORY\n", []),
        ('echo "fetch-source: no such tag" >&2\n', []),
        (f'[ -n "$VERSION" ] && [ "$RELEASE" = 24 ] || exit 0\n{CALL}', []),
        (f'[ -n "$ABSENT" ] || exit 0\n{CALL}', []),
        (f'[ -n "$VERSION" ] && [ "$RELEASE" = 24.12 ] || exit 0\n{CALL}', ["owner/name v2"]),
        (f'[ "$UNKNOWN" = build ] || exit 0\n{CALL}', ["owner/name v2"]),
        (f'{CALL}[ -n "$ABSENT" ] || exit 0\n', ["owner/name v2"]),
        (f'  [ -n "$ABSENT" ] || exit 0\n{CALL}', ["owner/name v2"]),
        (f'ABSENT=1\n[ -n "$ABSENT" ] || exit 0\n{CALL}', ["owner/name v2"]),
        (f': "${{ABSENT:=1}}"\n[ -n "$ABSENT" ] || exit 0\n{CALL}', ["owner/name v2"]),
        (f'read -r ABSENT <f\n[ -n "$ABSENT" ] || exit 0\n{CALL}', ["owner/name v2"]),
        (f'. ./names\n[ -n "$ABSENT" ] || exit 0\n{CALL}', ["owner/name v2"]),
        (f'[ -n "$ABSENT" ] || exit 0\nABSENT=1\n{CALL}', []),
        ('ABSENT=1\nfetch-source owner/name "v$ABSENT" /src\n', ['owner/name "v$ABSENT"']),
        ('fetch-source "$OTHER" "$REF" /src\n', ['"$OTHER" "$REF"']),
    ],
)
def test_tags_of_a_script_follow_from_arguments(script: str, expected: list[str]) -> None:
    arguments = {"VERSION": "2", "RELEASE": "24.12", "COMMIT": "", "SHORT": "38a1269", "ABSENT": ""}
    assert [*refs({"a/build": script, SCRIPT: CALL}, arguments)] == expected


@every(
    "line, expected",
    [
        ("", {}),
        ("ENV EXTRA=$EXTRA\n", {}),
        ("ENV EXTRA=1\n", {"owner/name v2": None}),
        ("ENV EXTRA=$PATH\n", {"owner/name v2": None}),
        ("ENV VERSION=3 EXTRA=1\n", {'owner/name "v$VERSION"': None}),
    ],
)
def test_variable_that_env_sets_decides_no_guard(tmp_path: Path, line: str, expected: dict[str, None]) -> None:
    text = f"FROM scratch\nARG VERSION\nARG EXTRA=\n{line}COPY common run /\n"
    for path, content in {"a/Dockerfile": text, "run": f'[ -n "$EXTRA" ] || exit 0\n{CALL}', SCRIPT: CALL}.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(content)
    assert CheckoutContents(lambda _: Folder(tmp_path)).of(spec()).sources == expected


HEAD = "FROM debian:12 AS base\nARG EXTRA=\n"
RUN = "COPY common run /\nRUN /run\n"
NAMELESS = "ARG VERSION\nCOPY common run /\nRUN for i in /r*; do $i; done\nCOPY --from=a /x /\n"


@every(
    "text, expected",
    [
        (f"FROM scratch\nARG VERSION\nARG EXTRA=\n{RUN}", []),
        (f"FROM scratch AS base\nARG EXTRA=\nENV EXTRA=1\nFROM base\nARG VERSION\n{RUN}", ["owner/name v2"]),
        (f"FROM debian:12\nARG VERSION\nARG EXTRA=\n{RUN}", []),
        ("FROM debian:12\nARG VERSION\nARG EXTRA=\nCOPY common run /\nRUN [ '/run' ]\n", []),
        (f"FROM debian:12\nARG VERSION\nARG EXTRA\n{RUN}", ["owner/name v2"]),
        # The parent's ENV counts where no ARG of the stage comes before the step.
        (f"FROM debian:12\nARG VERSION\n{RUN}ARG EXTRA=\n", ["owner/name v2"]),
        (f"{HEAD}FROM debian:12\nARG VERSION\n{RUN}COPY --from=base /x /\n", ["owner/name v2"]),
        (f"{HEAD}ARG VERSION\nFROM base\nARG VERSION\n{RUN}", ["owner/name v2"]),
        (f"{HEAD}FROM base\nARG VERSION\nARG EXTRA=\n{RUN}", []),
        # A step without the script, or that runs another one, decides nothing.
        (
            f"FROM debian:12 AS a\nCOPY run /\nRUN /run\nFROM debian:12\nCOPY --from=a /x /\nARG VERSION\nARG EXTRA=\n{RUN}",
            [],
        ),
        (f"FROM debian:12\nCOPY common /common\nRUN true\nARG VERSION\nARG EXTRA=\n{RUN}RUN a/other\n", []),
        # The steps' names: of a script that names it, and of none, where all may run it.
        (
            "FROM debian:12\nARG VERSION\nCOPY common a/caller run /\nRUN /caller\nARG EXTRA=\nRUN true\n",
            ["owner/name v2"],
        ),
        (
            "FROM debian:12\nARG VERSION\nCOPY common run /\nRUN for i in /r*; do $i; done\nARG EXTRA=\n",
            ["owner/name v2"],
        ),
        # That one step names the script decides nothing of another that runs it without its name.
        (f"FROM debian:12 AS a\nARG VERSION\nARG EXTRA=\n{RUN}FROM debian:12\n{NAMELESS}", ["owner/name v2"]),
        (
            "FROM debian:12\nRUN --mount=type=bind,source=/,target=/mnt /mnt/run\nARG VERSION\nARG EXTRA=\n",
            ['owner/name "v$VERSION"'],
        ),
        # An argument of another stage has another value.
        (
            f"FROM scratch AS a\nARG EXTRA=1\nARG VERSION\n{RUN}FROM scratch\nARG EXTRA=\nCOPY --from=a /x /\n",
            ["owner/name v2"],
        ),
    ],
)
def test_guard_counts_the_env_that_a_step_may_have(tmp_path: Path, text: str, expected: list[str]) -> None:
    files = {
        "a/Dockerfile": text,
        "run": f'[ -n "$EXTRA" ] || exit 0\n{CALL}',
        "a/caller": "exec ./run\n",
        SCRIPT: CALL,
    }
    for path, content in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(content)
    assert [*CheckoutContents(lambda _: Folder(tmp_path)).of(spec(parents={})).sources] == expected


def test_tags_of_a_component_are_those_of_its_source_file() -> None:
    scripts = {
        "fetch": 'exec /srv/build/fetch-source "$repository" "${COMMIT:-$tag}" "$1"\n',
        "sources/x": "repository=owner/x\ntag=v$VERSION\n",
    }
    assert [*refs(scripts, {"VERSION": "2", "COMMIT": ""})] == ["owner/x v2"]
    assert [*refs(scripts, {"VERSION": "2", "COMMIT": "0" * 40})] == [f"owner/x {'0' * 40}"]
    assert [*refs(scripts, {"VERSION": "2", "COMMIT": "0" * 12})] == [f"owner/x {'0' * 12}"]


def test_steps_of_a_dockerfile_fetch_too(tmp_path: Path) -> None:
    files = {
        "a/Dockerfile": "FROM scratch\nARG A=1\nARG B=\nCOPY common /\n"
        'RUN [ -z "$B" ] || fetch-source owner/b "v$B" /b\n'
        'RUN true && fetch-source owner/a "v$A" /a && \\\n    fetch-source owner/c "${A}.2" /c\n'
        'RUN fetch-source owner/d "$(cat /tag)" /d\n'
        "RUN # fetch-source owner/e 1 /e\n",
        SCRIPT: CALL,
    }
    for path, content in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(content)
    found = [*CheckoutContents(lambda _: Folder(tmp_path)).of(spec(parents={})).sources]
    assert found == ["owner/a v1", "owner/c 1.2", 'owner/d "$(cat']


def test_commit_of_a_component_counts_without_a_version() -> None:
    scripts = {
        "fetch": 'fetch-source "$repository" "${COMMIT:-$tag}" "$1"\n',
        "sources/x": "repository=o/x\ntag=$VERSION\n",
    }
    assert [*refs(scripts, {"VERSION": "", "COMMIT": "0" * 40})] == [f"o/x {'0' * 40}"]
    assert [*refs(scripts, {"VERSION": "", "COMMIT": ""})] == []


def test_repositories_of_all_stacks_are_those_of_all_scripts() -> None:
    contents = CheckoutContents(contexts(ROOT))
    sources = {
        source.partition(" ")[0]
        for stack in stack_names()
        for image in plan.make(stack, contents=contents, search=False).images
        for source in image.content.sources
    }
    scripts = [path.read_text() for path in (ROOT / CONTEXT).rglob("*") if path.is_file() and path.suffix != ".md"]
    named = {
        name for text in scripts for name in re.findall(r"^[^#\n]*fetch-source ([\w-]+/[\w-]+) ", text, re.MULTILINE)
    }
    assert named - sources == {"NVIDIA/nccl", "facebookresearch/xformers"}  # no stack has them
    assert all(re.fullmatch(r"[\w-]+/[\w-]+", source) for source in sources)


@every("source, expected", [("package", []), ("build", ["NVIDIA/nccl v2.29.7-1"])])
def test_nccl_of_efa_is_fetched_only_to_be_compiled(source: str, expected: list[str]) -> None:
    nccl = {"version": "2.29.7-1", "source": source, "tests": False}
    (image,) = plan.make("efa", {**read_stack("efa"), "nccl": nccl}, search=False).images
    assert [*image.content.sources] == expected


def test_sources_of_an_image_are_those_of_its_products(monkeypatch: pytest.MonkeyPatch) -> None:
    vision = "pytorch/vision v0.15.2"
    monkeypatch.setattr(lock, "read", lambda _: {lock.source_key(vision, MirrorsConfig()): "a" * 40})
    planned = plan.make("base-cu121", search=False)
    torch = planned.image("torch")
    assert planned.sources(torch) == {
        "git+https://github.com/pytorch/pytorch@refs/tags/v2.0.1": "",
        "git+https://github.com/pytorch/vision@refs/tags/v0.15.2": "a" * 40,
        "git+https://github.com/pytorch/audio@refs/tags/v2.0.2": "",
    }
    assert "sources" not in torch.contents
    assert planned.image("vision-source").contents["sources"] == {vision: "a" * 40}


def test_source_known_to_the_build_alone_has_no_uri() -> None:
    planned = plan.make("efa", search=False)
    image = planned.image()
    sources = {"owner/name $REF": None, '"$repository" v1': None, "owner/name v1": None}
    image = replace(image, content=replace(image.content, sources=sources))
    assert planned.sources(image) == {"git+https://github.com/owner/name@refs/tags/v1": ""}


def test_source_of_a_mirror_is_named_where_it_is_fetched() -> None:
    commit = "266f1c97dca477ca8b92c16087506da2000b0b84"
    planned = plan.make(
        "aks-megatron", {**read_stack("aks-megatron"), "mirrors": {"git": "http://git.example/x/"}}, search=False
    )
    assert planned.sources(planned.image()) == {
        f"git+http://git.example/x/NVIDIA/Megatron-LM@{commit}": commit,
        "git+http://git.example/x/NVIDIA/NeMo-Framework-Launcher@refs/tags/24.12": "",
    }


@every("name", ["https://github.com/owner/name#refs/tags/38a1269", "https://github.com/owner/name#v1^{commit}"])
def test_entry_of_another_kind_locks_nothing(name: str) -> None:
    """A build takes 38a1269 for a commit, and v1 for a tag."""
    (pinned,) = lock.pinned([spec(parents={})], flavors.load({"flavor": "local"}, "x"), {name: "a" * 40})
    assert pinned.commits == {}


def test_short_commit_is_built_and_attested_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    apex, commit = "NVIDIA/apex 38a1269", f"38a1269{'a' * 33}"
    monkeypatch.setattr(lock, "read", lambda _: {lock.source_key(apex, MirrorsConfig()): commit})
    planned = plan.make("base-cu121", search=False)
    source = planned.image("apex-source")
    assert source.contents["sources"] == {apex: commit}
    assert f'\'{apex}\') set -- "$1" {commit} "$3"' in source.content.prologues[SCRIPT].lines
    extras = planned.sources(planned.image("torch-extras"))
    assert extras["git+https://github.com/NVIDIA/apex@38a1269"] == commit


def test_commit_that_a_stack_names_is_none_of_the_lock(root: Path) -> None:
    commit = "c" * 40
    commits = {f"owner/name {commit}": "d" * 40}
    (root / CONTEXT / "a/run").write_text(f"fetch-source owner/name {commit} /src\n")
    content = CheckoutContents(contexts(root)).of(spec(commits=commits, parents={}))
    assert content.sources == {f"owner/name {commit}": commit}
    assert content.locked_sources == {}
    assert SCRIPT not in content.prologues


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A checkout with an image that fetches a tag, and the repository below ``git``."""
    context = tmp_path / CONTEXT
    for path, text in {
        "a/Dockerfile": "FROM scratch\nARG VERSION=1\nCOPY common/build /build\nCOPY a/run /\nRUN /run\n",
        "a/Dockerfile.dockerignore": "*\n!a\n!common\n",
        "a/run": CALL,
        SCRIPT: (ROOT / CONTEXT / SCRIPT).read_text(),
    }.items():
        (context / path).parent.mkdir(parents=True, exist_ok=True)
        (context / path).write_text(text)
    (context / SCRIPT).chmod(0o755)
    repository = Checkout(tmp_path / "git" / "owner" / "name")
    repository.root.mkdir(parents=True)
    repository.git("init", "-q")
    repository.git("config", "uploadpack.allowAnySHA1InWant", "true")
    repository.commit("file", "one\n")
    repository.git("tag", "v2")
    return tmp_path


def test_locked_commit_is_fetched_after_its_tag_moved(root: Path) -> None:
    repository = Checkout(root / "git" / "owner" / "name")
    commit = repository.git("rev-parse", "HEAD")
    repository.commit("file", "two\n")
    repository.git("tag", "--force", "v2")
    fetched = {}
    for commits in ({}, {"owner/name v2": commit}):
        content = CheckoutContents(contexts(root)).of(spec(commits=commits, parents={}))
        assert content.sources == {"owner/name v2": commits.get("owner/name v2")}
        staged_context.write([content], root)
        script, target = root / content.folder / SCRIPT, root / content.folder / "src"
        words = [str(script), "owner/name", "v2", str(target)]
        subprocess.run(words, env={**os.environ, "GIT_MIRROR": (root / "git").as_uri()}, check=True)
        fetched[commits.get("owner/name v2")] = (target / "file").read_text()
    assert fetched == {None: "two\n", commit: "one\n"}


def test_commit_of_another_source_changes_nothing(root: Path) -> None:
    def fingerprint(**commits: str) -> str:
        names = {name.replace("_", "/", 1).replace("_", " "): commit for name, commit in commits.items()}
        content = CheckoutContents(contexts(root)).of(spec(commits=names, parents={}))
        return fingerprints([content])[content.spec.name]

    assert fingerprint() == fingerprint(owner_name_v3="0" * 40) == fingerprint(owner_other_v2="0" * 40)
    assert len({fingerprint(), fingerprint(owner_name_v2="0" * 40), fingerprint(owner_name_v2="1" * 40)}) == 3
