"""What the folders of dockerfiles/ say of each other is true: addresses, arguments, jobs."""

from __future__ import annotations

import re
from pathlib import Path

from containers.dockerfile.declarations import arguments
from maintenance.generated import readme_tables
from stacks.config.stack_file import ROOT
from stacks.flavors import nccl
from stacks.flavors.universal import universal_config
from stacks.lock import REFRESH_ARG
from stacks.spec import CHECKED_ARG, CONTEXT, PRODUCT_ARG
from tests.helpers.every import every
from tests.unit.dockerfiles.test_arguments import every_spec

FOLDER = ROOT / CONTEXT
DOCKERFILES = sorted(path.relative_to(FOLDER).as_posix() for path in FOLDER.glob("*/Dockerfile"))
SCRIPTS = sorted(
    path
    for path in FOLDER.rglob("*")
    if path.is_file()
    and "checks" not in path.relative_to(FOLDER).parts
    and not path.name.endswith((".md", "Dockerfile", ".dockerignore"))
)
ADDRESS = re.compile(r"https?://[A-Za-z0-9][A-Za-z0-9./_-]*")
MIRRORS = re.compile(r"APT_MIRROR|GIT_MIRROR|CA_CERTIFICATE|(PYTHON|TORCH)_INDEX_URL|DOWNLOADS_\w+")


def code(path: Path) -> str:
    """Return a file without the lines that are comments."""
    return "".join(line for line in path.read_text().splitlines(keepends=True) if not line.lstrip().startswith("#"))


def set_by(dockerfile: str) -> dict[str, str]:
    """Return what sets each argument, as a README lists them."""
    text = readme_tables.arguments(FOLDER / dockerfile)
    return dict(re.findall(r"^\| `([A-Z][A-Z0-9_]*)` \| \S+ \| ([^|]+) \|", text, re.MULTILINE))


@every("dockerfile", DOCKERFILES)
def test_address_in_dockerfile_is_default_of_argument(dockerfile: str) -> None:
    for line in code(FOLDER / dockerfile).splitlines():
        if ADDRESS.search(line):
            assert re.fullmatch(rf"ARG [A-Z_]+={ADDRESS.pattern}", line), line


def test_address_in_script_is_default_of_argument() -> None:
    public = {default for name in DOCKERFILES for default in arguments(FOLDER / name).values() if default}
    assert SCRIPTS
    for script in SCRIPTS:
        for address in ADDRESS.findall(code(script).replace("\\", "")):
            assert address in public, f"{script}: {address}"


@every("dockerfile", DOCKERFILES)
def test_readme_marks_exactly_the_arguments_set_by_hand(dockerfile: str) -> None:
    given = {
        name
        for spec in every_spec().values()
        if spec.dockerfile == dockerfile
        for name in (*spec.args, *spec.tuning, *spec.parents, *spec.label_args)
    }
    listed = set_by(dockerfile)
    assert set(listed) == set(arguments(FOLDER / dockerfile))
    by_hand = {name for name, whom in listed.items() if whom == "by hand"}
    mirrors = {name for name, whom in listed.items() if "slipway:mirrors." in whom}
    assert mirrors == {name for name in listed if MIRRORS.fullmatch(name)}
    beside = {"LABEL_BASE_NAME", REFRESH_ARG, PRODUCT_ARG, CHECKED_ARG}
    by_no_image = {name for name in listed if not MIRRORS.fullmatch(name)} - given - beside
    assert by_hand == by_no_image, (
        f"{dockerfile}: no image of a stack, nor of VARIED in test_arguments.py, gets {sorted(by_no_image - by_hand)}: add "
        f"the key to VARIED, or write no (key) behind the name; images get {sorted(by_hand - by_no_image)}: write their key"
    )


def test_recipe_has_jobs_and_a_source_and_a_key() -> None:
    recipes = {path.name: code(path) for path in (FOLDER / "wheels/recipes").iterdir()}
    for name, recipe in recipes.items():
        assert re.search(r"^jobs='[1-9]\d* [1-9]\d*'$", recipe, re.MULTILINE), name
    sources = {path.name: code(path) for path in (FOLDER / "wheels/sources").iterdir()}
    assert set(sources) == set(recipes)
    for name, source in sources.items():
        assert re.fullmatch(r"repository=[\w.-]+/[\w.-]+\ntag=(fa4-)?v?\$VERSION\n", source), name
    fields = {**nccl.NcclJobsConfig.model_fields, **universal_config.UniversalJobsConfig.model_fields}
    keys = {name.replace("_", "-") for name in fields} - {"default"}
    assert keys == set(recipes) | {"nccl-tests"}


def test_jobs_of_torch_hold_what_was_measured() -> None:
    """GiB at most by jobs: FlashAttention's backward kernels on 16 cores, a whole build for the CPU on 64."""
    recipe = code(FOLDER / "wheels/recipes/torch")
    each = int(re.search(r"^jobs='(\d+) ", recipe, re.MULTILINE)[1])  # type: ignore[index]
    assert {jobs: most for jobs, most in {16: 53.6, 64: 46.8}.items() if jobs * each < most} == {}


def test_script_names_both_limits_of_its_jobs() -> None:
    calls = [call for script in SCRIPTS for call in re.findall(r"/build/jobs ([^)]*)\)", code(script))]
    assert len(calls) > 5
    assert all(re.fullmatch(r"[1-9]\d* [1-9]\d*|\$jobs", call) for call in calls), calls
