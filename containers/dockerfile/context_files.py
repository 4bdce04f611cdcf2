"""The files of a context that the instructions of a Dockerfile name: paths, folders, links and patterns."""

from __future__ import annotations

import posixpath
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from containers.dockerfile.context import MOST_LINKS, Context
from containers.dockerfile.ignore import Matcher, PatternError, join
from containers.dockerfile.instructions import Dockerfile
from containers.dockerfile.stages import Source
from containers.dockerfile.wildcards import comparing
from containers.errors import one_line
from containers.path_prefixes import prefixes


class ContextFiles:
    """The files of a context that a Dockerfile's build may read."""

    def __init__(self, dockerfile: Dockerfile, folder: Context, paths: Sequence[str]) -> None:
        self._dockerfile, self._context, self._paths = dockerfile, folder, paths

    def of(self, sources: Iterable[Source]) -> set[str]:
        """Return the files and links that instructions read, and the folders, if the context has these."""
        return {path for _, paths in self._read(sources) for path in paths}

    def followed(self, sources: Iterable[Source]) -> dict[str, str]:
        """Return the paths of :meth:`of` by the names that instructions have for them.

        BuildKit follows the links in a source and sees what is behind them alone (``solver/llbsolver/ops/file.go``,
        ``exec.go``: ``FollowLinks``). The content behind a link that is read too is named
        with ``/.`` at its end. What ``--exclude`` keeps out of a folder is left out.
        """
        names: dict[str, str] = {}
        followed: dict[str, str] = {}
        for (path, behind), paths in self._read(sources, excluding=True):
            if path == behind:
                names |= {each: each for each in paths}
            else:
                inner = (each for each in paths if each == behind or each.startswith(f"{behind}/"))
                followed |= {path + each[len(behind) :]: each for each in inner}
        return names | {f"{name}/." if name in names else name: path for name, path in followed.items()}

    def _read(
        self, sources: Iterable[Source], *, excluding: bool = False
    ) -> Iterator[tuple[tuple[str, str], set[str]]]:
        """Yield each source, its target behind links, and the files, folders and links read for it."""
        for source in {(each.path, each.pattern, _parents(each), _excluded(each)): each for each in sources}.values():
            try:
                kept = _not_excluded(source) if excluding else None
                paths = self._matches(source) if source.pattern else [source.path]
                read = [self._below(path, source, kept) for path in paths]
            except (re.error, PatternError) as error:
                raise self._dockerfile.error(source.instruction, f"{one_line(source.path)}: {error}") from None
            yield from read

    def _below(
        self, source_path: str, source: Source, kept: Callable[[str], bool] | None
    ) -> tuple[tuple[str, str], set[str]]:
        """Return a file, or the files in a folder, and the links that lead there.

        ``kept`` says of a path in the folder whether it is copied.
        """
        path, links = self._resolve(source_path, source)
        if not path:
            return (source_path, source_path), {*filter(kept, self._paths)}
        parents = _parents(source)
        above = prefixes(path) if parents else (path,)
        itself = {each for each in above if self._has(each)}
        inner = self._inner(path)
        if path not in itself and not inner:
            raise self._dockerfile.error(
                source.instruction, f"{one_line(source.path)}: the context has no such file; see the ignore file too"
            )
        copied = {each for each in inner if kept is None or kept(each[len(path) + 1 :])}
        return (path if parents else source_path, path), {*itself, *copied, *links}

    def _has(self, path: str) -> bool:
        start = bisect_left(self._paths, path)
        return self._paths[start : start + 1] == [path]

    def _inner(self, folder: str) -> Sequence[str]:
        """Return the paths in a folder; "0" is the character after "/"."""
        return self._paths[bisect_left(self._paths, f"{folder}/") : bisect_left(self._paths, f"{folder}0")]

    def _resolve(self, path: str, source: Source) -> tuple[str, set[str]]:
        """Return the path behind links, and the links."""
        links: set[str] = set()
        for _ in range(MOST_LINKS):
            link = next((prefix for prefix in prefixes(path) if self._context.link(prefix) is not None), None)
            if link is None or link not in self._paths:
                return path, links
            links.add(link)
            target = self._context.link(link) or ""
            path = join(posixpath.dirname(link), target, path[len(link) + 1 :])
            if target.startswith("/") or f"{path}/".startswith("../"):
                raise self._dockerfile.error(
                    source.instruction, f"{one_line(link)}: this link leads out of the context, to {one_line(target)}"
                )
            path = "" if path == "." else path
        raise self._dockerfile.error(source.instruction, f"{one_line(source.path)}: more than {MOST_LINKS} links")

    def _matches(self, source: Source) -> Iterator[str]:
        """Yield the files and folders that a pattern names, by the rule of Go's filepath.Match: `*` stops at `/`.

        Links before the first wildcard are followed, as ``ResolveWildcards`` of tonistiigi/fsutil does (``copy.go``).
        With ``COPY --parents`` it is a pattern of ignore files, where `**` stands for several folders (moby/buildkit
        v0.26.3, cache/contenthash/checksum.go:498). Elsewhere the whole folder above `**` counts.
        """
        pattern = source.path
        if "**" in pattern:
            above = posixpath.dirname(pattern[: pattern.index("**")])
            yield from filter(Matcher([pattern]).ignores, self._paths) if _parents(source) else [above]
            return
        above = posixpath.dirname(re.split(r"[*?[]", pattern, maxsplit=1)[0])
        behind = self._resolve(above, source)[0] if above else ""
        start = len(behind) + 1 if behind else 0
        parts = [comparing(_expression(part), re.DOTALL) for part in pattern[len(above) :].lstrip("/").split("/")]
        inner = self._inner(behind) if behind else self._paths
        for match in dict.fromkeys(tuple(path[start:].split("/")[: len(parts)]) for path in inner):
            if len(match) == len(parts) and all(fits(name) for fits, name in zip(parts, match, strict=True)):
                yield posixpath.join(above, *match)


