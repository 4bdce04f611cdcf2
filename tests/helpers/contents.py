"""What images are made of, for tests: of the checkout's own Dockerfiles, or of none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache

from stacks.config.stack_file import ROOT
from stacks.identity.content import CheckoutContents, Content, contexts
from stacks.identity.fingerprint import fingerprints
from stacks.spec import ImageSpec


@cache
def checkout_contents() -> CheckoutContents:
    """Return the contents of images built from this checkout."""
    return CheckoutContents(contexts(ROOT))


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
