"""A Dockerfile's instructions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from containers.dockerfile.instructions import FLAGS, DockerfileError, parse, split_words
from tests.helpers.every import every


def rendered(text: str | bytes) -> str:
    """Return a Dockerfile's instructions in their one form."""
    content = text if isinstance(text, bytes) else text.encode()
    return "".join(instruction.render() for instruction in parse(content, "Dockerfile").instructions)


@every(
    "text",
    [
        "# a comment\nRUN a  b\n",
        "run a  b",
        "  RUN\ta  b\t\n\n",
        "RUN a \\\n b\n",
        "RUN a \\  \n b\n",
        "RUN \\\n# inside\n\n  # and this\na  b\n",
        "\\\nRUN a  b\n",
        "RUN a \\\r\n b\r\n",
        "# escape=`\nRUN a `\n b\n",
        "\ufeffRUN a  b\n",
        "#escape = `\nRUN a `\n# inside\n b\n",
        "RUN -- a  b\n",
    ],
)
def test_parse_of_one_instruction_has_one_form(text: str) -> None:
    assert rendered(text) == "RUN a  b\n"


@every(
    "text, form",
    [
        ("RUN a \\\\\n", "RUN a \\\\\n"),
        ("# x\n# escape=`\nRUN a \\\n b\n", "RUN a  b\n"),
        ("# x=y\n# escape=`\nRUN a \\\n b\n", "RUN a  b\n"),
        ("RUN a \\\nRUN b\n", "RUN a RUN b\n"),
        ("RUN a # b\n", "RUN a # b\n"),
        ("RUN a \\", "RUN a\n"),
        ("RUN -- --a\n", "RUN -- --a\n"),
        ("copy  --link  --from=a x y\n", "COPY --from=a --link x y\n"),
        ("COPY --exclude=b --chmod=1 --exclude=a . .\n", "COPY --chmod=1 --exclude=b --exclude=a . .\n"),
        ('COPY "--chown=a" b c\n', 'COPY "--chown=a" b c\n'),
        ("COPY --chown='a b' x y\n", 'COPY --chown="a b" x y\n'),
        ("COPY --chown=a\\ b x y\n", 'COPY --chown="a b" x y\n'),
        ("COPY --chown=\"'a'\" x y\n", "COPY --chown=\"'a'\" x y\n"),
        ("COPY --chown='\"a\"' x y\n", "COPY --chown='\"a\"' x y\n"),
        ("HEALTHCHECK --timeout=1s --interval=2s CMD x\n", "HEALTHCHECK --interval=2s --timeout=1s CMD x\n"),
        ("ONBUILD run  --mount=type=cache x\n", "ONBUILD run  --mount=type=cache x\n"),
        ("RUN ENV\n", "RUN ENV\n"),
        ("RUN [ \"a\",'b'  ]\n", "RUN [ \"a\",'b'  ]\n"),
        ('CMD ["a","é",\t"b  c"]\n', 'CMD ["a", "\\u00e9", "b  c"]\n'),
        ('SHELL ["\\ud800"]\n', 'SHELL ["\\ud800"]\n'),
        ("COPY  a   b\tc\n", "COPY a b c\n"),
        ("FROM  x \\\n  AS  y\n", "FROM x AS y\n"),
        ("EXPOSE 1  2\n", "EXPOSE 1 2\n"),
        ("ENV A='1  2'  \\\n    B=3\n", "ENV A='1  2' B=3\n"),
        ("LABEL a=1   b=2\n", "LABEL a=1 b=2\n"),
        ("ENV A 1   2\n", "ENV A 1   2\n"),
        ('ARG A  B="x  y"\n', 'ARG A B="x  y"\n'),
        ("RUN a\u00a0b é\n", "RUN a\u00a0b é\n"),
    ],
)
def test_render_keeps_what_has_a_meaning(text: str, form: str) -> None:
    assert rendered(text) == form


