"""``python -m stacks``: look at what the stacks would build, without Pulumi, Docker or a network."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from stacks import plan, schema
from stacks.errors import SlipwayError
from stacks.source import ROOT, read_stack, stack_names


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
    specs = commands.add_parser("specs", help="print a stack's specs as JSON; what older commits are asked")
    specs.add_argument("stack", metavar="STACK")
    specs.set_defaults(run=_specs)
    commands.add_parser("schema", help="bring Pulumi.yaml's config block up to date").set_defaults(run=_schema)
    options = parser.parse_args(arguments)
    try:
        result: int = options.run(options)
    except SlipwayError as error:
        print(error, file=sys.stderr)
        return 1
    return result


def _list(_: argparse.Namespace) -> int:
    rows, mistakes = [], []
    for name in stack_names():
        try:
            config, specs = plan.specs(read_stack(name), f"stack {name}")
        except SlipwayError as error:
            mistakes.append(str(error))
        else:
            rows.append((name, config.flavor, " -> ".join(spec.name for spec in specs)))
    widths = [max((len(row[column]) for row in rows), default=0) for column in (0, 1)]
    for name, flavor, images in rows:
        print(f"{name:<{widths[0]}}  {flavor:<{widths[1]}}  {images}")
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
    failed = 0
    for name in stack_names():
        try:
            images = plan.make(name).images
        except SlipwayError as error:
            failed += 1
            print(error, file=sys.stderr)
        else:
            print(f"{name}: {len(images)} image{'s' if len(images) > 1 else ''}, ok")
    return 1 if failed else 0


def _specs(options: argparse.Namespace) -> int:
    _, specs = plan.specs(read_stack(options.stack), f"stack {options.stack}")
    print(json.dumps([spec.model_dump(mode="json", exclude_defaults=True) for spec in specs]))
    return 0


def _schema(_: argparse.Namespace) -> int:
    print("Pulumi.yaml: updated" if schema.write(ROOT / "Pulumi.yaml") else "Pulumi.yaml: already up to date")
    return 0
