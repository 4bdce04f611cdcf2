"""What a change touches: the stacks and images that differ between a commit's tree and the working tree.

An image is affected when it is new, or when its spec, its labels, a file of its context or a parent differs between the
two, and in no other case. Where its checks alone differ, they run again, and the image is not built anew. Uncommitted
changes count, as they do in tags. Today's code reads both trees (:mod:`stacks.identity.older_trees`): if a commit's
build is not known, all of that stack is affected.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from containers.errors import SlipwayError, one_line, suggest
from stacks import plan
from stacks.config.stack_file import stack_names
from stacks.differences import causes, first_ones
from stacks.identity import content, older_trees
from stacks.identity.content import CheckoutContents, contexts
from stacks.identity.git import git
from stacks.identity.older_trees import Images, Tree, all_fingerprints

_NULL = re.compile(r"0{40}|0{64}")
"""The commit before a branch's first push, as GitHub writes it."""
_FIRST_PARENT = re.compile(r"(?P<of>.+?)(?:~[0-9]*|\^1?)+")
"""A commit's first parent, or that one's first parent, and so on: HEAD~1, main^^."""

_DEEPEN = "run `git fetch --unshallow`, or give actions/checkout `fetch-depth: 0`"


@dataclass(frozen=True)
class Affected:
    """What differs between two trees.

    ``images`` maps stack and image to the reasons why the image is affected, parents before children. ``removed`` has
    the removed images of each stack; the list of a removed stack is empty. ``unresolved`` says why nobody can tell what
    the older tree built of a stack. ``checks`` maps stack and image to the reasons why checks of an unaffected image
    run again.
    """

    images: Mapping[str, Mapping[str, Sequence[str]]]
    removed: Mapping[str, Sequence[str]]
    unresolved: Mapping[str, str]
    checks: Mapping[str, Mapping[str, Sequence[str]]] = field(default_factory=dict)

    @property
    def stacks(self) -> list[str]:
        """The stacks that have images to build or checks to run."""
        return list(dict.fromkeys([*self.images, *self.checks]))

    def as_matrix(self) -> dict[str, Any]:
        """Return a matrix of GitHub Actions: one job for each stack, with its affected images.

        A job has ``checks`` too where checks of unaffected images run again.
        """
        jobs = [
            {
                "stack": stack,
                "images": list(self.images.get(stack, ())),
                **({"checks": list(self.checks[stack])} if stack in self.checks else {}),
            }
            for stack in self.stacks
        ]
        return {"include": jobs}


def since(ref: str, root: Path) -> Affected:
    """Compare the working tree with the last commit that HEAD and ``ref`` have in common, often ``ref`` itself.

    So later commits on ``ref``'s branch do not count.

    Raises SlipwayError: ``ref`` is no commit, the clone's history does not reach back to it, ``root`` is no git
    checkout, or a stack of the working tree cannot be resolved.
    """
    base = _base(ref, root)
    then = older_trees.at(base, root, checks=True) if base else Tree()
    return between(then, _working_tree(root))


def between(then: Tree, now: Mapping[str, Images]) -> Affected:
    """Compare an older tree with the stacks of a newer one, which are given by name."""
    images = {stack: _reasons(then, stack, contents) for stack, contents in now.items()}
    checks = {stack: _checks(then.stacks.get(stack, {}), now[stack], affected) for stack, affected in images.items()}
    fewer = {
        stack: [name for name in then.stacks[stack] if name not in now[stack]] for stack in then.stacks if stack in now
    }
    ended: dict[str, list[str]] = {stack: [] for stack in [*then.stacks, *then.unresolved] if stack not in now}
    return Affected(
        images={stack: reasons for stack, reasons in images.items() if reasons},
        removed={**{stack: names for stack, names in fewer.items() if names}, **ended},
        unresolved={stack: reason for stack, reason in then.unresolved.items() if stack in now},
        checks={stack: reasons for stack, reasons in checks.items() if reasons},
    )


