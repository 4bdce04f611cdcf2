"""A released wheel in an environment of its own, a repository that it makes, and newer releases for that."""

import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.fakes.github.actions import workflow
from tests.helpers.json_shape import differing
from tests.toolchain import released
from tests.toolchain.clone import ROOT
from tests.toolchain.released import Team

MOVED = {"dockerfiles/torch/Dockerfile": (r"\Z", "RUN true\n")}
"""A release whose torch has a step more."""
RENAMED = {"stacks/config/stack_config.py": (r"\bimages:", "pictures:")}
"""A release that refuses the key `images`."""
REBASED = {"stacks/flavors/local.py": ("bookworm-slim", "trixie-slim")}
"""A release whose torch is on another parent by default."""
REPACKED = {"requirements.run.lock": (r"\A", "# other packages\n"), **MOVED}
"""A release with another lock, and so with an environment of its own."""


@pytest.fixture(scope="module")
def team(tmp_path_factory: pytest.TempPathFactory) -> Team:
    """A repository with the checkout's release."""
    return released.make(tmp_path_factory.mktemp("team"))


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Newer releases, by version."""
    folder = tmp_path_factory.mktemp("wheels")
    edits = {"0.2.0": MOVED, "0.5.0": {}, "0.6.0": RENAMED, "0.7.0": REPACKED, "0.8.0": REBASED}
    return {version: released.build(folder, version, each) for version, each in edits.items()}


@pytest.fixture
def again(team: Team) -> Iterator[Team]:
    """The repository, which is as before afterwards, with its release."""
    yield team
    team.run("git", "checkout", "--quiet", "main")
    team.run("git", "reset", "--quiet", "--hard", "start")
    team.run("git", "clean", "--quiet", "-d", "--force")
    team.install(f"./slipway-{released.VERSION}-py3-none-any.whl", "--force-reinstall")


def test_wheel_makes_a_repository_whose_stack_is_ok(team: Team) -> None:
    assert set(team.tags()) == {"torch", "trainer"}  # the first command, which installs packages, prints this alone
    assert "local: 2 images, ok" in team.slipway("check")
    assert "torch -> trainer" in team.slipway("list")
    assert not (team.root / "dockerfiles").exists()


def test_advice_is_what_the_repository_has(team: Team) -> None:
    """There is no Makefile, and nothing that maintains tables."""
    stack = team.root / "stacks/Pulumi.newer.yaml"
    stack.write_text("config:\n  slipway:flavor: base\n  slipway:torch: {version: 9.9.9}\n")
    refused = team.refused("show", "newer")
    stack.unlink()
    assert "a newer release of Slipway may have more; rows of your own: tables/" in refused
    doctor = team.run(str(team.folder / "slipway/bin/slipway"), "doctor").stdout
    assert "missing: `slipway up` gets them" in doctor
    for text in (refused, doctor, (team.slipway("up", "--help") + team.slipway("doctor", "--help"))):
        assert not re.search(r"\bmake (up|lock|ready|doctor|preview)|python -m", text)


@pytest.mark.parametrize(
    ("version", "writing"),
    [
        pytest.param("0.2.0", False, marks=pytest.mark.slow),
        ("0.7.0", False),
        pytest.param("0.2.0", True, marks=pytest.mark.slow),
    ],
)
def test_upgrade_names_what_is_built_anew_and_why(
    team: Team, wheels: dict[str, Path], version: str, writing: bool
) -> None:
    team.run("git", "tag", "--force", "start")
    before = team.tags()
    lines = team.slipway("upgrade", str(wheels[version]), *(["--write"] if writing else [])).splitlines()
    lines = lines[lines.index(f"Slipway 0.1.0 -> {version}") :]
    assert lines[1:4] == ["local", "  torch    files torch/Dockerfile changed", "  trainer  parent torch"]
    assert not (team.root / ".slipway" / "upgrade").exists()
    if not writing:
        assert team.changes() == ""
        assert team.tags() == before
        return
    assert team.changes() == " M requirements.txt\n"
    team.run("git", "checkout", "--quiet", "requirements.txt")


def test_upgrade_says_what_the_lock_then_lacks(team: Team, wheels: dict[str, Path]) -> None:
    """What it lacked before is none of the upgrade's."""
    lock = team.root / "stacks/lock.toml"
    said = "stacks/lock.toml lacks what Slipway 0.8.0 fetches: run `slipway lock local` with it\n"
    assert said not in team.slipway("upgrade", str(wheels["0.8.0"]))
    lock.write_text(f'"docker.io/library/debian:bookworm-slim" = "sha256:{"1" * 64}"\n')
    try:
        assert said in team.slipway("upgrade", str(wheels["0.8.0"]))
        assert "lacks" not in team.slipway("upgrade", str(wheels["0.5.0"]))
    finally:
        lock.unlink()


