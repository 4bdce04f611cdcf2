"""``python -m ci published``: the matrix of the published images."""

from __future__ import annotations

import argparse
import json

from ci import actions
from ci.published_branch import names, stack
from ci.repository import ROOT
from containers.registry.reference import Reference


def run(_: argparse.Namespace) -> int:
    """Set the output ``matrix`` to one job for each published image; an image shared by two stacks counts once.

    An index has a job for the image of each platform. The job logs in by the ``host``: a path may look like another.
    """
    refs: dict[str, dict[str, str]] = {}
    for name in names(ROOT):
        images = ((stack(ROOT, name) or {}).get("outputs") or {}).get("images", {})
        for image, outputs in images.items():
            of_platforms = outputs.get("platforms", {})
            parts = {f"{image} {platform}": part for platform, part in of_platforms.items()} or {image: outputs}
            for each, part in parts.items():
                ref = part["ref"]
                row = {"stack": name, "image": each, "ref": ref, "host": Reference.of(ref).host}
                refs.setdefault(ref, row)
    actions.output("matrix", json.dumps({"include": list(refs.values())}))
    return 0
