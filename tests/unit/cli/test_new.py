"""``slipway new``: a stack file with what was given and a tag of its own, or nothing."""

from __future__ import annotations

import re
import shlex
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from cli import stack_checks
from cli.keys import new_stack, questions
from cli.main import main
from containers.errors import SlipwayError
from stacks import flavors, plan
from stacks.config.stack_file import ROOT, parse, read_stack, stack_names
from stacks.identity.content import CheckoutContents, contexts
from tests.helpers.every import every

MODELINE = "# yaml-language-server: $schema=stack.schema.json\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "stacks").mkdir()
    return tmp_path


def written(root: Path, flavor: str, *assignments: str) -> str:
    return new_stack.write("mine", {"flavor": flavor, **new_stack.assigned(assignments)}, root).read_text()


def test_new_value_equal_to_default_is_kept(root: Path) -> None:
    """Else the next default would move a stack whose user has named the version."""
    assert written(root, "nccl", "torch.source=build", "registry={kind: local}", "publish=true") == (
        f"{MODELINE}config:\n"
        "  slipway:flavor: nccl\n"
        "  slipway:torch: {source: build}\n"
        "  slipway:registry: {kind: local}\n"
        "  slipway:publish: true\n"
    )


@pytest.fixture(scope="module")
def shipped() -> dict[str, plan.Plan]:
    """The plans of the stacks of this checkout, which no test changes."""
    contents = CheckoutContents(contexts(ROOT))
    return {stack: plan.make(stack, contents=contents, search=False) for stack in stack_names()}


@pytest.fixture
def checkout(root: Path, shipped: dict[str, plan.Plan], monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the stacks of this checkout, where `slipway check` looks too."""
    shutil.copytree(ROOT / "stacks", root / "stacks", dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.py", "__*"))
    make = plan.make

    def planned(stack: str, **more: Any) -> plan.Plan:
        return shipped[stack] if stack in shipped else make(stack, root=root, **more)

    monkeypatch.setattr(stack_checks, "stack_names", lambda: stack_names(root))
    monkeypatch.setattr(plan, "make", planned)
    (root / "dockerfiles").symlink_to(ROOT / "dockerfiles")
    return root


def documented() -> list[list[str]]:
    """Return the words after `slipway new` of each documented line that needs no terminal, and each flavor's shortest."""
    texts = [page.read_text() for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md"))]
    lines = {line for text in texts for line in re.findall(r"slipway new ([^`\n]*--flavor[^`\n]*)", text)}
    assert len(lines) >= 3
    shortest = [f"mine --flavor {flavor}" for flavor in flavors.names() if flavor != "runners"]
    return [shlex.split(line) for line in sorted({*lines, *shortest})]


@pytest.mark.parametrize("words", documented(), ids=" ".join)
def test_new_documented_line_leaves_check_green(
    words: list[str], checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stack, _, flavor, *assignments = words
    path = new_stack.write(stack, {"flavor": flavor, **new_stack.assigned(assignments)}, checkout)
    assert stack_checks.check() == []
    assert f"{stack}: " in capsys.readouterr().out
    values = parse(path.read_text(), "x")
    for word in assignments:
        key, _, value = word.partition("=")
        if not value.startswith(("[", "{")):
            block: Any = values
            for part in key.split("."):
                block = block[part]
            assert str(block) == value


@pytest.mark.parametrize(
    ("stack", "tail"), [("nccl-a", "nccl_a"), ("2nd", "stack_2nd"), ("torch2.0", "stack_torch2.0")]
)
def test_new_stack_with_equal_tags_gets_a_suffix(stack: str, tail: str, checkout: Path) -> None:
    path = new_stack.write(stack, {"flavor": "nccl"}, checkout)
    assert parse(path.read_text(), "x") == {"flavor": "nccl", "tagSuffix": tail}
    assert stack_checks.check() == []


@pytest.mark.parametrize(("stack", "namespace"), [("team_b", "slipway-team-b"), ("t" * 60, f"slipway-{'t' * 37}")])
def test_new_stack_with_runners_gets_a_namespace(stack: str, namespace: str, checkout: Path) -> None:
    """The shipped runners-eks has the default one."""
    github = {"url": "https://github.com/other", "secret": "github"}
    runners: dict[str, Any] = {"kind": "kubernetes", "profile": "eks-p5", "github": github}
    path = new_stack.write(stack, {"flavor": "runners", "runners": runners}, checkout)
    assert parse(path.read_text(), "x")["runners"] == {**runners, "namespace": namespace}
    assert stack_checks.check() == []


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"flavor": "nccl", "tagSuffix": "one"}, "would have equal tags"),
        ({"flavor": "local", "extraTags": ["latest"]}, "both move the tag"),
    ],
)
def test_new_stack_that_another_contradicts_is_refused(values: dict[str, Any], message: str, checkout: Path) -> None:
    new_stack.write("one", {"archList": "9.0", **values} if values["flavor"] == "nccl" else values, checkout)
    before = stack_names(checkout)
    with pytest.raises(SlipwayError, match=message):
        new_stack.write("two", values, checkout)
    assert stack_names(checkout) == before


