"""Packages, variables and images that a stack adds: what they give, and each mistake as one line."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from containers.errors import SlipwayError
from stacks import graph, plan
from stacks.config.stack_file import ROOT, read_stack
from stacks.differences import causes
from stacks.identity import content
from stacks.identity.content import CheckoutContents, contexts
from stacks.spec import Elsewhere, ImageSpec, Sibling
from stacks.versions import tables
from tests.helpers.contents import checkout_contents
from tests.helpers.every import every

TRAINER = {"name": "trainer", "dockerfile": "trainer/Dockerfile"}
TOOLS = {"name": "tools", "packages": {"apt": ["htop"]}}
DOCKERFILE = "ARG BASE_IMAGE\nFROM ${BASE_IMAGE}\nARG STEPS=1\nCOPY run /app/\nUSER 7:7\n"
SCALE_SET = {"kind": "kubernetes", "profile": "eks-p5", "github": {"url": "https://github.com/a/b", "secret": "x"}}


def specs(flavor: str = "local", root: Path = ROOT, **values: Any) -> dict[str, ImageSpec]:
    found = graph.locked({"flavor": flavor, **values}, "t", root).specs
    return {spec.name: spec for spec in found}


def mistake(flavor: str = "local", root: Path = ROOT, **values: Any) -> str:
    with pytest.raises(SlipwayError) as caught:
        specs(flavor, root, **values)
    assert str(caught.value).startswith("t: slipway:")
    return str(caught.value).removeprefix("t: slipway:")


def checkout(tmp_path: Path) -> Path:
    """Return a checkout with an own image and a file of requirements."""
    (tmp_path / "dockerfiles").symlink_to(ROOT / "dockerfiles")
    (tmp_path / "stacks").mkdir()
    files = {
        "trainer/Dockerfile": DOCKERFILE,
        "trainer/run": "one\n",
        "trainer/notes": "of no build\n",
        "app/requirements.txt": "# What the app needs, in C:\\\neinops\\\n>=0.7  # shapes\n\nrich\\\n",
    }
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text)
    return tmp_path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return checkout(tmp_path)


@every(
    "flavor, last",
    [
        ("local", "torch"),
        ("base", "torch-extras"),
        ("nccl", "torch-extras"),
        ("efa", "efa"),
        ("megatron", "megatron-lm"),
        ("universal", "train"),
    ],
)
def test_packages_are_an_image_on_the_last_one(flavor: str, last: str) -> None:
    plain = specs(flavor)
    more = specs(flavor, packages={"pip": ["einops"], "apt": ["htop"]})
    added = more.pop(f"{last}-packages")
    assert more == plain
    assert added.parents == {"BASE_IMAGE": Sibling(image=last)}
    assert {added.args["PIP_PACKAGES"], added.args["APT_PACKAGES"]} == {"einops", "htop"}
    assert added.packages is not None
    assert added.packages.requirements == ("einops",)


def test_packages_leave_every_other_image_its_fingerprint() -> None:
    def prints(**values: Any) -> dict[str, str]:
        made = content.of_stack([*specs("base", **values).values()], checkout_contents())
        return content_prints(made)

    plain, more = prints(), prints(packages={"pip": ["einops"]})
    assert {name: value for name, value in more.items() if name in plain} == plain


def content_prints(contents: Any) -> dict[str, str]:
    from stacks.identity.fingerprint import fingerprints

    return fingerprints(contents.values())


@every("flavor, user", [("local", "1000:1000"), ("efa", "0:0"), ("universal", "1000")])
def test_packages_keep_the_user_of_the_parent(flavor: str, user: str) -> None:
    made = content.of_stack([*specs(flavor, packages={"pip": ["einops"]}).values()], checkout_contents())
    assert [*made.values()][-1].args["RUN_AS"] == user


def test_packages_on_own_image_keep_its_user(root: Path) -> None:
    more = {**TOOLS, "on": "trainer"}
    made = content.of_stack([*specs(root=root, images=[TRAINER, more]).values()], CheckoutContents(contexts(root)))
    assert made["tools"].args["RUN_AS"] == "7:7"


def test_requirements_of_file_join_those_of_pip(root: Path) -> None:
    added = specs(root=root, packages={"pip": ["attrs"], "requirements": "app/requirements.txt"})["torch-packages"]
    assert added.args["PIP_PACKAGES"].splitlines() == ["attrs", "einops>=0.7", "rich"]


@every(
    "packages, message",
    [
        (
            {"pips": ["x"]},
            "packages: unknown key 'pips' (did you mean 'pip'?); the keys here are: pip, apt, requirements",
        ),
        ({}, "packages: names no package: give pip, apt or requirements, or leave the key out"),
        ({"pip": ["einops", "Einops"]}, "packages: pip: einops is there twice: leave one out"),
        ({"apt": ["htop=1", "htop"]}, "packages: apt: htop is there twice: leave one out"),
        ({"apt": ["htop-"]}, "packages.apt.0: 'htop-': expected a package of the distribution, such as htop or"),
        ({"pip": ["x @ https://a.example/x.whl"]}, "packages.pip.0: 'x @ https://a.example/x.whl': names an address"),
        ({"pip": ["git+https://a.example/x"]}, "packages.pip.0: 'git+https://a.example/x': names an address or a path"),
        ({"pip": ["./x"]}, "packages.pip.0: './x': names an address or a path, whose content nobody can lock"),
        (
            {"pip": ["--pre"]},
            "packages.pip.0: '--pre': is an option of pip's, and decides for all: give packages alone",
        ),
        (
            {"pip": ["x --hash=sha256:0"]},
            "packages.pip.0: 'x --hash=sha256:0': has an option of pip's behind the package",
        ),
        ({"pip": ["a b"]}, "packages.pip.0: 'a b': expected a package such as einops or einops>=0.8,<1: "),
        ({"pip": ["x==1,==2"]}, "packages.pip.0: 'x==1,==2': no version fits: its pins contradict each other"),
        ({"pip": ["x==1,>=2"]}, "packages.pip.0: 'x==1,>=2': no version fits: its pins contradict each other"),
        ({"pip": ["torch>=2"]}, "packages.pip: 'torch>=2': the stack itself decides on torch: leave it out, and"),
        ({"requirements": "no.txt"}, "packages.requirements: there is no file 'no.txt' in the repository: write it"),
        ({"requirements": "app"}, "packages.requirements: 'app' cannot be read: Is a directory"),
        ({"requirements": "../x"}, "packages.requirements: '../x': expected a path below the repository's folder"),
        (
            {"requirements": "/etc/passwd"},
            "packages.requirements: '/etc/passwd': expected a path below the repository's",
        ),
        ({"requirements": "out/x"}, "packages.requirements: 'out/x' is behind a link that leads out of the repository"),
    ],
)
def test_packages_mistaken_are_one_line(tmp_path: Path, packages: dict[str, Any], message: str) -> None:
    root = checkout(tmp_path)
    (root / "out").symlink_to(root.parent)
    (root.parent / "x").write_text("rich\n")
    text = mistake(root=root, packages=packages)
    assert text.startswith(message)
    assert text.count("\n") == 0


@every(
    "line, message",
    [
        ("-r more.txt", "app/r.txt:2: '-r more.txt': is an option of pip's"),
        (
            "einops==0.8.0 \\\n  --hash=sha256:0",
            "app/r.txt:2: 'einops==0.8.0   --hash=sha256:0': has an option of pip's",
        ),
        ("x @ file:///x", "app/r.txt:2: 'x @ file:///x': names an address or a path"),
        ("attrs<1", "app/r.txt:2: 'attrs<1': attrs is there twice"),
        ("torch", "'torch': the stack itself decides on torch"),
        ("\xff", "'app/r.txt' cannot be read: it is not UTF-8"),
    ],
)
def test_line_of_requirements_mistaken_is_named(tmp_path: Path, line: str, message: str) -> None:
    root = checkout(tmp_path)
    (root / "app/r.txt").write_bytes(f"rich\n{line}\n".encode("latin-1"))
    text = mistake(root=root, packages={"pip": ["attrs"], "requirements": "app/r.txt"})
    assert message in text
    assert text.count("\n") == 0


def test_packages_without_image_to_run_are_refused() -> None:
    values: dict[str, Any] = {"packages": {"apt": ["htop"]}, "runners": SCALE_SET}
    assert mistake("runners", **values).startswith("packages: the flavor 'runners' builds no image to run")


def test_own_image_has_what_its_parent_says_of_itself(root: Path) -> None:
    all_specs = specs(root=root, images=[TRAINER])
    own, parent = all_specs["trainer"], all_specs["torch"]
    assert (own.path, own.context, own.suffix, own.cuda) == (
        "trainer/Dockerfile",
        "trainer",
        parent.suffix,
        parent.cuda,
    )
    assert own.parents == {"BASE_IMAGE": Sibling(image="torch")}


def test_own_images_stand_on_packages_and_each_other(root: Path) -> None:
    chain = [{**TOOLS, "on": "trainer"}, TRAINER, {**TRAINER, "name": "with", "packages": {"pip": ["rich"]}}]
    on = {
        name: next(iter(spec.siblings), None)
        for name, spec in specs(root=root, images=chain, packages={"pip": ["einops"]}).items()
    }
    assert on == {
        "torch": None,
        "torch-packages": "torch",
        "trainer": "torch-packages",
        "tools": "trainer",
        "with-packages": "torch-packages",
        "with": "with-packages",
    }


def test_own_image_of_two_platforms_is_one_index(root: Path) -> None:
    platforms = ["linux/amd64", "linux/arm64"]
    built = specs("base", root, platforms=platforms, cuda="12.9.1", images=[TRAINER])
    assert {name: spec.repository for name, spec in built.items() if spec.own} == {
        "trainer-amd64": "trainer",
        "trainer-arm64": "trainer",
    }


@every(
    "images, message",
    [
        ([{**TRAINER, "name": "torch"}], "images: the stack has an image 'torch' already: choose another name"),
        ([TRAINER, TRAINER], "images: two of them are named 'trainer': rename one"),
        (
            [{**TRAINER, "on": "trch"}],
            "images: trainer: on: 'trch' is not an image of the stack (did you mean 'torch'?)",
        ),
        (
            [{**TRAINER, "on": "trainer"}],
            "images: trainer on trainer: an image cannot stand on itself: change one `on`",
        ),
        (
            [{**TRAINER, "on": "tools"}, {**TOOLS, "on": "trainer"}],
            "images: tools on trainer on tools: an image cannot",
        ),
        ([{"name": "x"}], "images.0: 'x' has neither dockerfile nor packages: give one of them, or both"),
        ([{**TRAINER, "dockerfile": "Dockerfile"}], "images.0: 'trainer': dockerfile: its context would be the whole"),
        (
            [{**TRAINER, "dockerfile": "../Dockerfile"}],
            "images.0.dockerfile: '../Dockerfile': expected a path below the",
        ),
        ([{**TRAINER, "dockerfile": ".git/x"}], "images.0.dockerfile: '.git/x': git and Slipway keep their own files"),
        ([{**TRAINER, "dockerfile": "out/x"}], "images: trainer: dockerfile: 'out' is behind a link that leads out of"),
        (
            [{**TRAINER, "context": "app"}],
            "images.0: 'trainer': dockerfile: 'trainer/Dockerfile': expected a file in app/",
        ),
        (
            [{**TRAINER, "args": {"BASE_IMAGE": "x"}}],
            "images.0.args: the argument BASE_IMAGE is the image that `on` names",
        ),
        (
            [{**TRAINER, "args": {"A_TOKEN": "x"}}],
            "images.0.args: the argument A_TOKEN reads like a secret, which would",
        ),
        ([{**TOOLS, "args": {"A": "1"}}], "images.0: 'tools' has args or context, and no dockerfile: give one, or"),
        (
            [{"name": "a", "packages": {"pip": ["x==1"]}}, {"name": "b", "on": "a", "packages": {"pip": ["x==2"]}}],
            "images: b: packages.pip: 'x==2': x is pinned in an image below: leave it out, or change it there",
        ),
        ([{**TRAINER, "name": "A b"}], "images.0.name: 'A b': expected lower-case letters and digits, parts joined by"),
    ],
)
def test_own_image_mistaken_is_one_line(tmp_path: Path, images: list[Any], message: str) -> None:
    root = checkout(tmp_path)
    (root / "out").symlink_to(root.parent)
    text = mistake(root=root, images=images)
    assert text.startswith(message)
    assert text.count("\n") == 0


def test_own_image_on_build_product_is_refused() -> None:
    text = mistake("base", images=[{**TRAINER, "on": "torch-wheel"}])
    assert text == "images: trainer: on: 'torch-wheel' is a build product, and is never run"


def made(root: Path, **entry: Any) -> content.Content:
    return content.of_stack(
        [*specs(root=root, images=[{**TRAINER, **entry}]).values()], CheckoutContents(contexts(root))
    )["trainer"]


def test_own_image_is_made_of_what_its_build_reads(root: Path) -> None:
    before = made(root)
    assert [*before.files] == ["run"]
    (root / "trainer/notes").write_text("edited\n")
    assert made(root).folder == before.folder
    (root / "trainer/run").write_text("two\n")
    assert made(root).folder != before.folder


@every(
    "dockerfile, entry, message",
    [
        (
            "FROM debian:12\n",
            {},
            "trainer/Dockerfile: trainer is on torch, and its last stage does not read that image",
        ),
        (
            "FROM debian:12\nARG BASE_IMAGE\nRUN echo $BASE_IMAGE\n",
            {},
            "trainer/Dockerfile: trainer is on torch, and its last stage does not read that image",
        ),
        (
            "ARG BASE_IMAGE\nFROM debian:12\n",
            {},
            "trainer/Dockerfile: trainer is on torch, and its last stage does not",
        ),
        (DOCKERFILE, {"args": {"STEP": 2}}, "trainer/Dockerfile: trainer: args: no stage of the build declares STEP"),
        (
            "ARG BASE_IMAGE\nFROM ${BASE_IMAGE}\nCOPY gone /\n",
            {},
            "trainer/Dockerfile:3: COPY: gone: the context has no",
        ),
    ],
)
def test_own_dockerfile_mistaken_is_one_line(
    tmp_path: Path, dockerfile: str, entry: dict[str, Any], message: str
) -> None:
    root = checkout(tmp_path)
    (root / "trainer/Dockerfile").write_text(dockerfile)
    with pytest.raises(SlipwayError) as caught:
        made(root, **entry)
    assert message in str(caught.value)
    assert str(caught.value).count("\n") == 0


@pytest.mark.parametrize("name", ["no", "Dockerfile/x", "folder"])
def test_own_dockerfile_missing_is_named(root: Path, name: str) -> None:
    (root / "trainer/folder").mkdir()
    with pytest.raises(SlipwayError, match=rf"trainer/{name}: there is no such Dockerfile; create it, or correct"):
        made(root, dockerfile=f"trainer/{name}")


@every(
    "flavor, variables",
    [("local", {"A": "true"}), ("efa", {"FI_EFA_USE_HUGE_PAGE": "0"}), ("nccl", {"B_1": "x y"})],
)
def test_variables_are_those_of_every_image_to_run(flavor: str, variables: dict[str, str]) -> None:
    for spec in specs(flavor, environment=variables).values():
        assert spec.environment == ({} if spec.product else variables)


def test_variable_of_table_stays_an_argument() -> None:
    efa = specs("efa", environment={"NCCL_SOCKET_IFNAME": "^lo"})["efa"]
    assert (efa.args["SET_NCCL_SOCKET_IFNAME"], efa.environment) == ("^lo", {})


def test_variable_ends_the_dockerfile_as_it_is_written(root: Path) -> None:
    text = 'of $HOME, "quoted" \\'
    found = specs(root=root, images=[TRAINER], environment={"A": text})
    trainer = content.of_stack([*found.values()], CheckoutContents(contexts(root)))["trainer"]
    assert trainer.dockerfile.endswith('USER 7:7\nENV A="of \\$HOME, \\"quoted\\" \\\\"\n')


@every(
    "name, value, message",
    [
        ("PATH", "/x", "the variable PATH cannot be set here: the image's programs are found by it"),
        ("LD_LIBRARY_PATH", "/x", "the variable LD_LIBRARY_PATH cannot be set here: the image's libraries are found"),
        ("PYTHONPATH", "/x", "the variable PYTHONPATH cannot be set here: it hides packages of the image"),
        ("A B", "x", "'A B' is not a variable's name: expected letters, digits and _"),
        ("HF_TOKEN", "x", "the variable HF_TOKEN reads like a secret, which would stay in the image"),
        ("A", "http://me:pw@host", "the variable A must not carry user:password@, which would stay in the image"),
        (
            "NCCL_DEBUG",
            "verbose",
            "the variable NCCL_DEBUG: expected VERSION, WARN, INFO, ABORT or TRACE; with 'verbose', ",
        ),
        (
            "NVIDIA_VISIBLE_DEVICES",
            "none",
            "the variable NVIDIA_VISIBLE_DEVICES: expected all, or indexes and UUIDs of G",
        ),
        (
            "NVIDIA_VISIBLE_DEVICES",
            "",
            "the variable NVIDIA_VISIBLE_DEVICES: expected all, or indexes and UUIDs of G",
        ),
        (
            "NVIDIA_DRIVER_CAPABILITIES",
            "utility",
            "the variable NVIDIA_DRIVER_CAPABILITIES: expected all, or a list with",
        ),
    ],
)
def test_variable_mistaken_is_one_line(name: str, value: str, message: str) -> None:
    text = mistake(environment={name: value})
    assert text.startswith(f"environment: {message}")
    assert "pw" not in text


@every("value", ["utility, compute", "compute ,video", "graphics,all"])
def test_driver_capabilities_are_read_as_the_toolkit_does(value: str, tmp_path: Path) -> None:
    root = checkout(tmp_path)
    assert specs(root=root, images=[TRAINER], environment={"NVIDIA_DRIVER_CAPABILITIES": value})


@every("name", sorted(tables.table("variables")["variable"]))
def test_known_variable_takes_what_its_row_expects(name: str, tmp_path: Path) -> None:
    root = checkout(tmp_path)
    expected = tables.table("variables")["variable"][name]["expected"]
    value = (
        "compute,utility"
        if "CAPABILITIES" in name
        else "2"
        if "positive" in expected
        else expected.split()[0].strip(",")
    )
    assert specs(root=root, images=[TRAINER], environment={name: value})
    if name != "NVIDIA_VISIBLE_DEVICES":  # an empty one hides all GPUs
        assert specs(root=root, images=[TRAINER], environment={name: ""}), "which takes that of a parent away"


def write_stack(root: Path, name: str = "mine", **values: Any) -> None:
    registry = {"kind": "generic", "repository": f"registry.example/{name}"}
    keys = {"flavor": "local", "registry": registry, **values}
    lines = [f"  slipway:{key}: {json.dumps(value)}" for key, value in keys.items()]
    (root / f"stacks/Pulumi.{name}.yaml").write_text("\n".join(["config:", *lines]) + "\n")


def on_theirs(on: str = "theirs/torch-packages", **entry: Any) -> list[dict[str, Any]]:
    return [{**TRAINER, "on": on, **entry}]


def trainer(root: Path) -> plan.PlannedImage:
    return plan.make("mine", root=root).image("trainer")


def test_own_image_stands_on_one_of_another_stack(root: Path) -> None:
    write_stack(root, "theirs", packages={"pip": ["einops"]}, tagSuffix="theirs")
    write_stack(root, images=on_theirs(packages={"apt": ["htop"]}))
    planned = plan.make("mine", root=root)
    theirs = plan.make("theirs", root=root).image("torch-packages")
    assert [image.spec.name for image in planned.images] == ["torch", "trainer-packages", "trainer"]
    below = planned.image("trainer-packages")
    assert below.args["BASE_IMAGE"] == theirs.reference
    assert below.args["BASE_IMAGE"].startswith("registry.example/theirs/torch-packages:")
    assert below.args["RUN_AS"] == "1000:1000"
    assert below.content.label_args["LABEL_BASE_NAME"] == theirs.content.label_args["LABEL_BASE_NAME"]
    assert not below.tag.endswith("theirs")
    assert planned.as_json()["images"][1]["parents"] == {"BASE_IMAGE": theirs.reference}
    assert planned.recipe(planned.image("trainer")).spec.name == "trainer-packages"


def test_flavors_of_a_stack_are_those_that_its_images_stand_on(root: Path) -> None:
    """And what these stand on: an edit of any of them may move a tag of this one."""
    write_stack(root, "below", flavor="base", cuda="13.2.1", distro="ubuntu24.04")
    write_stack(root, "theirs", images=on_theirs("below/torch"))
    write_stack(root, images=[{**TRAINER, "name": "mine", "on": "theirs/trainer"}])
    found = graph.locked(read_stack("mine", root), "mine", root)
    assert found.flavors == {"local", "base"}


PUBLIC = "-----BEGIN PUBLIC KEY-----\nMFkw\n-----END PUBLIC KEY-----"
KMS = "awskms:///arn:aws:kms:eu-west-1:123456789012:key/0"


@every(
    "mine, trust, needed, stated",
    [
        (None, None, False, False),
        ({"key": KMS}, None, True, True),
        (None, {"publicKey": PUBLIC}, True, True),
        (None, {"publicKey": f"{PUBLIC}\n", "transparencyLog": False}, True, True),
        ({"key": KMS}, {"publicKey": PUBLIC}, True, True),
        ({"key": KMS}, {"publicKey": KMS}, True, False),
    ],
)
def test_signer_of_another_stack_must_state_its_name(
    tmp_path: Path, mine: dict[str, str] | None, trust: dict[str, Any] | None, needed: bool, stated: bool
) -> None:
    """Whether or not the stack itself signs: by the other's own signer, its tag names one image."""
    root = checkout(tmp_path)
    write_stack(root, "theirs", signing={"key": "cosign.key", "publicKey": PUBLIC})
    own: dict[str, Any] = {"trust": {"registry.example": trust}} if trust else {}
    if mine:
        own["signing"] = mine
    write_stack(root, images=on_theirs("theirs/torch"), **own)
    planned, theirs = plan.make("mine", root=root), plan.make("theirs", root=root).image("torch")
    assert list(planned.signers) == ([theirs.reference] if needed else [])
    assert planned.parent_annotations(theirs.reference) == (theirs.annotations if stated else {})
    assert planned.parent_annotations("debian:1") == {}


