"""A stack's file has what no stack has: paths, options, quotes, line breaks, control characters, at every key of it.

What is refused is one line for each mistake. What is taken changes no Dockerfile, and is a name, a tag or an argument.
"""

from __future__ import annotations

import importlib
import platform
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from containers.errors import SlipwayError
from stacks import flavors
from stacks.config.stack_file import read_stack, stack_file, stack_names
from stacks.identity.pip_packages import prologue
from stacks.lock import _parsed
from stacks.spec import CONTEXT, Outside, parents_first
from stacks.tags import Revision, render
from tests.helpers.contents import checkout_contents

PUBLIC_KEY = "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"
SECRETS = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:"
IDENTITY = {"identity": "https://github.com/acme/x/.github/workflows/up.yml@refs/heads/main", "issuer": "https://t"}
COMMON: dict[str, Any] = {
    "registry": {"kind": "generic", "repository": "r.example/a", "username": "u", "password": "p"},
    "mirrors": {
        "images": {"docker.io": "m.example/x"},
        "apt": "https://m",
        "git": "https://g",
        "pythonIndex": "https://p",
        "downloads": {"https://a": "https://b"},
    },
    "buildSecrets": {"m": {"username": "u", "variable": "V"}, "g": {"username": "u", "file": "/x"}},
    "runsOn": ["x"],
    "engines": {"linux/amd64": ["ssh://h"]},
    "extraTags": ["latest"],
    "tagSuffix": "x",
    "signing": {
        "publicKey": PUBLIC_KEY,
        "key": "env://K",
        "policy": {"repository": "github.com/a/b", "ref": "refs/heads/main", "builder": "x"},
    },
    "vulnerabilities": {
        "database": "x.tar.gz",
        "exceptions": [{"id": "CVE-2026-1", "packages": "x", "reason": "r", "until": "2027-01-01"}],
    },
    "inspection": {"exceptions": [{"files": "/opt/*.so", "missing": "x", "reason": "r"}]},
    "trust": {"docker.io/nvidia": {**IDENTITY, "repository": "a/b", "ref": "refs/heads/main"}},
    "promotion": {"tags": ["stable"]},
}
KUBERNETES = {
    "kind": "kubernetes",
    "profile": "cpu",
    "kubeconfig": "k",
    "context": "c",
    "namespace": "n",
    "group": "g",
    "arc": {"version": "0.14.2"},
    "github": {"url": "https://github.com/acme", "app": {"id": "1", "installation": "2", "privateKey": "k"}},
    "labels": ["a"],
    "nodeSelector": {"acme.example/pool": "x"},
    "tolerations": [{"key": "k", "operator": "Equal", "value": "v"}],
    "runtimeClass": "kata",
    "storageClass": "s",
    "cpu": "4",
    "memory": "1Gi",
    "cache": "1Gi",
    "disk": "1Gi",
    "build": {"nodeSelector": {"acme.example/b": "x"}, "storageClass": "s", "address": "a.b:1"},
    "validation": {"image": "x/y:1", "command": ["a"]},
}
EC2 = {
    "kind": "ec2",
    "region": "eu-west-1",
    "account": "123456789012",
    "labels": ["gpu"],
    "push": ["service"],
    "github": {
        "url": "https://github.com/acme",
        "secret": f"{SECRETS}x-AbCdEf",
        "webhookSecret": f"{SECRETS}y-AbCdEf",
    },
    "instanceTypes": ["g5.xlarge"],
    "ami": "ami-0123456789abcdef0",
    "subnets": ["subnet-0123456789abcdef0"],
    "permissionsBoundary": "arn:aws:iam::123456789012:policy/x",
    "alarm": {"topic": "arn:aws:sns:eu-west-1:123456789012:a"},
    "build": {"instanceType": "c7i.4xlarge"},
}
ECR = {
    "kind": "ecr",
    "repository": "123456789012.dkr.ecr.eu-west-1.amazonaws.com/ml",
    "pullThroughCache": {"docker.io": {"prefix": "hub", "credential": f"{SECRETS}ecr-pullthroughcache/hub-AbCdEf"}},
}
TRAIN = {
    "name": "a",
    "uid": "1",
    "gid": "2",
    "apt": ["tmux"],
    "conda": ["numpy=1"],
    "pip": ["x==1"],
    "tz": "UTC",
    "env": {"A": "b"},
}
BASES: Mapping[str, Mapping[str, Any]] = {
    **{name: {**read_stack(name), **COMMON} for name in ("local", "base-cu132", "nccl-cu132", "efa", "aks-megatron")},
    "universal": {**read_stack("universal-cu132"), **COMMON, "train": [TRAIN], "cacheKey": "a"},
    "serve": read_stack("vllm-cu130"),
    "kubernetes": {"flavor": "runners", "runners": KUBERNETES},
    "charts": {"flavor": "runners", "runners": {**KUBERNETES, "arc": {"charts": "c"}}},
    "ec2": {"flavor": "runners", "runners": EC2},
    "ecr": {"flavor": "local", "registry": ECR, "signing": IDENTITY},
}
"""A stack of each flavor, and of each kind of runners and registry, with the keys whose values are text."""

