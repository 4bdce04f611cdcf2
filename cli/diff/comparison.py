"""Two images compared: what is installed in them, their settings, files, layers and sizes.

Layers that both have are read only where the answer needs them: below and above them, all that they bring is equal.
"""

from __future__ import annotations

import difflib
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from oci.layers import packages
from oci.layers.file_tree import Difference, FileTree, differences
from oci.layers.layer import Entry, Index
from oci.registry_image import Image, Layer
from stacks.errors import SlipwayError

BASE_LABEL: Final = "org.opencontainers.image.base.name"

_SETTINGS: Final[Mapping[str, str]] = {
    "User": "user",
    "WorkingDir": "working folder",
    "Entrypoint": "entry point",
    "Cmd": "command",
    "Shell": "shell",
    "StopSignal": "stop signal",
    "Healthcheck": "health check",
}
_SETTINGS_BY_KEY: Final[Mapping[str, str]] = {"ExposedPorts": "port", "Volumes": "volume", "Labels": "label"}


@dataclass(frozen=True)
class Setting:
    """A setting of the configuration that differs; None where there is none."""

    name: str
    before: str | None
    after: str | None


@dataclass(frozen=True)
class Package:
    """A package that differs: its version in each image, None where it is not there.

    ``where`` is the prefix of the environment that has it, empty for the system's. Not ``certain`` where a layer that
    was not read may have it as well.
    """

    manager: str
    where: str
    name: str
    before: str | None
    after: str | None
    certain: bool


RiskKind = Literal["setuid", "setgid", "capabilities", "world-writable"]


@dataclass(frozen=True)
class Risk:
    """A file that more may be done with than its content says, new as such: ``setuid`` or ``world-writable``."""

    kind: RiskKind
    path: str


@dataclass(frozen=True)
class Comparison:
    """What differs between two images; ``unread`` are layers of both that were not read."""

    before: Image
    after: Image
    settings: tuple[Setting, ...]
    packages: tuple[Package, ...]
    files: tuple[Difference, ...]
    unread: tuple[Layer, ...]

    @property
    def reused(self) -> list[Layer]:
        """The later image's layers that a registry with the earlier one has already."""
        there = {layer.digest for layer in self.before.layers}
        return [layer for layer in self.after.layers if layer.digest in there]

    @property
    def pushed(self) -> list[Layer]:
        """The later image's layers that it has not, each once."""
        there = {layer.digest for layer in self.before.layers}
        return list({layer.digest: layer for layer in self.after.layers if layer.digest not in there}.values())

    @property
    def bases(self) -> tuple[str | None, str | None]:
        """The names of the images that they stand on, as their labels have them."""
        before, after = ((image.config.get("Labels") or {}).get(BASE_LABEL) for image in (self.before, self.after))
        return before, after

    @property
    def base_moved(self) -> bool:
        """Whether their lowest layers differ: that of an image that both stand on would be the same."""
        return self.before.diff_ids[:1] != self.after.diff_ids[:1]

    @property
    def risks(self) -> list[Risk]:
        """What the later image has and the earlier has not."""
        found = []
        for file in self.files:
            before = set(_risks(file.before)) if file.before else set()
            found += [
                Risk(kind, file.path) for kind in (_risks(file.after) if file.after else ()) if kind not in before
            ]
        return found

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON has it, each file as its own ``as_json`` has it: there may be hundreds of thousands.

        Sizes are in bytes.
        """
        return {
            "before": _image(self.before),
            "after": _image(self.after),
            "base": {"before": self.bases[0], "after": self.bases[1], "moved": self.base_moved},
            "reused": [layer.digest for layer in self.reused],
            "pushed": [layer.digest for layer in self.pushed],
            "unread": [layer.digest for layer in self.unread],
            "settings": [vars(setting) for setting in self.settings],
            "packages": [vars(package) for package in self.packages],
            "files": self.files,
            "risks": [{"kind": risk.kind, "path": f"/{risk.path}"} for risk in self.risks],
        }


def _image(image: Image) -> dict[str, Any]:
    return {
        "reference": image.reference,
        "digest": image.digest,
        "platform": image.platform,
        "size": image.size,
        "layers": [
            {"digest": layer.digest, "diffId": layer.diff_id, "size": layer.size, "createdBy": layer.created_by}
            for layer in image.layers
        ],
    }


def compare(before: Image, after: Image, *, thorough: bool = False) -> Comparison:
    """Compare two images of one platform; ``thorough`` reads the layers that both have as well.

    Raises:
        SlipwayError: they are of different platforms, or a layer cannot be read.
    """
    if before.platform != after.platform:
        raise SlipwayError(
            f"{before.reference} is for {before.platform} and {after.reference} for {after.platform}: "
            "only images of one platform can be compared"
        )
    layers = _Layers(before, after)
    if thorough:
        layers.read(layers.shared)
    files = layers.differences()
    # A database of packages that one image alone writes is compared with the one that a shared layer has.
    while layers.unread and any(packages.database(file.path) for file in files if not file.certain):
        layers.read(layers.unread[-1:])
        files = layers.differences()
    return Comparison(
        before,
        after,
        tuple(_settings(before.config, after.config)),
        tuple(_packages(files)),
        tuple(files),
        tuple(layers.unread),
    )


class _Layers:
    """Two images' layers, and the indexes of those that have been read, by diff id."""

    def __init__(self, before: Image, after: Image) -> None:
        self._images = (before, after)
        self._indexes: dict[str, Index] = {}
        blocks = difflib.SequenceMatcher(None, before.diff_ids, after.diff_ids, autojunk=False).get_matching_blocks()
        # What both have in the same order. Other layers of both, in another order, are read like each one's own.
        self.shared = [layer for block in blocks for layer in before.layers[block.a : block.a + block.size]]
        ours = theirs = 0
        for block in blocks:  # the last one is empty and stands at the end
            self.read(before.layers[ours : block.a])
            self.read(after.layers[theirs : block.b])
            ours, theirs = block.a + block.size, block.b + block.size

    def read(self, wanted: Iterable[Layer]) -> None:
        """Read layers, each once."""
        for layer in wanted:
            if layer.diff_id not in self._indexes:
                image = next(image for image in self._images if layer in image.layers)
                self._indexes[layer.diff_id] = image.index(layer)

    @property
    def unread(self) -> list[Layer]:
        """The shared layers that have not been read, the lowest first."""
        return [layer for layer in self.shared if layer.diff_id not in self._indexes]

    def differences(self) -> list[Difference]:
        """Compare the files, as far as the layers have been read."""
        stacks = ([self._indexes.get(layer.diff_id) for layer in image.layers] for image in self._images)
        return differences(*map(FileTree, stacks))


