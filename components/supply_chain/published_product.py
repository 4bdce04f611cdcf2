"""``Published``: a build product in the registry, reused instead of built."""

from __future__ import annotations

import posixpath
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pulumi
from pulumi.dynamic import CheckResult, ReadResult, Resource

from components.action import ImageAction, login_inputs
from components.registry.interface import PushLogin
from containers.errors import SlipwayError
from containers.registry.reference import Reference

if TYPE_CHECKING:
    from containers.registry import credentials
    from stacks.config.signing import SignerConfig


_ONLY_THE_ENGINE: Final = (
    " (where only the Docker engine knows the way: set HTTPS_PROXY here too, or name the port of a registry that "
    "speaks plain HTTP)"
)


@dataclass(frozen=True)
class PublishedArgs:
    """The product as ``repository:tag``, and the login that may pull it; without one, the machine's own or none.

    ``needed``: the registry must answer, because new products are pushed there from this machine. ``signer``: the
    product counts only with this signer's signature, which states the ``annotations``. ``trusted``: without a signer,
    whatever has the product's tag counts.
    """

    ref: str
    login: PushLogin
    needed: bool
    signer: SignerConfig | None
    trusted: bool
    annotations: Mapping[str, str]


_announced: set[str] = set()
"""The registries whose products this process said to be built; it serves all resources of one preview or update."""


class FindPublished(ImageAction):
    """Looks a product up in the registry.

    A tag is no proof of content: whoever may push can move it. A product counts if the signer stated this tag and
    fingerprint of it, or if the registry is trusted. One that is in the state already is bound by its digest.
    """

    triggers = ("ref", "signer", "annotations", "trusted")

    def check(self, olds: dict[str, Any], news: dict[str, Any]) -> CheckResult:
        """Say once, in previews too, that products are built because none in the registry would count."""
        repository = posixpath.dirname(Reference.of(news["ref"]).repository)
        if not _counts(news) and olds.get("ref") != news["ref"] and repository not in _announced:
            _announced.add(repository)
            sys.stderr.write(
                f"build products are built and not taken from {repository}, where others may push: set "
                "slipway:signing, or slipway:trustRegistry: true\n"
            )
        return CheckResult(news, [])

    def run_as(self, props: Mapping[str, Any], login: credentials.Login | None) -> dict[str, Any]:
        """Return the product by digest, or an empty reference if the registry has none that counts."""
        from containers.evidence.cosign import Unsigned
        from containers.registry.transport import RegistryUnreachable, Untrusted

        if not _counts(props) and not props["needed"]:
            return {"found": ""}
        try:
            return {"found": _by_digest(props, login)}
        except SlipwayError as error:
            # The engine may trust a certificate that this machine does not.
            if props["needed"] and not isinstance(error, Unsigned | Untrusted):
                hint = _ONLY_THE_ENGINE if isinstance(error, RegistryUnreachable) else ""
                raise SlipwayError(f"{error}; nothing is built that could not be pushed there{hint}") from None
            # Standard error is the only way from a provider to the user.
            sys.stderr.write(f"warning: {error}; this build product is built anew\n")
        return {"found": ""}

    def read(self, id_: str, props: dict[str, Any]) -> ReadResult:
        """Drop a deleted product, and find one pushed since, say by an interrupted update.

        A refresh has only the machine's own login. A product that this login may not see stays as it is. The signer is
        that of the last update; with another signer, the next update looks the product up again.
        """
        from containers.registry.client import Repository

        reference = props.get("found")
        with suppress(SlipwayError):
            if not reference:
                props = props | {"found": _by_digest(props, None)}
            elif not Repository(reference).exists():
                props = props | {"found": ""}
        return ReadResult(id_, props)


def _counts(props: Mapping[str, Any]) -> bool:
    """Return whether any product in the registry may count."""
    return bool(props["annotations"] if props.get("signer") else props["trusted"])


def _by_digest(props: Mapping[str, Any], login: credentials.Login | None) -> str:
    """Return the reference by digest of the product in the registry; empty if there is none that counts.

    Raises:
        Unsigned: the signer's signature is missing.
        SlipwayError: the registry gives no answer.
    """
    from containers.evidence import cosign
    from containers.registry.client import Repository
    from containers.registry.credentials import of_machine
    from stacks.config.signing import SignerConfig

    repository = Repository(props["ref"], login)
    if login is None and not props.get("signer"):
        try:
            # The helper of the registry of `make up` fails if another user has taken its port meanwhile.
            of_machine(repository.host)
        except ValueError as error:
            raise SlipwayError(f"{props['ref']}: {error}") from None
    digest = repository.visible_digest()
    if not digest or not _counts(props):
        return ""
    reference = str(Reference.of(props["ref"]).at(digest))
    if signer := props.get("signer"):
        cosign.verify(reference, SignerConfig.model_validate(signer), login, props["annotations"])
    return reference


class Published(Resource, module="image", name="Published"):
    """A product's reference in the registry, looked up once per tag: equal tags mean equal content.

    The state keeps the answer, so that the next preview needs no registry. Another login changes nothing. Another
    signer looks the product up again, because that signer must have signed it. ``pulumi refresh`` does so too.
    """

    found: pulumi.Output[str]
    """``repository@sha256:...``; empty if the registry has no such product, or none that is readable and signed."""

    def __init__(self, name: str, args: PublishedArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        signer = args.signer and args.signer.as_signer()
        inputs = {
            "ref": args.ref,
            "needed": args.needed,
            "signer": signer,
            "annotations": args.annotations,
            "trusted": args.trusted,
            "found": None,
            **login_inputs(args.login),
        }
        super().__init__(FindPublished(), name, inputs, opts)
