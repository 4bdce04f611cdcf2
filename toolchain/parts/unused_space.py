"""`slipway prune`: what takes room on this machine and no stack's state names. Only what Slipway started is touched."""

import gzip
import json
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from containers.child_environment import child_environment
from containers.child_program import run_program
from containers.interruption import remove_folder
from containers.registry.reference import Reference
from toolchain import json_answer
from toolchain.checkout import Checkout
from toolchain.machine.steps import output, say, step
from toolchain.machine.toolchain_error import ToolchainError
from toolchain.parts import docker_engine, docker_registry

CONTEXTS: Final = "contexts"
"""The folder of `.slipway` with the contexts of builds."""
UNCOLLECTED: Final = "registry/uncollected"
"""The file of `.slipway` that says that layers of deleted images may be left."""
PARENTS: Final = "docker.io/"
"""What the repositories of copied parent images begin with: these are kept."""
UNUSED: Final = "168h"
"""Build cache that no build used for so long is removed while a stack has images; all of it where none has."""
_IMAGE: Final = '"repoDigest"'
"""What the state of a stack with an image has."""
_OF_DIGEST: Final = re.compile(r"sha256-([0-9a-f]{64})(?:\..*)?")
"""The tag of a signature or an attestation, with the digest that it is of."""
_WARM: Final = re.compile(r"(.+)-warm-[0-9a-f]{8}")
"""The tag of an image with warm layers, with that of the image below them."""


def megabytes(size: float) -> str:
    """Return a size in bytes as people read it."""
    return f"{size / 1e9:.2f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"


def folder_size(folder: Path) -> int:
    """Return the bytes of a folder on its disk, without other mounts below it; 0 if it is not there."""
    command = ["du", "--summarize", "--one-file-system", "--block-size=1", str(folder)]
    try:
        # It fails where a file goes in the meantime, and says the size nonetheless.
        return int(run_program(command, 300).stdout.split()[0])
    except (OSError, subprocess.TimeoutExpired, ValueError, IndexError):
        return 0


def states(checkout: Checkout) -> dict[str, str]:
    """Return the text of each stack's state, by the stack's name."""
    folder = checkout.backend / ".pulumi" / "stacks"
    contents = {file.name.removesuffix(".json"): file.read_bytes() for file in sorted(folder.rglob("*.json"))}
    for file in sorted(folder.rglob("*.json.gz")):  # PULUMI_DIY_BACKEND_GZIP
        contents[file.name.removesuffix(".json.gz")] = gzip.decompress(file.read_bytes())
    return {name: content.decode(errors="replace") for name, content in contents.items()}


