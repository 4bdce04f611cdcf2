"""The documentation is true: commands parse, what they name is there, links resolve, examples of stacks load."""

from __future__ import annotations

import re
import shlex
from functools import cache
from pathlib import Path

from cli.command_line import HELP
from cli.main import slipway
from maintenance.commands import maintenance
from stacks import flavors
from stacks.config.model import keys
from stacks.config.stack_file import ROOT, stack_names
from tests.helpers.every import every
from tests.unit.docs.pages import Page, page, pages

PAGES = pages()
COMMANDS = sorted({(command, one.path) for one in pages() for command in one.commands()})
MAKE = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
SHARDS = set(re.findall(r"^shard-(\S+) :=", (ROOT / "Makefile").read_text(), re.MULTILINE))
STACKS = {*stack_names(), "mine", "hello", "STACK", "...", "<stack>"}
"""The stacks that commands may name: those there are, those that a page adds, and what stands for any."""

WITNESSES = {
    r"cd team$|python3 -m venv slipway$|(\.\./)?slipway/bin/": 'slipway("init", "team", cwd=folder)',
    r"python -m cli\.refresh\.torch_features\b": "torch_features.main(",
    r"\. \.slipway/env$": "project.source(",
    r"export PULUMI_BACKEND_URL=": "export PULUMI_BACKEND_URL=",
    r"export SLIPWAY_REGISTRY=": 'env["SLIPWAY_REGISTRY"]',
    r"(cat key.pem \| )?pulumi config set ": "pulumi config set --secret",
    r"pulumi stack init ": "pulumi stack init",
    r"pulumi (preview|up) -s runners-(aks|eks)$": "runners-eks",
    r"pulumi (preview|import) -s runners-ec2 ": "--generate-code=false",
    r"kubectl get ": '"get nodes"',
    r"docker compose ": '"compose"]',
    r"docker build --output type=local": "--output=type=local",
    r"(DOCKER_BUILDKIT=1 )?docker (run|build) ": 'docker("run", "--rm"',
    r"docker save ": 'docker("save", "--output"',
    r"git (fetch origin|show FETCH_HEAD:)": '"fetch", "-q", "origin", "published"',
    r"cosign verify-attestation ": '"verify-attestation"',
    r"cosign verify --key ": '"--annotations", f"tag={tag}"',
    r"pulumi (refresh|up) -s local$": 'self.pulumi("refresh", "-s", "t"',
    r"aws secretsmanager create-secret ": "create_secret",
    r"aws iam create-policy --policy-name slipway-boundary ": "ec2-boundary.json",
    r"ssh -F \.slipway/builder/": "ssh -F .slipway/builder/",
    r"pip install ": "pip install",
    r"python3 -m venv policies/venv$": '"-m", "venv", str(venv)',
    r"policies/venv/bin/pip install ": '"bin/pip"), "install"',
    r'eval "\$\(slipway completion (bash|zsh)\)"$': "completion",
    r"python -m torch.distributed.run$": "torch.distributed.run",
}
"""Commands of other programs, by how they begin, and what stands in a test that runs the same."""

ELSEWHERE = (
    r"nvidia-smi |watch nvidia-smi$",  # a GPU
    r"srun |mpirun |python3 checks/provider.py|python /report/report.py torchrun ",  # nodes with EFA
    r"tail /var/log/slipway-|aws (ssm|logs|ec2) ",  # an AWS account
    r"kubectl (create|delete|logs|port-forward|rollout) |helm (pull|show) ",  # a cluster with GitHub's charts
    r"pulumi plugin install |pulumi (preview|up) .*--policy-pack ",  # Pulumi's registry, and its own language host
    r"docker (context create|--context) ",  # another machine
    r"cd (~/project|dockerfiles)$|rm -rf \.slipway ",
    r"git (remote add origin git@github\.com:|add --all$|commit )|gh attestation verify |export PATH=",  # a repository at GitHub, and a terminal
)
"""Commands that need a machine, an account or a network that no test has."""


