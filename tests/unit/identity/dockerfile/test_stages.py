"""The stages, context paths and arguments that a target's build can read."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from containers.dockerfile.instructions import DockerfileError, parse
from containers.dockerfile.stages import Reach, reach
from tests.helpers.every import every


def reached(
    text: str, target: str | None = None, arguments: Mapping[str, str] | None = None, platform: str = "linux/amd64"
) -> Reach:
    """Return what the build of a target of this Dockerfile can read."""
    return reach(parse(text.encode(), "D"), target, arguments or {}, platform)


def paths(text: str, arguments: Mapping[str, str] | None = None) -> list[str]:
    """Return the context paths that the instructions of one stage read."""
    return [source.path for source in reached(f"FROM x\n{text}", arguments=arguments).sources]


STAGES = """ARG USED=1
ARG UNUSED=2
ARG IN_DEFAULT=3
ARG BASE=b-${IN_DEFAULT}
FROM x AS a
COPY a .
FROM y:$USED AS b-3
COPY b .
FROM z AS c
COPY c .
FROM $BASE AS d
RUN --mount=from=C,target=/c d
FROM w AS e
COPY --from=2 /c .
COPY --from=B-3 /b .
FROM scratch
"""


@every(
    "target, text, sources",
    [
        ("a", "FROM x AS a\nCOPY a .\n", ["a"]),
        (
            "D",
            (
                "ARG USED=1\nARG IN_DEFAULT=3\nARG BASE=b-${IN_DEFAULT}\nFROM y:$USED AS b-3\nCOPY b .\nFROM z AS c\nCOPY c .\n"
                "FROM $BASE AS d\nRUN --mount=from=C,target=/c d\n"
            ),
            ["b", "c"],
        ),
        (
            "e",
            (
                "ARG USED=1\nFROM y:$USED AS b-3\nCOPY b .\nFROM z AS c\nCOPY c .\nFROM w AS e\nCOPY --from=1 /c .\n"
                "COPY --from=B-3 /b .\n"
            ),
            ["c", "b"],
        ),
        (None, "FROM scratch\n", []),
        ("", "FROM scratch\n", []),
    ],
)
def test_reach_of_a_target_is_its_stages(target: str | None, text: str, sources: list[str]) -> None:
    result = reached(STAGES, target)
    assert result.render({}) == text
    assert [source.path for source in result.sources] == sources


@every(
    "text, sources",
    [
        ("COPY a ./b c/ /d/\n", ["a", "b", "c"]),
        ("COPY . .\n", [""]),
        ("COPY / .\n", [""]),
        ("COPY ../../a//b/../c .\n", ["a/c"]),
        ("COPY //a .\n", ["a"]),
        ('COPY ["a b", "c"]\n', ["a b"]),
        ("COPY \"a\" 'b' c\n", ["a", "b"]),
        ("COPY --from= a .\n", ["a"]),
        ("COPY --from=image a .\n", []),
        ("COPY --parents a/./b .\n", ["a/b"]),
        ("COPY <<A b <<C /d/\nA\nC\n", ["b"]),
        ("COPY [ab]* .\n", ["[ab]*"]),
        ("ADD a.git https://x/y git@x.y:z.git ssh://x git://y /d/\n", ["a.git"]),
        ("ADD github.com/a/b ftp://x /d/\n", ["github.com/a/b", "ftp:/x"]),
        ("ADD https://$UNSET/y /d\n", []),
        ("ARG U=http://x\nADD $U/y /d\n", []),
        ("RUN --mount=target=/m x\n", [""]),
        ("RUN --mount=type=bind,source=a,target=/m x\n", ["a"]),
        ("RUN --mount=SRC=a,source=b,src=./c,target=/m x\n", ["c"]),
        ("RUN --mount='type=bind,\"source=a,b\",target=/m' x\n", ["a,b"]),
        ("RUN --mount=type=bind,from=image,target=/m x\n", []),
        ("RUN --mount=type=bind,from=0,target=/m x\n", []),
        ("RUN --mount=type=cache,target=$HOME/x x\n", []),
        ("RUN --mount=type=secret,id=$X --mount=type=ssh --mount=type=tmpfs,target=/t x\n", []),
        ("ARG T=bind\nRUN --mount=type=$T,source=a,target=/m x\n", ["a"]),
        ("ONBUILD COPY a .\n", []),
        ("ARG A=x B=$A\nENV A=y B=$A\nCOPY $A-$B .\n", ["y-x"]),
        ("ENV A b c\nCOPY $A .\n", ["b c"]),
        ('ENV A="b c" D=e\\ f\nCOPY $A $D .\n', ["b c", "e f"]),
        ("ARG A=x\nARG A\nCOPY $A .\n", ["x"]),
        ("ENV A=${B#x}\nENV A=c\nCOPY $A .\n", ["c"]),
    ],
)
def test_sources_are_what_the_context_is_read_for(text: str, sources: list[str]) -> None:
    assert paths(text) == sources


@every("path, pattern", [("a*", True), ("a?", True), ("[a]", True), ("a", False), ("$P", True), ("!a", False)])
def test_source_with_a_wildcard_is_a_pattern(path: str, *, pattern: bool) -> None:
    (copied, mounted) = reached(f"FROM x\nARG P=*\nCOPY {path} .\nRUN --mount=source={path},target=/m x\n").sources
    assert (copied.pattern, mounted.pattern) == (pattern, False)
    assert [copied.instruction.keyword, mounted.instruction.keyword] == ["COPY", "RUN"]


@every(
    "text, source",
    [
        ("FROM x\nARG A=1\nCOPY $A .\n", "given"),
        ("FROM x\nENV A=1\nCOPY $A .\n", "1"),
        ("FROM scratch\nCOPY a$A .\n", "a"),
        ("ARG A=1\nFROM scratch\nCOPY a$A .\n", "a"),
        ("ARG B=1\nARG C=$B$A\nFROM scratch\nARG C\nCOPY $C .\n", "1"),
        ("ARG A\nFROM x\nARG A\nCOPY $A .\n", "given"),
        ("FROM x AS s\nENV A=1\nFROM s\nCOPY $A .\n", "1"),
        ("FROM scratch AS s\nARG A=1\nFROM s\nCOPY $A .\n", "given"),
        ("FROM scratch AS s\nENV A=1\nARG A=2\nFROM s\nCOPY $A .\n", "1"),
        ("FROM x AS s\nARG A=1\nFROM s\nARG A=2\nCOPY $A .\n", "given"),
        ("FROM x\nARG TARGETPLATFORM\nCOPY $TARGETPLATFORM .\n", "linux/arm64"),
        ("FROM x\nARG TARGETARCH=a TARGETOS TARGETVARIANT\nCOPY $TARGETARCH-$TARGETOS-$TARGETVARIANT .\n", "a-linux-"),
        ("ARG X=${TARGETARCH}\nFROM x\nARG X\nCOPY $X .\n", "arm64"),
    ],
)
def test_variable_is_what_the_build_gives_it(text: str, source: str) -> None:
    assert [item.path for item in reached(text, None, {"A": "given"}, "linux/arm64").sources] == [source]


@every(
    "text, names",
    [
        ("FROM x\nARG A=1 B\n", {"A", "B"}),
        ("ARG A\nARG B\nFROM x$A\n", {"A"}),
        ("ARG C\nARG A=$C\nFROM x$A\n", {"A", "C"}),
        ("ARG C=1\nARG GIVEN=$C\nFROM $GIVEN\n", {"GIVEN"}),
        ("FROM --platform=$BUILDPLATFORM x\n", {"BUILDPLATFORM"}),
        ("FROM x AS a\nARG A\nFROM y\nARG B\n", {"B"}),
    ],
)
def test_arguments_are_those_that_are_read(text: str, names: set[str]) -> None:
    arguments = {"GIVEN": "x", "SOURCE_DATE_EPOCH": "0", "BUILDKIT_SYNTAX": "z", "OTHER": "w"}
    assert reached(text, None, arguments).arguments.keys() == names | {"SOURCE_DATE_EPOCH", "BUILDKIT_SYNTAX"}


@every("value", ["context", "a", "$TARGETSTAGE"])
def test_epoch_that_is_no_number_is_refused(value: str) -> None:
    text = f"ARG SOURCE_DATE_EPOCH={value}\nFROM scratch AS a\nADD https://x /\nFROM x\n"
    with pytest.raises(
        DockerfileError, match=r"^D: SOURCE_DATE_EPOCH: expected seconds; newer engines read it elsewhere$"
    ):
        reached(text)
    assert reached(text, None, {"SOURCE_DATE_EPOCH": "1"}).render({}).startswith("ARG SOURCE_DATE_EPOCH")
    assert reached(text.replace(f"={value}", "=-1")).arguments.keys() == {"SOURCE_DATE_EPOCH"}


def test_render_leaves_out_defaults_and_checks() -> None:
    text = "# syntax=s\n# check=error=true\n# escape=`\nARG A=1\nFROM x:$A\nARG A=2  B='3 4' C=`$D\nRUN $A `\n b\n"
    assert reached(text).render({"A": "", "C": None}) == (
        "# syntax=s\n# escape=`\nARG A\nFROM x:$A\nARG A B='3 4' C\nRUN $A  b\n"
    )


@every(
    "text, message",
    [
        ("ARG A\n", "D: there is no FROM"),
        ("RUN a\nFROM x\n", "D:1: RUN: it stands before the first FROM, where only ARG may"),
        ("FROM x y\n", "D:1: FROM: x y: expected an image, or an image AS a name"),
        ("FROM x IS y\n", "D:1: FROM: x IS y: expected an image, or an image AS a name"),
        ("FROM\n", "D:1: FROM: : expected an image, or an image AS a name"),
        ("FROM x AS 1\n", "D:1: FROM: 1: expected a letter, then letters, digits, '_.-'; not context or scratch"),
        (
            "FROM x AS Scratch\n",
            "D:1: FROM: scratch: expected a letter, then letters, digits, '_.-'; not context or scratch",
        ),
        ("FROM x AS a\nFROM y AS A\n", "D:1: FROM: two stages are named 'a'; rename one"),
        (
            "ARG A\nFROM $A\n",
            "D:2: FROM: $A is empty; declare it by ARG before the first FROM, with a value or a default",
        ),
        (
            "FROM $A\nARG A=x\n",
            "D:1: FROM: $A is empty; declare it by ARG before the first FROM, with a value or a default",
        ),
        ("FROM a-$BUILDARCH\n", "D:1: FROM: a-$BUILDARCH: the value of BUILDARCH is known in the build alone"),
        ("FROM a-$TARGETSTAGE\n", "D:1: FROM: a-$TARGETSTAGE: the value of TARGETSTAGE is known in the build alone"),
        ("FROM x\nCOPY $A .\n", "D:2: COPY: $A: no ARG or ENV before it sets A; only the parent image might"),
        ("FROM x\nARG A\nCOPY $A .\n", "D:3: COPY: $A: no ARG or ENV before it sets A; only the parent image might"),
        ("FROM x\nENV A=$B\nCOPY $A .\n", "D:3: COPY: $A: the value of A is known in the build alone"),
        ("FROM x AS s\nARG A=1\nFROM s\nCOPY $A .\n", "D:4: COPY: $A: the value of A is known in the build alone"),
        ("FROM scratch\nCOPY $PATH .\n", "D:2: COPY: $PATH: the value of PATH is known in the build alone"),
        ("FROM x\nENV $A=1\n", "D:2: ENV: $A: no ARG or ENV before it sets A; only the parent image might"),
        ("FROM x\nARG 'A'=1\n", "D:2: ARG: 'A': expected letters, digits and '_'"),
        ("ARG A=1\nFROM x\nARG B=2 # 'A'\n", "D:3: ARG: 'A': expected letters, digits and '_'"),
        ("FROM x\nARG =1\n", "D:2: ARG: =1: expected letters, digits and '_'"),
        ("FROM x\nARG B=2 # it's\n", "D:2: ARG: it's: a quote is not closed"),
        ("FROM x\nCOPY --from=$A a .\n", "D:2: COPY: --from=$A: BuildKit takes no variable; name a stage FROM it"),
        ("FROM x\nRUN --mount=from=$A a\n", "D:2: RUN: from=$A: BuildKit takes no variable; name a stage FROM it"),
        ("FROM x\nRUN --mount='\"a\"b' a\n", "D:2: RUN: --mount=\"a\"b: ',' expected after '\"'"),
        ("FROM x\nCOPY --from=0 a .\n", "D:2: COPY: the stage '0' must stand before this one"),
        ("FROM x\nCOPY --from=-1 a .\n", "D:2: COPY: the stage '-1' must stand before this one"),
        (
            "FROM x\nCOPY --from=a a .\nFROM y AS a\nFROM x\nCOPY --from=0 a .\n",
            "D:2: COPY: the stage 'a' must stand before this one",
        ),
        ("FROM x AS a\nRUN --mount=from=a a\n", "D:2: RUN: the stage 'a' must stand before this one"),
        ('FROM x\nCOPY ["a", "b"] c\n', 'D:2: COPY: ["a", "b"] c: expected a JSON array of strings'),
        ("FROM x\nCOPY a\\\\b c\n", "D:2: COPY: a\\b: a path with a backslash, or that no file has"),
        ('FROM x\nCOPY ["\\ud800", "c"]\n', "D:2: COPY: \\ud800: a path with a backslash, or that no file has"),
        (
            "FROM x AS a\nONBUILD RUN x\nFROM a\n",
            "D:2: ONBUILD: stage 'a' has a child in this file; write the instruction there",
        ),
    ],
)
def test_reach_of_a_wrong_dockerfile_is_refused(text: str, message: str) -> None:
    with pytest.raises(DockerfileError) as error:
        reached(text)
    assert str(error.value) == message


def test_reach_without_bounds_is_refused() -> None:
    chain = "".join(f"FROM s{each} AS s{each + 1}\n" for each in range(2000))
    with pytest.raises(DockerfileError, match="^D: too many stages, each of which needs the one before it$"):
        reached(f"FROM x AS s0\n{chain}")
    long = "x" * 60_000
    with pytest.raises(DockerfileError, match="^D: its variables have more than 16 MiB of text$"):
        reached(f"FROM x\nARG A={long}\n" + "ENV B=$A$A\n" * 150)


def test_reach_of_an_unknown_target_is_refused() -> None:
    with pytest.raises(DockerfileError, match=r"^D: there is no stage 'z'; it has a, b$"):
        reached("FROM x AS a\nFROM y AS B\n", "z")
    with pytest.raises(DockerfileError, match=r"^D: there is no stage '0'; it has none with a name$"):
        reached("FROM x\n", "0")


def test_platform_with_a_variant_is_known_in_the_build() -> None:
    with pytest.raises(DockerfileError, match=r"the value of TARGETVARIANT is known in the build alone$"):
        reached("FROM a-$TARGETVARIANT\n", None, {}, "linux/arm64/v8")


def test_stages_that_are_not_reached_are_not_refused() -> None:
    text = "ARG NONE\nFROM $NONE AS a\nCOPY $X .\nFROM x AS b\n"
    assert reached(text).render({}) == "FROM x AS b\n"


def test_name_of_an_earlier_stage_is_no_image() -> None:
    text = "FROM x AS a\nCOPY a .\nFROM A\nCOPY b .\n"
    with pytest.raises(DockerfileError, match="FROM: A: invalid reference format"):
        reached(text)
    assert [source.path for source in reached(text.replace("FROM A", "FROM a")).sources] == ["a", "b"]


@every("words", ["# the root", '# e.g. 1.2 (or "1.3"), see https://a.example/?b=c', "#", "# A-B 'c d'"])
def test_words_after_an_argument_name_nothing_that_is_read(words: str) -> None:
    """BuildKit reads them as further arguments, and people write them as a comment."""
    assert paths(f'ARG A="" {words}\nARG B=b {words}\nCOPY $A/c $B .\n') == ["c", "b"]
