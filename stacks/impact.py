"""What a change touches: the stacks and images that differ between a commit's tree and the working tree.

An image is affected exactly when its spec, its labels, a file of its context or a parent differs between the two; so
are new ones. What is not committed counts, as it does in tags. Each tree is resolved by its own code
(:mod:`stacks.identity.older_trees`): where a commit's code cannot say what a stack was, all of that stack is affected.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from stacks import plan
from stacks.config.mirrors import MIRRORS_VARIABLE
from stacks.config.stack_file import stack_names
from stacks.differences import leaves
from stacks.errors import SlipwayError, one_line, quoted, suggest
from stacks.identity import context, older_trees
from stacks.identity.git import git
from stacks.identity.older_trees import Content, Contents, Told
from stacks.spec import CONTEXT

_MOST_SHOWN = 3
"""Differences that are said of an image; the first ones say why."""
_LONGEST = 60
"""Characters of a value that are shown."""

_FOLLOWING = {"suffix", "labels"}
"""What mostly follows from arguments, and is said only where nothing else differs."""

_NULL = re.compile(r"0{40}|0{64}")
"""What GitHub names as the commit before a branch's first push."""
_FIRST_PARENT = re.compile(r"(?P<of>.+?)(?:~[0-9]*|\^1?)+")
"""A first parent of something, or of its first parent, and so on: HEAD~1, main^^."""

_DEEPEN = "run `git fetch --unshallow`, or give actions/checkout `fetch-depth: 0`"


@dataclass(frozen=True)
class Affected:
    """What differs between two trees.

    ``images`` says why each affected image is one, by stack and name, parents before children; nothing else is in it.
    ``removed`` are the images that are no more, by stack; none are named of a stack that is no more itself. ``silent``
    says why the older tree's code cannot resolve a stack.
    """

    images: Mapping[str, Mapping[str, Sequence[str]]]
    removed: Mapping[str, Sequence[str]]
    silent: Mapping[str, str]

    def as_matrix(self) -> dict[str, Any]:
        """Return a matrix of GitHub Actions: one job for each stack, which has its affected images beside it."""
        return {"include": [{"stack": stack, "images": list(images)} for stack, images in self.images.items()]}


def since(ref: str, root: Path) -> Affected:
    """Compare the working tree with the commit where HEAD's history left that of ``ref``: often ``ref`` itself.

    So what others have done since on ``ref``'s branch does not count.

    Raises:
        SlipwayError: ``ref`` is no commit, the history does not reach back to it, ``root`` is no git checkout, or a
            stack of the working tree cannot be resolved.
    """
    base = _base(ref, root)
    with ThreadPoolExecutor(max_workers=1) as beside:  # the other tree is resolved in a process of its own
        then = beside.submit(lambda: older_trees.at(base, root, variables=[MIRRORS_VARIABLE]) if base else Told())
        now = _working_tree(root)
        return between(then.result(), now)


def between(then: Told, now: Mapping[str, Contents]) -> Affected:
    """Compare two trees; ``now`` has its stacks by name."""
    images = {stack: _reasons(then, stack, contents) for stack, contents in now.items()}
    fewer = {
        stack: [name for name in then.stacks[stack] if name not in now[stack]] for stack in then.stacks if stack in now
    }
    ended: dict[str, list[str]] = {stack: [] for stack in [*then.stacks, *then.silent] if stack not in now}
    return Affected(
        images={stack: reasons for stack, reasons in images.items() if reasons},
        removed={**{stack: names for stack, names in fewer.items() if names}, **ended},
        silent={stack: why for stack, why in then.silent.items() if stack in now},
    )