Way = tuple[str | int, ...]


def ways(value: Any, way: Way = ()) -> Iterator[Way]:
    """Yield the way to each text in a value."""
    if isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from ways(item, (*way, key))
    elif way != ("flavor",):
        yield way


def changed(value: Any, way: Way, text: str) -> Any:
    """Return a value with another text at the end of a way."""
    if not way:
        return text
    copy: Any = value.copy()
    copy[way[0]] = changed(value[way[0]], way[1:], text)
    return copy


def refusal(values: Mapping[str, Any]) -> list[str]:
    """Return the lines with which a stack is refused; none if it is taken."""
    try:
        flavors.load(values, "stack x")
    except SlipwayError as error:
        lines = str(error).split("\n")
        assert all(line.startswith("stack x: ") and line.isprintable() for line in lines), lines
        return lines
    return []


PLACES = [(name, way) for name, base in BASES.items() for way in ways(base)]
LINES = {
    *("username", "password", "file", "kubeconfig", "context", "charts", "id", "installation", "group", "key"),
    *("value", "storageClass", "acme.example/pool", "acme.example/b", "identity", "issuer", "missing", "database"),
    *("packages", "builder", "A", "pip", "labels", "runsOn"),
}
"""Keys that take any text on one line; that of ``pip`` begins with a letter, and is a line of a file of pip's. Labels of
runners are compared alone, by GitHub and by the webhook; they have no comma."""
PARAGRAPHS = {"password", "privateKey", "reason", "command"}
"""Keys whose text may have line breaks: secrets, a reason, which is put on one line, and an argument of a program."""


def test_stacks_under_attack_are_right_themselves() -> None:
    assert {name: refusal(base) for name, base in BASES.items()} == {name: [] for name in BASES}
    assert len(PLACES) > 200


@pytest.mark.parametrize("control", ["\0", "\x1b[2J", "\x07", "\x7f", "\x9b2J"])
def test_control_character_anywhere_is_one_line(control: str) -> None:
    for name, way in PLACES:
        lines = refusal(changed(BASES[name], way, f"a{control}canary"))
        assert lines, way
        assert "canary" not in "".join(lines)
    assert refusal({**BASES["local"], "budgets": {f"a{control}": "1 GB"}})


@pytest.mark.parametrize("text", ["x\ny", "x\r\n::error::y", "x\n##[error]y", "x\nEOF\nRUN id", "x\ty", "x\u2028y"])
def test_line_break_is_taken_in_paragraphs_alone(text: str) -> None:
    for name, way in PLACES:
        taken = not refusal(changed(BASES[name], way, text))
        keys = [key for key in way if isinstance(key, str)]
        assert not taken or keys[-1] in PARAGRAPHS, way
    reasons = changed(BASES["local"], ("vulnerabilities", "exceptions", 0, "reason"), text)
    config = flavors.load(reasons, "stack x")
    assert config.vulnerabilities
    assert config.vulnerabilities.exceptions[0].reason.isprintable()


SHELL = (
    *("../../etc", "/etc/passwd", "a/../../b", "--flag", "-x", "$(id)", "`id`", "${HOME}", "a b", "'", '"', "\\"),
    *("a;b", "a|b", "a&b", "a,type=bind,source=/", "<<EOF", "*", "~", "{x}", "%s", "#x", "@x", ""),
)
SOME = {
    "cacheKey": {"--flag", "-x"},
    "conda": {"a|b"},
    "files": {"/etc/passwd", "*"},
    "repository": {"../../etc", "a/../../b"},
}
"""Keys that take some of these. None is a word of a shell: they are an argument that nothing reads, words of a script
without globbing, a pattern, and what is compared with a repository's name."""


@pytest.mark.parametrize("text", SHELL)
def test_text_of_a_shell_is_taken_where_any_is(text: str) -> None:
    for name, way in PLACES:
        if not refusal(changed(BASES[name], way, text)):
            key = [key for key in way if isinstance(key, str)][-1]
            assert key in LINES | PARAGRAPHS or text in SOME.get(key, set()), way


