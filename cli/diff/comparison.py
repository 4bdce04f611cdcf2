"""The differences between two images: packages, settings, files, layers and sizes.

Shared layers are read only if a package database needs them.
"""

from __future__ import annotations

import difflib
import posixpath
import stat
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from cli.inspection.inspection_text import counted_files
from containers.budget import limited
from containers.errors import SlipwayError
from containers.image.binaries import inspection
from containers.image.binaries.inspection import Inspection, Question
from containers.image.layers import packages
from containers.image.layers.file_tree import Difference, FileTree, differences
from containers.image.layers.layer import Entry, LayerIndex
from containers.image.node_pull import NodePull
from containers.image.registry_image import Image, Layer
from stacks.versions import cuda_toolkit

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
    """A named value that differs, such as a setting of the configuration; None if it is missing."""

    name: str
    before: str | None
    after: str | None


@dataclass(frozen=True)
class Package:
    """A package that differs: its version in each image, None if it is missing.

    ``where`` is the prefix of its environment, empty for the system's. It is not ``certain`` if an unread layer may
    have the package too.
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
    """A file with new dangerous permissions, such as ``setuid`` or ``world-writable``."""

    kind: RiskKind
    path: str


@dataclass(frozen=True)
class Comparison:
    """The differences between two images; ``unread`` are shared layers that were not read.

    ``loading`` are the differences in loading; None if the images were not inspected.
    """

    before: Image
    after: Image
    settings: tuple[Setting, ...]
    packages: tuple[Package, ...]
    files: tuple[Difference, ...]
    unread: tuple[Layer, ...]
    loading: tuple[Setting, ...] | None = None

    @property
    def reused(self) -> list[Layer]:
        """The later image's layers that are in the earlier one."""
        old = {layer.digest for layer in self.before.layers}
        return [layer for layer in self.after.layers if layer.digest in old]

    @property
    def pushed(self) -> list[Layer]:
        """The later image's layers that are not in the earlier one, each once."""
        old = {layer.digest for layer in self.before.layers}
        return list({layer.digest: layer for layer in self.after.layers if layer.digest not in old}.values())

    @property
    def pull(self) -> NodePull:
        """The bytes that a node with the earlier image must pull for the later one; nothing if they are the same."""
        config = 0 if self.before.digest == self.after.digest else self.after.config_size
        return NodePull.of(_sizes(self.after), _sizes(self.before), config)

    @property
    def whole_pull(self) -> NodePull:
        """The bytes that a node without any layer must pull for the later image."""
        return NodePull.of(_sizes(self.after), {}, self.after.config_size)

    @property
    def bases(self) -> tuple[str | None, str | None]:
        """The names of their base images, from their labels."""
        before, after = ((image.config.get("Labels") or {}).get(BASE_LABEL) for image in (self.before, self.after))
        return before, after

    @property
    def base_moved(self) -> bool:
        """Whether their lowest layers differ; images on the same base share that layer."""
        return self.before.diff_ids[:1] != self.after.diff_ids[:1]

    @property
    def risks(self) -> list[Risk]:
        """The dangerous permissions that only the later image has."""
        risks = []
        for file in self.files:
            before = set(_risks(file.before)) if file.before else set()
            risks += [
                Risk(kind, file.path) for kind in (_risks(file.after) if file.after else ()) if kind not in before
            ]
        return risks

    def as_json(self) -> dict[str, Any]:
        """Return the comparison as JSON, with sizes in bytes.

        Files stay objects with an ``as_json`` of their own: there may be hundreds of thousands.
        """
        return {
            "before": _image(self.before),
            "after": _image(self.after),
            "base": {"before": self.bases[0], "after": self.bases[1], "moved": self.base_moved},
            "reused": [layer.digest for layer in self.reused],
            "pushed": [layer.digest for layer in self.pushed],
            "pull": {"withPublished": self.pull.as_json(), "empty": self.whole_pull.as_json()},
            "unread": [layer.digest for layer in self.unread],
            "settings": [vars(setting) for setting in self.settings],
            "loading": None if self.loading is None else [vars(setting) for setting in self.loading],
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


def compare(
    before: Image,
    after: Image,
    *,
    thorough: bool = False,
    inspect: bool = False,
    across: bool = False,
    compiled: Mapping[str, str] | None = None,
) -> Comparison:
    """Compare two images of one platform, or ``across`` platforms.

    ``thorough`` reads shared layers too. ``inspect`` inspects both images, which reads all of their layers. Both are
    held to what is ``compiled`` for GPUs, see :class:`stacks.spec.ImageSpec`.

    Raises SlipwayError: the platforms differ, or a layer cannot be read.
    """
    if before.platform != after.platform and not across:
        raise SlipwayError(
            f"{before.reference} is for {before.platform} and {after.reference} for {after.platform}: "
            "compare images of one platform, or those of one reference with --platform and --against"
        )
    with limited(f"{before.reference} and {after.reference}", images=2):
        layers = _Layers(before, after)
        if thorough:
            layers.read(layers.shared)
        files = layers.differences()
        # A package database in one image's own layers is compared with that of a shared layer.
        while layers.unread and any(packages.database(file.path) for file in files if not file.certain):
            layers.read(layers.unread[-1:])
            files = layers.differences()
        question = Question(cuda_toolkit, compiled=compiled or {})
        loading = [_loading(inspection.inspect(image, question)) for image in (before, after)] if inspect else None
        return Comparison(
            before,
            after,
            tuple(_settings(_values(before.config), _values(after.config))),
            tuple(_packages(files)),
            tuple(files),
            tuple(layers.unread),
            tuple(_settings(*loading)) if loading else None,
        )


class _Layers:
    """The layers of two images, and the indexes of read layers by diff id."""

    def __init__(self, before: Image, after: Image) -> None:
        self._images = (before, after)
        self._indexes: dict[str, LayerIndex] = {}
        blocks = difflib.SequenceMatcher(None, before.diff_ids, after.diff_ids, autojunk=False).get_matching_blocks()
        # Layers shared in the same order. Those shared in another order are read like an image's own.
        self.shared = [layer for block in blocks for layer in before.layers[block.a : block.a + block.size]]
        old = new = 0
        for block in blocks:  # the last one is empty and at the end
            self.read(before.layers[old : block.a])
            self.read(after.layers[new : block.b])
            old, new = block.a + block.size, block.b + block.size

    def read(self, layers: Iterable[Layer]) -> None:
        """Read layers, each once."""
        for layer in layers:
            if layer.diff_id not in self._indexes:
                image = next(image for image in self._images if layer in image.layers)
                self._indexes[layer.diff_id] = image.index(layer)

    @property
    def unread(self) -> list[Layer]:
        """The shared layers that are not read, the lowest first."""
        return [layer for layer in self.shared if layer.diff_id not in self._indexes]

    def differences(self) -> list[Difference]:
        """Return the differences of the files in the layers read so far."""
        stacks = ([self._indexes.get(layer.diff_id) for layer in image.layers] for image in self._images)
        return differences(*map(FileTree, stacks))


def _settings(before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[Setting]:
    for name in {**before, **after}:
        if before.get(name) != after.get(name):
            yield Setting(name, before.get(name), after.get(name))


def _values(config: Mapping[str, Any]) -> dict[str, str]:
    """Return the settings of a configuration, one for each variable, port, volume and label."""
    values = {}
    for pair in config.get("Env") or []:
        name, _, value = pair.partition("=")
        values[f"env {name}"] = value
    for key, name in _SETTINGS.items():
        if value := config.get(key):
            values[name] = " ".join(map(str, value)) if isinstance(value, list) else str(value)
    for key, name in _SETTINGS_BY_KEY.items():
        values |= {f"{name} {item}": str(value or "") for item, value in (config.get(key) or {}).items()}
    return values


def _loading(inspected: Inspection) -> dict[str, str]:
    """Return what was found, by name: each fault and plugin, the GPU code, the least driver."""
    libraries = Counter(str(code) for codes in inspected.coverage.libraries.values() for code in codes)
    return {
        **{f"{fault.file}: {fault.missing}": fault.reason or "fault" for fault in inspected.faults},
        **{
            f"{posixpath.basename(plugin.opener)} opens {plugin.name}": "loads" if plugin.loads else "does not load"
            for plugin in inspected.loading.plugins
            if plugin.file
        },
        **{f"GPU code {code}": counted_files(number) for code, number in libraries.items()},
        **({"least driver": inspected.driver.least} if inspected.driver else {}),
    }


def _packages(files: Iterable[Difference]) -> list[Package]:
    """Return the packages that differ, from the differing files."""
    sides: tuple[dict[tuple[str, str, str], tuple[str, bool]], ...] = ({}, {})
    for file in files:
        present = (file.change != "added", file.change != "removed")
        for side, exists, entry in zip(sides, present, (file.before, file.after), strict=True):
            record = (
                packages.package_record(file.path.rstrip("/"), entry.packages if entry else None) if exists else None
            )
            if record:
                for name, version in record.packages.items():
                    side[record.manager, record.where, name] = (version, file.certain)
    before, after = sides
    result = []
    for key in sorted({**before, **after}):
        (was, was_certain), (now, now_certain) = before.get(key, (None, True)), after.get(key, (None, True))
        if was != now:
            # Two known versions differ, whatever unread layers have.
            result.append(Package(*key, was, now, (was_certain and now_certain) or None not in {was, now}))
    return result


def _sizes(image: Image) -> dict[str, int]:
    """Return the compressed sizes of an image's layers by digest, the lowest first."""
    return {layer.digest: layer.size for layer in image.layers}


def _risks(entry: Entry) -> Iterator[RiskKind]:
    if entry.kind == "file" and entry.mode & stat.S_ISUID:
        yield "setuid"
    if entry.kind == "file" and entry.mode & stat.S_ISGID:
        yield "setgid"
    if entry.capabilities:
        yield "capabilities"
    if entry.writable:
        yield "world-writable"