@dataclass
class RegistryContent:
    """The storage of our registry: its tags and manifests, without those of copied parents."""

    storage: Path
    named: str
    """The text that names what is kept."""
    tags: dict[Reference, str] = field(default_factory=dict)
    """The digest of each tag, which names a repository without its host."""
    manifests: dict[tuple[str, str], Mapping[str, Any]] = field(default_factory=dict)
    """Each manifest, by repository and digest."""
    left: dict[Path, int] = field(default_factory=dict)
    """What pushes and deletions that did not end left, with its bytes: uploads, tags, layers that no manifest has."""

    def __post_init__(self) -> None:
        self._root = self.storage / "docker/registry/v2"
        self._repositories = self._root / "repositories"
        for folder in sorted(self._repositories.rglob("_manifests")):
            repository = folder.parent.relative_to(self._repositories).as_posix()
            if repository.startswith(PARENTS):
                continue
            for link in folder.glob("tags/*/current/link"):
                self.tags[Reference(repository, link.parent.parent.name)] = link.read_text()
            for link in folder.glob("revisions/sha256/*/link"):  # those that a deletion left without a tag, too
                self.manifests[repository, link.read_text()] = json.loads(self._blob(link.parent.name).read_bytes())
            for tag in folder.glob("tags/*"):
                if not (tag / "current/link").exists():  # a deletion of it was ended
                    self.left[tag] = 0
        self._read_left()

    def _read_left(self) -> None:
        parents = self._repositories / PARENTS
        named = {f"sha256:{link.name}" for link in parents.rglob("_layers/sha256/*")}
        named |= {blob for content in self.manifests.values() for blob, _ in _blobs(content)}
        for upload in self._repositories.rglob("_uploads/*"):
            if parents not in upload.parents:
                self.left[upload] = folder_size(upload)
        for link in self._repositories.rglob("_layers/sha256/*"):
            if f"sha256:{link.name}" not in named and (data := self._blob(link.name)).exists():
                self.left[link] = data.stat().st_size

    def _blob(self, digest: str) -> Path:
        return self._root / "blobs/sha256" / digest[:2] / digest / "data"

    @property
    def kept(self) -> set[tuple[str, str]]:
        """The manifests that a state names, by digest or by a tag; with their parts, evidence and warm layers."""
        kept = {key for key in self.manifests if key[1] in self.named}
        kept |= {(name.repository, digest) for name, digest in self.tags.items() if self._is_named(name)}
        for repository, digest in list(kept):
            kept |= {(repository, part["digest"]) for part in self.manifests[repository, digest].get("manifests", [])}
        kept |= {
            (name.repository, digest)
            for name, digest in self.tags.items()
            if (warm := _WARM.fullmatch(name.tag))
            and (name.repository, self.tags.get(replace(name, tag=warm[1]))) in kept
        }
        digests = {digest for _, digest in kept}
        kept |= {
            (name.repository, digest)
            for name, digest in self.tags.items()
            if (owner := _OF_DIGEST.fullmatch(name.tag)) and f"sha256:{owner[1]}" in digests
        }
        return kept

    def _is_named(self, name: Reference) -> bool:
        return bool(re.search(rf"/{re.escape(str(name))}(?![\w.-])", self.named))

    @property
    def unnamed_tags(self) -> list[Reference]:
        """The tags that go: those of deleted manifests, and the rest of unfinished checks on those that stay."""
        kept = self.kept
        return sorted(
            (
                name
                for name, digest in self.tags.items()
                if (name.repository, digest) not in kept
                or (name.tag.startswith("unchecked--") and not self._is_named(name))
            ),
            key=str,
        )

    @property
    def freed(self) -> int:
        """The bytes of the blobs in deleted manifests only."""
        kept = self.kept
        stay = {blob for key in kept for blob, _ in _blobs(self.manifests[key])}
        go = dict(blob for key, content in self.manifests.items() if key not in kept for blob in _blobs(content))
        return sum(size for blob, size in go.items() if blob not in stay)

    @property
    def unnamed_manifests(self) -> set[tuple[str, str]]:
        """The manifests that go."""
        return self.manifests.keys() - self.kept

    def delete(self) -> None:
        """Delete tags, manifests and what pushes left. The registry collects their blobs, and knows nothing of them."""
        manifests = self.unnamed_manifests
        for path in self.left:
            shutil.rmtree(path)
        for name in self.unnamed_tags:
            shutil.rmtree(self._repositories / name.repository / "_manifests/tags" / name.tag)
        for repository, digest in manifests:
            revision = digest.removeprefix("sha256:")
            shutil.rmtree(self._repositories / repository / "_manifests/revisions/sha256" / revision)


