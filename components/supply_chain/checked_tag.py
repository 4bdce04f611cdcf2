"""``CheckedTag``: the tag of a pushed image, which it gets after its checks passed and everything in it loads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pulumi
from pulumi.dynamic import Resource

from components.action import login_inputs
from components.registry.interface import PushLogin
from components.supply_chain.extra_tag import TagImage
from containers.errors import SlipwayError

if TYPE_CHECKING:
    from containers.registry import credentials
    from stacks.placement import Gates


@dataclass(frozen=True)
class CheckedTagArgs:
    """The image as ``repository@sha256:...``, its tag, the login to push it, and the digest that was checked.

    ``checked`` is the hexadecimal part of a digest.
    """

    ref: pulumi.Input[str]
    checked: pulumi.Input[str]
    tag: str
    login: PushLogin
    gates: Gates


class TagChecked(TagImage):
    """Points a tag at an image that was checked, after an inspection and a scan.

    Changed exceptions alone inspect and scan nothing again: they count for the next image.
    """

    def run_as(self, props: Mapping[str, Any], login: credentials.Login | None) -> dict[str, Any]:
        """Inspect and scan the image and tag it; return its new name, and what both found as ``loading`` and ``scan``.

        The tag may be there already: of an update with another state, or set by hand. It proves no inspection. Such an
        image is not scanned again: what becomes known of it later is not for this update to stop.

        Raises SlipwayError: the checks ran on another image, as they do in an update whose targets leave the checks
        out; something in the image does not load, or is known to be vulnerable; or as for a tag.
        """
        from containers.registry import client
        from containers.registry.reference import Reference, hexadecimal

        ref, checked = props["ref"], props["checked"]
        if hexadecimal(ref) != checked:
            raise SlipwayError(
                f"{ref}: not tagged {props['tag']}, because the last checks were those of sha256:{checked}; "
                "name the image's checks among the targets, or none"
            )
        image = Reference.of(ref)
        name = f"{image.repository}:{props['tag']}"
        loading: dict[str, Any] = {}
        if props.get("exceptions") is not None:
            from components.supply_chain.gates import loading_gate

            loading = loading_gate.check(
                ref, login, props["exceptions"], props.get("compiled") or {}, props.get("question")
            )
        # A registry with immutable tags may refuse even the digest that a tag has.
        if client.Repository(name, login).visible_digest() == image.digest:
            return {"name": name, "loading": loading, "scan": {}}
        scan: dict[str, Any] = {}
        if props.get("vulnerabilities") is not None:
            from components.supply_chain.gates import vulnerability_gate

            scan = vulnerability_gate.check(ref, login, props["vulnerabilities"])
        return {**super().run_as(props, login), "loading": loading, "scan": scan}


class CheckedTag(Resource, module="image", name="CheckedTag"):
    """The tag of an image that passed its checks. It stays in the registry when the stack is destroyed."""

    ref: pulumi.Output[str]
    """``repository@sha256:...``; known once the image has its tag."""

    loading: pulumi.Output[dict[str, Any]]
    """The inspection as evidence; empty if the image was not inspected."""

    scan: pulumi.Output[dict[str, Any]]
    """The scan's record; empty if the image was not scanned."""

    def __init__(self, name: str, args: CheckedTagArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        inputs = {
            "ref": args.ref,
            "checked": args.checked,
            "tag": args.tag,
            **vars(args.gates),
            "name": None,
            "loading": None,
            "scan": None,
            **login_inputs(args.login),
        }
        super().__init__(TagChecked(), name, inputs, opts)