@cache
def text_of_tests() -> str:
    """Return the text of all tests but this one."""
    files = (path for path in sorted((ROOT / "tests").rglob("*.py")) if path != Path(__file__))
    return "\n".join(path.read_text(encoding="utf-8") for path in files)


def slipway_commands() -> list[tuple[str, str]]:
    """Return the commands of `slipway`, without its name, and the page that each is on."""
    pattern = re.compile(r"(?:slipway|python -m (?:stacks|maintenance)) (?P<rest>(?!\.\.\.|--help).+)")
    matches = ((pattern.match(command), path) for command, path in COMMANDS)
    return [(match["rest"], path) for match, path in matches if match]


def test_readme_length_is_at_most_180_lines() -> None:
    assert len(page("README.md").text.splitlines()) <= 180


@every("command, path", [pair for pair in COMMANDS if pair[0].startswith("make ")])
def test_make_command_names_what_there_is(command: str, path: str) -> None:
    target, *variables = shlex.split(command)[1:]
    assert target in MAKE, path
    for name, value in (variable.split("=", 1) for variable in variables):
        if name == "TESTS":
            assert all((ROOT / test).exists() for test in value.split()), path
        else:
            assert value in {"STACK": STACKS, "SHARD": SHARDS}[name], path


@every("command, path", slipway_commands())
def test_slipway_command_parses(command: str, path: str) -> None:
    name, *words = shlex.split(command)
    parser = {**maintenance.commands, **slipway.commands}[name]
    # In a sentence a command may stand by its name alone.
    # click keeps the first context's option for help with the command.
    context = parser.make_context(name, words, resilient_parsing=not words, **HELP)
    assert context.params.get("stack", "STACK") in {*STACKS, None}, path


@every(
    "command, path",
    [
        pair
        for pair in COMMANDS
        if not re.match(r"make |slipway |python -m (ci|maintenance|pytest|stacks|tests)", pair[0])
    ],
)
def test_other_command_is_shown_by_a_test(command: str, path: str) -> None:
    witnesses = [text for pattern, text in WITNESSES.items() if re.match(pattern, command)]
    assert witnesses or any(re.match(pattern, command) for pattern in ELSEWHERE), path
    assert all(text in text_of_tests() for text in witnesses), path


def test_pulumi_config_command_names_a_key() -> None:
    known = {key for name in flavors.names() for key, _ in keys(flavors.flavor(name).Config)}
    named = {key for command, _ in COMMANDS for key in re.findall(r"--path slipway:(\S+)", command)}
    assert named
    assert named <= known


@every("one", PAGES)
def test_link_on_a_page_leads_to_a_heading(one: Page) -> None:
    for link in one.links():
        path, _, anchor = link.partition("#")
        target = ((ROOT / one.path).parent / path).resolve() if path else ROOT / one.path
        assert target.exists(), link
        if anchor:
            assert anchor in Page(target.relative_to(ROOT).as_posix()).anchors(), link


@every("one", [each for each in PAGES if each.path != "CHANGELOG.md"])
def test_path_on_a_page_exists(one: Page) -> None:
    folders = "|".join(
        (
            "stacks",
            "containers",
            "cli",
            "components",
            "maintenance",
            "scaler",
            "dockerfiles",
            "toolchain",
            "ci",
            "bench",
            "tests",
            "docs",
        )
    )
    named = re.findall(rf"(?<![\w./-])(?:{folders})/[\w./-]++(?![<*])", one.prose)
    created = re.compile(r"stacks/(lock.toml|commits.txt)|stacks/Pulumi.mine.yaml|.*\b(hello|mamba|quay)\b.*")
    assert not [path for path in named if not created.fullmatch(path) and not (ROOT / path.rstrip(".")).exists()]


@every(
    "values, path",
    [(values, one.path) for one in pages() for values in one.stacks() if values["flavor"] != "hello"],
)
def test_stack_on_a_page_loads(values: dict[str, object], path: str) -> None:
    assert flavors.load(values, path).flavor == values["flavor"]
