"""``Published``: what a registry has of a build product already, so that it is taken from there and not built again."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pulumi
from pulumi.dynamic import ReadResult, Resource

from components.action import OfImage, login_inputs
from components.registry.interface import Login
from stacks.config.signing import Signer
from stacks.errors import SlipwayError

if TYPE_CHECKING:
    from oci import client


_ONLY_THE_ENGINE: Final = (
    " (where only the Docker engine knows the way: set HTTPS_PROXY here too, or name the port of a registry that "
    "speaks plain HTTP)"
)


@dataclass(frozen=True)
class PublishedArgs:
    """The product, ``repository:tag``, and who may pull it; without a login, what the machine's own may, or anybody.

    ``needed`` says that the registry must answer, as what is built is pushed there from here. ``signer`` is whose
    signature the product must have, if anybody's.
    """

    ref: str
    login: Login
    needed: bool
    signer: Signer | None


class _Asking(OfImage):
    followed = ("ref", "signer")

    def done(self, props: Mapping[str, Any], login: client.Login | None) -> dict[str, Any]:
        from oci.client import Unreachable, Untrusted  # noqa: PLC0415 - as above
        from oci.cosign import Unsigned  # noqa: PLC0415 - a preview asks nobody

        try:
            return {"found": _found(props, login)}
        except SlipwayError as error:
            # An engine is told apart from this machine whom to trust.
            if props["needed"] and not isinstance(error, Unsigned | Untrusted):
                hint = _ONLY_THE_ENGINE if isinstance(error, Unreachable) else ""
                raise SlipwayError(f"{error}; nothing is built that could not be pushed there{hint}") from None
            # A provider has no other way to the user than what it prints.
            sys.stderr.write(f"warning: {error}; this build product is built anew\n")
        return {"found": ""}

    def read(self, id_: str, props: dict[str, Any]) -> ReadResult:
        """Forget what has been deleted since, and find what has been pushed since, as by an update that broke off.

        Only the machine's own login is at hand here: what that may not see is left as it is. Whose signature counts is
        as it was when this was last asked; with another signer the next update asks anew.
        """
        from oci.client import Repository  # noqa: PLC0415

        found = props.get("found")
        with suppress(SlipwayError):
            if not found:
                props = props | {"found": _found(props, None)}
            elif not Repository(found).exists():
                props = props | {"found": ""}
        return ReadResult(id_, props)


def _found(props: Mapping[str, Any], login: client.Login | None) -> str:
    """Return what the registry has of a product, by digest.

    Raises:
        Unsigned: it is not signed as it must be.
        SlipwayError: that cannot be asked.
    """
    from oci import cosign  # noqa: PLC0415 - as above
    from oci.client import Repository  # noqa: PLC0415

    digest = Repository(props["ref"], login).found()
    if not digest:
        return ""
    found = f"{props['ref'].rpartition(':')[0]}@{digest}"
    if signer := props.get("signer"):
        cosign.verify(found, Signer.model_validate(signer), login)
    return found


class Published(Resource, module="image", name="Published"):
    """Asks the registry, once for each tag of a product: the tag is its content, so what is there need not be made.

    The answer is kept in the state, where the next preview finds it without a registry. Other credentials are no
    change; another signer is one, as what was taken before must be signed by it. ``pulumi refresh`` asks again.
    """

    found: pulumi.Output[str]
    """``repository@sha256:...``, or nothing where the registry has none, or none for us or that is signed as asked."""

    def __init__(self, name: str, args: PublishedArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        signer = args.signer and args.signer.as_signer()
        inputs = {"ref": args.ref, "needed": args.needed, "signer": signer, "found": None, **login_inputs(args.login)}
        super().__init__(_Asking(), name, inputs, opts)
