"""The grammar of image tags: rendered from what an image is, and parsed back.

``[<branch>-]<revision>[-x<8 hex>]-<suffix>``. The revision is the short hash of the last commit that touched the image.
The mark ``x...`` means a difference of the tree, the configuration or a parent from that commit; without a usable
history, the tag has the mark instead of the revision. The suffix is the variant, followed by the image's fields in a
fixed order, each as ``-<field><version>``. This is the scheme of coreweave/ml-containers (pull request 16, and its tags
of today for the distribution and the ABI). The tail is a last part that the user chooses. It tells apart images with a
difference in no field.
"""

from __future__ import annotations

import re
from typing import Self

from pydantic import BaseModel, ConfigDict, model_validator

from containers.errors import SlipwayError, one_line
from containers.platform_name import architecture
from stacks.versions.distros import distro_families

LIMIT = 128
"""Longest tag, in characters (OCI distribution specification, "Pulling manifests")."""

KEEP = "keep-"
"""Prefix of the tags that ECR's lifecycle policy keeps: of what a stack exports, and of its newest warm image."""

UNCHECKED = "unchecked--"
"""Prefix of the tag that an image has until its checks passed. No branch's prefix has two dashes."""

_PART = "--"
"""What follows the architecture at the beginning of the tag of one platform's part of an index."""
_ARCHITECTURES = ("amd64", "arm64")

# A version in a tag: 2.0.1, 2.18.3-1 (a packaging revision), 2.0.0-rc1.
_CANDIDATE = r"(?:rc|alpha|beta|dev|post)[0-9]*"
_VERSION = rf"[0-9][0-9A-Za-z._]*(?:-[0-9][0-9A-Za-z._]*|-{_CANDIDATE})?"
_FIELDS = {
    "cuda": ("cuda", _VERSION),
    "distro": ("", rf"(?:{'|'.join(distro_families())})[0-9][0-9.]*"),
    "ngc": ("ngc", _VERSION),
    "efa": ("efa", _VERSION),
    "ofi": ("ofi", _VERSION),
    "megatron": ("lm", r"[0-9a-f]{7}"),
    "doca": ("doca", _VERSION),
    "nccl": ("nccl", _VERSION),
    "torch": ("torch", _VERSION),
    "vision": ("vision", _VERSION),
    "audio": ("audio", _VERSION),
    "abi": ("abi", r"[01]"),
    "vllm": ("vllm", _VERSION),
    "zstd": ("zstd", r"[0-9]{1,2}"),
}
"""The optional fields in the order of the grammar: the prefix of each, and the pattern of its value."""

# A variant must not look like a short hash: with a tail after it, the tag could be read in two ways.
_VARIANT = r"(?![a-f]{7,40}(?:-|$))[a-z][a-z_]*"
_WORD = r"[A-Za-z_][A-Za-z0-9_.]*"
# A tail must not look like a field, with or without its value, or like the end of a version, for the same reason.
_RESERVED = "|".join(
    [_CANDIDATE, *(f"{prefix}(?:{value})?" if prefix else value for prefix, value in _FIELDS.values())]
)
_TAIL = rf"(?!(?:{_RESERVED})$){_WORD}"
_REVISION = r"[0-9a-f]{7,40}"
_MARK = r"[0-9a-f]{8}"
_PARTS = rf"(?:(?:{'|'.join(_ARCHITECTURES)}){_PART})?"
_BRANCH = r"[A-Za-z0-9_][A-Za-z0-9_.-]*"
_TAG = re.compile(
    rf"(?:(?:(?P<branch>{_BRANCH})-)?(?P<revision>{_REVISION})(?:-x(?P<mark>{_MARK}))?|{_PARTS}x(?P<alone>{_MARK}))"
    rf"-(?P<variant>{_VARIANT})"
    + "".join(f"(?:-{prefix}(?P<{name}>{value}))?" for name, (prefix, value) in _FIELDS.items())
    + rf"(?:-(?P<tail>{_TAIL}))?"
)


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Suffix(_Frozen):
    """The part of a tag that names the image's contents; fields that an image lacks are left out.

    ``zstd`` is the level of compression of its layers: the same contents of another compression have another digest,
    and not every engine can pull them.
    """

    variant: str
    cuda: str | None = None
    distro: str | None = None
    ngc: str | None = None
    efa: str | None = None
    ofi: str | None = None
    megatron: str | None = None
    doca: str | None = None
    nccl: str | None = None
    torch: str | None = None
    vision: str | None = None
    audio: str | None = None
    abi: str | None = None
    vllm: str | None = None
    zstd: str | None = None
    tail: str | None = None

    @model_validator(mode="after")
    def _fits_the_grammar(self) -> Self:
        patterns = {"variant": _VARIANT} | {name: value for name, (_, value) in _FIELDS.items()}
        for name, pattern in patterns.items():
            value = getattr(self, name)
            if value is not None and not re.fullmatch(pattern, value):
                raise SlipwayError(f"{name}: '{one_line(value)}' is not valid in a tag; expected the form {pattern}")
        if self.tail is not None:
            check_tail(self.tail)
        return self

    def render(self) -> str:
        """Return the suffix's text, such as ``base-cuda12.1.1-torch2.0.1-vision0.15.2``."""
        fields = (f"-{prefix}{getattr(self, name)}" for name, (prefix, _) in _FIELDS.items() if getattr(self, name))
        return self.variant + "".join(fields) + (f"-{self.tail}" if self.tail else "")


