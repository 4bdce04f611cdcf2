"""``VerifiedParent``: a parent image from elsewhere by digest, with a verified signature where one is needed."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pulumi
from pulumi.dynamic import ReadResult, Resource

from components.action import ImageAction, login_inputs
from components.registry.interface import PushLogin
from containers.errors import SlipwayError
from containers.registry.reference import Reference

if TYPE_CHECKING:
    from containers.registry import credentials
    from stacks.config.signing import SignerConfig


@dataclass(frozen=True)
class VerifiedParentArgs:
    """An image, its required signer if any, the login that may pull it, and the annotations of its signature.

    An image from outside is named by digest, and one of another stack by its published tag.
    """

    ref: str
    signer: SignerConfig | None
    login: PushLogin
    annotations: Mapping[str, str] = field(default_factory=dict)


class VerifyParent(ImageAction):
    """Finds the digest of an image, and verifies that it has a signature of the signer."""

    triggers = ("ref", "signer", "annotations")

    def run_as(self, props: Mapping[str, Any], login: credentials.Login | None) -> dict[str, Any]:
        """Verify the signature; return the pulled reference and its signer.

        Raises SlipwayError: the registry has no such image, gives no answer, or the signature is missing.
        """
        from containers.registry.transport import RegistryUnreachable
        from stacks.config.signing import SignerConfig

        try:
            pulled = _pulled(props["ref"], login)
        except RegistryUnreachable:
            if props.get("signer"):
                raise
            pulled = props["ref"]  # only the Docker engine reaches the registry
        if not props.get("signer"):
            return {"by": None, "pulled": pulled}
        from containers.evidence import cosign

        signer = SignerConfig.model_validate(props["signer"])
        cosign.verify(pulled, signer, login, props.get("annotations") or {})
        return {"by": signer.who, "pulled": pulled}

    def read(self, id_: str, props: dict[str, Any]) -> ReadResult:
        """Forget an image whose tag has moved: the next update finds and verifies the present one.

        A refresh has only the machine's own login. What this may not see stays as it is.
        """
        with suppress(SlipwayError):
            if "pulled" in props and _pulled(props["ref"], None) != props["pulled"]:
                props = props | {"ref": ""}
        return ReadResult(id_, props)


def _pulled(ref: str, login: credentials.Login | None) -> str:
    """Return the reference by digest of an image.

    Raises SlipwayError: the registry does not have it, or gives no answer.
    """
    if Reference.of(ref).digest:
        return ref
    from containers.registry.client import Repository

    digest = Repository(ref, login).visible_digest()
    if not digest:
        raise SlipwayError(f"{ref}: not in the registry any more: publish its stack again with `slipway up`")
    return str(Reference.of(ref).at(digest))


class VerifiedParent(Resource, module="image", name="VerifiedParent"):
    """A parent from elsewhere. Images on this parent are built only after its verification.

    The state keeps the digest, so that a preview needs no registry. A tag of another stack is looked up once: equal
    tags mean equal content. ``pulumi refresh`` looks it up again.
    """

    by: pulumi.Output[str]
    """The signer, in words; None where no signature is needed."""

    pulled: pulumi.Output[str]
    """The image by digest."""

    def __init__(self, name: str, args: VerifiedParentArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        inputs = {
            "ref": args.ref,
            "signer": args.signer and args.signer.as_signer(),
            "annotations": dict(args.annotations),
            "by": None,
            "pulled": None,
            **login_inputs(args.login),
        }
        super().__init__(VerifyParent(), name, inputs, opts)
