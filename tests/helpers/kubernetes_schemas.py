"""Objects of Kubernetes held against the definitions of its releases, each of which is a megabyte and read once."""

from __future__ import annotations

import functools
import re
from typing import Any

from jsonschema.validators import Draft202012Validator
from kubernetes_validate import utils
from referencing import Registry, Resource

_contents = functools.cache(utils.schema_contents)
_releases = functools.cache(utils.all_versions)


@functools.cache
def _validator(version: str, kind: str, api: str) -> Any:
    """Return the strict validator of a kind, as `kubernetes_validate.validate` makes one for each object."""
    release = next(each for each in _releases() if each.startswith(f"{version}."))
    folder = f"kubernetes-json-schema/v{release}-local-strict"
    name = re.sub(r"^([^./]*)(?:\.[^/]*)?/", r"\1-", api)  # rbac.authorization.k8s.io/v1: rbac-v1
    schema = _contents(f"{folder}/{kind.lower()}-{name}.json", version)
    resources = [Resource.from_contents(each) for each in (schema, _contents(f"{folder}/_definitions.json", version))]
    return Draft202012Validator(schema, registry=resources @ Registry())


def validate(manifest: dict[str, Any], version: str) -> None:
    """Hold an object against a release of Kubernetes, such as 1.35. It may have no field that is not known there."""
    _validator(version, manifest["kind"], manifest["apiVersion"]).validate(manifest)