class Revision(_Frozen):
    """The origin of an image's inputs.

    ``commit`` is the short hash, None without usable history. ``branch`` is None for main. ``mark`` is set if the
    inputs differ from the commit's: the first 8 hexadecimal digits of the image's fingerprint.
    """

    branch: str | None = None
    commit: str | None = None
    mark: str | None = None

    def render(self) -> str:
        """Return the revision's text, such as ``a1b2c3d`` or ``fix-ucc-a1b2c3d-x01234567``."""
        mark = f"x{self.mark}" if self.mark else None
        return "-".join(part for part in (self.branch, self.commit, mark) if part)


def render(revision: Revision, suffix: Suffix) -> str:
    """Return the tag of a revision and a suffix. Raises SlipwayError: the tag would be longer than 128 characters."""
    tag = f"{revision.render()}-{suffix.render()}"
    if len(tag) > LIMIT:
        long = {"the branch name": revision.branch, "slipway:tagSuffix": suffix.tail}
        hints = " or ".join(f"{part} '{value}'" for part, value in long.items() if value)
        shorten = f"; shorten {hints}" if hints else ""
        raise SlipwayError(f"the tag '{tag}' has {len(tag)} characters, at most {LIMIT} are allowed{shorten}")
    return tag


def of_part(platform: str, tag: str) -> str:
    """Return the tag of one platform's part of an index. Nothing refers to it; it keeps the part in the registry.

    Raises SlipwayError: it would be longer than 128 characters.
    """
    part = f"{architecture(platform)}{_PART}{tag}"
    if len(part) > LIMIT:
        raise SlipwayError(
            f"the tag '{part}', which keeps what is for {platform}, has {len(part)} characters, at most {LIMIT} are "
            "allowed; shorten the branch name or slipway:tagSuffix"
        )
    return part


def parse(tag: str) -> tuple[Revision, Suffix]:
    """Take a tag apart; the inverse of :func:`render`. The architecture before a part's tag is left out.

    Raises SlipwayError: the text is not a tag of this grammar.
    """
    match = _TAG.fullmatch(tag) if len(tag) <= LIMIT else None
    if not match:
        raise SlipwayError(
            f"'{one_line(tag)}' is not a tag of the form "
            "[<branch>-]<short hash>[-x<8 hex>]-<variant>[-<field><version>][-<tail>]"
        )
    groups = match.groupdict()
    revision = Revision(branch=groups["branch"], commit=groups["revision"], mark=groups["mark"] or groups["alone"])
    names = ("variant", *_FIELDS, "tail")
    return revision, Suffix(**{name: groups[name] for name in names})


def check_tail(tail: str) -> str:
    """Return the tail if it is valid at the end of every tag.

    Raises ValueError: it has a forbidden character, or looks like one of the fields.
    """
    if not re.fullmatch(_WORD, tail):
        raise ValueError("expected letters, digits, '_' and '.', starting with a letter or '_', such as flash_attn1")
    if re.fullmatch(_RESERVED, tail):
        raise ValueError("looks like one of the tag's fields, or the end of a version; choose another word")
    return tail


def check_extra(tag: str) -> str:
    """Return the tag if it is valid as an additional tag of images.

    Raises ValueError: it is no tag, or looks like an image's own tag, a signature's, or one that keeps an image in ECR.
    """
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,126}", tag):  # ECR's filter has a `*` before it, and 128 too
        raise ValueError("expected a tag such as latest: letters, digits and _ . -, at most 127 characters")
    parts = [f"{architecture}{_PART}" for architecture in _ARCHITECTURES]
    if tag.startswith(("sha256-", KEEP, UNCHECKED, *parts)):
        ours = " or ".join(f"'{prefix}'" for prefix in (KEEP, UNCHECKED, *parts))
        raise ValueError(f"tags that begin with 'sha256-' are for signatures, and with {ours} for Slipway")
    if _TAG.fullmatch(tag):
        raise ValueError("looks like a tag that never moves; choose another word, such as latest")
    return tag


def branch_prefix(branch: str) -> str | None:
    """Return the prefix of a branch's tags: None for ``main``, else its name with the characters of a tag.

    Raises SlipwayError: the name has no character that is valid in a tag.
    """
    if branch == "main":
        return None
    safe = re.sub(r"[^A-Za-z0-9_.]+", "-", branch).strip("-.")
    if not safe:
        raise SlipwayError(
            f"the branch name '{one_line(branch)}' has no letter or digit that is valid in a tag; rename it"
        )
    return safe
