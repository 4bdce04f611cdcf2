"""A Dockerfile's stages, as far as tests of its arguments need them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from stacks.config.stack_file import ROOT
from stacks.spec import CONTEXT, ImageSpec

_FROM = re.compile(r"FROM (?:--platform=\S+ )?(?P<parent>\S+)(?: AS (?P<name>\S+))?", re.IGNORECASE)
_NEEDS = re.compile(r"(?:--from=|[, ]from=|,from=)(?P<stage>[\w${}-]+)")
_ARG = re.compile(r"ARG (?P<name>\w+)(?P<default>=.*)?")
_DEFAULT = re.compile(r"\$\{\w+:-(?P<stage>[\w-]+)\}")
_VARIABLE = re.compile(r"\$\{?(\w+)")


@dataclass
class Stage:
    """One stage: its parent, the stages that it takes files of, and whether each of its arguments has a default."""

    parent: str = ""
    needs: set[str] = field(default_factory=set)
    args: dict[str, bool] = field(default_factory=dict)


class Dockerfile:
    """The stages of one Dockerfile, by name, the last one by ``""`` too, and its global arguments."""

    def __init__(self, path: Path) -> None:
        self.globals: dict[str, bool] = {}
        self.stages: dict[str, Stage] = {}
        stage: Stage | None = None
        text = re.sub(r"\\\n(?:\s*#.*\n)*", " ", path.read_text())
        for line in text.splitlines():
            if match := _FROM.match(line):
                stage = Stage(parent=match["parent"])
                self.stages[match["name"] or f"stage {len(self.stages)}"] = stage
            elif match := _ARG.match(line):
                target = self.globals if stage is None else stage.args
                target[match["name"]] = target.get(match["name"], False) or match["default"] is not None
            elif stage is not None:
                stage.needs |= {match["stage"] for match in _NEEDS.finditer(line)}
        assert stage is not None
        self.stages[""] = stage

    def arguments(self, target: str | None) -> dict[str, bool]:
        """Return the arguments that a target's stages take, and whether each has a default wherever it is taken."""
        arguments: dict[str, bool] = {}
        waiting, visited = [target or ""], set()
        while waiting:
            name = waiting.pop()
            if name in visited or name not in self.stages:
                continue
            visited.add(name)
            stage = self.stages[name]
            for argument, default in stage.args.items():
                given = default or self.globals.get(argument, False)
                arguments[argument] = arguments.get(argument, True) and given
            for argument in _VARIABLE.findall(stage.parent):
                arguments[argument] = arguments.get(argument, True) and self.globals[argument]
            waiting += [*self._named(stage.parent), *stage.needs]
        return arguments

    def _named(self, parent: str) -> list[str]:
        """Return the stages that a parent can be: an argument at the end of a stage's name stands for any.

        Of an argument that has a stage for its default, that.
        """
        if default := _DEFAULT.fullmatch(parent):
            return [default["stage"]]
        beginning = parent.partition("${")[0]
        several = beginning if beginning and beginning != parent else None
        return [name for name in self.stages if name == parent or (several and name.startswith(several))]


def of(spec: ImageSpec) -> Dockerfile:
    """Return the Dockerfile of a spec."""
    return Dockerfile(ROOT / CONTEXT / spec.dockerfile)
