"""The grammar of image tags: rendered from what an image is, and parsed back.

``[<branch>-]<revision>[-x<8 hex>]-<suffix>``, where the revision is the short hash of the last commit that touched
the image, and the mark says that the tree, the configuration or a parent differs from that commit. Where there is no
usable history the mark stands alone. The suffix is the variant followed by the fields that the image has, each as
``-<field><version>``, in a fixed order. This is the scheme of coreweave/ml-containers: its pull request 16, and the
distribution behind CUDA and the ABI at the end as its tags carry them today.
"""

from __future__ import annotations

import re
from typing import Self

from pydantic import BaseModel, ConfigDict, model_validator

from stacks.errors import SlipwayError, one_line

LIMIT = 128
"""Longest tag, in characters (OCI distribution specification, "Pulling manifests")."""

# A version as it stands in a tag: 2.0.1, 2.18.3-1 (a packaging revision), 2.0.0-rc1.
_VERSION = r"[0-9][0-9A-Za-z._]*(?:-[0-9][0-9A-Za-z._]*|-(?:rc|alpha|beta|dev|post)[0-9]*)?"
_FIELDS = {
    "cuda": ("cuda", _VERSION),
    "distro": ("", r"(?:debian|rockylinux|ubi|ubuntu)[0-9][0-9.]*"),
    "nccl": ("nccl", _VERSION),
    "torch": ("torch", _VERSION),
    "vision": ("vision", _VERSION),
    "audio": ("audio", _VERSION),
    "abi": ("abi", r"[01]"),
}
"""Each optional field in the order of the grammar: what stands before its value, and the value's pattern."""

_VARIANT = r"[a-z][a-z_]*"
_REVISION = r"[0-9a-f]{7,40}"
_MARK = r"[0-9a-f]{8}"
_BRANCH = r"[A-Za-z0-9_][A-Za-z0-9_.-]*"
_TAG = re.compile(
    rf"(?:(?:(?P<branch>{_BRANCH})-)?(?P<revision>{_REVISION})(?:-x(?P<mark>{_MARK}))?|x(?P<alone>{_MARK}))"
    rf"-(?P<variant>{_VARIANT})"
    + "".join(f"(?:-{prefix}(?P<{name}>{value}))?" for name, (prefix, value) in _FIELDS.items())
)


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Suffix(_Frozen):
    """The part of a tag that says what is in the image; fields that an image lacks are left out."""

    variant: str
    cuda: str | None = None
    distro: str | None = None
    nccl: str | None = None
    torch: str | None = None
    vision: str | None = None
    audio: str | None = None
    abi: str | None = None

    @model_validator(mode="after")
    def _fits_the_grammar(self) -> Self:
        patterns = {"variant": _VARIANT} | {name: value for name, (_, value) in _FIELDS.items()}
        for name, pattern in patterns.items():
            value = getattr(self, name)
            if value is not None and not re.fullmatch(pattern, value):
                raise SlipwayError(f"{name}: '{one_line(value)}' cannot stand in a tag; expected the form {pattern}")
        return self

    def render(self) -> str:
        """Return the suffix's text, such as ``base-cuda12.1.1-torch2.0.1-vision0.15.2``."""
        fields = (f"-{prefix}{getattr(self, name)}" for name, (prefix, _) in _FIELDS.items() if getattr(self, name))
        return self.variant + "".join(fields)


class Revision(_Frozen):
    """Where an image's inputs come from: a commit, a branch that is not main, and how the tree differs.

    ``commit`` is the short hash; without usable history it is None and ``mark``, the first 8 hexadecimal digits of
    the hash of spec and context, stands alone.
    """

    branch: str | None = None
    commit: str | None = None
    mark: str | None = None

    def render(self) -> str:
        """Return the revision's text, such as ``a1b2c3d`` or ``fix-ucc-a1b2c3d-x01234567``."""
        mark = f"x{self.mark}" if self.mark else None
        return "-".join(part for part in (self.branch, self.commit, mark) if part)


def render(revision: Revision, suffix: Suffix) -> str:
    """Return the tag of a revision and a suffix.

    Raises:
        SlipwayError: the tag would be longer than 128 characters.
    """
    tag = f"{revision.render()}-{suffix.render()}"
    if len(tag) > LIMIT:
        branch = f"; shorten the branch name '{revision.branch}'" if revision.branch else ""
        raise SlipwayError(f"the tag '{tag}' has {len(tag)} characters, at most {LIMIT} are allowed{branch}")
    return tag


def parse(tag: str) -> tuple[Revision, Suffix]:
    """Take a tag apart; the inverse of :func:`render`.

    Raises:
        SlipwayError: the text is not a tag of this grammar.
    """
    match = _TAG.fullmatch(tag) if len(tag) <= LIMIT else None
    if not match:
        raise SlipwayError(
            f"'{one_line(tag)}' is no tag of the form [<branch>-]<short hash>[-x<8 hex>]-<variant>[-<field><version>]"
        )
    groups = match.groupdict()
    revision = Revision(branch=groups["branch"], commit=groups["revision"], mark=groups["mark"] or groups["alone"])
    return revision, Suffix(variant=groups["variant"], **{name: groups[name] for name in _FIELDS})


def branch_prefix(branch: str) -> str | None:
    """Return what a branch puts before its tags: nothing for ``main``, else its name made fit for a tag.

    Raises:
        SlipwayError: nothing of the name can stand in a tag.
    """
    if branch == "main":
        return None
    safe = re.sub(r"[^A-Za-z0-9_.]+", "-", branch).strip("-.")
    if not safe:
        raise SlipwayError(f"the branch name '{one_line(branch)}' has no letter or digit that can stand in a tag")
    return safe