@every(
    "text",
    [
        "RUN <<EOF\n# no comment\n\nCOPY a b \\\nEOF\n",
        "RUN cat <<'EOF' >x\n$A\nEOF\n",
        'RUN cat <<"EOF"\nEOF\n',
        "RUN <<-EOF\n\ta\n\tEOF\n",
        "RUN a <<A 3<<B\n1\nA\n2\nB\n",
        "COPY <<a.txt <<b.txt /x/\nA\na.txt\nB\nb.txt\n",
        "ADD <<EOF /x\na\r\nEOF\r\n",
        "ONBUILD RUN <<EOF\na\nEOF\n",
        "RUN a <<EOF;\nx\nEOF;\n",
    ],
)
def test_parse_of_a_heredoc_keeps_its_lines(text: str) -> None:
    dockerfile = parse(f"{text}USER x\n".encode(), "Dockerfile")
    assert [instruction.keyword for instruction in dockerfile.instructions[1:]] == ["USER"]
    assert rendered(text) == text
    assert rendered(text.removesuffix("\n").removesuffix("\r")) == text.removesuffix("\r\n").removesuffix("\n") + "\n"


@every(
    "text",
    [
        "RUN cat <<<EOF\n",
        "RUN cat<<EOF\n",
        'RUN "<<EOF"\n',
        "RUN '<< EOF'\n",
        'RUN ["<<EOF"]\n',
        "RUN echo $((1<<3))\n",
        "RUN echo <<-\n",
        "RUN a <<EOF don't\n",
        "RUN a ${#x} <<EOF\n",
        "ENV x=<<EOF\n",
        "ONBUILD USER <<EOF\n",
    ],
)
def test_parse_of_other_angles_has_no_heredoc(text: str) -> None:
    assert rendered(f"{text}USER x\n") == f"{text}USER x\n"


def test_parse_names_directives_and_lines() -> None:
    dockerfile = parse(b"# Syntax = a/b:1 \n#ESCAPE=`\n# check=skip=all\n\n# x\nFROM a\nRUN b `\n c\nUSER d\n", "D")
    assert dockerfile.directives == ("syntax=a/b:1", "escape=`", "check=skip=all")
    assert dockerfile.escape == "`"
    assert [instruction.line for instruction in dockerfile.instructions] == [6, 7, 9]
    assert parse(b"FROM a", "D").escape == "\\"


@every(
    "content, message",
    [
        (b"", "D: no instruction; a Dockerfile begins with FROM"),
        (b"# only\n\n", "D: no instruction; a Dockerfile begins with FROM"),
        (b"# escape=x\n", "D:1: escape=x: expected \\ or `"),
        (b"# syntax=\xa0\n", "D:1: # syntax=\\udca0: expected ASCII"),
        (b"#\x0bsyntax=x\n", "D:1: #\\x0bsyntax=x: expected ASCII"),
        (b"# escape=`\n# Escape=`\n", "D:2: the directive 'escape' is given twice; keep one"),
        (
            b"#!/bin/x\n# syntax=y\nFROM x\n",
            "D:2: a directive after '#!', which only some engines read; delete the first line",
        ),
        (b"FROM x\nFETCH y\n", "D:2: FETCH: no such instruction"),
        (b"FROM x\nRUN <<EOF\na\n", "D:2: RUN: the here-document EOF has no end"),
        (b"RUN a << EOF\nEOF\n", "D:1: RUN: << EOF: write <<NAME, without spaces or escapes"),
        (b"RUN a <<E\\OF\nEOF\n", "D:1: RUN: <<E\\OF: write <<NAME, without spaces or escapes"),
        (b"COPY --new=x a b\n", "D:1: COPY: the flag --new is unknown; what it reads is not known"),
        (b"USER --x a\n", "D:1: USER: the flag --x is unknown; what it reads is not known"),
        (
            b"COPY --chown=a\\\\b a b\n",
            "D:1: COPY: --chown=a\\b: engines read such characters in a flag differently",
        ),
        (
            "COPY --chown=é a b\n".encode(),
            "D:1: COPY: --chown=é: engines read such characters in a flag differently",
        ),
        (
            b"COPY --chown=\"'\"'\"' a b\n",
            "D:1: COPY: --chown='\": engines read such characters in a flag differently",
        ),
        (
            b"# escape=`\nRUN --network=`a b\n",
            "D:2: RUN: --network=`a: engines read such characters in a flag differently",
        ),
        (b"ARG\n", "D:1: ARG: nothing: expected an argument"),
        (b"WORKDIR \n", "D:1: WORKDIR: nothing: expected an argument"),
        (b"COPY a\n", "D:1: COPY: a: expected a source and a target"),
        (b'ADD --chown=1 ["a"]\n', 'D:1: ADD: ["a"]: expected a source and a target'),
        (b"VOLUME []\n", "D:1: VOLUME: []: expected an argument"),
        (b"ENV A\n", "D:1: ENV: A: expected NAME=VALUE"),
        (b"ENV A=1 B\n", "D:1: ENV: A=1 B: expected NAME=VALUE"),
        (b"LABEL =1\n", "D:1: LABEL: =1: expected NAME=VALUE"),
        (b"SHELL sh\n", 'D:1: SHELL: sh: expected a JSON array, such as ["/bin/sh", "-c"]'),
        (
            b"ONBUILD from a\n",
            "D:1: ONBUILD: from a: expected an instruction other than FROM, MAINTAINER and ONBUILD",
        ),
        (b"RUN \xff\n", "D:1: RUN: bytes that are not UTF-8"),
        (b'CMD ["\xff"]\n', "D:1: CMD: bytes that are not UTF-8"),
        (b"RUN <<E\n\xff\nE\n", "D:1: RUN: bytes that are not UTF-8"),
        (
            b"RUN x \\\x0c\nUSER a\n",
            "D:1: RUN: on one line it has another meaning; write it without characters of control",
        ),
    ],
)
def test_parse_of_a_wrong_dockerfile_is_refused(content: bytes, message: str) -> None:
    with pytest.raises(DockerfileError) as error:
        parse(content, "D")
    assert str(error.value) == message


