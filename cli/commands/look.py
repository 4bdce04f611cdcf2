"""Commands that show what is there: ``list``, ``show``, ``explain``, ``inspect``, ``completion``."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import click

from cli import completion
from cli.command_line import command, is_reference
from cli.text_table import aligned
from containers.errors import SlipwayError, one_line
from stacks.config.stack_file import ROOT, stack_names


@command(
    ("slipway list", "all stacks, a line for each"), ("slipway list --json", "the same for a program"), name="list"
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
@click.option("--contents", is_flag=True, help="Print as JSON what each image is made of, or why a stack is refused.")
def list_(*, as_json: bool, contents: bool) -> None:
    """List the stacks with their flavors and images."""
    from stacks import plan

    if contents:
        print(json.dumps({name: _contents(name) for name in stack_names()}))
        return

    listed: list[dict[str, Any]] = []
    mistakes = []
    for name in stack_names():
        try:
            config, specs = plan.resolve(name)
        except SlipwayError as error:
            mistakes.append(str(error))
        else:
            # An image of several platforms is one, by the name of its index: none is built on another platform's.
            images = list(dict.fromkeys(spec.published_name for spec in specs if not spec.product))
            listed.append(
                {"stack": name, "flavor": config.flavor, "images": images, "platforms": list(config.platforms)}
            )
    if as_json:
        print(json.dumps(listed, indent=2))
    else:
        rows = [(each["stack"], each["flavor"], _images(each["images"], each["platforms"])) for each in listed]
        for line in aligned([("STACK", "FLAVOR", "IMAGES"), *rows]):
            print(line)
    if mistakes:
        raise SlipwayError("\n".join(mistakes))


def _contents(stack: str) -> dict[str, Any]:
    """Return what `slipway upgrade` compares. A release reads it of every later one, so its form stays."""
    from cli.stack_checks import unlocked
    from stacks import plan

    try:
        planned = plan.make(stack, search=False)
        return {"images": planned.contents_as_json(), "unlocked": list(unlocked(planned))}
    except SlipwayError as error:
        return {"refused": str(error).splitlines()}


def _images(names: list[str], platforms: list[str]) -> str:
    return " -> ".join(names) + (f"  for {', '.join(platforms)}" if len(platforms) > 1 else "")


@command(
    ("slipway show local", "tags, arguments, parents and labels of each image"),
    ("slipway show local --json", "the same for a program"),
)
@click.argument("stack", shell_complete=completion.stacks)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
def show(stack: str, *, as_json: bool) -> None:
    """Print a stack's resolved graph of images."""
    from stacks import plan

    resolved = plan.make(stack).as_json()
    if as_json:
        print(json.dumps(resolved, indent=2))
        return
    for image in resolved["images"]:
        print(f"{image['name']}  {image['tag']}")
        print(f"  dockerfile  {image['dockerfile']}" + (f" (target {image['target']})" if image["target"] else ""))
        print(f"  platform    {image['platform']}")
        if "index" in image:
            print(f"  index       {image['index']}")
        for kind in ("parents", "args", "labels"):
            for key, value in image[kind].items():
                print(f"  {kind:<10}  {key}={value}")