def test_image_of_another_stack_counts_by_what_it_is_made_of(root: Path) -> None:
    """So its registry does not count, and a change of it moves the tag and is the named reason."""
    write_stack(root, "theirs", packages={"pip": ["einops"]})
    write_stack(root, images=on_theirs())
    before = trainer(root)
    write_stack(
        root,
        "theirs",
        packages={"pip": ["einops"]},
        registry={"kind": "generic", "repository": "elsewhere.example/moved"},
        tagSuffix="more",
    )
    moved = trainer(root)
    assert moved.fingerprint == before.fingerprint
    assert moved.args != before.args
    write_stack(root, "theirs", packages={"pip": ["rich"]})
    after = trainer(root)
    assert after.fingerprint != before.fingerprint
    assert after.tag != before.tag
    [reason] = causes(before.content.facts, after.content.facts)
    assert reason == "parents BASE_IMAGE torch-packages args PIP_PACKAGES 'einops' -> 'rich'"


def test_another_stack_is_computed_once_for_all_images_on_it(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[str] = []

    def count(images: int) -> int:
        own = [
            {"name": f"own{number}", "on": "theirs/torch", "packages": {"pip": ["rich"]}} for number in range(images)
        ]
        write_stack(root, images=own)
        hashed.clear()
        assert len([image for image in plan.make("mine", root=root).images if image.spec.own]) == images
        return hashed.count("torch")

    write_stack(root, "theirs")
    original = vars(content.Content)["label_args"].fget
    monkeypatch.setattr(content.Content, "label_args", property(lambda of: hashed.append(of.spec.name) or original(of)))
    once = count(1)
    assert once
    assert count(4) == once


def test_image_of_another_stack_is_that_of_the_same_platform(root: Path) -> None:
    both = ["linux/amd64", "linux/arm64"]
    write_stack(root, "theirs", platforms=both)
    write_stack(root, platforms=both, images=on_theirs("theirs/torch"))
    parents = {spec.platform: spec.parents["BASE_IMAGE"] for spec in plan.resolve("mine", root)[1] if spec.own}
    assert {platform: parent.image for platform, parent in parents.items() if isinstance(parent, Elsewhere)} == {
        "linux/amd64": "torch-amd64",
        "linux/arm64": "torch-arm64",
    }


@every(
    "on, theirs, message",
    [
        (
            "thers/torch",
            {},
            "trainer: on: there is no stack 'thers' (did you mean 'theirs'?); the stacks are: mine, th",
        ),
        (
            "theirs/trch",
            {},
            "trainer: on: 'trch' is not an image of stack theirs (did you mean 'torch'?); it has: torch",
        ),
        ("theirs/torch", {"publish": False}, "trainer: on: stack theirs publishes nothing: take `publish: false` out"),
        (
            "theirs/torch",
            {"platform": "linux/arm64"},
            "trainer: on: stack theirs builds torch for linux/arm64, not for linux/amd64: add that there",
        ),
        ("theirs/torch-wheel", {"flavor": "base"}, "trainer: on: 'torch-wheel' of stack theirs is a build product"),
        ("theirs/torch", {"flavor": "lcal"}, "trainer: on: stack theirs: slipway:flavor: 'lcal' is not a flavor"),
        ("mine/torch", {}, "mine on mine: a stack cannot stand on itself: change one `on`"),
        ("theirs/x", {"images": [{**TOOLS, "name": "x", "on": "mine/trainer"}]}, "theirs on mine on theirs: a stack"),
        (
            "a/b/c",
            {},
            "'a/b/c': expected an image of the stack, such as torch, or a stack and its image, such as local",
        ),
    ],
)
def test_image_of_another_stack_mistaken_is_one_line(
    tmp_path: Path, on: str, theirs: dict[str, Any], message: str
) -> None:
    root = checkout(tmp_path)
    write_stack(root, "theirs", **theirs)
    write_stack(root, images=on_theirs(on))
    with pytest.raises(SlipwayError) as caught:
        plan.make("mine", root=root)
    [line] = str(caught.value).splitlines()
    assert re.match(r"stack mine: slipway:images(\.0\.on)?: ", line)
    assert message in line
