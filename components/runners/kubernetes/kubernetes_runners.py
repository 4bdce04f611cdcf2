"""``KubernetesRunners``: GitHub's runners on a Kubernetes cluster, with all that they need there.

Imported only by stacks that have such runners: ``pulumi_kubernetes`` costs every program that loads it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pulumi
import pulumi_docker as docker
import pulumi_kubernetes as k8s

from components.registry.interface import Login
from components.runners.kubernetes import arc, build_service, gpu_validation, isolation, pod
from components.runners.kubernetes.certificates import Certificates, CertificatesArgs
from components.runners.kubernetes.engine_readiness import Reached, ReachedArgs
from components.runners.kubernetes.isolation import Manifest
from components.runners.kubernetes.objects import declare
from stacks.config.kubernetes import KubernetesRunners as Config


def _same(reference: str) -> str:
    return reference


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


@dataclass(frozen=True, kw_only=True)
class KubernetesRunnersArgs:
    """What :class:`KubernetesRunners` are made of.

    ``config`` is the stack's ``runners``; ``ports`` are those of its registry and mirrors, and ``mirrored`` tells where
    the cluster pulls an image from.
    """

    config: Config
    ports: Sequence[int] = ()
    mirrored: Callable[[str], str] = field(default=_same)


class KubernetesRunners(pulumi.ComponentResource):
    """A namespace with its guards, the controller and the scale set of ARC, and the build service if there is one."""

    provider: k8s.Provider
    """The cluster."""

    scale_set: str
    """What a workflow says in ``runs-on``."""

    address: str | None
    """``host:port`` of the build service, as this machine reaches it; None where there is none."""

    outputs: dict[str, Any]
    """What a stack exports of its runners."""

    def __init__(self, name: str, args: KubernetesRunnersArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        config = args.config
        shown = config.model_dump(mode="json", by_alias=True, exclude={"github": {"app", "token"}}, exclude_none=True)
        super().__init__("slipway:runners:KubernetesRunners", name, shown, opts)
        self._name, self._config = name, config
        self.provider = k8s.Provider(
            f"{name}-cluster",
            kubeconfig=config.kubeconfig,
            context=config.context,
            opts=pulumi.ResourceOptions(parent=self),
        )
        self._opts = pulumi.ResourceOptions(parent=self, provider=self.provider)
        self.scale_set = config.namespace
        self._guards = self._guarded(
            isolation.namespace(config),
            isolation.quota(config),
            isolation.limit_range(config),
            isolation.service_account(config),
            *isolation.network_policies(config, args.ports),
            isolation.disruption_budget(config),
            isolation.builds_priority(config),
        )
        self.address = None
        self._certificates: Certificates | None = None
        self._clients: list[pulumi.CustomResource] = []
        client = None
        if config.build:
            self.address = build_service.address(config, config.build)
            client = build_service.client(config, config.build)
            self._build_service(args)
        template = pod.template(config, args.mirrored(config.image), args.mirrored(config.docker_image), client)
        self._controller(args, template)
        self.outputs = {
            "kind": config.kind,
            "namespace": config.namespace,
            "scaleSet": self.scale_set,
            **({"buildService": self.address} if self.address else {}),
        }
        self.register_outputs(self.outputs)

    def _declare(self, manifest: Manifest, *after: pulumi.Resource) -> pulumi.CustomResource:
        options = pulumi.ResourceOptions(depends_on=list(after))
        return declare(self._name, manifest, pulumi.ResourceOptions.merge(self._opts, options))

    def _guarded(self, namespace: Manifest, *around: Manifest) -> list[pulumi.CustomResource]:
        """Declare a namespace and what surrounds all else in it; return the latter."""
        made = self._declare(namespace)
        return [self._declare(each, made) for each in around]

    def _controller(self, args: KubernetesRunnersArgs, template: pod.Spec) -> None:
        """Declare the controller in a namespace of its own, and the runners after it, so that they end before it."""
        config = self._config
        own = self._guarded(isolation.controller_namespace(config), *isolation.controller_policies(config))
        after = [*self._guards, *self._clients, *own]
        if credentials := arc.credentials(config):
            secret = isolation.manifest(
                "v1",
                "Secret",
                arc.SECRET,
                config.namespace,
                type="Opaque",
                stringData=pulumi.Output.secret(credentials),
            )
            after.append(self._declare(secret, *self._guards))
        controller, scale_set = arc.charts(config)
        values = arc.controller_values(config, args.mirrored(f"{arc.IMAGE}:{config.arc.version}").rpartition(":")[0])
        running = self._chart(controller, config.controller_namespace, "controller", values, after)
        self._chart(scale_set, config.namespace, config.namespace, arc.scale_set_values(config, template), [running])

    def _chart(
        self, chart: str, namespace: str, name: str, values: arc.Values, after: Sequence[pulumi.Resource]
    ) -> k8s.helm.v3.Release:
        """Declare one chart as Helm itself installs it; its end is awaited, as ARC has to clear up first."""
        options = pulumi.ResourceOptions(depends_on=list(after))
        return k8s.helm.v3.Release(
            f"{self._name}-{chart.rpartition('/')[2]}",
            chart=chart,
            version=None if self._config.arc.charts else self._config.arc.version,
            name=name,
            namespace=namespace,
            values=values,
            opts=pulumi.ResourceOptions.merge(self._opts, options),
        )

    def _build_service(self, args: KubernetesRunnersArgs) -> None:
        config, build = self._config, self._config.build
        assert build is not None  # noqa: S101 - asked for by the caller
        made = Certificates(
            f"{self._name}-certificates",
            CertificatesArgs(build_service.hosts(config, build)),
            pulumi.ResourceOptions(parent=self),
        )
        self._certificates = made
        # Whoever builds keeps certificate and way until the runners, and the service that waits for them, are gone.
        for each in (build_service.secret(config, made.pem, "client"), build_service.clients_policy(config, build)):
            self._clients.append(self._declare(each, *self._guards))
        own = self._guarded(build_service.namespace(config), *build_service.guarded(config, build, args.ports))
        objects = [
            build_service.secret(config, made.pem, "server"),
            build_service.claim(config, build),
            build_service.service(config, build),
            build_service.disruption_budget(config),
        ]
        # The priority class is among the runners' guards.
        before = [*self._clients, *(self._declare(each, *own, *self._guards) for each in objects)]
        image = args.mirrored(build_service.BUILDKIT if build.rootless else config.docker_image)
        certificate = made.server_cert.apply(_digest)
        self._service = self._declare(build_service.deployment(config, build, image, certificate), *before)

    def engine(self) -> docker.Provider:
        """Return the build service as a Docker engine that images can be built on, once it answers.

        Raises:
            ValueError: there is no build service with a Docker API.
        """
        made = self._certificates
        if made is None or self.address is None:
            raise ValueError("the runners have no build service")
        reached = Reached(
            f"{self._name}-build-service",
            ReachedArgs(self.address, made.ca, made.client_cert, made.pem["client_key"]),
            pulumi.ResourceOptions(parent=self, depends_on=[self._service]),
        )
        return docker.Provider(
            f"{self._name}-engine",
            host=f"tcp://{self.address}",
            ca_material=made.ca,
            cert_material=made.client_cert,
            key_material=made.pem["client_key"],
            disable_docker_daemon_check=True,  # a preview needs no daemon
            opts=pulumi.ResourceOptions(parent=self, depends_on=[reached]),
        )

    def validate(
        self,
        image: pulumi.Input[str],
        after: Sequence[pulumi.Resource],
        checks: str | None = None,
        login: tuple[str, Login] | None = None,
    ) -> dict[str, Any]:
        """Declare the GPU checks of an image and return their result; checks that fail, fail the update.

        Args:
            image: its reference.
            after: what makes it.
            checks: its own, a script in Python, where the configuration has no command.
            login: its registry, and who may pull from there; None where the nodes may, or anybody.

        Raises:
            ValueError: the configuration asks for none.
        """
        asked = self._config.validation
        if asked is None:
            raise ValueError("the configuration asks for no validation")
        made = gpu_validation.job(self._config, asked, checks, private=login is not None)
        before = [self._declare(gpu_validation.script(self._config, checks), *self._guards)] if checks else []
        if login:
            before.append(self._login(*login))
        made["spec"]["template"]["spec"]["containers"][0]["image"] = image
        done: Any = self._declare(made, *self._guards, *before, *after)
        return {"image": image, "passed": done.status.apply(lambda status: bool(status and status.succeeded))}

    def _login(self, server: str, login: Login) -> pulumi.CustomResource:
        held = pulumi.Output.all(login.username, login.password).apply(lambda pair: gpu_validation.login(server, *pair))
        secret = isolation.manifest(
            "v1",
            "Secret",
            gpu_validation.NAME,
            self._config.namespace,
            type="kubernetes.io/dockerconfigjson",
            stringData=pulumi.Output.secret(held),
        )
        return self._declare(secret, *self._guards)
