"""``KubernetesRunners``: GitHub Actions runners on a Kubernetes cluster, with everything they need there.

Only stacks with such runners import this module, because importing ``pulumi_kubernetes`` is slow.
"""

from __future__ import annotations

import hashlib
import posixpath
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pulumi
import pulumi_docker as docker
import pulumi_kubernetes as k8s

from components import provider_arguments
from components.reached_engine import ReachedEngine
from components.registry.interface import PushLogin
from components.runners.kubernetes import arc, build_daemon, build_service, gpu_validation, isolation, job_pods, pod
from components.runners.kubernetes.certificates import Certificates, CertificatesArgs
from components.runners.kubernetes.engine_readiness import EngineReadiness, EngineReadinessArgs
from components.runners.kubernetes.isolation import Manifest
from components.runners.kubernetes.objects.cut_off_update import mending
from components.runners.kubernetes.objects.declaration import declare
from components.runners.kubernetes.periodic import minimum
from containers.engine.replicas import Replicas
from containers.platform_name import architecture
from containers.registry.reference import Reference
from stacks.config.cluster.build_config import Replica
from stacks.config.kubernetes import KubernetesRunnersConfig as Config

_LEEWAY = 300
"""Seconds for the end of a scale set whose runners have no job."""


def _unchanged(reference: str) -> str:
    return reference


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _cluster(name: str, config: Config, opts: pulumi.ResourceOptions) -> k8s.Provider:
    """Declare the provider of the cluster.

    An empty ``kubeconfig`` has it look for one at each run. From None the SDK makes the path in ``KUBECONFIG``, which
    would be in the state. A refresh or a destroy takes it from there, and finds no cluster on a machine that has its
    kubeconfig elsewhere (pulumi-kubernetes 9497796, provider/pkg/provider/provider.go, Configure). Without a kubeconfig
    to compare, it takes every context for the same cluster, but for an identifier (DiffConfig).

    What is in the old context goes first: if both names are one cluster's, its deletion would take the new objects.
    """
    by_context = {"cluster_identifier": config.context} if config.context and not config.kubeconfig else {}
    return k8s.Provider(
        f"{name}-cluster",
        **{
            **by_context,
            **provider_arguments.of(k8s.Provider),
            "kubeconfig": config.kubeconfig or "",
            "context": config.context,
        },
        opts=opts,
    )


@dataclass(frozen=True, kw_only=True)
class KubernetesRunnersArgs:
    """What :class:`KubernetesRunners` consists of.

    ``config`` is the stack's ``runners``. ``ports`` are the ports of its registry and mirrors. ``mirrored`` returns the
    reference from which the cluster pulls an image. ``authority`` is the certificate of the mirrors, if they have one.
    ``reservations`` is what the preview says of reserved nodes.
    """

    config: Config
    ports: Sequence[int] = ()
    mirrored: Callable[[str], str] = field(default=_unchanged)
    authority: str = ""
    reservations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class _Daemon:
    """A replica of the build service: ``host:port`` for this machine, the certificates for it, and its deployment."""

    replica: Replica
    address: str
    tls: dict[str, pulumi.Output[str]]
    service: pulumi.CustomResource


