"""A stack's own settings of a provider, such as ``aws:defaultTags``, for the providers that Slipway declares.

Pulumi itself gives them to default providers alone.
"""

from __future__ import annotations

import inspect
import json
from typing import Any

import pulumi
from pulumi.runtime.config import CONFIG, is_config_secret
from pydantic.alias_generators import to_camel

from containers.errors import one_line, suggest


def of(provider: type[pulumi.ProviderResource]) -> dict[str, Any]:
    """Return the arguments of a provider's class that the stack gives in the namespace of its package.

    Raises pulumi.RunError: the provider has no such setting, or its value is not JSON.
    """
    prefix = f"{provider.pulumi_type.removeprefix('pulumi:providers:')}:"  # type: ignore[attr-defined]  # of each generated class
    parameters = inspect.signature(provider._internal_init).parameters  # type: ignore[attr-defined]  # noqa: SLF001
    known = {to_camel(name): name for name in [*parameters][2:-1]}
    arguments: dict[str, Any] = {}
    for key, text in CONFIG.get().items():
        if not key.startswith(prefix):
            continue
        name = key.removeprefix(prefix)
        if name not in known:
            raise pulumi.RunError(f"{key}: the provider has no such setting{suggest(name, known)}: leave it out")
        is_text = str(parameters[known[name]].annotation).startswith("typing.Union[str,")
        try:
            value = text if is_text else json.loads(text)
        except json.JSONDecodeError as error:
            raise pulumi.RunError(f"{key}: '{one_line(text)}' is not JSON: {error.msg}") from None
        arguments[known[name]] = pulumi.Output.secret(value) if is_config_secret(key) else value
    return arguments
