"""The text of a stack's file: what YAML would change is refused, everything else arrives as written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from containers.errors import SlipwayError
from stacks.config.stack_file import ROOT, misnamed, parse, read_stack, stack_names
from tests.helpers.every import every
from tests.helpers.refusals import refusal_line


def config(line: str) -> str:
    return f"config:\n  slipway:{line}\n"


@every(
    "value",
    [
        "3.10",
        "2.30",
        "0123456",
        "1.0",
        "12e4567",
        "0x1f",
        "0o17",
        "1_000",
        "+5",
        ".5",
        "2024-01-31",
        "5.",
        "1e3",
        "-0.50",
    ],
)
def test_value_changed_by_yaml_is_refused_and_named(value: str) -> None:
    with pytest.raises(SlipwayError) as caught:
        parse(config(f"torch: {{version: {value}}}"), "stacks/Pulumi.x.yaml")
    message = str(caught.value)
    assert message.startswith("stacks/Pulumi.x.yaml:2: slipway:torch.version: ")
    assert message.endswith(f'quote it: "{value}"')
    assert "\n" not in message


@every("value", ["2.0.1", "12.1", "20.04", "1000", "0", "-3", "2.18.3-1", "38a1269", "v1.9.1", "true"])
def test_value_kept_by_yaml_is_read_as_written(value: str) -> None:
    assert parse(config(f"key: {value}"), "f") == {"key": value}


@every("value", ["3.10", "0123456", "2024-01-31", "a b", "ü", "x: y", 'q"q', "$(id); `id`", "two\nlines"])
def test_value_in_quotes_is_read_as_written(value: str) -> None:
    assert parse(config(f"key: {json.dumps(value)}"), "f") == {"key": value}


@given(st.from_regex(r"[-+]?[0-9_]{0,8}\.?[0-9_]{0,4}([eE][-+]?[0-9]{1,2})?", fullmatch=True).filter(bool))
def test_value_accepted_unquoted_is_kept_by_yaml(text: str) -> None:
    """The property itself: what is accepted is, read by YAML and written again, the same text."""
    try:
        accepted = parse(config(f"key: {text}"), "f")["key"]
    except SlipwayError:
        return
    loaded = yaml.safe_load(f"key: {text}")["key"]
    assert accepted == text
    assert str(loaded) == text


def test_keys_of_other_projects_are_ignored() -> None:
    assert parse(
        "config:\n  aws:tags: {<<: {a: b}}\n  slipway:flavor: local\nencryptionsalt: v1:x\nenvironment: {<<: {a: b}}\n",
        "f",
    ) == {"flavor": "local"}


@every(
    "text, message",
    [
        ("config: [", "f:1: not YAML"),
        ("config:\n  slipway:a: 1\n  slipway:a: 2\n", "f:3: the key 'slipway:a' is repeated"),
        ("config:\n  slipway:a: {b: &b {c: d}}\n  <<: *b\n", "f:3: a merge (<<) is not read: write its keys out"),
        ("config:\n  slipway:a:\n    <<: {c: d}\n", "f:3: a merge (<<) is not read: write its keys out"),
        ("- 1", "f: expected a mapping"),
        ("config: 7", "f: 'config' must be a mapping"),
        (
            "config:\n  slipway:flavor: local\nslipway:publish: false\n",
            (
                "f:3: nothing reads the key 'slipway:publish' in column 0: indent it below 'config:': '  slipway:publish'"
            ),
        ),
        (
            "slipway:flavor: local\n",
            "f:1: nothing reads the key 'slipway:flavor' in column 0: write 'config:' above it, and indent it below ",
        ),
        ("Config:\n  slipway:flavor: local\n", "f:1: nothing reads the key 'Config' in column 0: beside 'config' are "),
        ("config:\n  slipway:flavor: local\ncuda: 1\n", "f:3: nothing reads the key 'cuda' in column 0: "),
        (
            "config:\n  slipway:flavor: local\n  publish: false\n",
            "f:3: nothing reads the key 'publish', which has no namespace: write 'slipway:publish'",
        ),
        ("config:\n  slipway.flavor: local\n", "f:2: nothing reads the key 'slipway.flavor', which has no namespace: "),
    ],
)
def test_stack_file_with_bad_yaml_fails_with_one_line(text: str, message: str) -> None:
    with pytest.raises(SlipwayError) as caught:
        parse(text, "f")
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_stack_unknown_error_names_nearest_and_all() -> None:
    with pytest.raises(SlipwayError, match=r"no stack 'locl' \(did you mean 'local'\?\); the stacks are: .*local"):
        read_stack("locl")


def test_stack_files_all_load() -> None:
    assert "local" in stack_names()
    for name in stack_names():
        assert "flavor" in read_stack(name)
    assert (ROOT / "Pulumi.yaml").is_file()


@every(
    "content, fragment",
    [
        (b"config:\n  slipway:flavor: \xff\n", "stacks/Pulumi.x.yaml: byte 27 is not UTF-8: save the file as UTF-8"),
        (
            b"config: &a {slipway:torch: *a}\n",
            "stacks/Pulumi.x.yaml: an alias (*name) is inside the value that it refers to",
        ),
        (b"config:\n  slipwy:flavor: local\n", "unknown key 'slipwy:flavor' (did you mean 'slipway:flavor'?)"),
        (b"config: \x01\n", "stacks/Pulumi.x.yaml: not YAML: "),
        (b"config:\n\tslipway:flavor: local\n", "that cannot start any token: indent with spaces"),
        (b"config: {}\n---\nconfig: {}\n", "x.yaml:2: not YAML: but found another document: remove its line ---"),
    ],
)
def test_stack_file_that_is_no_yaml_fails_with_one_line(tmp_path: Path, content: bytes, fragment: str) -> None:
    (tmp_path / "stacks").mkdir()
    (tmp_path / "stacks/Pulumi.x.yaml").write_bytes(content)
    with pytest.raises(SlipwayError) as caught:
        read_stack("x", tmp_path)
    assert fragment in str(caught.value)
    assert "\n" not in str(caught.value)


def test_keys_of_pulumi_itself_are_ignored() -> None:
    assert parse("config: {aws:region: eu-west-1, 'slipway:flavor': local}", "x") == {"flavor": "local"}


def test_stack_names_leave_out_folders(tmp_path: Path) -> None:
    (tmp_path / "stacks/Pulumi.d.yaml").mkdir(parents=True)
    assert stack_names(tmp_path) == []


@every(
    "name, value",
    [
        ("a b", "'a b', of 3 characters"),
        ("", "'', of 0 characters"),
        ("a\nb", "'a\\nb', of 3 characters"),
        ("ü", "'ü', of 1 character"),
        ("n" * 101, f"'{'n' * 101}', of 101 characters"),
    ],
)
def test_file_with_a_name_pulumi_refuses_is_one_line(tmp_path: Path, name: str, value: str) -> None:
    (tmp_path / "stacks").mkdir()
    for stack in (name, "n" * 100, "A-z_0."):
        (tmp_path / f"stacks/Pulumi.{stack}.yaml").touch()
    (line,) = misnamed(tmp_path)
    shown = name.replace("\n", "\\n")
    assert line == (
        f"stacks/Pulumi.{shown}.yaml: Pulumi refuses the stack's name {value}; "
        "it takes 1 to 100 of A-Z a-z 0-9 . _ -: rename the file"
    )
    assert stack_names(tmp_path) == ["A-z_0.", "n" * 100]


def test_file_whose_aliases_multiply_is_one_line() -> None:
    levels = "\n".join(f"  l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 10)}]" for n in range(1, 12))
    message = refusal_line(parse, f"config:\n  l0: &l0 [x]\n{levels}\n", "t.yaml")
    assert message == "t.yaml: more than 100000 values: its aliases (*name) multiply"


def test_file_nested_too_deep_is_one_line() -> None:
    assert refusal_line(parse, "[" * 5000, "t.yaml") == "t.yaml: not YAML that a stack can have: it is nested too deep"
