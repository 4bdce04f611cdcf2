"""A whole life of runners with a canary in each secret: on Kubernetes, on EC2, and of the commands that print jobs."""

from __future__ import annotations

import base64
import json
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from stacks.config.stack_file import ROOT
from tests.aws.conftest import moto, registry
from tests.aws.runners import HOOK_SECRET, SECRET, WITH_WEBHOOK, RunnersProject, image
from tests.engine.project import Project
from tests.helpers.watched_programs import PULUMI, Watched, needless
from tests.provider.conftest import Registry

__all__ = ["moto", "registry"]

pytestmark = pytest.mark.slow

NEEDING = {
    **dict.fromkeys(("App key", "passphrase", "GitHub token", "registry password"), PULUMI),
    **dict.fromkeys(("AWS key", "AWS session"), re.compile(rf"{PULUMI.pattern}|aws|kubectl|ssh")),
    **dict.fromkeys(("App key at AWS", "webhook secret"), re.compile("nobody")),
}
"""By secret: the programs whose environment may have it. The secrets of runners on EC2 never leave AWS."""
COMMANDS = (
    *("list", "check", "show aks-megatron", "explain runners.github", "affected --since HEAD"),
    *("job aks-megatron", "job efa --nodes 4", "job nccl-cu132 --slurm", "job aks-megatron --slurm --nodes 2"),
)
"""Commands about the checkout's own stacks, beside those of test_canaries.py."""


def app_key() -> str:
    """Return a key as GitHub makes it for an App."""
    return (
        rsa.generate_private_key(public_exponent=65537, key_size=2048)
        .private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        )
        .decode()
    )


def planted(project: Project, folder: Path) -> Watched:
    """Return a project with a canary in each secret of its environment."""
    watched = Watched(project, folder)
    watched.plant(*(name for name in NEEDING if name != "App key"))
    project.environment |= {
        "PULUMI_CONFIG_PASSPHRASE": watched.secrets["passphrase"],
        "GITHUB_TOKEN": watched.secrets["GitHub token"],
        "SLIPWAY_REGISTRY_USERNAME": "ci",
        "SLIPWAY_REGISTRY_PASSWORD": watched.secrets["registry password"],
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": watched.secrets["AWS key"],
        "AWS_SESSION_TOKEN": watched.secrets["AWS session"],
    }
    return watched


def live(watched: Watched) -> None:
    """Let a stack live from its first preview to its end, and look at all that its programs were given."""
    watched.pulumi("preview", "--diff")
    watched.pulumi("up", "--yes", "--skip-preview")
    watched.pulumi("preview", "--diff", "--expect-no-changes")
    watched.pulumi("refresh", "--yes", "--skip-preview")
    watched.pulumi("stack", "output", "--json")
    for command in COMMANDS:
        assert watched.slipway(*command.split(), cwd=ROOT), command
    for command in ("show t", "list", "explain runners.github --stack t"):
        watched.slipway(*command.split())


def check(watched: Watched) -> None:
    """Raise AssertionError where a secret was given to a program that needs it not, or was printed."""
    started = watched.started()
    assert "git" in started
    assert {"passphrase", "GitHub token", "registry password", "AWS key"} <= started["pulumi"]  # so they would be seen
    assert needless(started, NEEDING) == set()
    assert watched.hits(watched.output.encode()) == set()


