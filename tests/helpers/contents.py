"""What images are made of, for tests: of the checkout's own Dockerfiles, or of none."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path

import pytest

from cli import stack_checks
from containers.dockerfile.context import Folder
from stacks import plan
from stacks.config.stack_file import ROOT
from stacks.identity.content import CheckoutContents, Content, contexts
from stacks.identity.fingerprint import fingerprints
from stacks.spec import ImageSpec


@cache
def checkout_contents() -> CheckoutContents:
    """Return the contents of images built from this checkout."""
    return CheckoutContents(contexts(ROOT))


def share(patch: pytest.MonkeyPatch) -> None:
    """Have all plans of this checkout's stacks read its Dockerfiles once: reading them is most of a plan's time."""
    own = contexts(ROOT)

    def of(root: Path) -> Callable[[str], Folder]:
        return own if root == ROOT else contexts(root)

    def made(given: Callable[[str], Folder]) -> CheckoutContents:
        return checkout_contents() if given is own else CheckoutContents(given)

    for module in (plan, stack_checks):
        patch.setattr(module, "contexts", of)
        patch.setattr(module, "CheckoutContents", made)


def checkout_fingerprints(specs: Iterable[ImageSpec]) -> dict[str, str]:
    """Return the fingerprints of images built from this checkout, given with parents before children."""
    return fingerprints([checkout_contents().of(spec) for spec in specs])


def content(
    spec: ImageSpec,
    files: Mapping[str, str] | None = None,
    dockerfile: str = "FROM scratch\n",
    labels: Mapping[str, str] | None = None,
) -> Content:
    """Return the content of an image whose Dockerfile declares whatever its spec gives."""
    names = (*spec.args, *spec.tuning, *spec.parents, *spec.label_args)
    return Content(spec, spec.labels if labels is None else labels, dockerfile, files or {}, dict.fromkeys(names))
