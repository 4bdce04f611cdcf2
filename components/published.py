"""``Published``: what a registry has of a build product already, so that it is taken from there and not built again."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pulumi
from pulumi.dynamic import ReadResult, Resource

from components.following import OfImage, login_inputs
from components.registry import Login
from stacks.errors import SlipwayError

if TYPE_CHECKING:
    from stacks import registry


@dataclass(frozen=True)
class PublishedArgs:
    """The product, ``repository:tag``, and who may pull it; without a login, what the machine's own may, or anybody."""

    ref: str
    login: Login


class _Asking(OfImage):
    def done(self, props: Mapping[str, Any], login: registry.Login | None) -> dict[str, Any]:
        from stacks.registry import Repository  # noqa: PLC0415 - a preview asks nobody

        digest = Repository(props["ref"], login).found()
        return {"found": f"{props['ref'].rpartition(':')[0]}@{digest}" if digest else ""}

    def read(self, id_: str, props: dict[str, Any]) -> ReadResult:
        """Forget what has been deleted since, and find what has been pushed since, as by an update that broke off.

        Only the machine's own login is at hand here: what that may not see is left as it is.
        """
        from stacks.registry import Repository  # noqa: PLC0415

        found = props.get("found")
        with suppress(SlipwayError):
            if not found:
                props = props | self.done(props, None)
            elif not Repository(found).exists():
                props = props | {"found": ""}
        return ReadResult(id_, props)


class Published(Resource, module="image", name="Published"):
    """Asks the registry, once for each tag of a product: the tag is its content, so what is there need not be made.

    The answer is kept in the state, where the next preview finds it without a registry. Other credentials are no
    change, and ``pulumi refresh`` asks again.
    """

    found: pulumi.Output[str]
    """``repository@sha256:...``, or nothing where the registry has none or does not let us see it."""

    def __init__(self, name: str, args: PublishedArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(_Asking(), name, {"ref": args.ref, "found": None, **login_inputs(args.login)}, opts)
