"""``python -m ci published``: the matrix of the published images."""

from __future__ import annotations

import argparse
import json

from ci import actions
from ci.published_branch import names, stack
from ci.repository import ROOT


def run(_: argparse.Namespace) -> int:
    """Set the output ``matrix`` to one job for each published image; an image shared by two stacks counts once."""
    refs: dict[str, dict[str, str]] = {}
    for name in names(ROOT):
        for image, outputs in ((stack(ROOT, name) or {}).get("outputs") or {}).get("images", {}).items():
            refs.setdefault(outputs["ref"], {"stack": name, "image": image, "ref": outputs["ref"]})
    actions.output("matrix", json.dumps({"include": list(refs.values())}))
    return 0