@command(
    ("slipway explain", "all keys, by flavor"),
    ("slipway explain torch.vision", "what it means, and what the tables know"),
    ("slipway explain cuda --stack nccl-cu121", "what goes with that stack's other keys"),
    ("slipway explain cuda --json", "the same for a program"),
)
@click.argument("key", required=False, shell_complete=completion.keys)
@click.option("--stack", metavar="STACK", shell_complete=completion.stacks, help="Say what is allowed for this stack.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
def explain(key: str | None, stack: str | None, *, as_json: bool) -> None:
    """Explain a key of a stack file: its meaning, type, default, allowed values and their source.

    Without KEY, list the keys.
    """
    from cli.keys import explanation

    if as_json:
        print(json.dumps(list(explanation.entries(key, stack)) if key else explanation.sections(stack), indent=2))
        return
    for line in explanation.explain(key, stack) if key else explanation.overview(stack):
        print(line)


@command(
    ("slipway inspect ghcr.io/acme/app:1.0", "an image in a registry"),
    ("slipway inspect local-multi --platform linux/arm64", "a stack's last image, for one of its platforms"),
    ("slipway inspect nvcr.io/nvidia/pytorch:26.09-py3 --gpu H100,B200 --driver 570.86", "for these hosts"),
    ("slipway inspect ghcr.io/acme/app:1.0 --cluster", "on the nodes of the cluster that kubectl uses"),
    ("slipway inspect ./app.tar --platform linux/arm64", "of `docker save`, or an OCI layout as file or folder"),
)
@click.argument("target", metavar="STACK | REF | PATH", shell_complete=completion.stacks)
@click.option("--platform", metavar="PLATFORM", help="The image for this platform, such as linux/arm64.")
@click.option("--gpu", "gpus", metavar="GPU,...", default="", help="GPUs that all GPU code must run on, such as H100.")
@click.option("--driver", metavar="VERSION", default="", help="The version of the host's NVIDIA driver.")
@click.option(
    "--page-size",
    type=click.Choice(["4K", "16K", "64K"]),
    help="Of a page of the host's kernel; 64K on most nodes with Grace. Default: as STACK's gate has it, or 4K.",
)
@click.option(
    "--requirements/--no-requirements",
    default=None,
    help="Whether requirements that contradict each other are faults. Default: as STACK's gate has it, or not.",
)
@click.option("--cluster", is_flag=True, help="Compare with the drivers of a cluster's nodes, by NVIDIA's labels.")
@click.option("--json", "form", flag_value="json", help="Print everything as JSON.")
@click.option("--markdown", "form", flag_value="markdown", help="Print Markdown, for a comment on a pull request.")
@click.option("--html", "form", flag_value="html", help="Print one self-contained page.")
@click.pass_context
def inspect(
    ctx: click.Context,
    target: str,
    platform: str | None,
    gpus: str,
    driver: str,
    page_size: str | None,
    form: str | None,
    *,
    requirements: bool | None,
    cluster: bool,
) -> None:
    """Say whether everything in an image loads, and on which GPUs and drivers, without running it.

    STACK means its last image, as it is planned now and pushed. It must have code for the GPUs that the stack compiles
    for. REF is an image in a registry, PATH an archive of `docker save` or an OCI layout. Exits with 1 if there is a
    fault: a library, a symbol, a version or GPU code is missing, two packages own one library, or a GPU or driver does
    not fit. --cluster asks the cluster of the stack's runners, or else the one that kubectl uses.
    """
    from cli.inspection import inspection_page, inspection_text
    from containers.budget import limited
    from containers.image.binaries import inspection
    from containers.image.gpu import node_drivers
    from containers.image.gpu.release_order import order
    from containers.image.local_image import is_local, open_image
    from containers.image.registry_image import fetch
    from stacks.versions import cuda_toolkit
    from stacks.versions.archs import capability

    if driver and not order(driver):
        raise SlipwayError(f"--driver: '{one_line(driver)}' is no version, such as 570.86.15")
    try:
        capabilities = {gpu: capability(gpu) for gpu in filter(None, map(str.strip, gpus.split(",")))}
    except ValueError as error:
        raise SlipwayError(str(error)) from None
    compiled: Mapping[str, str] = {}
    gate: Mapping[str, Any] = {}
    where: dict[str, str | None] = {}
    planned = None
    if not (is_local(target) or is_reference(target)):
        # These take a third of a second of the processor, and other targets need none of them.
        from cli.export import selection
        from stacks import placement, plan

        planned = plan.make(target)
        if runners := planned.config.cluster_runners:
            where = {"kubeconfig": runners.kubeconfig, "context": runners.context}
    try:
        nodes = node_drivers.read(**where) if cluster else None
    except SlipwayError as error:
        raise SlipwayError(f"--cluster: {error}; --driver takes a driver's version without a cluster") from None
    with limited(target):
        if planned:
            spec = planned.image(None, platform).spec
            image, compiled = selection.image(planned, spec.name), spec.compiled
            gate = placement.inspection_question(planned.config, spec.platform) or {}
        else:
            image = open_image(target, platform) if is_local(target) else fetch(target, platform=platform)
        options = {"page": int(page_size.removesuffix("K")) << 10} if page_size else {}
        options |= {} if requirements is None else {"requirements": requirements}
        question = inspection.Question(cuda_toolkit, capabilities, driver, nodes, compiled, **{**gate, **options})
        result = inspection.inspect(image, question, platform)
        if form == "json":
            print(json.dumps(result.as_json(), indent=2))
        else:
            forms = {"markdown": inspection_text.markdown, "html": inspection_page.page, None: inspection_text.text}
            print(forms[form](result))
    ctx.exit(1 if result.faults else 0)


@command(
    ("slipway start local", "a stack's last image, as it is pushed"),
    ("slipway start local --against docker.io/library/python:3.12 --import json", "beside another image, by turns"),
    (
        "slipway start mine --against ghcr.io/acme/images/torch@sha256:91be... --script warm/steps.py",
        "your own first step, without and with its warm layer",
    ),
)
@click.argument("target", metavar="STACK | REF", shell_complete=completion.stacks)
@click.option("--against", metavar="STACK | REF", help="Another image, to run by turns.")
@click.option(
    "--import", "module", metavar="MODULE", default="torch", show_default=True, help="What to import; '' for nothing."
)
@click.option(
    "--script",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="A Python script to run in a process of its own, in place of the compiled step.",
)
@click.option("--runs", type=click.IntRange(1, 100), default=3, show_default=True, help="Containers of each image.")
@click.option("--gpu/--no-gpu", default=None, help="Use this machine's GPUs. Default: if it has NVIDIA's driver.")
@click.option(
    "--seconds", type=click.FloatRange(1, 86_400), default=600, show_default=True, help="That a container may take."
)
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON, in seconds and bytes.")
@click.pass_context
def start(
    ctx: click.Context,
    target: str,
    against: str | None,
    module: str,
    script: Path | None,
    runs: int,
    seconds: float,
    *,
    gpu: bool | None,
    as_json: bool,
) -> None:
    """Measure how an image starts on this machine: its pull, container, interpreter, import, and first steps on a GPU.

    The image's own python3 runs as the image's user, in containers without network and capabilities. The first steps
    are torch's: a CUDA context, a kernel, a step compiled by Inductor. Exits with 1 if one of them fails. The compiled
    step is skipped if the image has no C compiler. Of several platforms, the engine's own is measured.
    """
    from cli.export import selection
    from cli.startup import measurement, startup_text
    from cli.startup.docker_client import own_platform
    from containers.image.registry_image import Image, fetch, platforms
    from stacks import plan

    own = measurement.read_script(script) if script else ("", "")

    def image_of(name: str) -> Image:
        if is_reference(name):
            return fetch(name, platform=own_platform(platforms(name)))
        planned = plan.make(name)
        return selection.image(planned, None, own_platform(planned.config.every_platform))

    images = [measurement.Start.of(name, partial(image_of, name)) for name in filter(None, (target, against))]
    settings = measurement.Settings(module, measurement.has_gpu() if gpu is None else gpu, seconds, own)
    measurement.measure(images, runs, settings)
    if as_json:
        print(json.dumps([image.as_json() for image in images], indent=2))
    elif any(image.pull or image.runs for image in images):
        print(*startup_text.lines(images), sep="\n")
    for image in (image for image in images if image.failed):
        print(f"{image.reference}: {image.failed}", file=sys.stderr)
    ctx.exit(1 if any(image.failed for image in images) else 0)


@command(
    ("slipway scan nccl-cu132", "the images that the stack last published"),
    ("slipway scan nccl-cu132 torch", "one of them"),
)
@click.argument("stack", shell_complete=completion.stacks)
@click.argument("image", required=False, shell_complete=completion.images)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
@click.pass_context
def scan(ctx: click.Context, stack: str, image: str | None, *, as_json: bool) -> None:
    """Say which known vulnerabilities a stack's published images have.

    Grype finds them. Exits with 1 if an image has one that slipway:vulnerabilities refuses. Without that key,
    these are the critical ones with a fixed package.
    """
    from cli.inspection import vulnerability_report

    reports = []
    for report in vulnerability_report.reports(stack, ROOT, image):
        reports.append(report)
        if not as_json:
            print(report)
    if as_json:
        print(json.dumps([report.as_json() for report in reports], indent=2))
    ctx.exit(1 if any(report.refused for report in reports) else 0)


@command(
    ('eval "$(slipway completion bash)"', "for this shell; in ~/.bashrc for every one"),
    ('eval "$(slipway completion zsh)"', "likewise, in ~/.zshrc after compinit"),
    name="completion",
)
@click.argument("shell", type=click.Choice(completion.SHELLS))
@click.pass_context
def completion_(ctx: click.Context, shell: str) -> None:
    """Print the script that completes commands, stacks and images in a shell."""
    sys.stdout.write(completion.script(shell, ctx.find_root().command))
