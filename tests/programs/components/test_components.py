"""Components under Pulumi's mocks: what is asked of docker.Image, and what comes back."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable

from stacks.config.stack_file import ROOT


def loaded(modules: Iterable[str], *candidates: str) -> list[str]:
    """Return which of the candidates a new process has loaded after it has imported the modules."""
    code = f"import sys, {', '.join(modules)}; print(*(name for name in {candidates} if name in sys.modules))"
    return subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()


def test_stack_loads_nothing_of_signing_and_ecr_that_it_lacks() -> None:
    assert loaded(["components.deployment"], "requests", "containers.evidence.cosign", "pulumi_aws") == []


def test_providers_load_what_previews_need_only() -> None:
    """Each preview starts their process, which compares inputs."""
    resources = sorted(file.stem for file in (ROOT / "components" / "supply_chain").glob("*.py"))
    resources.remove("declare")  # imports the plan, in the program
    providers = [f"components.supply_chain.{name}" for name in resources if not name.startswith("__")]
    assert loaded(
        providers,
        "requests",
        "containers.registry.client",
        "containers.evidence.cosign",
        "pydantic",
        "pulumi_docker",
        "pulumi",
    ) == ["pulumi"]
