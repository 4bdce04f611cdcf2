"""``python -m ci published``: the matrix of the images that are published."""

from __future__ import annotations

import argparse
import json

from ci import actions
from ci.published_branch import names, stack
from ci.repository import ROOT


def run(_: argparse.Namespace) -> int:
    """Set the output ``matrix``: a job for each image that is published, one that two stacks share only once."""
    refs: dict[str, dict[str, str]] = {}
    for name in names(ROOT):
        for image, built in ((stack(ROOT, name) or {}).get("outputs") or {}).get("images", {}).items():
            refs.setdefault(built["ref"], {"stack": name, "image": image, "ref": built["ref"]})
    actions.output("matrix", json.dumps({"include": list(refs.values())}))
    return 0
