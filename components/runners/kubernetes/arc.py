"""Values for the Helm charts of GitHub's Actions Runner Controller (ARC). Plain data, no Pulumi.

Names of values: values.yaml of gha-runner-scale-set-controller and gha-runner-scale-set, release 0.14.2.
"""

from __future__ import annotations

from typing import Any

from components.runners.kubernetes.pod import CLOSED, Spec
from scaler.app_key import pem
from stacks.checks.clusters import arc_release
from stacks.config.cluster.arc_config import ARC_CHARTS, ARC_CONTROLLER, ARC_PREPARED, by_name
from stacks.config.kubernetes import KubernetesRunnersConfig
from stacks.config.stack_file import ROOT

Values = dict[str, Any]

ACCOUNT = "controller"
SECRET = "github"  # noqa: S105 - a name
IMAGE = "ghcr.io/actions/gha-runner-scale-set-controller"
_REGISTRY = "oci://ghcr.io/actions/actions-runner-controller-charts"

_UNPRIVILEGED: Spec = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}


def charts(config: KubernetesRunnersConfig) -> tuple[str, str]:
    """Return the charts of the controller and of the scale set, as Helm names them."""
    controller, scale_set = (f"{config.arc.charts or _REGISTRY}/{name}" for name in ARC_CHARTS)
    return controller, scale_set


def controller_values(config: KubernetesRunnersConfig, repository: str = IMAGE) -> Values:
    """Return the controller's values. It watches the runners' namespace alone, and so needs no role elsewhere.

    Its log level and its size may be given in ``arc.values``. ``repository`` is that of its image, or a mirror.
    """
    size = {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}}
    fixed: Values = {
        "flags": {"watchSingleNamespace": config.namespace},
        "image": {"repository": repository},
        "serviceAccount": {"create": True, "name": ACCOUNT},
        "podSecurityContext": _UNPRIVILEGED,
        "securityContext": {**CLOSED, "readOnlyRootFilesystem": True},
    }
    given = config.arc.values.controller if config.arc.values else {}
    return _merged(_merged({"flags": {"logLevel": "info"}, "resources": size}, given), fixed)


def _merged(below: Values, above: Values) -> Values:
    """Return values with others over them: mappings and containers are merged by their names, all else is replaced."""
    return {**below, **{key: _over(below.get(key), value) for key, value in above.items()}}


def _over(below: Any, above: Any) -> Any:
    if isinstance(below, dict) and isinstance(above, dict):
        return _merged(below, above)
    named, others = by_name(above), by_name(below)
    return [*_merged(others, named).values()] if named and others else above


def scale_set_values(config: KubernetesRunnersConfig, template: Spec) -> Values:
    """Return the scale set's values: whose jobs it takes, how many runners it has, and their pod template.

    ``containerMode`` stays empty, because the template is complete. The controller is named, because otherwise the
    chart looks one up in the cluster and cannot be rendered without one.
    """
    controller = config.arc.controller
    served = {ARC_CONTROLLER: controller.name} if controller else {}
    values: Values = {
        "githubConfigUrl": config.github.url,
        "githubConfigSecret": config.github.secret or SECRET,
        "minRunners": config.min_runners,
        "maxRunners": config.max_runners,
        "runnerGroup": config.group,
        "runnerScaleSetName": config.scale_set,
        "controllerServiceAccount": {
            "namespace": config.arc_namespace,
            "name": controller.account if controller else ACCOUNT,
        },
        "listenerTemplate": {
            "spec": {"securityContext": _UNPRIVILEGED, "containers": [{"name": "listener", "securityContext": CLOSED}]}
        },
        "template": template,
        "resourceMeta": {"autoscalingRunnerSet": {"annotations": {ARC_PREPARED: generation(config) or "", **served}}},
    }
    if config.labels:
        values["scaleSetLabels"] = [config.scale_set, *config.labels]
    return _merged(config.arc.values.runners, values) if config.arc.values else values


def at_github(values: Values) -> list[Any]:
    """Return the scale set's values that ARC sends to GitHub only when it creates the scale set.

    Its group, its name and the numbers of runners follow a change (actions-runner-controller v0.14.2,
    controllers/actions.github.com/autoscalingrunnerset_controller.go).
    """
    return [values["githubConfigUrl"], *values.get("scaleSetLabels", [])]


def trigger(config: KubernetesRunnersConfig, values: Values) -> list[Any]:
    """Return the values with which a scale set is made anew: also those of the controller that is not the stack's."""
    controller = config.arc.controller
    return [*at_github(values), *([generation(config), controller.name] if controller else [])]


def generation(config: KubernetesRunnersConfig) -> str | None:
    """Return the minor release of the charts, with which all is made anew; None where the charts name none.

    A controller deletes the scale sets of another minor release than its own (actions-runner-controller v0.14.2,
    apis/actions.github.com/v1alpha1/version.go), and may not know how to end their runners.
    """
    charts = config.arc.charts
    release = arc_release(ROOT / charts / ARC_CHARTS[1] / "Chart.yaml") if charts else config.arc.version
    return release.rpartition(".")[0] or None


def credentials(config: KubernetesRunnersConfig) -> dict[str, str]:
    """Return the credentials for registering runners, by the controller's keys; none if the secret exists already.

    Raises Unreadable: the App's key has a form that is not known. ARC itself takes PEM alone.
    """
    github = config.github
    if github.app:
        return {
            "github_app_id": github.app.id,
            "github_app_installation_id": github.app.installation,
            "github_app_private_key": pem(github.app.private_key.get_secret_value()),
        }
    return {"github_token": github.token.get_secret_value()} if github.token else {}
