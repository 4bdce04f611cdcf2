"""``ExtraTag``: another tag for an image that has been pushed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pulumi
from pulumi.dynamic import CreateResult, DiffResult, Resource, ResourceProvider, UpdateResult

from components.registry import Login
from stacks import registry


@dataclass(frozen=True)
class ExtraTagArgs:
    """The image, ``repository@sha256:...``, the tag that it gets beside its own, and who may push it."""

    ref: pulumi.Input[str]
    tag: str
    login: Login


class _Tagging(ResourceProvider):
    """Runs in a process of its own: it holds nothing, so that its serialized form is its name."""

    serialize_as_secret_always = False

    def create(self, props: dict[str, Any]) -> CreateResult:
        _tag(props)
        return CreateResult(f"{props['ref'].partition('@')[0]}:{props['tag']}", _outputs(props))

    def update(self, _id: str, _olds: dict[str, Any], news: dict[str, Any]) -> UpdateResult:
        _tag(news)
        return UpdateResult(_outputs(news))

    def diff(self, _id: str, olds: dict[str, Any], news: dict[str, Any]) -> DiffResult:
        return DiffResult(changes=_outputs(olds) != _outputs(news))


class ExtraTag(Resource, module="image", name="ExtraTag"):
    """A tag that follows an image: moved when its digest changes, left where it is when the stack is destroyed.

    Other credentials are no change.
    """

    def __init__(self, name: str, args: ExtraTagArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        login = {"username": args.login.username, "password": args.login.password}
        super().__init__(_Tagging(), name, {"ref": args.ref, "tag": args.tag, **login}, opts)


def _outputs(props: dict[str, Any]) -> dict[str, Any]:
    return {"ref": props["ref"], "tag": props["tag"]}


def _tag(props: dict[str, Any]) -> None:
    username, password = props.get("username"), props.get("password")
    host = props["ref"].partition("/")[0]
    login = registry.Login(host, username, password) if username and password else None
    registry.tag(props["ref"], props["tag"], login)
