"""Examples of jobs against the schemas of the resources that they are, out of the operators' own releases."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from cli import job as jobs
from stacks import flavors
from stacks.config.stack_file import read_stack, stack_names
from tests.helpers import own_history
from toolchain.checkout import Checkout
from toolchain.machine import golang

RELEASES = {
    "MPIJob": ("github.com/kubeflow/mpi-operator", "manifests/base/kubeflow.org_mpijobs.yaml"),
    "PyTorchJob": ("github.com/kubeflow/training-operator", "manifests/base/crds/kubeflow.org_pytorchjobs.yaml"),
}
"""Kind -> the Go module whose release has its definition, and where."""
STACKS = [name for name in stack_names() if hasattr(flavors.flavor(read_stack(name)["flavor"]), "job")]


@pytest.fixture(autouse=True, scope="module")
def _no_search_of_this_history() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        own_history.leave_search(patch)
        yield


def strict(schema: Any) -> Any:
    """Return a schema that takes no field it does not name, as `kubectl apply --validate=strict` does."""
    if isinstance(schema, list):
        return [strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {key: strict(value) for key, value in schema.items()}
    if closed.pop("x-kubernetes-int-or-string", False):
        closed.pop("anyOf", None)
        closed["type"] = ["integer", "string"]
    if isinstance(closed.get("properties"), dict) and "x-kubernetes-preserve-unknown-fields" not in closed:
        closed.setdefault("additionalProperties", False)
    return closed


@pytest.fixture(scope="module")
def schemas(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Any]:
    """The schemas by version and kind."""
    folder: Path = tmp_path_factory.mktemp("definitions")
    checkout, schemas_by_kind = Checkout.here(), {}
    with golang.caches(checkout):
        for kind, (module, path) in RELEASES.items():
            golang.copy(checkout, "kubeflow", module, {path: folder / kind})
    for kind in RELEASES:
        definition = yaml.load((folder / kind).read_text(), yaml.CSafeLoader)["spec"]
        for version in definition["versions"]:
            schema = strict(version["schema"]["openAPIV3Schema"])
            schema["properties"]["metadata"] = {"type": "object"}  # the API server's own
            schemas_by_kind[f"{definition['group']}/{version['name']}", kind] = schema
    return schemas_by_kind


def errors(schemas: dict[tuple[str, str], Any], job: dict[str, Any]) -> list[str]:
    validator = Draft202012Validator(schemas[job["apiVersion"], job["kind"]])
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(job)]


def rendered(stack: str) -> list[dict[str, Any]]:
    objects = list(yaml.safe_load_all(jobs.render(stack, 2)))
    return [each for each in objects if each["kind"] in RELEASES]


@pytest.mark.parametrize("stack", STACKS)
def test_job_of_stack_passes_operator_schema(stack: str, schemas: dict[tuple[str, str], Any]) -> None:
    objects = rendered(stack)
    assert objects
    for job in objects:
        assert errors(schemas, job) == []


@pytest.mark.parametrize("stack", STACKS)
def test_schema_reports_unknown_field_and_wrong_type(stack: str, schemas: dict[tuple[str, str], Any]) -> None:
    for job in rendered(stack):
        spec = job["spec"].get("mpiReplicaSpecs") or job["spec"]["pytorchReplicaSpecs"]
        spec["Worker"]["replicas"] = "two"
        spec["Worker"]["template"]["spec"]["nodeSelectors"] = {}
        messages = errors(schemas, job)
        assert len(messages) == 2
        assert any("'two' is not of type 'integer'" in line for line in messages)
        assert any("'nodeSelectors' was unexpected" in line for line in messages)
