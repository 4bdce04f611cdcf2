"""``python -m stacks``: what the stacks would build; ``diff``, ``export``, ``lock`` and ``verify`` ask a registry."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cli import config_schema, readme_tables
from cli import job as jobs
from cli.text_table import aligned
from stacks import impact, plan
from stacks.checks.collisions import StackImages, collisions, shared_repositories, shared_tags
from stacks.config.stack_file import ROOT, stack_names
from stacks.errors import SlipwayError
from stacks.jobs import slurm


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return 0, or 1 after printing one line for each mistake on standard error."""
    parser = argparse.ArgumentParser(prog="python -m stacks", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    commands.add_parser("list", help="name the stacks, their flavors and images").set_defaults(run=_list)
    show = commands.add_parser("show", help="print a stack's resolved graph")
    show.add_argument("stack", metavar="STACK")
    show.add_argument("--json", action="store_true", help="as JSON, for programs")
    show.set_defaults(run=_show)
    commands.add_parser("check", help="validate every stack").set_defaults(run=_check)
    changes = commands.add_parser("affected", help="say which stacks and images a change touches, and why")
    changes.add_argument("--since", metavar="REF", required=True, help="compare with this branch, tag or commit")
    changes.add_argument("--json", action="store_true", help="as a matrix of GitHub Actions, on one line")
    changes.set_defaults(run=_affected)
    specs = commands.add_parser("specs", help="print a stack's specs as JSON; what older commits are asked")
    specs.add_argument("stack", metavar="STACK")
    specs.set_defaults(run=_specs)
    between = commands.add_parser("diff", help="compare what a stack last published with what would be built now")
    between.add_argument(
        "what", metavar="STACK [IMAGE] | REF REF", nargs="+", help="a stack, or two images' references"
    )
    between.add_argument("--thorough", action="store_true", help="read the layers that both images have as well")
    form = between.add_mutually_exclusive_group()
    for name, meaning in (
        ("json", "all of it as JSON"),
        ("markdown", "as Markdown, for a pull request"),
        ("html", "as one self-contained page"),
    ):
        form.add_argument(f"--{name}", dest="form", action="store_const", const=name, help=meaning)
    between.set_defaults(run=_diff)
    _add_export(commands.add_parser("export", help="write an image, or a stack's wheels, to a file or a folder"))
    _add_compose(commands.add_parser("compose", help="write a docker-compose.yaml to work in a stack's image"))
    job = commands.add_parser("job", help="print an example of a job that runs a stack's image on a cluster")
    job.add_argument("stack", metavar="STACK")
    job.add_argument("--nodes", metavar="N", type=int, default=2, help="how many nodes; default: 2")
    job.add_argument(
        "--slurm", action="store_true", help="a batch script for Slurm with enroot, for any stack with CUDA"
    )
    job.set_defaults(run=_job)
    lock_ = commands.add_parser(
        "lock",
        help="write the digests of the parents that others publish, and commits of branches, to stacks/lock.toml",
    )
    lock_.add_argument("stacks", metavar="STACK", nargs="*", help="only these stacks' parents; default: all")
    lock_.add_argument("--refresh", action="store_true", help="and today's date, to upgrade the images' packages anew")
    lock_.set_defaults(run=_lock)
    signed = commands.add_parser("verify", help="verify the signatures of what a stack has published")
    signed.add_argument("stack", metavar="STACK")
    signed.add_argument("image", metavar="IMAGE", nargs="?", help="only this one; default: all, and their parents")
    signed.set_defaults(run=_verify)
    commands.add_parser("schema", help="bring Pulumi.yaml's config block up to date").set_defaults(run=_schema)
    commands.add_parser("docs", help="bring the tables in the images' READMEs up to date").set_defaults(run=_docs)
    options = parser.parse_args(arguments)
    try:
        result: int = options.run(options)
    except SlipwayError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        return 130
    return result


def _add_export(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", metavar="STACK [IMAGE] | REF", nargs="+", help="an image, or a stack for its last one")
    form = parser.add_mutually_exclusive_group(required=True)
    form.add_argument(
        "--format",
        choices=("tar", "oci", "sqsh"),
        help="an archive for `docker load`, an OCI layout, or a squashfs for enroot",
    )
    form.add_argument("--wheels", metavar="DIR", type=Path, help="write the wheels that it is made of to this folder")
    parser.add_argument("--output", metavar="FILE", type=Path, help="what to write; a folder for oci")
    parser.add_argument("--force", action="store_true", help="replace what an earlier export has written there")
    parser.set_defaults(run=_export)


def _add_compose(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("stack", metavar="STACK")
    parser.add_argument("image", metavar="IMAGE", nargs="?", help="which of its images; default: yours, else the last")
    folder = "the project's folder, which containers work in; default: this one"
    parser.add_argument("--project", metavar="DIR", type=Path, default=Path(), help=folder)
    parser.add_argument("--cpu", action="store_true", help="ask for no GPU")
    parser.add_argument("--host-network", action="store_true", help="share the machine's network")
    parser.add_argument("--force", action="store_true", help="replace what an earlier run has written there")
    parser.set_defaults(run=_compose)


def _list(_: argparse.Namespace) -> int:
    rows, mistakes = [], []
    for name in stack_names():
        try:
            config, specs = plan.resolve(name)
        except SlipwayError as error:
            mistakes.append(str(error))
        else:
            rows.append((name, config.flavor, " -> ".join(spec.name for spec in specs if not spec.product)))
    for line in aligned(rows):
        print(line)
    if mistakes:
        raise SlipwayError("\n".join(mistakes))
    return 0


def _show(options: argparse.Namespace) -> int:
    resolved = plan.make(options.stack).as_json()
    if options.json:
        print(json.dumps(resolved, indent=2))
        return 0
    for image in resolved["images"]:
        print(f"{image['name']}  {image['tag']}")
        print(f"  dockerfile  {image['dockerfile']}" + (f" (target {image['target']})" if image["target"] else ""))
        print(f"  platform    {image['platform']}")
        for kind in ("parents", "args", "labels"):
            for key, value in image[kind].items():
                print(f"  {kind:<10}  {key}={value}")
    return 0


def _check(_: argparse.Namespace) -> int:
    built, mistakes = [], []
    owned: dict[str, frozenset[str]] = {}
    tagged: dict[str, frozenset[str]] = {}
    for name in stack_names():
        try:
            made = plan.make(name)
        except SlipwayError as error:
            mistakes.append(str(error))
            continue
        for doubt in made.config.doubts:
            print(f"warning: {name}: {doubt}", file=sys.stderr)
        specs = [image.spec for image in made.images]
        built.append(StackImages(name, made.config.registry.repository, specs))
        if made.config.publish:
            owned[name] = made.config.registry.created_repositories(spec.name for spec in specs)
            tagged[name] = frozenset(f"{image.repository}:{tag}" for image in made.images for tag in image.extra_tags)
        products = sum(spec.product for spec in specs)
        beside = f" from {products} build products" if products else ""
        print(f"{name}: {len(specs) - products} image{'' if len(specs) - products == 1 else 's'}{beside}, ok")
    mistakes += collisions(built) + shared_repositories(owned) + shared_tags(tagged)
    for mistake in dict.fromkeys(mistakes):  # what is wrong with the branch is wrong with every stack
        print(mistake, file=sys.stderr)
    return 1 if mistakes else 0


def _affected(options: argparse.Namespace) -> int:
    found = impact.since(options.since, ROOT)
    for line in impact.unknown(found):
        print(line, file=sys.stderr)
    if options.json:
        print(json.dumps(found.as_matrix()))
        for line in impact.gone(found):  # a matrix has no place for what is not to be built
            print(line, file=sys.stderr)
        return 0
    for line in impact.lines(found):
        print(line)
    return 0


def _specs(options: argparse.Namespace) -> int:
    print(json.dumps(plan.describe(options.stack)))
    return 0


def _lock(options: argparse.Namespace) -> int:
    from cli import lock_file  # noqa: PLC0415 - few commands talk to a network

    for line in lock_file.update(options.stacks, refresh=options.refresh):
        print(line)
    return 0


def _diff(options: argparse.Namespace) -> int:
    from cli.diff import html, report, stack_diff, text  # noqa: PLC0415 - likewise
    from cli.diff.comparison import compare  # noqa: PLC0415
    from oci.registry_image import fetch  # noqa: PLC0415

    what: list[str] = options.what
    over: list[str] = []
    found: Any
    made: Any
    if len(what) == 2 and all(map(_names_an_image, what)):
        found = compare(*map(fetch, what), thorough=options.thorough)
        made = report.of_images
    elif len(what) <= 2 and not any(map(_names_an_image, what)):
        found = stack_diff.diff(what[0], ROOT, *what[1:], thorough=options.thorough)
        over = report.over(found)
        made = report.of_stack
    else:
        raise SlipwayError(
            "diff compares a stack with what it published, STACK [IMAGE], or two images by their references, REF REF"
        )
    if options.form == "json":
        # Part by part as it is written: all of it as one text, or as dictionaries, would be many times what is known.
        json.dump(found, sys.stdout, indent=2, default=lambda part: part.as_json())
        print()
    else:
        print({"markdown": text.markdown, "html": html.page, None: text.terminal}[options.form](made(found)))
    for line in over:
        print(line, file=sys.stderr)
    return 1 if over else 0


def _compose(options: argparse.Namespace) -> int:
    from cli import compose  # noqa: PLC0415 - it loads what diff does

    planned = plan.make(options.stack)
    user = os.getuid()
    files = compose.files(
        planned,
        planned.image(options.image) if options.image else compose.of_user(planned, user),
        owner=(user, os.getgid()),
        gpus=not options.cpu,
        host=options.host_network,
    )
    for path in compose.write(options.project, files, force=options.force):
        print(path)
    return 0


def _job(options: argparse.Namespace) -> int:
    if options.slurm:
        planned = plan.make(options.stack)
        print(slurm.script(planned, planned.image(), options.nodes), end="")
    else:
        print(jobs.render(options.stack, options.nodes), end="")
    return 0


def _export(options: argparse.Namespace) -> int:
    from cli.export import formats, selection  # noqa: PLC0415
    from oci.registry_image import fetch  # noqa: PLC0415 - as above

    # Or it would leave what it has written so far, and say nothing where a program that it runs has ended.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # as nohup has it
        signal.signal(signal.SIGHUP, signal.default_int_handler)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    what, *names = options.what
    reference = _names_an_image(what)
    if len(names) > (not reference):
        raise SlipwayError("export takes one image: STACK [IMAGE], or its reference, REF")
    if bool(options.format) != bool(options.output):
        raise SlipwayError("export takes --format with --output, or --wheels alone")
    name = names[0] if names else None
    if options.format:
        form = formats.FORMATS[options.format]
        form.check()
        image = fetch(what) if reference else selection.image(plan.make(what), name)
        formats.export(image, form, options.output, force=options.force)
        print(options.output)
    else:
        images = [fetch(what)] if reference else selection.wheels(plan.make(what), name)
        for wheel in formats.export_wheels(images, options.wheels, force=options.force):
            print(options.wheels / wheel)
    return 0


def _verify(options: argparse.Namespace) -> int:
    from cli import verify  # noqa: PLC0415 - likewise

    for line in verify.lines(options.stack, ROOT, options.image):
        print(line, flush=True)
    return 0


def _names_an_image(word: str) -> bool:
    return bool(set("/:@") & set(word))  # which no stack's or image's name has


def _schema(_: argparse.Namespace) -> int:
    print("Pulumi.yaml: updated" if config_schema.write(ROOT / "Pulumi.yaml") else "Pulumi.yaml: already up to date")
    return 0


def _docs(_: argparse.Namespace) -> int:
    for path in readme_tables.write():
        print(f"{path.relative_to(ROOT)}: updated")
    return 0