def test_new_block_is_on_one_line_and_lists_are_flow(root: Path) -> None:
    words = ("cuda=12.1.1", "distro=ubuntu20.04", "torch.version=2.0.1", "torch.vision=0.15.2", "nccl=2.18.3-1")
    extras = ("extras={deepspeed: 0.9.4, flashAttention: 2.0.2, apex: 38a1269}", "tagFields=[]")
    assert written(root, "nccl", *words, *extras, "slipway:publish=false") == (
        f"{MODELINE}config:\n"
        "  slipway:flavor: nccl\n"
        "  slipway:cuda: 12.1.1\n"
        "  slipway:distro: ubuntu20.04\n"
        "  slipway:torch: {version: 2.0.1, vision: 0.15.2}\n"
        "  slipway:nccl: 2.18.3-1\n"
        "  slipway:extras: {deepspeed: 0.9.4, flashAttention: 2.0.2, apex: 38a1269}\n"
        "  slipway:tagFields: []\n"
        "  slipway:publish: false\n"
    )


def test_new_text_that_yaml_would_change_is_quoted(root: Path) -> None:
    text = written(
        root,
        "universal",
        "python=3.10",
        "torch.version=2.14.1",
        "train=[{uid: 1001, env: {A: true, B: 3.10, C: 1e3}}]",
        "maxJobs=4",
    )
    assert '  slipway:python: "3.10"\n' in text
    assert "  slipway:maxJobs: 4\n" in text
    config = yaml.safe_load(text)["config"]
    assert config["slipway:train"] == [{"uid": 1001, "env": {"A": "true", "B": "3.10", "C": "1e3"}}]


