"""The tag grammar: the forms that seeds and upstream use, round trips, and the limit."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from containers.errors import SlipwayError
from stacks.tags import LIMIT, Revision, Suffix, branch_prefix, check_tail, parse, render
from tests.helpers.every import every

HEX = st.text("0123456789abcdef", min_size=8, max_size=8)
VERSION = st.from_regex(r"[0-9]{1,2}(\.[0-9]{1,2}){1,2}(-[0-9]|-rc[0-9])?", fullmatch=True)
REVISIONS = st.builds(
    Revision,
    branch=st.none() | st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,20}", fullmatch=True),
    commit=HEX.map(lambda text: text[:7]),
    mark=st.none() | HEX,
) | st.builds(Revision, mark=HEX)


def is_tail(text: str) -> bool:
    try:
        return check_tail(text) == text
    except ValueError:
        return False


TAILS = st.sampled_from(["flash_attn1.0.9", "a1b2c3d", "abcdefa", "x01234567", "base", "v0.9.4"]) | st.from_regex(
    r"[A-Za-z_][A-Za-z0-9_.]{0,10}", fullmatch=True
).filter(is_tail)
SUFFIXES = st.builds(
    Suffix,
    variant=st.sampled_from(["base", "nccl", "local", "efa", "fade", "abcdef"]),
    cuda=st.none() | VERSION,
    distro=st.none() | st.sampled_from(["ubuntu20.04", "ubuntu24.04", "debian12"]),
    ngc=st.none() | VERSION,
    efa=st.none() | VERSION,
    ofi=st.none() | VERSION,
    nccl=st.none() | VERSION,
    torch=st.none() | VERSION,
    vision=st.none() | VERSION,
    audio=st.none() | VERSION,
    abi=st.none() | st.sampled_from(["0", "1"]),
    tail=st.none() | TAILS,
)


@every(
    "tag",
    [
        "a1b2c3d-nccl-cuda12.1.1-nccl2.18.3-1-torch2.0.1-vision0.15.2-audio2.0.2",
        "a1b2c3d-base-cuda12.1.1-torch2.0.1-vision0.15.2",
        "abc1234-nccl-cuda11.8.0-nccl2.16.2-1-torch2.0.0-rc1-vision0.15.0-rc1",
        "a1b2c3d-base-cuda13.2.1-ubuntu24.04-torch2.12.0-vision0.27.0-audio2.11.0-abi1",
        "es-multi-torch-a1b2c3d-x01234567-base-cuda12.1.1-torch2.0.1",
        "x01234567-local-torch2.15.0-vision0.30.0-audio2.11.0",
        "a1b2c3d-base-cuda11.8.0-torch2.0.1-vision0.15.2-audio2.0.2-flash_attn1.0.9",
        "x01234567-source-gabc1234",
        "a1b2c3d-efa-ngc26.03-efa1.51.0-ofi1.22.0-nccl2.32.3-1",
        "a1b2c3d-efa-ngc23.10-efa1.29.0-ofi1.7.3-seed",
    ],
)
def test_parse_of_known_forms_renders_the_same(tag: str) -> None:
    assert render(*parse(tag)) == tag


def test_parse_separates_the_fields() -> None:
    revision, suffix = parse("fix-a1b2c3d-nccl-cuda11.8.0-nccl2.16.2-1-torch2.0.0-rc1-vision0.15.0")
    assert revision == Revision(branch="fix", commit="a1b2c3d")
    assert suffix == Suffix(variant="nccl", cuda="11.8.0", nccl="2.16.2-1", torch="2.0.0-rc1", vision="0.15.0")


def test_parse_separates_tail_from_fields_and_revision() -> None:
    _, suffix = parse("a1b2c3d-base-cuda11.8.0-torch2.0.1-vision0.15.2-flash_attn1.0.9")
    assert suffix == Suffix(variant="base", cuda="11.8.0", torch="2.0.1", vision="0.15.2", tail="flash_attn1.0.9")
    revision, suffix = parse("x-a1b2c3d-abcdefa-base")
    assert (revision, suffix) == (Revision(branch="x-a1b2c3d", commit="abcdefa"), Suffix(variant="base"))
    with pytest.raises(SlipwayError, match="variant: 'abcdefa' is not valid in a tag"):
        Suffix(variant="abcdefa")


@every(
    "tail, reason",
    [
        ("", "expected letters, digits"),
        ("1.0", "expected letters, digits"),
        ("a-b", "expected letters, digits"),
        ("é", "expected letters, digits"),
        ("torch", "looks like one of the tag's fields"),
        ("torch2.0.1_custom", "looks like one of the tag's fields"),
        ("ubuntu22.04", "looks like one of the tag's fields"),
        ("abi1", "looks like one of the tag's fields"),
        ("rc1", "looks like one of the tag's fields"),
    ],
)
def test_tail_that_reads_as_a_field_is_refused(tail: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Suffix(variant="base", tail=tail)


def test_render_of_129_characters_is_refused() -> None:
    revision = Revision(commit="a1b2c3d")
    tag = render(revision, Suffix(variant="base", tail="t" * 115))
    assert tag == "a1b2c3d-base-" + "t" * 115
    assert len(tag) == 128
    with pytest.raises(SlipwayError, match="has 129 characters, at most 128 are allowed"):
        render(revision, Suffix(variant="base", tail="t" * 116))


@given(REVISIONS, SUFFIXES)
def test_render_of_any_tag_is_valid_and_parses_back(revision: Revision, suffix: Suffix) -> None:
    length = len(f"{revision.render()}-{suffix.render()}")
    if length > LIMIT:
        with pytest.raises(SlipwayError, match=f"has {length} characters, at most 128 are allowed"):
            render(revision, suffix)
        return
    tag = render(revision, suffix)
    assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}", tag)
    again = parse(tag)
    assert again[1] == suffix
    assert again[0].render() == revision.render()


@given(st.text(max_size=40))
def test_branch_prefix_of_any_text_is_valid_or_one_line(branch: str) -> None:
    try:
        prefix = branch_prefix(branch)
    except SlipwayError as error:
        assert "\n" not in str(error)
        return
    assert prefix is None or re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", prefix)


def test_branch_prefix_of_known_names() -> None:
    assert branch_prefix("main") is None
    assert branch_prefix("feature/UCC Ünicode") == "feature-UCC-nicode"
    for branch in ("///", "ÄÖÜ", "分支"):
        with pytest.raises(SlipwayError) as caught:
            branch_prefix(branch)
        assert str(caught.value) == (
            f"the branch name '{branch}' has no letter or digit that is valid in a tag; rename it"
        )


def test_render_of_long_tag_names_what_to_shorten() -> None:
    revision = Revision(branch="b" * 100, commit="a1b2c3d")
    with pytest.raises(
        SlipwayError, match=rf"has 1\d\d characters, at most {LIMIT} are allowed; shorten the branch name"
    ):
        render(revision, Suffix(variant="base", cuda="12.1.1", torch="2.0.1"))
    with pytest.raises(SlipwayError, match=r"has 1\d\d characters, at most 128 are allowed; shorten slipway:tagSuffix"):
        render(Revision(commit="a1b2c3d"), Suffix(variant="base", tail="t" * 120))


@every("tag", ["latest", "", "a1b2c3d", "A1B2C3D-base", "a1b2c3d-base-torch", "a1b2c3d-base-torch2 0"])
def test_parse_of_invalid_tag_is_refused(tag: str) -> None:
    with pytest.raises(SlipwayError, match="is not a tag of the form"):
        parse(tag)


def test_suffix_with_invalid_character_is_refused() -> None:
    with pytest.raises(SlipwayError, match=r"torch: '2\.0\.1\+cu118' is not valid in a tag"):
        Suffix(variant="base", torch="2.0.1+cu118")
