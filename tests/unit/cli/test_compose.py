"""The files for Docker Compose, as they are written."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from cli import compose
from cli.main import main
from containers.errors import SlipwayError
from stacks import plan
from stacks.config.stack_file import ROOT, read_stack
from stacks.plan import Plan, PlannedImage
from stacks.versions.efa_ngc import ngc_versions
from tests.helpers.every import every
from tests.unit.dockerfiles.test_arguments import every_spec

OWNER = (1234, 100)


def services_and_env(planned: Plan, image: PlannedImage | None = None, **options: Any) -> tuple[dict[str, Any], str]:
    """Return the compose file's services, and the other file."""
    files = compose.files(planned, image or planned.image(), owner=OWNER, **options)
    assert list(files) == ["docker-compose.yaml", ".env"]
    return yaml.safe_load(files["docker-compose.yaml"])["services"], files[".env"]


def settings(text: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in text.splitlines() if not line.startswith("#"))


@every("stack", ["local", "base-cu132", "nccl-cu118", "efa", "aks-megatron", "universal-cu113"])
def test_compose_train_builds_with_every_argument_of_plan(stack: str) -> None:
    planned = plan.make(stack)
    services, env = services_and_env(planned)
    image, build = planned.image(), services["train"]["build"]
    assert services["train"]["image"] == image.reference
    parents = {argument: planned.references[name] for argument, name in image.siblings.items()}
    assert build["args"] == {**image.args, **image.spec.label_args, **parents}
    assert build["context"] == "${DOCKERFILES}"
    assert settings(env)["DOCKERFILES"] == f"'{ROOT / 'dockerfiles'}'"
    assert build["dockerfile"] == image.spec.dockerfile
    assert build.get("target") == image.spec.target


def test_compose_services_share_user_project_and_gpus() -> None:
    services, env = services_and_env(plan.make("local"))
    assert list(services) == ["train", "ngc"]
    assert [name for name, service in services.items() if "profiles" not in service] == ["train"]
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


def test_compose_train_runs_no_entry_point_of_its_image() -> None:
    services, _ = services_and_env(plan.make("vllm-cu130"))
    assert services["train"]["build"]["dockerfile"] == "serve/Dockerfile"
    assert (services["train"]["entrypoint"], services["train"]["command"]) == ([], ["sleep", "infinity"])


def test_compose_project_is_in_the_workspace_of_its_image() -> None:
    services, _ = services_and_env(
        plan.make("universal-cu132", {**read_stack("universal-cu132"), "projectRoot": "/opt/p"})
    )
    assert (services["train"]["volumes"], services["train"]["working_dir"]) == ([".:/opt/p"], "/opt/p")
    assert services["ngc"]["working_dir"] == "/workspace"


def test_compose_options_leave_gpus_out_and_share_network() -> None:
    services, _ = services_and_env(plan.make("local"), gpus=False, host=True)
    for service in services.values():
        assert "deploy" not in service
        assert service["network_mode"] == "host"


def test_compose_mirror_is_used_and_dollar_escaped() -> None:
    mirrors = {"images": {"nvcr.io": "mirror.example/ngc"}, "pythonIndex": "https://mirror.example/$simple"}
    services, _ = services_and_env(plan.make("local", {**read_stack("local"), "mirrors": mirrors}))
    assert services["ngc"]["image"].startswith("mirror.example/ngc/nvidia/pytorch:")
    assert services["train"]["build"]["args"]["PYTHON_INDEX_URL"] == "https://mirror.example/$$simple"


def test_compose_image_of_caller_keeps_its_home() -> None:
    people = [{"name": "alice", "uid": 1234}, {"name": "bob", "uid": 1235}]
    both = plan.make("universal-cu132", {**read_stack("universal-cu132"), "train": people})
    alice, bob = both.image("train-alice"), both.image("train-bob")
    assert compose.of_user(both, 1234) is alice
    assert compose.of_user(both, 1235) is bob
    assert compose.of_user(both, 9) is bob
    local = plan.make("local")
    assert compose.of_user(local, 1234) is local.image()
    for planned, image, home in ((both, alice, False), (both, bob, True), (local, local.image(), True)):
        services, _ = services_and_env(planned, image)
        assert ("HOME" in services["train"]["environment"]) is home
        assert "HOME" in services["ngc"]["environment"]