@settings(max_examples=200, deadline=None)
@given(text=st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Zl", "Zp"]), min_size=1))
def test_new_text_of_any_kind_is_read_back_same(text: str) -> None:
    document = yaml.dump({"config": {"slipway:tagSuffix": text}}, Dumper=new_stack._Dumper, width=110)
    assert parse(document, "x") == {"tagSuffix": text}
    assert yaml.safe_load(document)["config"]["slipway:tagSuffix"] == text


@every("stack", stack_names())
def test_new_of_every_stack_builds_the_same(stack: str) -> None:
    values = read_stack(stack)
    read = parse(new_stack.text(stack, values), stack)
    assert flavors.load(read, stack) == flavors.load(values, stack)


@every(
    "words, message",
    [
        (["mine", "--flavor", "ncll"], "stack mine: slipway:flavor: 'ncll' is not a flavor (did you mean 'nccl'?)"),
        (["mine"], "stack mine: slipway:flavor is required; allowed: "),
        (["mine", "--flavor", "nccl", "cudda=1"], "stack mine: config: unknown key 'cudda' (did you mean 'cuda'?)"),
        (["mine", "--flavor", "nccl", "cuda=0.1"], "stack mine: slipway:cuda: '0.1' "),
        (["mine", "--flavor", "nccl", "budgets={trch: 1 GB}"], "stack mine: slipway:budgets: "),
        (
            ["mine", "--flavor", "local", "platform=linux/arm64", "platforms=[linux/arm64]"],
            "stack mine: slipway:platform is for one platform, and slipway:platforms for several: leave one out",
        ),
        (["mine", "--flavor", "nccl", "cuda"], "'cuda': expected KEY=VALUE, such as "),
        (["mine", "--flavor", "nccl", "cuda=1", "cuda=2"], "cuda: is given twice"),
        (["mine", "--flavor", "nccl", "torch=1", "torch.version=2"], "torch.version: 'torch' has a value already"),
        (["mine", "--flavor", "nccl", "extras={"], "extras: '{' is not YAML"),
        (["mine", "--flavor", "nccl", "flavor=base"], "--flavor nccl: flavor=base is given too"),
        (["local", "--flavor", "local"], "stacks/Pulumi.local.yaml exists already"),
        (["../mine", "--flavor", "local"], "'../mine' is no name of a stack"),
        (
            [
                "mine",
                "--flavor",
                "local",
                "registry={kind: generic, repository: a.example/b, username: u, password: hunter2}",
            ],
            "stack mine: slipway:registry.password: ",
        ),
    ],
)
def test_new_mistake_is_one_line_and_no_file(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = stack_names()
    assert main(["new", *words]) == 1
    printed = capsys.readouterr()
    assert (printed.out, printed.err.count("\n")) == ("", 1)
    assert printed.err.startswith(message)
    assert "hunter2" not in printed.err
    assert stack_names() == before


def test_new_mistakes_are_a_line_each(root: Path) -> None:
    with pytest.raises(Exception, match="platform") as error:
        written(root, "local", "platform=x", "publish=maybe")
    assert len(str(error.value).splitlines()) == 2
    assert list((root / "stacks").iterdir()) == []


def test_new_file_that_appears_meanwhile_stays(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = root / "stacks" / "Pulumi.mine.yaml"
    monkeypatch.setattr(new_stack, "check_name", lambda *_: path.write_text("precious"))
    with pytest.raises(Exception, match=r"^stacks/Pulumi.mine.yaml exists already"):
        written(root, "local")
    assert [(file.name, file.read_text()) for file in path.parent.iterdir()] == [(path.name, "precious")]


def test_new_file_is_whole_from_its_first_moment(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is written beside its place: the folder for temporary files may be on another disk, or full."""
    monkeypatch.setattr(tempfile, "tempdir", "/dev/null/full")
    written(root, "local")
    (file,) = (root / "stacks").iterdir()
    assert (file.name, stat.S_IMODE(file.stat().st_mode)) == ("Pulumi.mine.yaml", 0o644)


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """Answers by what is asked for; the default where there is none."""
    chosen: dict[str, str] = {}
    prompts: list[str] = []

    def echo(message: str, **_: Any) -> None:
        prompts.append(message.strip().partition("\n")[0].partition(": ")[0])

    def prompt(_: str, *, type: Any, default: str | None, **__: Any) -> str:  # noqa: A002 - click's name
        answer = chosen.get(prompts[-1], default)
        assert answer is not None, prompts[-1]
        value: str = type.convert(answer, None, None) if isinstance(type, click.Choice) else answer
        return value

    monkeypatch.setattr(click, "echo", echo)
    monkeypatch.setattr(click, "prompt", prompt)
    yield chosen
    assert set(chosen) <= set(prompts)


def test_questions_chain_old_versions_that_go_together(answers: dict[str, str]) -> None:
    answers |= {
        "slipway:flavor": "nccl",
        "slipway:cuda": "12.1.1",
        "slipway:distro": "ubuntu20.04",
        "slipway:torch.version": "2.0.1",
        "slipway:nccl": "2.18.3-1",
    }
    values = questions.complete({})
    config = flavors.load(values, "stack mine")
    assert (values["cuda"], values["torch"], values["nccl"]) == ("12.1.1", {"version": "2.0.1"}, "2.18.3-1")
    assert config.flavor == "nccl"


def test_questions_required_keys_follow_the_kind(answers: dict[str, str]) -> None:
    answers |= {
        "slipway:runners.kind": "kubernetes",
        "slipway:runners.github.url": "https://github.com/acme",
    }
    values = questions.complete({"flavor": "runners"})
    assert values["runners"] == {"kind": "kubernetes", "github": {"url": "https://github.com/acme"}}


def test_questions_skip_what_is_given(answers: dict[str, str]) -> None:
    values = questions.complete({"flavor": "local", "torch": {"version": "2.13.0"}})
    assert values["torch"] == {"version": "2.13.0"}
    assert answers == {}


def test_questions_are_of_the_registry_and_the_gpus(answers: dict[str, str]) -> None:
    answers |= {"slipway:registry.kind": "ghcr", "slipway:registry.repository": "ghcr.io/acme/images"}
    answers |= {"slipway:archList": "H100"}
    values = questions.complete({"flavor": "base"})
    assert values["registry"] == {"kind": "ghcr", "repository": "ghcr.io/acme/images"}
    assert values["archList"] == "H100"


def test_new_without_terminal_prompts_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(questions, "complete", lambda _: pytest.fail("prompted"))
    assert main(["new", "mine", "--flavor", "ncll"]) == 1
