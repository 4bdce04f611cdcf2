"""The files for Docker Compose, as they are written."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from cli import compose
from cli.main import main
from stacks import plan
from stacks.config.stack_file import ROOT, read_stack
from stacks.errors import SlipwayError
from stacks.plan import Plan, PlannedImage
from stacks.versions.efa_ngc import ngc_versions
from tests.unit.dockerfiles.test_arguments import every_spec

OWNER = (1234, 100)


def made(planned: Plan, image: PlannedImage | None = None, **options: Any) -> tuple[dict[str, Any], str]:
    """Return the compose file's services, and the other file."""
    files = compose.files(planned, image or planned.image(), owner=OWNER, **options)
    assert list(files) == ["docker-compose.yaml", ".env"]
    return yaml.safe_load(files["docker-compose.yaml"])["services"], files[".env"]


def settings(text: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in text.splitlines() if not line.startswith("#"))


@pytest.mark.parametrize("stack", ["local", "base-cu132", "nccl-cu118", "efa", "aks-megatron", "universal-cu113"])
def test_train_is_built_with_every_argument_of_the_plan(stack: str) -> None:
    planned = plan.make(stack)
    services, env = made(planned)
    image, build = planned.image(), services["train"]["build"]
    assert services["train"]["image"] == image.reference
    parents = {argument: planned.references[name] for argument, name in image.siblings.items()}
    assert build["args"] == {**image.args, **image.spec.label_args, **parents}
    assert build["context"] == "${DOCKERFILES}"
    assert settings(env)["DOCKERFILES"] == f"'{ROOT / 'dockerfiles'}'"
    assert build["dockerfile"] == image.spec.dockerfile
    assert build.get("target") == image.spec.target


def test_both_services_work_in_the_project_as_the_caller_on_all_gpus_and_a_network_of_their_own() -> None:
    services, env = made(plan.make("local"))
    assert list(services) == ["train", "ngc"]
    for service in services.values():
        assert service["user"] == "${UID}:${GID}"
        assert service["volumes"] == [f".:{service['working_dir']}"]
        (device,) = service["deploy"]["resources"]["reservations"]["devices"]
        assert device == {"driver": "nvidia", "count": "all", "capabilities": ["gpu"]}
        assert "network_mode" not in service
        assert not any(isinstance(value, str) and "\\" in value for value in service.values())
    mine = {"UID": "1234", "GID": "100", "HOME_FOLDER": "/tmp", "SHM_SIZE": "8gb"}
    assert {name: value for name, value in settings(env).items() if name in mine} == mine
    assert services["ngc"]["image"] == f"nvcr.io/nvidia/pytorch:{ngc_versions()[-1]}-py3"


def test_the_project_is_where_an_image_has_its_place_for_one() -> None:
    services, _ = made(plan.make("universal-cu132", {**read_stack("universal-cu132"), "projectRoot": "/opt/p"}))
    assert (services["train"]["volumes"], services["train"]["working_dir"]) == ([".:/opt/p"], "/opt/p")
    assert services["ngc"]["working_dir"] == "/workspace"


def test_without_gpus_none_is_asked_for_and_with_the_hosts_network_that_is() -> None:
    services, _ = made(plan.make("local"), gpus=False, host=True)
    for service in services.values():
        assert "deploy" not in service
        assert service["network_mode"] == "host"


def test_a_mirror_and_a_dollar_are_what_they_are() -> None:
    mirrors = {"images": {"nvcr.io": "mirror.example/ngc"}, "pythonIndex": "https://mirror.example/$simple"}
    services, _ = made(plan.make("local", {**read_stack("local"), "mirrors": mirrors}))
    assert services["ngc"]["image"].startswith("mirror.example/ngc/nvidia/pytorch:")
    assert services["train"]["build"]["args"]["PYTHON_INDEX_URL"] == "https://mirror.example/$$simple"


def test_an_image_that_is_made_for_the_caller_is_theirs_with_its_home() -> None:
    people = [{"name": "alice", "uid": 1234}, {"name": "bob", "uid": 1235}]
    both = plan.make("universal-cu132", {**read_stack("universal-cu132"), "train": people})
    alice, bob = both.image("train-alice"), both.image("train-bob")
    assert compose.of_user(both, 1234) is alice
    assert compose.of_user(both, 1235) is bob
    assert compose.of_user(both, 9) is bob
    local = plan.make("local")
    assert compose.of_user(local, 1234) is local.image()
    for planned, image, home in ((both, alice, False), (both, bob, True), (local, local.image(), True)):
        services, _ = made(planned, image)
        assert ("HOME" in services["train"]["environment"]) is home
        assert "HOME" in services["ngc"]["environment"]


