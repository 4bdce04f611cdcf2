"""``kind: ecr``: repositories in Amazon's registry, and short-lived tokens for them.

Only stacks that push there import it: loading ``pulumi_aws`` takes seconds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pulumi
import pulumi_aws as aws
from pulumi.runtime import invoke_async

from components import provider_arguments
from components.registry import aws_environment
from components.registry.interface import PushLogin, Registry, RegistryArgs
from components.supply_chain.extra_tag import ExtraTag, ExtraTagArgs
from containers.errors import one_line
from containers.registry.reference import Reference
from stacks.config.registries import ecr
from stacks.config.stack_config import StackConfig
from stacks.plan import Plan
from stacks.tags import KEEP, UNCHECKED

ATTACHED = "sha256-"
"""Prefix of the tags under which cosign stores the signatures and attestations of a digest."""


_OF_PRODUCTS = ("x*-*", f"{UNCHECKED}*", f"{ATTACHED}*")
"""Products' own tags (``stacks.tags``), that of one whose checks have not passed yet, and those of signatures. They may
move: two stacks that build a product push the same tag, with other times in the layers. So a product counts by its
signature alone (``published_product``), and is named by its digest."""


def immutable(moving: Sequence[str]) -> dict[str, Any]:
    """Return a repository's tag settings: immutable, but for the tags that ``moving`` matches."""
    return {
        "image_tag_mutability": "IMMUTABLE_WITH_EXCLUSION",
        "image_tag_mutability_exclusion_filters": [{"filter": each, "filter_type": "WILDCARD"} for each in moving],
    }


_LOGINS = {"access_key", "profile", "shared_config_files", "shared_credentials_files"}
"""Settings of the provider with which it has credentials."""

_TOKEN = "aws:ecr/getAuthorizationToken:getAuthorizationToken"  # noqa: S105 - a function's name

_MOST_KEPT = 1000
"""Tags with a kept prefix that a repository may have: one for each stack, and the newest signatures."""

_DOCKER_HUB = {"docker.io": "registry-1.docker.io"}
"""Hosts at which ECR reaches a registry, where they differ from the host in its images' names."""


@dataclass(frozen=True, kw_only=True)
class EcrRegistryArgs(RegistryArgs):
    """The arguments of an :class:`EcrRegistry`.

    ``repository`` is in the registry of ``account`` and ``region``. Each of ``images`` and ``products`` gets a
    repository, unless ``create`` is false; they map its name to the number of manifests that a new version pushes
    there. ``stack`` names the tag that keeps its images. ``moving`` are patterns of further mutable tags, with ``*``
    for any characters. ``caches`` maps each registry to pull through to the prefix of its repositories and the ARN of
    a secret to log in with. ``signed`` is false without AWS credentials on the machine; a preview needs none.
    """

    account: str
    region: str
    stack: str
    images: Mapping[str, int]
    products: Mapping[str, int] = field(default_factory=dict)
    moving: Sequence[str] = ()
    create: bool = True
    keep_newest: int = 30
    kms_key: str | None = None
    force_delete: bool = False
    caches: Mapping[str, tuple[str, str | None]] = field(default_factory=dict)
    signed: bool = True


