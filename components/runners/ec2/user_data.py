"""User data of machines for cloud-init. It has no secrets."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from stacks.checks.ec2_site import partition
from stacks.config.ec2 import BuildMachineConfig, Ec2RunnersConfig
from stacks.versions.checksums import runner_checksum

_BOOT = Path(__file__).parent / "boot"
_RELEASES = "https://github.com/actions/runner/releases/download"


class _Block(yaml.SafeDumper):
    """Dumps text of several lines as blocks, which are readable in EC2's console."""


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.Node:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)


_Block.add_representer(str, _text)


def configs_table(stack: str) -> str:
    """Return the name of the table in which each machine of a stack finds its runner's configuration."""
    return f"{stack}-configs"


def machine_arns(config: Ec2RunnersConfig) -> str:
    """Return what the ARN of each machine begins with: the ARN is the key of the machine's configuration."""
    return f"arn:{partition(config.region)}:ec2:{config.region}:{config.account}:instance/"


def user_data(config: Ec2RunnersConfig, platform: str, *, name: str, gpus: int, efa: int) -> str:
    """Return the user data of a runner's machine, which must have at least ``gpus`` GPUs and ``efa`` EFA interfaces.

    ``name`` prefixes the names of all resources of the stack's runners.
    """
    contents = {
        "/etc/slipway/runner.env": _environment(config, platform, name, gpus, efa),
        "/etc/slipway/logs.json": json.dumps(_logs(name), indent=1) + "\n",
        "/usr/local/sbin/slipway-setup": _script("setup"),
        "/usr/local/sbin/slipway-end": _script("end"),
    }
    return _filled("cloud-config.yaml", contents)


def builder_user_data(build: BuildMachineConfig, volume: str) -> str:
    """Return the user data of the builder; ``volume`` is the id of the volume with its layers."""
    contents = {
        "/etc/slipway/builder.env": f"VOLUME={volume}\nCACHE={build.cache}\nIDLE={build.idle}\n",
        "/usr/local/sbin/slipway-builder": _script("builder"),
        "/usr/local/sbin/slipway-idle": _script("idle"),
        "/usr/local/sbin/slipway-room": _script("room"),
        "/usr/local/bin/slipway-ready": _script("ready"),
    }
    return _filled("builder.yaml", contents)


def _script(name: str) -> str:
    return (_BOOT / name).read_text(encoding="utf-8")


def _filled(template: str, contents: Mapping[str, str]) -> str:
    """Return a cloud-init template with the contents of its empty files filled in."""
    document: dict[str, Any] = yaml.safe_load(_script(template))
    for file in document["write_files"]:
        file["content"] = contents.get(file["path"], file["content"])
    return "#cloud-config\n" + yaml.dump(document, Dumper=_Block, sort_keys=False, width=1000)


def _environment(config: Ec2RunnersConfig, platform: str, name: str, gpus: int, efa: int) -> str:
    architecture = {"linux/amd64": "x64", "linux/arm64": "arm64"}[platform]
    # If some machines always wait for jobs, the keeper ends the others without a job.
    idle = config.max_lifetime * 24 * 60 if config.most_waiting else config.idle
    values = {
        "REGION": config.region,
        "BOOT": config.boot,
        "IDLE": idle,
        "CONFIGS": configs_table(name),
        "MACHINES": machine_arns(config),
        "GPUS": gpus,
        "EFA": efa,
        "RUNNER_URL": f"{_RELEASES}/v{config.runner}/actions-runner-linux-{architecture}-{config.runner}.tar.gz",
        "RUNNER_SHA256": runner_checksum(config.runner, platform),
    }
    return "".join(f"{key}={value}\n" for key, value in values.items())


def _logs(name: str) -> Mapping[str, Any]:
    """Return the CloudWatch agent's configuration. Each file is a stream named after its machine."""
    files = ["/var/log/slipway-setup.log", "/var/log/slipway-runner.log", "/var/log/cloud-init-output.log"]
    collected = [
        {
            "file_path": file,
            "log_group_name": f"/{name}/runner",
            "log_stream_name": f"{{instance_id}}/{Path(file).stem}",
        }
        for file in files
    ]
    return {"logs": {"logs_collected": {"files": {"collect_list": collected}}}}