def _parents(source: Source) -> bool:
    return source.instruction.flag("parents") is not None


def _excluded(source: Source) -> tuple[str, ...]:
    return tuple(flag.partition("=")[2] for flag in source.instruction.flags if flag.startswith("--exclude="))


def _not_excluded(source: Source) -> Callable[[str], bool] | None:
    """Return the function that says whether a path in a copied folder is copied; None if each counts.

    BuildKit compares paths in the folder with ``--exclude`` by the rules of ignore files, and replaces no variable in
    it (moby/buildkit 73ed682, cache/contenthash/checksum.go:711, instructions/commands.go:301). Each counts with an
    exception, for which engines read folders that are excluded, and beside ``--parents``, which names paths otherwise.
    """
    patterns = _excluded(source)
    if not patterns or _parents(source):
        return None
    excluded = Matcher(patterns)
    return None if excluded.exceptions else lambda path: not excluded.ignores(path)


def _expression(pattern: str) -> str:
    """Return the regular expression of one part of a pattern."""
    expression = ""
    for piece in _pieces(pattern):
        if piece in "*?":
            expression += ".*" if piece == "*" else "."
        elif piece[0] == "[" and len(piece) > 1:
            expression += f"[{re.sub(_SET, _escaped, piece[1:])}"
        else:
            expression += re.escape(piece[-1])
    return expression


_SET: Final = re.compile(r"\\.|[\[&|~]", re.DOTALL)
"""What `re` warns of in a class, since it may begin a set there one day."""


def _escaped(match: re.Match[str]) -> str:
    return match[0] if len(match[0]) > 1 else f"\\{match[0]}"


def _pieces(pattern: str) -> list[str]:
    """Return the characters, escaped characters and classes of one part of a pattern.

    Behind the last bracket that closes, no class is looked for: each would be searched to the end of the pattern.
    """
    closing = (each.end() for each in re.finditer(r"\\.|\]", pattern, re.DOTALL) if each[0] == "]")
    end = max(closing, default=0)
    classes = re.findall(r"\\.|\[\^?(?:\\.|[^\]\\])+\]|.", pattern[:end], re.DOTALL)
    return [*classes, *re.findall(r"\\.|.", pattern[end:], re.DOTALL)]