class KubernetesRunners(pulumi.ComponentResource):
    """The runners' namespace with its isolation, ARC's controller and scale set, and a build service if configured."""

    provider: k8s.Provider
    """The provider of the cluster."""

    scale_set: str
    """The value of ``runs-on`` in a workflow."""

    outputs: dict[str, Any]
    """The stack's outputs of its runners."""

    def __init__(self, name: str, args: KubernetesRunnersArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        config = args.config
        inputs = config.model_dump(mode="json", by_alias=True, exclude={"github": {"app", "token"}}, exclude_none=True)
        super().__init__("slipway:runners:KubernetesRunners", name, inputs, opts)
        self._name, self._config = name, config
        options = pulumi.ResourceOptions(parent=self, delete_before_replace=True)
        self.provider = _cluster(name, config, options)
        options = pulumi.ResourceOptions(parent=self, provider=self.provider)
        self._opts = pulumi.ResourceOptions.merge(options, mending(config, self.provider))
        self.scale_set = config.namespace
        self._shared: dict[str, pulumi.CustomResource] = {}
        ports = [*args.ports, *config.extra_ports]
        spaces = (config.namespace, config.jobs_namespace)
        of_runners, of_jobs = (isolation.authority(config, space, args.authority) for space in spaces)
        self._guards = self._guarded(
            isolation.namespace(config),
            isolation.quota(config),
            isolation.limit_range(config, config.namespace),
            isolation.service_account(config),
            *isolation.network_policies(config, isolation.ports(config, ports), config.namespace),
            isolation.disruption_budget(config, config.namespace),
            isolation.builds_priority(config),
            *of_runners.values(),
        )
        claims = [] if config.job_pods else isolation.gpu_claims(config, config.namespace)
        self._guards += [self._declare(each, *self._guards) for each in claims]
        if config.job_pods:
            around = [*job_pods.guarded(config, ports), *of_jobs.values()]
            self._guards += self._guarded(job_pods.namespace(config), *around)
        self._daemons: list[_Daemon] = []
        self._clients: list[pulumi.CustomResource] = []
        client = None
        if config.build:
            # The key gives root over all builds there.
            client = build_service.client(config, config.build) if config.build.jobs else None
            self._build_service(args, ports)
        if config.job_pods:
            self._guards += [
                self._declare(
                    job_pods.files(own, client, args.mirrored(own.docker_image), "".join(of_jobs)), *self._guards
                )
                for own in config.all_sets
            ]
        of_runner = None if config.job_pods else client
        before = self._around(args)
        running = [] if config.arc.controller else [self._controller(args, before)]
        for own in config.all_sets:
            template = pod.template(own, args.mirrored(own.image), args.mirrored(own.docker_image), of_runner)
            template["spec"] = pod.trusting(template["spec"], "".join(of_runners))
            self._scale_set(own, template, running, before)
        of_service = [daemon.address for daemon in self._daemons]
        self.outputs = {
            "kind": config.kind,
            "namespace": config.namespace,
            **(
                {"scaleSets": [own.scale_set for own in config.all_sets]}
                if config.sets
                else {"scaleSet": self.scale_set}
            ),
            **({"reservations": args.reservations} if args.reservations else {}),
            **({"buildService": of_service[0]} if of_service else {}),
            **({"buildServices": of_service} if len(of_service) > 1 else {}),
        }
        self.register_outputs(self.outputs)

    def _declare(self, manifest: Manifest, *after: pulumi.Resource) -> pulumi.CustomResource:
        options = pulumi.ResourceOptions(depends_on=list(after))
        declared = declare(self._name, manifest, pulumi.ResourceOptions.merge(self._opts, options))
        if manifest["kind"] == "ResourceClaim":
            self._shared[manifest["metadata"]["name"]] = declared
        return declared

    def _guarded(self, namespace: Manifest, *around: Manifest) -> list[pulumi.CustomResource]:
        """Declare a namespace and the isolation of its pods; return the latter."""
        declared = self._declare(namespace)
        return [self._declare(manifest, declared) for manifest in around]

    def _around(self, args: KubernetesRunnersArgs) -> list[pulumi.CustomResource]:
        """Declare the controller's needs, and the jobs beside it from time to time; return all that comes first."""
        config = self._config
        policies = []
        if config.has_controller_namespace:
            policies = self._guarded(isolation.controller_namespace(config), *isolation.controller_policies(config))
        if config.job_pods:
            of_sweeper = job_pods.sweeper(config, args.mirrored(config.image))
            policies += [self._declare(each, *self._guards, *policies) for each in of_sweeper]
        of_minimum = minimum.minimum(config, args.mirrored(config.image))
        policies += [self._declare(each, *self._guards, *policies) for each in of_minimum]
        after = [*self._guards, *self._clients, *policies]
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
        return after

    def _controller(self, args: KubernetesRunnersArgs, after: Sequence[pulumi.CustomResource]) -> k8s.helm.v3.Release:
        """Declare the controller in its namespace. The runners follow it, so that they are deleted before it."""
        config = self._config
        controller, _ = arc.charts(config)
        image = Reference.of(args.mirrored(f"{arc.IMAGE}:{config.arc.version}"))
        values = arc.controller_values(config, image.repository)
        name = posixpath.basename(controller)
        options = pulumi.ResourceOptions(depends_on=after, replacement_trigger=arc.generation(config))
        return self._chart(name, controller, config.controller_namespace, "controller", values, options)

    def _scale_set(
        self, own: Config, template: pod.Spec, running: Sequence[pulumi.Resource], before: Sequence[pulumi.Resource]
    ) -> None:
        """Declare the scale set of a set's runners, after the stack's controller if it has one.

        It is made anew with the claim that its jobs share, and so goes before that: while a pod has the claim, this
        stays (Kubernetes, "Dynamic Resource Allocation").
        """
        _, chart = arc.charts(own)
        values = arc.scale_set_values(own, template)
        name = own.named(posixpath.basename(chart))
        shared = self._shared.get(own.named(pod.CLAIM))
        options = pulumi.ResourceOptions(
            depends_on=[*(running or before)],
            replacement_trigger=arc.trigger(own, values),
            replace_with=[*running, *([shared] if shared else [])],
        )
        self._chart(name, chart, own.namespace, own.scale_set, values, options, 60 * own.grace + _LEEWAY)

    def _chart(
        self,
        resource: str,
        chart: str,
        namespace: str,
        name: str,
        values: arc.Values,
        options: pulumi.ResourceOptions,
        seconds: int | None = None,
    ) -> k8s.helm.v3.Release:
        """Declare a Helm release. Its deletion is awaited, because ARC has to clean up first.

        Where it is made anew, it is deleted before. ARC ends a scale set once its runners' jobs are over: their time is
        the release's, too. A deletion that is given up cannot be repeated, as Helm forgets the release (v3.20.2,
        pkg/action/uninstall.go). A release made meanwhile would take the objects that are about to go.
        """
        own = pulumi.ResourceOptions.merge(options, pulumi.ResourceOptions(delete_before_replace=True))
        return k8s.helm.v3.Release(
            f"{self._name}-{resource}",
            chart=chart,
            version=None if self._config.arc.charts else self._config.arc.version,
            name=name,
            namespace=namespace,
            values=values,
            timeout=seconds,
            opts=pulumi.ResourceOptions.merge(self._opts, own),
        )

    def _build_service(self, args: KubernetesRunnersArgs, ports: Sequence[int]) -> None:
        config, build = self._config, self._config.build
        assert build is not None  # noqa: S101 - asked for by the caller
        # Each replica has its own: an authority whose key is gone signs nothing for one that comes later.
        certificates = [
            Certificates(
                replica.named(f"{self._name}-certificates"),
                CertificatesArgs(build_service.hosts(config, replica), build.jobs),
                pulumi.ResourceOptions(parent=self),
            )
            for replica in config.replicas
        ]
        # Declared first so that they are deleted last: a running build needs its certificate and its policy.
        clients = (
            build_service.secret(config, certificates[0].pem, "client", config.replicas[0]),
            build_service.clients_policy(config, build),
        )
        self._clients = [self._declare(each, *self._guards) for each in clients if build.jobs]
        trust = isolation.authority(config, config.build_namespace, args.authority)
        trusted = ("".join(trust), _digest(args.authority) if trust else "")
        around = [*build_service.guarded(config, build, ports), *trust.values()]
        policies = self._guarded(build_service.namespace(config), *around)
        image = args.mirrored(build_daemon.BUILDKIT if build.rootless else config.docker_image)
        for replica, own in zip(config.replicas, certificates, strict=True):
            objects = [
                build_service.secret(config, own.pem, "server", replica),
                build_daemon.claim(config, build, replica),
                build_daemon.service(config, build, replica),
                build_daemon.disruption_budget(config, replica),
            ]
            # The priority class is among the runners' guards.
            before = [*self._clients, *(self._declare(each, *policies, *self._guards) for each in objects)]
            if replica.number == 0:
                trial = self._declare(build_daemon.trial(config, build, image, replica), *policies, *self._guards)
            daemon = build_daemon.deployment(config, build, image, own.server_cert.apply(_digest), replica, trusted)
            address = build_service.address(config, build, replica)
            tls = {"ca": own.ca, "cert": own.client_cert, "key": own.pem["client_key"]}
            self._daemons.append(_Daemon(replica, address, tls, self._declare(daemon, *before, trial)))

    @property
    def platforms(self) -> list[str]:
        """The platforms of the build service's daemons, the runners' first."""
        return list(dict.fromkeys(daemon.replica.platform for daemon in self._daemons))

    def reached_engine(self, platform: str, shared: str) -> ReachedEngine:
        """Return how this machine reaches the build service for a platform; ``shared`` is as of :meth:`engine`.

        Raises:
            ValueError: there is none.
        """
        daemons = self._of(platform)
        return (
            ReachedEngine(f"tcp://{daemons[0].address}", tls=daemons[0].tls)
            if len(daemons) == 1
            else ReachedEngine(shared)
        )

    def engine(self, platform: str, shared: str, replicas: Replicas | None = None) -> docker.Provider:
        """Return the build service as a Docker engine for a platform's images, which waits until it answers.

        Args:
            platform: one of the service's.
            shared: the address of its replicas as one engine, if it has several.
            replicas: they serve this address, and learn their certificates; None in a preview.

        Raises:
            ValueError: there is no build service with a Docker API.
        """
        reached = self.reached_engine(platform, shared)
        ready = []
        for daemon in self._of(platform):
            readiness = EngineReadiness(
                daemon.replica.named(f"{self._name}-build-service"),
                EngineReadinessArgs(daemon.address, **daemon.tls),
                pulumi.ResourceOptions(parent=self, depends_on=[daemon.service]),
            )
            ready.append(readiness)
            if replicas:
                name = build_service.full_name(self._config, daemon.replica)
                pulumi.Output.all(**daemon.tls).apply(partial(replicas.learn, name))
        other = "" if platform == self._config.platform else f"-{architecture(platform)}"
        arguments = {
            "host": reached.host,
            "ca_material": reached.tls.get("ca"),
            "cert_material": reached.tls.get("cert"),
            "key_material": reached.tls.get("key"),
            "disable_docker_daemon_check": True,  # a preview needs no daemon
        }
        return docker.Provider(
            f"{self._name}-engine{other}",
            **{**provider_arguments.of(docker.Provider), **arguments},
            opts=pulumi.ResourceOptions(parent=self, depends_on=ready),
        )

    def _of(self, platform: str) -> list[_Daemon]:
        daemons = [daemon for daemon in self._daemons if daemon.replica.platform == platform]
        if not daemons:
            raise ValueError(f"the runners have no build service for {platform}")
        return daemons

    def validate(
        self,
        image: pulumi.Input[str],
        after: Sequence[pulumi.Resource],
        checks: Mapping[str, str] | None = None,
        login: tuple[str, PushLogin] | None = None,
    ) -> dict[str, Any]:
        """Declare the GPU checks of an image and return their result. A failed check fails the update.

        Args:
            image: the image's reference.
            after: the resources that publish the image.
            checks: the image's own checks, Python scripts by name, for a configuration without a command.
            login: the image's registry and a login that may pull; None if the nodes or anybody may.

        Raises:
            ValueError: the configuration has no validation.
        """
        validation = self._config.validation
        if validation is None:
            raise ValueError("the configuration has no validation")
        job = gpu_validation.job(self._config, validation, checks, private=login is not None)
        around = [
            gpu_validation.disruption_budget(self._config),
            *isolation.own_claim(self._config, gpu_validation.NAME),
        ]
        before = [self._declare(each, *self._guards) for each in around]
        if checks:
            before.append(self._declare(gpu_validation.scripts(self._config, checks), *self._guards))
        if login:
            before.append(self._login(*login))
        container = job["spec"]["template"]["spec"]["containers"][0]
        container |= {"image": image, "env": gpu_validation.environment(self._config, image)}
        declared: Any = self._declare(job, *self._guards, *before, *after)
        return {"image": image, "passed": declared.status.apply(lambda status: bool(status and status.succeeded))}

    def _login(self, server: str, login: PushLogin) -> pulumi.CustomResource:
        content = pulumi.Output.all(login.username, login.password).apply(
            lambda pair: gpu_validation.login(server, *pair)
        )
        secret = isolation.manifest(
            "v1",
            "Secret",
            gpu_validation.NAME,
            self._config.namespace,
            type="kubernetes.io/dockerconfigjson",
            stringData=pulumi.Output.secret(content),
        )
        return self._declare(secret, *self._guards)