def _base(ref: str, root: Path) -> str | None:
    """Return the commit to compare with; None if ``ref`` is before the first commit."""
    shallow = git(root, "rev-parse", "--is-shallow-repository")
    if shallow is None:
        raise SlipwayError(
            f"{root}: git finds no checkout here, and --since needs one; `git status` says what is wrong"
        )
    if _NULL.fullmatch(ref):
        return None
    is_shallow = shallow.strip() == "true"
    commit = _commit(ref, root)
    if commit is None:
        if is_shallow:
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
    if is_shallow:  # the last common commit may be missing here
        raise SlipwayError(f"--since '{one_line(ref)}': no ancestor of HEAD in this shallow clone; {_DEEPEN}")
    return (git(root, "merge-base", commit, "HEAD") or commit).strip()


def _commit(ref: str, root: Path) -> str | None:
    commit = git(root, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}")
    return commit.strip() if commit else None


def _working_tree(root: Path) -> dict[str, Images]:
    stacks: dict[str, Images] = {}
    mistakes = []
    contents = CheckoutContents(contexts(root))
    for stack in stack_names(root):
        try:
            _, specs = plan.resolve(stack, root)
            stacks[stack] = content.of_stack(specs, contents)
        except SlipwayError as error:
            mistakes.append(str(error))
    if mistakes:
        raise SlipwayError("\n".join(dict.fromkeys(mistakes)))
    return stacks


def _reasons(then: Tree, stack: str, images: Images) -> dict[str, list[str]]:
    """Return the reasons of each affected image of a stack; ``images`` has parents before children."""
    before = then.stacks.get(stack, {})
    new = "cannot be compared" if stack in then.unresolved else "new"
    unchanged, unread = _by_record(then, stack, images)
    reasons: dict[str, list[str]] = {}
    for name, image in images.items():
        parents = [f"parent {parent}" for parent in image.siblings.values() if parent in reasons]
        if name in unchanged:
            own = []
        elif name in unread:
            own = [*parents, then.cause]
        else:
            own = [*parents, *causes(before[name].facts, image.facts)] if name in before else [new]
        if own:
            reasons[name] = own
    return reasons


def _by_record(then: Tree, stack: str, images: Images) -> tuple[set[str], set[str]]:
    """Return the images in the older tree's record that are as now, and those in it by its own code only.

    Both are empty if that tree's code equals today's.
    """
    recorded = (then.recorded or {}).get(stack)
    if recorded is None:
        return set(), set()
    now, read = all_fingerprints(images), all_fingerprints(then.stacks.get(stack, {}))
    unchanged = {name for name in images if recorded.get(name) == now[name]}
    unread = {name for name in images if name in recorded and recorded[name] not in {now[name], read.get(name)}}
    return unchanged, unread


def _checks(before: Images, images: Images, affected: Collection[str]) -> dict[str, list[str]]:
    """Return the reasons why checks run again, by image, without affected images."""
    reasons: dict[str, list[str]] = {}
    for name, image in images.items():
        if image.checks and name not in affected:
            then = before[name].checks
            parents = [f"parent {parent}" for parent in image.checks.siblings.values() if parent in affected]
            if own := [*parents, *(causes(then.facts, image.checks.facts) if then else ["new"])]:
                reasons[name] = own
    return reasons


def lines(affected: Affected) -> Iterator[str]:
    """Yield the lines for a reader: each stack with its affected images and their reasons, then what was removed."""
    for stack in affected.stacks:
        yield stack
        images, checks = affected.images.get(stack, {}), affected.checks.get(stack, {})
        texts = {name: first_ones(reasons) for name, reasons in images.items()}
        texts |= {name: f"checks run again: {first_ones(reasons)}" for name, reasons in checks.items()}
        width = max(map(len, texts))
        yield from (f"  {name:<{width}}  {text}" for name, text in texts.items())
    yield from removed(affected)
    if not affected.images:
        yield "nothing to build"


def unresolved(affected: Affected) -> Iterator[str]:
    """Yield a line for each reason why it is not known what the older tree built."""
    stacks: dict[str, list[str]] = {}
    for stack, reason in affected.unresolved.items():
        stacks.setdefault(reason, []).append(stack)
    for reason, names in stacks.items():
        yield f"{', '.join(names)}: all images count as affected: the older commit cannot be resolved: {reason}"


def removed(affected: Affected) -> Iterator[str]:
    """Yield a line for each stack that lost images, or is removed itself."""
    for stack, names in affected.removed.items():
        yield f"removed: {stack}" + (f" ({', '.join(names)})" if names else "")