class EcrRegistry(Registry):
    """Amazon's registry: a repository for each image, immutable tags, scans, encryption and a lifecycle policy.

    A stack that pushes nothing has none of these, no AWS provider and no token.
    """

    def __init__(self, name: str, args: EcrRegistryArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        self._args = args
        self._name = name
        self._repositories: list[pulumi.Output[str]] = []
        super().__init__(name, args, opts)

    def _declare(self) -> None:
        """Declare the AWS provider, which refuses credentials of another account, the repositories and the caches."""
        args = self._args
        if not args.publish:
            return
        settings = provider_arguments.of(aws.Provider)
        signed = args.signed or bool(_LOGINS & settings.keys())
        account: dict[str, Any] = {"allowed_account_ids": [args.account]} if signed else _unsigned()
        arguments = {**settings, "region": args.region, **account}
        provider = aws.Provider(f"{self._name}-aws", **arguments, opts=pulumi.ResourceOptions(parent=self))
        self._provider = provider
        self._opts = pulumi.ResourceOptions(parent=self, provider=provider)
        if args.create:
            for image, manifests in args.images.items():
                self._repository(image, immutable((f"{KEEP}*", *args.moving)), manifests)
            for product, manifests in args.products.items():
                self._repository(product, immutable(_OF_PRODUCTS), manifests)
            for upstream, (prefix, credential) in args.caches.items():
                aws.ecr.PullThroughCacheRule(
                    f"{self._name}-{prefix}",
                    ecr_repository_prefix=prefix,
                    upstream_registry_url=_DOCKER_HUB.get(upstream, upstream),
                    credential_arn=credential,
                    # ECR refuses a second rule for a prefix: that for another registry takes the place of the first.
                    opts=pulumi.ResourceOptions.merge(self._opts, pulumi.ResourceOptions(delete_before_replace=True)),
                )

    def login(self, after: Sequence[pulumi.Input[str]]) -> PushLogin:
        """Return a token, valid 12 hours, that is requested once ``after`` is known; none at a preview."""
        if not self.publish or pulumi.runtime.is_dry_run():
            return PushLogin()
        token: pulumi.Output[Mapping[str, str]] = pulumi.Output.all(*after, *self._repositories).apply(self._token)
        return PushLogin(token["userName"], pulumi.Output.secret(token["password"]))

    def keep(self, name: str, ref: pulumi.Output[str], parent: pulumi.Resource) -> None:
        """Tag an exported digest with the stack's tag, which the lifecycle policy keeps."""
        if not self.publish:
            return
        # Requested after the push: an earlier token may have expired during the build.
        tag = ExtraTagArgs(ref=ref, tag=f"{KEEP}{self._args.stack}", login=self.login([ref]))
        ExtraTag(f"{name}-keep", tag, pulumi.ResourceOptions(parent=parent))

    async def _token(self, _: Sequence[object]) -> Mapping[str, str]:
        """Request a token from AWS. The SDK's function would end the program with a traceback where AWS refuses."""
        options = pulumi.InvokeOptions(provider=self._provider)
        try:
            token: Mapping[str, str] = await invoke_async(_TOKEN, {"registryId": self._args.account}, options)
        except Exception as error:  # the SDK's, for whatever the provider says
            reason = " ".join(str(error).rpartition("returned an error: ")[2].split())
            raise pulumi.RunError(f"slipway:registry: {self.server}: no token: {one_line(reason, 400)}") from None
        names = ("userName", "password")
        if not isinstance(token, Mapping) or not all(isinstance(token.get(name), str) for name in names):
            raise pulumi.RunError(f"slipway:registry: {self.server}: no token: AWS's answer has no user and password")
        return {name: token[name] for name in names}

    def _repository(self, image: str, mutability: Mapping[str, Any], manifests: int) -> None:
        args = self._args
        policy = lifecycle(args.keep_newest, manifests, signed=f"{ATTACHED}*" in args.moving)
        repository = aws.ecr.Repository(
            f"{self._name}-{image}",
            name=f"{Reference(args.repository).path}/{image}",
            **mutability,
            image_scanning_configuration={"scan_on_push": True},
            encryption_configurations=[
                {"encryption_type": "KMS", "kms_key": args.kms_key} if args.kms_key else {"encryption_type": "AES256"}
            ],
            force_delete=args.force_delete,
            opts=self._opts,
        )
        self._repositories.append(repository.id)
        aws.ecr.LifecyclePolicy(
            f"{self._name}-{image}", repository=repository.name, policy=json.dumps(policy), opts=self._opts
        )


def lifecycle(newest: int, manifests: int = 1, *, signed: bool = False) -> dict[str, Any]:
    """Return the policy that keeps exported images, with ``signed`` their signatures, and the ``newest`` others.

    A rule with a limit that is never reached protects its images from all later rules: "an image that matches the
    tagging requirements of a higher priority rule cannot be expired by a rule with a lower priority" (ECR user guide,
    lifecycle policies). A rule for ``any`` must come last. It counts all manifests, with those that it may not expire
    (there, examples, "Filtering on all images", B); a version of an image has ``manifests`` of them.

    Platforms' images need no rule. "If an image is referenced by a manifest list, it cannot be expired or archived
    without the manifest list being deleted or archived first" (there). They are pushed before the index that names
    them, so they are past the count when it is, and expire with it.
    """
    descriptions = {KEEP: "Keep what a stack exports."}  # and its newest warm image
    if signed:
        descriptions[ATTACHED] = "Keep signatures and attestations."
    rules = [
        _rule(description, {"tagStatus": "tagged", "tagPrefixList": [prefix]}, _MOST_KEPT)
        for prefix, description in descriptions.items()
    ]
    of_each = f", of {manifests} manifests each" if manifests > 1 else ""
    rules.append(_rule(f"Keep the newest {newest}{of_each}.", {"tagStatus": "any"}, newest * manifests))
    return {"rules": [{"rulePriority": number, **rule} for number, rule in enumerate(rules, 1)]}


def _rule(description: str, selection: Mapping[str, Any], most: int) -> dict[str, Any]:
    return {
        "description": description,
        "selection": {**selection, "countType": "imageCountMoreThan", "countNumber": most},
        "action": {"type": "expire"},
    }


def _unsigned() -> dict[str, Any]:
    """Return the provider's settings for a preview without credentials, which calls no AWS API.

    The provider does not start without credentials (pulumi-aws #4076), so it gets a pair without any rights.
    """
    return {
        "access_key": "preview",
        "secret_key": "preview",
        "skip_credentials_validation": True,
        "skip_metadata_api_check": True,
        "skip_requesting_account_id": True,
    }


def manifests(plan: Plan, *, product: bool) -> dict[str, int]:
    """Return how many manifests a new version pushes to each repository of products, or of images that are run.

    These are the images of all platforms, their index, the signature and attestations of each, and a warm image of
    each where the stack makes such. A repository is known by the last part of its name.
    """
    repositories: dict[str, int] = {}
    for image in plan.images:
        if image.spec.product == product:
            name = image.spec.published_name
            attestations = 0 if product else _attestations(plan.config, checked=image.content.checks is not None)
            # A warm image has a signature and an attestation of its own.
            warm = 0 if product or not plan.config.warm else 3 if plan.config.signing else 1
            repositories[name] = repositories.get(name, 0) + 1 + bool(plan.config.signing) + attestations + warm
    for name in () if product else plan.indexes:
        repositories[name] += 1 + bool(plan.config.signing)
    return repositories


def _attestations(config: StackConfig, *, checked: bool) -> int:
    """Return how many attestations cosign pushes for an image.

    Each replaces the manifest of those before it, which stays without a tag.
    """
    signing, vulnerabilities = config.signing, config.vulnerabilities
    if not signing:
        return 0
    inspected, scanned = checked and config.inspection.gate, checked and vulnerabilities
    exceptions = vulnerabilities and vulnerabilities.exceptions
    return sum(map(bool, (signing.sbom, signing.provenance, inspected, scanned, exceptions)))


def declare(plan: Plan) -> Registry:
    """Declare the registry of a plan, which is in ECR."""
    config = plan.config.registry
    assert isinstance(config, ecr.EcrRegistryConfig)  # noqa: S101 - the kind of registry chose this module
    return EcrRegistry(
        "registry",
        EcrRegistryArgs(
            repository=config.repository,
            publish=plan.config.publish,
            account=config.account,
            region=config.region,
            stack=plan.stack,
            images=manifests(plan, product=False),
            products=manifests(plan, product=True),
            create=config.create,
            keep_newest=config.keep_newest,
            kms_key=config.kms_key,
            force_delete=config.force_delete,
            caches={
                name: (prefix, config.pull_through_cache[name].credential) for name, prefix in config.prefixes.items()
            },
            signed=not pulumi.runtime.is_dry_run() or aws_environment.signed(),
            moving=[
                *([f"{ATTACHED}*"] if plan.config.signing else []),
                *(f"*{tag}" for tag in plan.config.extra_tags),
                *(plan.config.promotion.tags if plan.config.promotion else ()),
            ],
        ),
    )