def test_upgrade_over_three_releases_keeps_tags(again: Team, wheels: dict[str, Path]) -> None:
    again.run("git", "tag", "--force", "start")
    before = again.tags()
    document = json.loads(again.slipway("upgrade", str(wheels["0.5.0"]), "--json"))
    assert differing("upgrade", document) == []
    assert not document["written"]
    lines = again.slipway("upgrade", str(wheels["0.5.0"]), "--write").splitlines()
    assert "local: as before, 2 images keep their tags" in lines
    (install,) = (line.split() for line in lines if " -m pip install " in line)
    assert Path(install[0]).parent == again.folder / "slipway/bin"
    (check,) = (line.split() for line in lines if line.endswith("slipway check"))
    assert "--require-hashes -r requirements.txt" in again.refused("check")  # until the release is installed
    sourced = again.run(".slipway/venv/bin/slipway", "check")  # as `. .slipway/env` has it first on PATH
    assert sourced.returncode == 1
    assert f"{' '.join(install[:4])} --require-hashes -r requirements.txt`, then `{' '.join(check)}`" in sourced.stderr
    assert again.run(*install).returncode == 0
    assert "local: 2 images, ok" in again.run(*check).stdout
    assert again.run(".slipway/venv/bin/slipway", "check").returncode == 0
    assert again.tags() == before
    again.commit()
    assert again.tags() == before
    dockerfile = again.root / "images" / "trainer" / "Dockerfile"
    dockerfile.write_text(dockerfile.read_text() + "RUN true\n")
    again.commit()
    assert again.tags()["torch"] == before["torch"]
    assert again.tags()["trainer"] != before["trainer"]
    (head,) = again.run("git", "rev-parse", "--short=7", "HEAD").stdout.split()
    assert again.tags()["trainer"].startswith(head)
    older = again.refused("upgrade", str(wheels["0.2.0"]))
    assert "0.2.0 is not newer than 0.5.0" in older
    assert again.changes() == ""


def test_wheel_in_the_repositorys_own_environment_is_refused(again: Team) -> None:
    """Its command would start itself without end."""
    before = (again.root / ".slipway/venv/bin/slipway").read_text()
    installed = again.run(
        ".slipway/venv/bin/pip", "install", "--no-deps", f"../slipway-{released.VERSION}-py3-none-any.whl"
    )
    assert installed.returncode == 0, installed.stderr
    assert "remove the folder, and use pip and slipway of an environment of yours" in again.refused("check")
    shutil.rmtree(again.root / ".slipway/venv")
    assert "local: 2 images, ok" in again.slipway("check")
    assert (again.root / ".slipway/venv/bin/slipway").read_text() == before


def test_upgrade_asks_no_index_for_the_name(team: Team) -> None:
    for release in ([], ["0.5.0"]):
        assert "requirements.txt pins no address" in team.refused("upgrade", *release)
    assert team.changes() == ""


@pytest.mark.parametrize(
    ("release", "reason"),
    [
        ("0.6.0", "Slipway 0.6.0 refuses local: stack local: config: unknown key 'images'"),
        ("same", "pins this release already, Slipway 0.1.0"),
        ("renamed", "other.whl has the version 0.2.0"),
        ("foreign-1.0-py3-none-any.whl", "foreign-1.0-py3-none-any.whl is not a wheel of Slipway"),
        ("cut", "is not a wheel of Slipway"),
        ("missing.whl", "there is no file"),
        ("newest", "'newest' is no release"),
        ("edited", "notes.txt is not committed"),
        ("silent", "Slipway 0.8.0 cannot say what it builds"),
    ],
)
def test_upgrade_that_cannot_be_changes_nothing(
    team: Team, wheels: dict[str, Path], tmp_path: Path, release: str, reason: str
) -> None:
    def cut(name: str) -> Path:
        (tmp_path / name).write_bytes(wheels["0.2.0"].read_bytes()[:100_000])
        return tmp_path / name

    named: dict[str, Callable[[], Path | str]] = {
        "0.6.0": lambda: wheels["0.6.0"],
        "same": lambda: team.folder / f"slipway-{released.VERSION}-py3-none-any.whl",
        "renamed": lambda: shutil.copy(wheels["0.2.0"], tmp_path / "other.whl"),
        "foreign-1.0-py3-none-any.whl": lambda: foreign(tmp_path / release),
        "cut": lambda: cut(wheels["0.2.0"].name),
        "edited": lambda: wheels["0.2.0"],
        "silent": lambda: released.build(tmp_path, "0.8.0", {"cli/commands/look.py": (r'"--contents"', '"--other"')}),
    }
    edited = team.root / "notes.txt"
    if release == "edited":
        edited.write_text("one\n")
    before = (team.root / "requirements.txt").read_text()
    try:
        assert reason in team.refused("upgrade", str(named.get(release, lambda: release)()), "--write")
    finally:
        edited.unlink(missing_ok=True)
    assert (team.root / "requirements.txt").read_text() == before
    assert team.changes() == ""
    assert not (team.root / ".slipway" / "upgrade").exists()