if (sys.platform, platform.machine()) == ("linux", "x86_64"):
    buildkit: Any = importlib.import_module("dockerfile")  # BuildKit's own parser; it has no types

    def instructions(text: str) -> list[Any]:
        """Return the instructions of a Dockerfile; of arguments the names alone, whose defaults a build may replace."""
        return [
            (command, [word.partition("=")[0] for word in words] if command == "ARG" else words, flags, heredocs)
            for one in buildkit.parse_string(text)
            for command, words, flags, heredocs in [(one.cmd.upper(), one.value, sorted(one.flags), one.heredocs)]
        ]

    TEXT = st.text(st.sampled_from("abE OF$'\"\\`-=<#[]{},./:@~+_0;|&\t\r\n\0\x1bé"), max_size=20)

    @given(st.sampled_from(PLACES), TEXT)
    @example(("universal", ("train", 0, "env", "A")), "$(id) <<EOF \\")
    @example(("universal", ("train", 0, "pip", 0)), "x --no-index # ' \" \\")
    @example(("universal", ("projectRoot",)), "/a/../../etc")
    def test_text_at_any_key_changes_no_dockerfile(place: tuple[str, Way], text: str) -> None:
        name, way = place
        values = changed(BASES[name], way, text) if way != ("projectRoot",) else {**BASES[name], "projectRoot": text}
        if refusal(values):
            return
        config = flavors.load(values, "stack x")
        for spec in parents_first(flavors.flavor(config.flavor).images(config)):
            content = checkout_contents().of(spec)
            written = instructions((Path(CONTEXT) / spec.dockerfile).read_text())
            assert all(one in written for one in instructions(content.dockerfile))
            assert not [path for path in content.files if path.startswith("/") or ".." in path.split("/")]
            for argument, value in spec.args.items():
                assert value.isprintable() or argument.endswith("_PACKAGES"), argument
            for parent in spec.parents.values():
                assert not isinstance(parent, Outside) or config.pulled(parent.reference).isprintable()
            assert render(Revision(commit="0123456"), spec.suffix).isprintable()


@pytest.mark.parametrize("name", ["a b", "a\n#SBATCH --wrap=id", "a;id", "$(id)", "-x", "é", "a'b", "x" * 101])
def test_file_of_no_stack_name_is_no_stack(tmp_path: Path, name: str) -> None:
    (tmp_path / "stacks").mkdir()
    for each in (name, "local"):
        stack_file(each, tmp_path).write_text("config:\n  slipway:flavor: local\n")
    assert stack_names(tmp_path) == (["-x", "local"] if name == "-x" else ["local"])
    if name != "-x":
        with pytest.raises(SlipwayError, match="Pulumi refuses the stack's name") as caught:
            read_stack(name, tmp_path)
        assert str(caught.value).isprintable()


@pytest.mark.parametrize("name", ["../../x", "/etc/passwd", "", ".", "\0", "x" * 300])
def test_stack_elsewhere_is_no_stack(tmp_path: Path, name: str) -> None:
    (tmp_path / "stacks/Pulumi...").mkdir(parents=True)
    (tmp_path / "x.yaml").write_text("config:\n  slipway:flavor: local\n")
    with pytest.raises(SlipwayError, match="^there is no stack '"):
        read_stack(name, tmp_path)


DIGEST = "a" * 64


@pytest.mark.parametrize("name", ["x\nLINKS\nid\n", "x'y", 'x"y', "x<y", "x y", "x\\y", "`id`", "x\u2028y", "x\0y"])
def test_locked_address_ends_no_script(name: str) -> None:
    table = f'[packages."p"]\n{_quoted(f"https://h/{name}")} = "{DIGEST}"\n'
    with pytest.raises(SlipwayError, match=r"^stacks/lock.toml: ") as caught:
        _parsed(table)
    assert str(caught.value).isprintable()


def test_locked_address_of_any_allowed_text_is_a_link() -> None:
    address = "https://h/$(id)/%24;&!*()+,=[]~@:/LINKS"
    assert _parsed(f'[packages."p"]\n{_quoted(address)} = "{DIGEST}"\n')
    lines = prologue({address: DIGEST}).lines.splitlines()
    assert lines.count("LINKS") == 1
    assert lines.index("LINKS") == len(lines) - 3


def _quoted(text: str) -> str:
    """Return a text as a basic string of TOML."""
    return '"' + "".join(one if one.isalnum() else f"\\U{ord(one):08x}" for one in text) + '"'
