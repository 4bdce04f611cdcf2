"""The command line: verbs, and every mistake as one line."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from pathlib import Path

from stacks.errors import SlipwayError
from toolchain.machine.toolchain_error import ToolchainError, without_credentials


def main(words: Sequence[str]) -> int:
    """Run one verb; return its exit status: 0, or 1 with one line for each mistake on standard error."""
    options = _parser().parse_args(words)
    try:
        verb = importlib.import_module(f"ci.verbs.{options.verb}")  # the others' packages need not be there
        status: int = verb.run(options)
    except (SlipwayError, ToolchainError) as error:
        print(without_credentials(str(error)), file=sys.stderr)
        return 1
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m ci", description="What the workflows run.")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    affected = verbs.add_parser("affected", help="the matrix of the stacks that a change touches")
    affected.add_argument("--since", metavar="REF", help="default: the commit up to which all is published")
    publish = verbs.add_parser("publish", help="build a stack, or one image of it, and push")
    publish.add_argument("stack", metavar="STACK")
    publish.add_argument("--image", metavar="IMAGE", help="only this one and its parents", default="")
    publish.add_argument("--to", metavar="FOLDER", type=Path, help="write there what may be public of it")
    preview = verbs.add_parser("preview", help="say what a stack's publication would change, build that, push nothing")
    preview.add_argument("stack", metavar="STACK")
    preview.add_argument("--to", metavar="FOLDER", type=Path, help="write there what is said", default=Path("reports"))
    resolve = verbs.add_parser("resolve", help="find the stack and the image of a Dockerfile's folder and arguments")
    resolve.add_argument("--folder", required=True, help="folder of the Dockerfile")
    resolve.add_argument("--image-name", default="", help="default: any of that Dockerfile that is run")
    resolve.add_argument("--build-args", default="", help="KEY=VALUE, one a line")
    resolve.add_argument("--tag-suffix", default="", help="the tag without branch and hash")
    record = verbs.add_parser("record", help="write to the branch `published` what was published")
    record.add_argument("folder", metavar="FOLDER", type=Path)
    record.add_argument("--result", required=True, help="how the jobs that published ended")
    verbs.add_parser("published", help="the matrix of the images that are published")
    comment = verbs.add_parser("comment", help="write a preview's reports to its pull request")
    comment.add_argument("folder", metavar="FOLDER", type=Path)
    proposed = verbs.add_parser("proposed", help="keep the date of a refresh that a pull request has already")
    proposed.add_argument("branch", metavar="BRANCH")
    propose = verbs.add_parser("propose", help="open a pull request with what changed in this checkout")
    propose.add_argument("branch", metavar="BRANCH")
    propose.add_argument("--title", required=True)
    propose.add_argument("paths", metavar="PATH", nargs="+")
    return parser