def _settings(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Setting]:
    ours, theirs = _said(before), _said(after)
    for name in {**ours, **theirs}:
        if ours.get(name) != theirs.get(name):
            yield Setting(name, ours.get(name), theirs.get(name))


def _said(config: Mapping[str, Any]) -> dict[str, str]:
    """Return what a configuration says, one setting for each variable, port, volume and label."""
    said = {}
    for pair in config.get("Env") or []:
        name, _, value = pair.partition("=")
        said[f"env {name}"] = value
    for key, name in _SETTINGS.items():
        if value := config.get(key):
            said[name] = " ".join(map(str, value)) if isinstance(value, list) else str(value)
    for key, name in _SETTINGS_BY_KEY.items():
        said |= {f"{name} {item}": str(value or "") for item, value in (config.get(key) or {}).items()}
    return said


def _packages(files: Iterable[Difference]) -> list[Package]:
    """Return the packages that differ, from the files that do."""
    found: tuple[dict[tuple[str, str, str], tuple[str, bool]], ...] = ({}, {})
    for file in files:
        sides = (file.change != "added", file.change != "removed")
        for side, there, entry in zip(found, sides, (file.before, file.after), strict=True):
            listed = packages.listed(file.path.rstrip("/"), entry.packages if entry else None) if there else None
            if listed:
                for name, version in listed.packages.items():
                    side[listed.manager, listed.where, name] = (version, file.certain)
    before, after = found
    result = []
    for key in sorted({**before, **after}):
        (was, sure), (now, certain) = before.get(key, (None, True)), after.get(key, (None, True))
        if was != now:
            # Where both are seen, one stands for the other, whatever unread layers have.
            result.append(Package(*key, was, now, (sure and certain) or None not in {was, now}))
    return result


def _risks(entry: Entry) -> Iterator[RiskKind]:
    if entry.kind == "file" and entry.mode & stat.S_ISUID:
        yield "setuid"
    if entry.kind == "file" and entry.mode & stat.S_ISGID:
        yield "setgid"
    if entry.capabilities:
        yield "capabilities"
    if entry.writable:
        yield "world-writable"