def test_workflow_of_the_repository_finds_changed_stacks(again: Team, tmp_path: Path) -> None:
    again.run("git", "tag", "--force", "start")
    again.run("git", "update-ref", "refs/remotes/origin/main", "HEAD")
    dockerfile = again.root / "images" / "trainer" / "Dockerfile"
    dockerfile.write_text(dockerfile.read_text() + "RUN true\n")
    again.commit()
    variables = {"GITHUB_OUTPUT": str(tmp_path / "output"), "BASE": "main"}
    variables |= {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(again.folder)}
    for step in workflow(again.root, "preview.yml")["jobs"]["affected"]["steps"]:
        if line := step.get("run"):
            done = again.run("bash", "-e", "-c", line, variables=variables)
            assert done.returncode == 0, f"{line}: {done.stdout} {done.stderr}"
    outputs = dict(line.split("=", 1) for line in (tmp_path / "output").read_text().splitlines() if "=" in line)
    (job,) = json.loads(outputs["previews"])["include"]
    assert (job["stack"], job["images"], job["platform"]) == ("local", ["trainer"], "linux/amd64")


def test_tag_of_a_flavor_of_ones_own_follows_its_files(again: Team) -> None:
    page = (ROOT / "docs/guides/your-own-repository.md").read_text()
    (flavor,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    files = {
        "flavors/hello.py": flavor,
        "stacks/Pulumi.hello.yaml": "config:\n  slipway:flavor: hello\n  slipway:registry: {kind: local}\n",
        "images/hello/Dockerfile": "ARG BASE_IMAGE\nFROM ${BASE_IMAGE}\nRUN true\n",
    }
    again.run("git", "tag", "--force", "start")
    before = again.tags()
    for name, text in files.items():
        (again.root / name).parent.mkdir(exist_ok=True)
        (again.root / name).write_text(text)
    again.commit()
    first = again.tags("hello")["hello"]
    assert again.tags() == before  # of a stack of another flavor
    (again.root / "images/hello/Dockerfile").write_text(files["images/hello/Dockerfile"] + "RUN true\n")
    again.commit()
    (head,) = again.run("git", "rev-parse", "--short=7", "HEAD").stdout.split()
    assert again.tags("hello")["hello"] == f"{head}-hello" != first
    (again.root / "flavors/hello.py").write_text(flavor.replace("A greeting", "A word"))
    again.commit()
    assert again.tags() == before
    (head,) = again.run("git", "rev-parse", "--short=7", "HEAD").stdout.split()
    assert again.tags("hello")["hello"] == f"{head}-hello"


def test_history_needs_no_sourced_environment(team: Team, tmp_path: Path) -> None:
    assert "PULUMI_ACCESS_TOKEN" in team.refused("history", "local")
    file = team.root / ".slipway" / "env"
    file.write_text(f"export PULUMI_BACKEND_URL={tmp_path.as_uri()} PULUMI_CONFIG_PASSPHRASE=x\n")
    try:
        assert team.slipway("history", "local") == "UPDATE  WHEN  KIND  RESULT  COMMIT  CHANGES\n"
    finally:
        file.unlink()


def test_down_says_what_it_ended(team: Team) -> None:
    assert team.slipway("down") == "Nothing of this checkout was running\n"


def foreign(file: Path) -> Path:
    """Write a wheel of another project."""
    import zipfile

    with zipfile.ZipFile(file, "w") as members:
        members.writestr("foreign-1.0.dist-info/METADATA", "Name: foreign\nVersion: 1.0\n")
    return file