def _blobs(manifest: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    for blob in (manifest.get("config"), *(manifest.get("layers") or [])):
        if blob:
            yield blob["digest"], blob["size"]


def _docker(checkout: Checkout, *words: str) -> str:
    # The client of a user who asks for BuildKit wants buildx. Not every machine has it.
    environment = child_environment("docker", DOCKER_BUILDKIT="")
    return output(["docker", "--host", docker_engine.daemon(checkout).mark, *words], env=environment, timeout=600)


def _unnamed_images(checkout: Checkout, named: str) -> dict[str, str]:
    """Return the size of each image of our engine that no state names, by its name, or its id without one."""
    images = {}
    for line in _docker(checkout, "image", "ls", "--all", "--no-trunc", "--format", "{{json .}}").splitlines():
        image = json.loads(line)
        name = f"{image['Repository']}:{image['Tag']}"
        reference = image["ID"] if "<none>" in name else name
        if name not in named and image["ID"] not in named and f"/{PARENTS}" not in name:
            images[reference] = image["Size"]
    return images


def prune(checkout: Checkout, *, delete: bool, as_json: bool = False) -> int:
    """List what no stack's state names, with sizes; delete it if asked. Returns 0."""
    texts = states(checkout)
    named = "\n".join(texts.values())
    contexts = [each for each in sorted((checkout.state / CONTEXTS).glob("*")) if each.name not in named]
    runs = docker_registry.own_address(checkout) is not None
    registry = RegistryContent(docker_registry.storage(checkout), named) if runs else None
    images = None if docker_engine.daemon(checkout).pid() is None else _unnamed_images(checkout, named)
    has_images = _IMAGE in named
    unused: dict[str, Any] = {
        "contexts": {"count": len(contexts), "bytes": sum(map(folder_size, contexts))},
        "registry": registry and _of_registry(checkout, registry),
        "engine": None if images is None else _of_engine(images, has_images=has_images),
        "statesWithoutFile": _without_file(checkout, texts),
        "bytes": folder_size(checkout.state),
        "bytesAfter": None,
    }
    if not as_json:
        _say(checkout, unused)
    if delete:
        for folder in contexts:
            remove_folder(folder)
        if registry:
            _collect(checkout, registry)
        if images is not None:
            _delete_images(checkout, images, since=["--filter", f"until={UNUSED}"] if has_images else [])
        unused["bytesAfter"] = folder_size(checkout.state)
    if as_json:
        json_answer.give(unused)
    else:
        rest = "; nothing is deleted: `slipway prune --yes` deletes what is listed"
        after = f" -> {megabytes(unused['bytesAfter'])}" if delete else rest
        say(f".slipway   {megabytes(unused['bytes'])}{after}")
    return 0


def _of_registry(checkout: Checkout, registry: RegistryContent) -> dict[str, Any]:
    return {
        "address": docker_registry.own_address(checkout),
        "tags": list(map(str, registry.unnamed_tags)),
        "of": len(registry.tags),
        "bytes": registry.freed,
        "unfinishedBytes": sum(registry.left.values()),
    }


def _of_engine(images: Mapping[str, str], *, has_images: bool) -> dict[str, Any]:
    return {
        "images": [{"name": name, "size": size} for name, size in images.items()],
        "cache": "unused for a week" if has_images else "all",
    }


def _collect(checkout: Checkout, registry: RegistryContent) -> None:
    """Delete what is unnamed, and its layers; an interrupted collection is run again."""
    uncollected = checkout.state / UNCOLLECTED
    if registry.unnamed_tags or registry.unnamed_manifests or registry.left or uncollected.exists():
        with step("Collecting the registry's layers"):
            uncollected.touch()
            registry.delete()
            docker_registry.collect(checkout)
            uncollected.unlink()


def _say(checkout: Checkout, unused: Mapping[str, Any]) -> None:
    contexts, registry, engine = unused["contexts"], unused["registry"], unused["engine"]
    folder = (checkout.state / CONTEXTS).relative_to(checkout.root)
    say(f"contexts  {contexts['count']} in {folder}, {megabytes(contexts['bytes'])}")
    if registry:
        for name in registry["tags"]:
            say(f"tag       {registry['address']}/{name}")
        say(f"registry  {len(registry['tags'])} of {registry['of']} tags, {megabytes(registry['bytes'])} in layers")
        if registry["unfinishedBytes"]:
            say(f"registry  {megabytes(registry['unfinishedBytes'])} of pushes that did not end")
    else:
        say("registry  Slipway's own does not run: left alone")
    if engine:
        for image in engine["images"]:
            say(f"image     {image['name']}  {image['size']}")
        everything = engine["cache"] == "all"
        cache = "all build cache, as no stack has images" if everything else "build cache that no build used for a week"
        say(f"engine    {len(engine['images'])} images; {cache}")
    else:
        say("engine    Slipway's own does not run: left alone")
    for stack in unused["statesWithoutFile"]:
        file = f"stacks/Pulumi.{stack}.yaml"
        say(f"state     {stack} keeps its images: with {file}, `slipway destroy {stack}` lets them go")


def _without_file(checkout: Checkout, texts: Mapping[str, str]) -> list[str]:
    """Return the stacks with images in their state and no file."""
    stacks = [name for name, text in texts.items() if _IMAGE in text]
    return [name for name in stacks if not (checkout.root / "stacks" / f"Pulumi.{name}.yaml").exists()]


def _delete_images(checkout: Checkout, images: Iterable[str], since: Iterable[str]) -> None:
    left = [*images]
    while left:
        refused = {name: reason for name in left if (reason := _refusal(checkout, name))}
        if len(refused) == len(left):  # a container uses them, or an image that stays is built on them
            for name, reason in refused.items():
                say(f"          {name}: {reason}")
            break
        left = [*refused]  # once more: what was built on them may have gone meanwhile
    _docker(checkout, "builder", "prune", "--all", "--force", *since)


def _refusal(checkout: Checkout, name: str) -> str:
    """Delete an image; return why the engine keeps it, empty if it is gone."""
    try:
        _docker(checkout, "image", "rm", name)
    except ToolchainError as error:
        return "" if "No such image: " in str(error) else str(error)  # it went with one that was built on it
    return ""