@every(
    "stack, user, groups",
    [
        ("universal-cu113", 1000, ["conda"]),
        ("universal-cu113", 1001, None),
        ("aks-megatron", 1000, None),
        ("local", 1000, None),
    ],
)
def test_compose_image_of_caller_adds_its_group(stack: str, user: int, groups: list[str] | None) -> None:
    planned = plan.make(stack)
    files = compose.files(planned, compose.of_user(planned, user), owner=(user, 100))
    services = yaml.safe_load(files["docker-compose.yaml"])["services"]
    assert services["train"].get("group_add") == groups
    assert "group_add" not in services["ngc"]


def test_compose_group_of_personal_images_is_in_them() -> None:
    personal = {spec.dockerfile for spec in every_spec().values() if "USER_ID" in spec.args}
    assert personal == {"universal/Dockerfile"}
    layers = ROOT / "dockerfiles/universal/layers"
    assert "\ngroupadd --system conda\n" in (layers / "system").read_text()
    assert "\nchgrp -R conda /opt/conda\nchmod -R g+w /opt/conda\n" in (layers / "conda").read_text()


def test_compose_in_wsl_refuses_host_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("cli.compose._is_wsl", lambda: True)
    assert main(["compose", "local", "--project", str(tmp_path), "--host-network"]) == 1
    message = capsys.readouterr().err
    assert message == "--host-network: in WSL the engine's network is not this machine's; publish ports instead\n"
    assert list(tmp_path.iterdir()) == []
    assert main(["compose", "local", "--project", str(tmp_path)]) == 0
    for path in tmp_path.iterdir():
        assert b"\r" not in path.read_bytes()


def test_compose_writes_ids_of_caller(tmp_path: Path) -> None:
    assert main(["compose", "local", "--project", str(tmp_path)]) == 0
    written = settings((tmp_path / ".env").read_text())
    assert (written["UID"], written["GID"]) == (str(os.getuid()), str(os.getgid()))


def test_compose_force_replaces_only_its_own_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
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


def test_compose_unreadable_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".env").touch()

    def refuse(path: Path, **_: Any) -> str:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "read_text", refuse)
    with pytest.raises(SlipwayError, match=r"/\.env: is the project's own, and is never replaced"):
        compose.write(tmp_path, {".env": ""}, force=True)


def test_compose_link_is_never_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["compose", "local", "--project", str(tmp_path)]
    assert main(words) == 0
    (tmp_path / ".env").rename(tmp_path / "shared.env")
    (tmp_path / ".env").symlink_to("shared.env")
    assert main([*words, "--force"]) == 1
    assert capsys.readouterr().err.startswith(f"{tmp_path}/.env: is the project's own, and is never replaced; ")
    (tmp_path / "shared.env").unlink()
    assert main([*words, "--force"]) == 1
    assert (tmp_path / ".env").is_symlink()


def test_compose_unknown_image_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compose", "local", "torhc"]) == 1
    assert capsys.readouterr().err == "stack local builds no image 'torhc' (did you mean 'torch'?); it builds: torch\n"


@every("machine, platform", [("x86_64", "linux/amd64"), ("aarch64", "linux/arm64")])
def test_compose_of_platforms_is_for_machine_or_option(
    machine: str, platform: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def train(*words: str) -> Any:
        assert main(["compose", "local-multi", *words, "--project", str(tmp_path), "--force"]) == 0
        return yaml.safe_load((tmp_path / "docker-compose.yaml").read_text())["services"]["train"]

    names = os.uname()
    monkeypatch.setattr(os, "uname", lambda: os.uname_result((*names[:4], machine)))
    planned = plan.make("local-multi")
    assert train()["platform"] == platform
    assert train("--platform", "linux/arm64")["platform"] == "linux/arm64"
    assert train("torch", "--platform", "linux/amd64")["platform"] == "linux/amd64"
    assert train()["image"] == planned.references["torch"]
    monkeypatch.setattr(os, "uname", lambda: os.uname_result((*names[:4], "riscv64")))
    capsys.readouterr()
    assert main(["compose", "local-multi", "--project", str(tmp_path), "--force"]) == 1
    assert capsys.readouterr().err == (
        "stack local-multi: torch is for linux/amd64 and linux/arm64: choose one with --platform\n"
    )