def test_parse_of_lines_too_long_together_is_refused() -> None:
    half = b"x" * 40_000
    with pytest.raises(DockerfileError, match=r"^D:1: RUN: 80005 bytes; BuildKit reads lines of 65535 bytes$"):
        parse(b"RUN " + half + b"\\\n" + half + b" \n", "D")


def test_comment_of_other_bytes_is_no_instruction() -> None:
    assert rendered(b"# \xff\nRUN a\n") == "RUN a\n"


def test_flag_is_a_value_or_none() -> None:
    (copy,) = parse(b"COPY --link --from=a=b x y\n", "D").instructions
    assert (copy.flag("from"), copy.flag("link"), copy.flag("chmod")) == ("a=b", "", None)


@every(
    "rest, words",
    [
        ("a  b\tc", ["a", "b", "c"]),
        ('"a b" c', ['"a', 'b"', "c"]),
        ('["a b", "c"]', ["a b", "c"]),
        ('["a", 1]', ['["a",', "1]"]),
        ('["a"] b', ['["a"]', "b"]),
    ],
)
def test_words_are_an_array_or_between_spaces(rest: str, words: list[str]) -> None:
    (copy,) = parse(f"COPY {rest}\n".encode(), "D").instructions
    assert copy.words == words


@every(
    "text, words",
    [
        ("a b=c", ["a", "b=c"]),
        ("a='b c' d=\"e f\"", ["a='b c'", 'd="e f"']),
        (r"a=b\ c d", [r"a=b\ c", "d"]),
        (r"a='b\' c", [r"a='b\'", "c"]),
        (r'a="b\" c" d', [r'a="b\" c"', "d"]),
        ("a=b\\", ["a=b"]),
        (r"a=\'b c", [r"a=\'b", "c"]),
        ("", []),
    ],
)
def test_split_words_of_quotes_are_whole(text: str, words: list[str]) -> None:
    assert split_words(text, "\\") == words


TEXT = st.text(st.sampled_from("ab$'\"\\` -=<#[],\t\r\n\v\f\x1c\x85\xa0é{}:/"), max_size=30)
FLAG = st.builds("--{}={}".format, st.sampled_from(["from", "chown", "link", "mount", "platform"]), TEXT)
LINE = st.builds(
    "{} {} {}\n".format, st.sampled_from([*FLAGS, "run", "#", "\\", "EOF", "RUN <<EOF"]), FLAG | st.just(""), TEXT
)


@given(st.lists(LINE, min_size=1, max_size=5), st.sampled_from(["", "# escape=`\n", "\ufeff", "# syntax=x\n"]))
def test_render_then_parse_is_a_fixed_point(lines: list[str], head: str) -> None:
    try:
        dockerfile = parse((head + "".join(lines)).encode(), "D")
    except DockerfileError as error:
        assert "\n" not in str(error)
        return
    text = "".join(f"# {directive}\n" for directive in dockerfile.directives)
    text += "".join(instruction.render() for instruction in dockerfile.instructions)
    again = parse(text.encode(), "D")
    assert again.instructions == dockerfile.instructions
    assert again.directives == dockerfile.directives
