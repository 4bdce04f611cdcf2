"""The command line of ``python -m ci``."""

from __future__ import annotations

import argparse
import importlib
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from containers.errors import SlipwayError, out_of_time
from toolchain.machine.toolchain_error import ToolchainError, without_credentials


def main(words: Sequence[str]) -> int:
    """Run one verb; return its exit status: 0, or 1 with one line for each mistake on standard error."""
    options = _parser().parse_args(words)
    try:
        verb = importlib.import_module(f"ci.verbs.{options.verb.replace('-', '_')}")  # some need no packages
        status: int = verb.run(options)
    except (SlipwayError, ToolchainError) as error:
        print(without_credentials(str(error)), file=sys.stderr)
        return 1
    except subprocess.TimeoutExpired as error:
        print(out_of_time(error.cmd, error.timeout), file=sys.stderr)
        return 1
    return status


def _folder(text: str) -> Path | None:
    return Path(text) if text else None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m ci", description="What the workflows run.")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    affected = verbs.add_parser("affected", help="output the matrix of the stacks that a change affects")
    affected.add_argument("--since", metavar="REF", help="default: the commit up to which everything is published")
    publish = verbs.add_parser("publish", help="build and push a stack, or one image of it")
    publish.add_argument("stack", metavar="STACK")
    publish.add_argument("--image", metavar="IMAGE", help="only this image and its parents", default="")
    publish.add_argument("--platform", metavar="PLATFORM", help="only what is for this platform", default="")
    publish.add_argument("--to", metavar="FOLDER", type=Path, help="write the public part of the state there")
    warm = verbs.add_parser("push-warm", help="push a published image with the caches that its stack's script leaves")
    warm.add_argument("stack", metavar="STACK")
    warm.add_argument("--image", metavar="IMAGE", help="default: the only one", default="")
    warm.add_argument("--onto", metavar="REF", help="a warm image by its digest, to keep its layers", default="")
    warm.add_argument(
        "--caches", metavar="FOLDER", type=_folder, help="what a job with GPUs left, in place of a run here"
    )
    warm.add_argument("--to", metavar="FOLDER", type=Path, help="write what `attest` signs there", required=True)
    program = verbs.add_parser("warm-program", help="output what a job in the published image runs for `push-warm`")
    program.add_argument("stack", metavar="STACK")
    program.add_argument("--image", metavar="IMAGE", help="default: the only one", default="")
    attest = verbs.add_parser("attest", help="sign what the job that built a stack states")
    attest.add_argument("stack", metavar="STACK")
    attest.add_argument("--image", metavar="IMAGE", help="the input of the workflow", default="")
    attest.add_argument("--statements", metavar="FILE", type=Path, required=True)
    attest.add_argument("--digest", metavar="SHA256", help="of the statements, as the job output it", required=True)
    attest.add_argument("--runner", metavar="JSON", help="labels of the runner that built", required=True)
    attest.add_argument("--natives", metavar="JSON", help="platforms that were built before", default="[]")
    attest.add_argument("--source", metavar="FOLDER", type=Path, help="the checkout that was built", required=True)
    preview = verbs.add_parser(
        "preview", help="preview the publication of a stack, and build the changed images without pushing"
    )
    preview.add_argument("stack", metavar="STACK")
    preview.add_argument("--platform", metavar="PLATFORM", help="only what is for this platform", default="")
    preview.add_argument("--to", metavar="FOLDER", type=Path, help="write the report there", default=Path("reports"))
    resolve = verbs.add_parser("resolve", help="find the stack and the image of a Dockerfile's folder and arguments")
    resolve.add_argument("--folder", required=True, help="folder of the Dockerfile")
    resolve.add_argument("--image-name", default="", help="default: any of that Dockerfile but build products")
    resolve.add_argument("--build-args", default="", help="KEY=VALUE, one per line")
    resolve.add_argument("--tag-suffix", default="", help="the tag, without branch and hash")
    record = verbs.add_parser("record", help="write published states to the branch `published`")
    record.add_argument("folder", metavar="FOLDER", type=Path)
    record.add_argument("--result", required=True, help="the result of the publishing jobs")
    verbs.add_parser("published", help="output the matrix of the published images")
    comment = verbs.add_parser("comment", help="write the reports of a preview to its pull request")
    comment.add_argument("folder", metavar="FOLDER", type=Path)
    lock_date = verbs.add_parser("lock-date", help="keep the refresh date of the lock in an open pull request")
    lock_date.add_argument("branch", metavar="BRANCH")
    propose = verbs.add_parser("propose", help="open a pull request with the changes in this checkout")
    propose.add_argument("branch", metavar="BRANCH")
    propose.add_argument("--title", required=True)
    propose.add_argument("paths", metavar="PATH", nargs="+")
    return parser
