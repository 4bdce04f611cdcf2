"""``slipway explain``: meaning, type, default, allowed values and rule of a key."""

from __future__ import annotations

import pytest

from cli.keys.choices import choices
from cli.keys.key import keys
from cli.main import main
from stacks import flavors
from stacks.config.stack_file import read_stack
from tests.helpers.every import every
from tests.helpers.registry_kinds import KINDS


def explain(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["explain", *words]) == 0
    return capsys.readouterr().out


def test_explain_key_for_stack_has_what_fits_its_keys(capsys: pytest.CaptureFixture[str]) -> None:
    lines = explain(capsys, "slipway:python", "--stack", "universal-cu113").splitlines()
    assert lines == [
        "slipway:python",
        "  Python, from conda-forge: any that this torch supports.",
        "  flavors     universal",
        "  type        text",
        "  default     3.12",
        "  this stack  3.8",
        "  allowed     3.6, 3.7, 3.8, 3.9",
        "  rule        the Pythons that it has wheels for, stacks/versions/torch.toml",
        "",
    ]


def test_explain_key_without_stack_has_all_of_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    printed = " ".join(explain(capsys, "cuda").split())
    assert " 10.2, " in printed
    assert "13.2.1" in printed
    assert printed.count("slipway:cuda") == 2  # universal's can be switched off


def test_explain_block_lists_its_keys(capsys: pytest.CaptureFixture[str]) -> None:
    printed = explain(capsys, "torch", "--stack", "local")
    assert "  keys        torch.version, torch.vision, torch.audio\n" in printed


def test_explain_kinds_have_an_entry_each(capsys: pytest.CaptureFixture[str]) -> None:
    printed = explain(capsys, "registry.username")
    assert [line for line in printed.splitlines() if line.startswith("slipway:")] == [
        f"slipway:registry.username  (kind: {kind})"
        for kind, model in KINDS.items()
        if "username" in model.model_fields
    ]


def test_explain_key_in_list_takes_either_form(capsys: pytest.CaptureFixture[str]) -> None:
    assert explain(capsys, "train[].tz") == explain(capsys, "train.tz") == explain(capsys, "train[0].tz")


def test_explain_names_are_whole_in_their_line(capsys: pytest.CaptureFixture[str]) -> None:
    printed = explain(capsys, "images[].on", "--stack", "local")
    assert " nccl-cu132/torch." in printed


def test_explain_form_is_what_a_refusal_says(capsys: pytest.CaptureFixture[str]) -> None:
    assert "  form        expected an http:// or https:// address\n" in explain(capsys, "mirrors.apt")


def test_explain_without_key_lists_keys_by_flavor(capsys: pytest.CaptureFixture[str]) -> None:
    printed = explain(capsys)
    every, _, rest = printed.partition("\n\n")
    assert every.startswith("Every stack:\n  flavor ")
    assert "\n  registry " in every
    assert "Flavor base, nccl:\n  cuda " in rest
    output = explain(capsys, "--stack", "efa")
    assert "\n  environment " in output
    assert "\n  train " not in output


@every(
    "words, message",
    [
        (["torch.visoin"], "no flavor has the key 'torch.visoin' (did you mean 'torch.vision'?); "),
        (["train", "--stack", "efa"], "stack efa: its flavor has no key 'train'; "),
        (["cuda", "--stack", "eфa"], "there is no stack 'eфa'"),
    ],
)
def test_explain_mistake_is_one_line(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", *words]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith(message)
    assert printed.err.count("\n") == 1


def test_choices_of_stack_allow_its_own_value() -> None:
    for stack in ("nccl-cu121", "base-cu132", "universal-cu102", "efa-2310", "aks-megatron"):
        values = read_stack(stack)
        for key in keys(values["flavor"]):
            current = values.get(key.name)
            allowed = choices(key, values).values if isinstance(current, str) and not key.is_block else ()
            if allowed and not any(" " in value for value in allowed):
                assert current in allowed, (stack, key.name)


def test_keys_of_every_flavor_have_meaning_and_type() -> None:
    for flavor in flavors.names():
        for key in keys(flavor):
            assert key.type, (flavor, key)
            assert key.meaning or key.name == "flavor", (flavor, key)
