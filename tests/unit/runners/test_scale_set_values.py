"""The values that ARC's chart of a scale set is installed with."""

from __future__ import annotations

from typing import Any

from components.runners.kubernetes.arc import scale_set_values
from stacks.config.kubernetes import KubernetesRunnersConfig

TEMPLATE: dict[str, Any] = {"spec": {"containers": []}}


def values_of(**values: Any) -> dict[str, Any]:
    github = {"url": "https://github.com/acme", "secret": "github"}
    config = KubernetesRunnersConfig.model_validate({"kind": "kubernetes", "github": github, **values})
    return dict(scale_set_values(config, TEMPLATE))


def test_scale_set_with_labels_and_group_has_both() -> None:
    values = values_of(namespace="ml", labels=["gpu", "h100"], group="trusted")
    assert values["scaleSetLabels"] == ["ml", "gpu", "h100"]
    assert values["runnerGroup"] == "trusted"
    assert values["runnerScaleSetName"] == "ml"
    assert values["template"] == TEMPLATE


def test_scale_set_without_labels_is_known_by_its_name() -> None:
    values = values_of()
    assert "scaleSetLabels" not in values
    assert values["runnerGroup"] == "default"
    assert values["runnerScaleSetName"] == "slipway-runners"


def test_scale_set_listener_has_no_privileges() -> None:
    spec = values_of()["listenerTemplate"]["spec"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    [container] = spec["containers"]
    assert container["name"] == "listener"
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_scale_set_of_nameless_charts_has_the_time_for_jobs() -> None:
    """Charts of a fork may name a release of another form: there is none to compare, and a destroy waits all the same."""
    for arc, prepared in (({"version": "0.14.2"}, "0.14"), ({"charts": "a/fork"}, "")):
        assert values_of(arc=arc)["resourceMeta"] == {
            "autoscalingRunnerSet": {"annotations": {"slipway/arc": prepared}}
        }
