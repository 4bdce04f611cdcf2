"""BuildKit's own parser reads a Dockerfile's one form as it reads the Dockerfile.

PyPI's `dockerfile` is that parser, of BuildKit v0.12.5, for x86-64 Linux alone.
"""

from __future__ import annotations

import importlib
import platform
import sys
from operator import itemgetter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from containers.dockerfile.instructions import FLAGS, DockerfileError, parse
from stacks.config.stack_file import ROOT

TEXT = st.text(st.sampled_from("abE O F$'\"\\` -=<#[],\t\r\nRé{}:/"), max_size=30)
FLAG = st.builds("--{}={}".format, st.sampled_from(["from", "chown", "link", "mount", "platform"]), TEXT)
KEYWORD = st.sampled_from(
    [*FLAGS, "run", "Copy", "#", "\\", "EOF", "RUN <<EOF", "RUN cat <<'E' <<-F", "ONBUILD RUN <<E"]
)
LINE = st.builds("{} {} {}\n".format, KEYWORD, FLAG | st.just(""), TEXT)

if (sys.platform, platform.machine()) == ("linux", "x86_64"):
    buildkit: Any = importlib.import_module("dockerfile")  # it has no types

    def read(text: str) -> list[tuple[Any, ...]]:
        """Return a Dockerfile's instructions as BuildKit reads them, with the flags sorted by name."""
        names = itemgetter(0)
        return [
            (
                *(command.cmd.upper(), command.sub_cmd, command.json, command.value, command.heredocs),
                sorted((flag.partition("=") for flag in command.flags), key=names),
            )
            for command in buildkit.parse_string(text)
        ]

    def rendered(text: str) -> str:
        """Return a Dockerfile's directives and instructions in their one form."""
        dockerfile = parse(text.encode(), "D")
        directives = [f"# {directive}\n" for directive in dockerfile.directives]
        return "".join([*directives, *(instruction.render() for instruction in dockerfile.instructions)])

    def test_rendered_dockerfiles_are_read_the_same() -> None:
        texts = [path.read_text() for path in sorted((ROOT / "dockerfiles").glob("*/Dockerfile"))]
        assert len(texts) > 5
        for text in texts:
            assert read(rendered(text)) == read(text)

    @given(st.lists(LINE, min_size=1, max_size=5), st.sampled_from(["", "# escape=`\n", "# syntax=x\n", "# x\n"]))
    def test_rendered_text_is_read_the_same(lines: list[str], head: str) -> None:
        text = head + "".join(lines)
        try:
            form, original = rendered(text), read(text)
        except (DockerfileError, buildkit.GoParseError):
            return
        assert read(form) == original