def _base(ref: str, root: Path) -> str | None:
    """Return the commit to compare with; None where nothing was before."""
    shallow = git(root, "rev-parse", "--is-shallow-repository")
    if shallow is None:
        raise SlipwayError(
            f"{root}: git finds no checkout here, and --since takes one; `git status` says what is wrong"
        )
    if _NULL.fullmatch(ref):
        return None
    in_part = shallow.strip() == "true"
    commit = _commit(ref, root)
    if commit is None:
        if in_part:
            raise SlipwayError(f"--since '{one_line(ref)}': no commit of this shallow clone; {_DEEPEN}")
        parent = _FIRST_PARENT.fullmatch(ref)
        if parent and _commit(parent["of"], root):
            return None  # before the first commit
        names = (git(root, "for-each-ref", "--format=%(refname:short)") or "").split()
        raise SlipwayError(
            f"--since '{one_line(ref)}': no commit here{suggest(ref, names)}; "
            "expected a branch, a tag or a commit of this clone, such as origin/main; `git fetch` gets new ones"
        )
    if git(root, "merge-base", "--is-ancestor", commit, "HEAD") is not None:
        return commit
    if in_part:  # where the histories parted may be beyond the part that is here
        raise SlipwayError(f"--since '{one_line(ref)}': no ancestor of HEAD in this shallow clone; {_DEEPEN}")
    return (git(root, "merge-base", commit, "HEAD") or commit).strip()


def _commit(ref: str, root: Path) -> str | None:
    found = git(root, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}")
    return found.strip() if found else None


def _working_tree(root: Path) -> dict[str, Contents]:
    found: dict[str, Contents] = {}
    mistakes = []
    files = cache(partial(context.files, root / CONTEXT))
    for stack in stack_names(root):
        try:
            _, specs = plan.resolve(stack, root)
            found[stack] = older_trees.contents(specs, files)
        except SlipwayError as error:
            mistakes.append(str(error))
    if mistakes:
        raise SlipwayError("\n".join(dict.fromkeys(mistakes)))
    return found


def _reasons(then: Told, stack: str, images: Contents) -> dict[str, list[str]]:
    """Return why each affected image of a stack is one; ``images`` has parents before children."""
    before = then.stacks.get(stack, {})
    new = "cannot be compared" if stack in then.silent else "new"
    reasons: dict[str, list[str]] = {}
    for name, image in images.items():
        parents = [f"parent {parent}" for parent in dict.fromkeys(image.spec.siblings) if parent in reasons]
        if found := [*parents, *_differences(before[name], image)] if name in before else [new]:
            reasons[name] = found
    return reasons


def _differences(then: Content, now: Content) -> list[str]:
    before, after = dict(_facts(then)), dict(_facts(now))
    parts = list(dict.fromkeys(key[0] for key in {**after, **before}))
    keys = sorted(
        (key for key in {**after, **before} if before.get(key) != after.get(key)), key=lambda k: parts.index(k[0])
    )
    first = [key for key in keys if key[0] not in _FOLLOWING]
    return [_difference(key, before.get(key), after.get(key)) for key in first or keys]


def _facts(image: Content) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield all that decides an image as single values, each with the way to it: files first, then arguments."""
    spec = image.spec.model_dump(mode="json")
    yield from leaves({"files": image.files, "args": spec.pop("args"), **spec, "labels": image.labels})


def _difference(way: tuple[str, ...], before: object, after: object) -> str:
    name = " ".join(one_line(part) for part in way)
    if way[0] == "files":
        return f"{name} {'added' if before is None else 'removed' if after is None else 'changed'}"
    return f"{name} {quoted(before, _LONGEST)} -> {quoted(after, _LONGEST)}"


def lines(affected: Affected) -> Iterator[str]:
    """Yield what is said to people: each stack, below it its affected images and why, and in the end what is gone."""
    for stack, images in affected.images.items():
        yield stack
        width = max(map(len, images))
        for name, reasons in images.items():
            more = len(reasons) - _MOST_SHOWN
            rest = [f"and {more} more"] if more > 0 else []
            yield f"  {name:<{width}}  {'; '.join([*reasons[:_MOST_SHOWN], *rest])}"
    yield from gone(affected)
    if not affected.images:
        yield "nothing to build"


def unknown(affected: Affected) -> Iterator[str]:
    """Yield a line for each reason for which what a stack was cannot be said."""
    stacks: dict[str, list[str]] = {}
    for stack, why in affected.silent.items():
        stacks.setdefault(why, []).append(stack)
    for why, names in stacks.items():
        yield f"{', '.join(names)}: all images count as affected, for what they were cannot be resolved: {why}"


def gone(affected: Affected) -> Iterator[str]:
    """Yield a line for each stack of which something is removed."""
    for stack, names in affected.removed.items():
        yield f"removed: {stack}" + (f" ({', '.join(names)})" if names else "")