@pytest.mark.parametrize(
    ("stack", "user", "groups"),
    [
        ("universal-cu113", 1000, ["conda"]),
        ("universal-cu113", 1001, None),
        ("aks-megatron", 1000, None),
        ("local", 1000, None),
    ],
)
def test_who_has_an_image_of_their_own_has_its_group_too(stack: str, user: int, groups: list[str] | None) -> None:
    planned = plan.make(stack)
    files = compose.files(planned, compose.of_user(planned, user), owner=(user, 100))
    services = yaml.safe_load(files["docker-compose.yaml"])["services"]
    assert services["train"].get("group_add") == groups
    assert "group_add" not in services["ngc"]


def test_every_image_for_one_person_has_the_group_that_its_environment_belongs_to() -> None:
    personal = {spec.dockerfile for spec in every_spec().values() if "USER_ID" in spec.args}
    assert personal == {"universal/Dockerfile"}
    layers = ROOT / "dockerfiles/universal/layers"
    assert "\ngroupadd --system conda\n" in (layers / "system").read_text()
    assert "\nchgrp -R conda /opt/conda\nchmod -R g+w /opt/conda\n" in (layers / "conda").read_text()


def test_in_wsl_the_hosts_network_is_refused_and_lines_end_as_in_linux(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("cli.compose._is_wsl", lambda: True)
    assert main(["compose", "local", "--project", str(tmp_path), "--host-network"]) == 1
    said = capsys.readouterr().err
    assert said == "--host-network: in WSL the engine's network is not this machine's; publish ports instead\n"
    assert list(tmp_path.iterdir()) == []
    assert main(["compose", "local", "--project", str(tmp_path)]) == 0
    for path in tmp_path.iterdir():
        assert b"\r" not in path.read_bytes()


def test_the_callers_ids_are_in_the_file(tmp_path: Path) -> None:
    assert main(["compose", "local", "--project", str(tmp_path)]) == 0
    written = settings((tmp_path / ".env").read_text())
    assert (written["UID"], written["GID"]) == (str(os.getuid()), str(os.getgid()))


def test_what_it_wrote_is_replaced_with_force_and_what_others_wrote_never(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["compose", "local", "--project", str(tmp_path)]
    assert main(words) == 0
    assert main(words) == 1
    assert "docker-compose.yaml: exists; choose another output, or replace it with --force\n" in capsys.readouterr().err
    assert main([*words, "--cpu", "--force"]) == 0
    assert "nvidia" not in (tmp_path / "docker-compose.yaml").read_text().replace("nvcr.io/nvidia", "")
    (tmp_path / ".env").write_text("PASSWORD=precious\n")
    before = (tmp_path / "docker-compose.yaml").read_text()
    for more in ([], ["--force"]):
        assert main([*words, *more]) == 1
        assert capsys.readouterr().err == (
            f"{tmp_path}/.env: is the project's own, and is never replaced; move what it says to another file, or name "
            "another folder with --project\n"
        )
    assert (tmp_path / ".env").read_text() == "PASSWORD=precious\n"
    assert (tmp_path / "docker-compose.yaml").read_text() == before


def test_a_file_that_one_may_not_read_is_somebody_elses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".env").touch()

    def refuse(path: Path, **_: Any) -> str:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "read_text", refuse)
    with pytest.raises(SlipwayError, match=r"/\.env: is the project's own, and is never replaced"):
        compose.write(tmp_path, {".env": ""}, force=True)


def test_a_link_is_the_projects_own_wherever_it_leads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["compose", "local", "--project", str(tmp_path)]
    assert main(words) == 0
    (tmp_path / ".env").rename(tmp_path / "shared.env")
    (tmp_path / ".env").symlink_to("shared.env")
    assert main([*words, "--force"]) == 1
    assert capsys.readouterr().err.startswith(f"{tmp_path}/.env: is the project's own, and is never replaced; ")
    (tmp_path / "shared.env").unlink()
    assert main([*words, "--force"]) == 1
    assert (tmp_path / ".env").is_symlink()


def test_an_image_that_the_stack_does_not_build_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compose", "local", "torhc"]) == 1
    assert capsys.readouterr().err == "stack local builds no image 'torhc' (did you mean 'torch'?); it builds: torch\n"