@pytest.fixture
def cluster(tmp_path: Path) -> Watched:
    """Runners on Kubernetes, whose cluster is a folder, registered by an App."""
    project = Project(tmp_path / "project")
    programs = tmp_path / "programs"
    programs.mkdir()
    plugin = shlex.join([sys.executable, "-P", "-m", "tests.fakes.plugin", "tests.fakes.kubernetes.folder_plugin"])
    for name, text in {
        "kubectl": """echo '{"items": []}'""",
        "pulumi-resource-kubernetes": f'PYTHONPATH={shlex.quote(str(ROOT))} exec {plugin} "$@"',
    }.items():
        (programs / name).write_text(f"#!/bin/sh\n{text}\n")
        (programs / name).chmod(0o755)
    (tmp_path / "cluster").mkdir()
    project.environment |= {
        "PATH": f"{Path(sys.executable).parent}:{programs}:{project.environment['PATH']}",
        "CLUSTER_FOLDER": str(tmp_path / "cluster"),
        "KUBECONFIG": str(tmp_path / "kubeconfig"),
    }
    watched = planted(project, tmp_path)
    key = app_key()
    watched.secrets["App key"] = key.splitlines()[7]
    app: dict[str, Any] = {"id": "1", "installation": "2"}
    runners = {"kind": "kubernetes", "profile": "eks-p5", "github": {"url": "https://github.com/acme", "app": app}}
    project.configure(flavor="runners", runners={**runners, "build": {"jobs": True, "rootless": True}})
    watched.prepare("stack", "init", "--no-select", "t")
    key_of_app = "slipway:runners.github.app.privateKey"
    watched.prepare("config", "set", "--secret", "--path", key_of_app, "--stack", "t", secret=key)
    return watched


def test_secrets_of_runners_on_kubernetes_stay_in_place(cluster: Watched, tmp_path: Path) -> None:
    assert not cluster.hits((cluster.project.root / "stacks/Pulumi.t.yaml").read_bytes())
    live(cluster)
    check(cluster)
    started = cluster.started()
    assert "kubectl" in started
    assert started["kubectl"] == {"AWS key", "AWS session"}  # a kubeconfig's login plugin may be AWS's
    # The key is in one object of the cluster, and nowhere else: neither in the state, nor in a chart's values.
    secret = Path("cluster/Secret-slipway-runners-github.json")
    manifest = json.loads((tmp_path / secret).read_text())
    assert "BEGIN RSA PRIVATE KEY" in json.dumps(manifest) or any(
        b"BEGIN RSA PRIVATE KEY" in base64.b64decode(value) for value in manifest.get("data", {}).values()
    )
    assert cluster.left() == {str(secret): {"App key"}}
    cluster.pulumi("destroy", "--yes", "--skip-preview")
    check(cluster)
    assert cluster.left() == {}


@pytest.fixture
def account(tmp_path: Path, moto: str, registry: Registry) -> Watched:
    """Runners on EC2, with the App's key and the webhook's secret in Secrets Manager."""
    image(moto, "x86_64")
    project = RunnersProject(tmp_path / "project", moto, registry)
    project.runners(**WITH_WEBHOOK)
    watched = planted(project, tmp_path)
    key = app_key()
    watched.secrets["App key at AWS"] = key.splitlines()[7]
    manager = project.api("secretsmanager")
    for arn, text in {
        SECRET: json.dumps({"app": "1", "installation": "2", "privateKey": key}),
        HOOK_SECRET: watched.secrets["webhook secret"],
    }.items():
        manager.create_secret(Name=arn.rpartition(":")[2].rpartition("-")[0], SecretString=text)
    watched.prepare("stack", "init", "--no-select", "t")
    return watched


def test_secrets_of_runners_on_ec2_stay_in_place(account: Watched) -> None:
    live(account)
    check(account)
    assert account.left() == {}
    assert account.hits(deployed(account.project)) == set()
    account.pulumi("destroy", "--yes", "--skip-preview")
    check(account)
    assert account.left() == {}


def deployed(project: Any) -> bytes:
    """Return what AWS has of the stack that others than its keeper may read: templates, functions, tables."""
    template = project.template()["LaunchTemplateData"]
    functions = project.api("lambda")
    contents: list[Any] = [template, base64.b64decode(template["UserData"]).decode()]
    names = [one["FunctionName"] for one in functions.list_functions()["Functions"]]
    assert len(names) == 2
    contents += [functions.get_function(FunctionName=name)["Configuration"] for name in names]
    contents += project.api("dynamodb").list_tables()["TableNames"]
    contents += [project.policy(whose) for whose in ("runner", "keeper", "webhook")]
    return json.dumps(contents, default=str).encode()
