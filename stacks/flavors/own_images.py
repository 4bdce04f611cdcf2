"""Images that no flavor has: those of ``slipway:packages`` and ``slipway:images``, on the flavor's own.

Packages are an image of their own on the one that they are added to. So that one stays as it is, with its tag, and a
registry gets the packages alone.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from containers.errors import SlipwayError, one_line, suggest
from stacks.config.additions import OwnImageConfig, PackagesConfig, repeated, requirement, requirement_name
from stacks.config.stack_config import StackConfig
from stacks.config.stack_file import NAMESPACE
from stacks.spec import LABEL_PREFIX, USER_ARG, Elsewhere, ImageSpec, Packages, Parent, Sibling, parents_first
from stacks.versions.distros import distro_release
from stacks.versions.efa_ngc import ngc_release

DOCKERFILE: Final = "packages/Dockerfile"
"""The Dockerfile of packages."""
PIP_ARG: Final = "PIP_PACKAGES"
"""Its build argument with the requirements, one in a line."""
APT_ARG: Final = "APT_PACKAGES"
"""Its build argument with the distribution's packages, one in a line."""
_PACKAGES: Final = "packages"
_MOST_BYTES: Final = 1 << 20
"""Size of a file of requirements."""


class OtherStack(NamedTuple):
    """A stack that images of this one stand on: its configuration, and its images."""

    config: StackConfig
    specs: Sequence[ImageSpec]


class StackCycle(SlipwayError):
    """Stacks whose images stand on each other."""


def lists(config: StackConfig) -> tuple[str, ...]:
    """Return the files of requirements that a stack names."""
    packages = [each for each in (config.packages, *(own.packages for own in config.images)) if each]
    return tuple(dict.fromkeys(each.requirements for each in packages if each.requirements))


def extended(
    config: StackConfig, specs: Sequence[ImageSpec], root: Path, other: Callable[[str], OtherStack]
) -> list[ImageSpec]:
    """Return a flavor's images for one platform and the stack's own, each with the variables that the stack adds.

    ``root`` is the checkout, whose files of requirements are read. ``other`` returns another stack of it.

    Raises SlipwayError: one line for each mistake, which begins with the key.
    """
    images = _Stack(config, specs, root, other).images() if config.packages or config.images else [*specs]
    variables = config.added_variables
    if not variables:
        return images
    return [spec if spec.product else spec.model_copy(update={"environment": variables}) for spec in images]


class _Base(NamedTuple):
    """What an image stands on, and how a spec names it."""

    spec: ImageSpec
    parent: Parent


class _Stack:
    def __init__(
        self, config: StackConfig, specs: Sequence[ImageSpec], root: Path, other: Callable[[str], OtherStack]
    ) -> None:
        self._config, self._root, self._other = config, root, cache(other)
        self._specs = {spec.name: spec for spec in specs}
        runnable = [spec.name for spec in parents_first(specs) if not spec.product]
        self._last = runnable[-1] if runnable else ""
        self._mistakes: list[str] = []

    def images(self) -> list[ImageSpec]:
        keys = [name for name, value in (("packages", self._config.packages), ("images", self._config.images)) if value]
        if not self._last:
            raise SlipwayError(
                f"{NAMESPACE}:{keys[0]}: the flavor '{self._config.flavor}' builds no image to run: leave it out"
            )
        if self._config.packages:
            added = f"{self._last}-{_PACKAGES}"
            self._specs[added] = self._with(
                added, self._config.packages, self._sibling(self._last), f"{NAMESPACE}:packages"
            )
            self._last = added
        self._check_names()
        if not self._mistakes:
            for own in self._ordered():
                self._add(own)
        if self._mistakes:
            raise SlipwayError("\n".join(self._mistakes))
        return [*self._specs.values()]

    def _check_names(self) -> None:
        names = [name for own in self._config.images for name in _names(own)]
        taken = [name for name in dict.fromkeys(names) if name in self._specs]
        self._mistakes += [
            f"{NAMESPACE}:images: the stack has an image '{name}' already: choose another name" for name in taken
        ]
        self._mistakes += [
            f"{NAMESPACE}:images: two of them are named '{name}': rename one" for name in repeated(names)
        ]

    def _ordered(self) -> list[OwnImageConfig]:
        """Return the own images, parents before children."""
        by_name = {own.name: own for own in self._config.images}
        order: list[OwnImageConfig] = []
        for own in self._config.images:
            chain = [own.name]
            while (on := by_name[chain[-1]].on or self._last) in by_name and on not in chain:
                chain.append(on)
            self._mistakes += [f"{NAMESPACE}:images: {mistake}" for mistake in self._misplaced(chain, on)]
            order += [by_name[name] for name in reversed(chain) if by_name[name] not in order]
        return [] if self._mistakes else order

    def _misplaced(self, chain: Sequence[str], on: str) -> Iterator[str]:
        """Yield what is wrong with ``on``, on which the last of a chain stands. The first stands on the others."""
        name = chain[0]
        if on in chain:
            cycle = chain[chain.index(on) :]
            if name == min(cycle):  # each of them finds it
                yield f"{' on '.join([*cycle, on])}: an image cannot stand on itself: change one `on`"
        elif on in self._specs and self._specs[on].product:
            yield f"{name}: on: '{on}' is a build product, and is never run"
        elif on not in self._specs and "/" not in on and chain == [name]:
            known = [spec.name for spec in self._specs.values() if not spec.product]
            known += [own.name for own in self._config.images]
            yield (
                f"{name}: on: '{one_line(on)}' is not an image of the stack{suggest(on, known)}; "
                f"it has: {', '.join(each for each in known if each != name)}"
            )

    def _elsewhere(self, on: str, where: str) -> _Base | None:
        """Return an image of another stack, ``stack/image``; None after a mistake."""
        stack, name = posixpath.split(on)
        platform = self._config.platform
        try:
            other = self._other(stack)
        except StackCycle:
            raise
        except SlipwayError as error:
            self._mistakes += [f"{where}: on: {line}" for line in str(error).splitlines()]
            return None
        named = [spec for spec in other.specs if spec.published_name == name]
        fitting = [spec for spec in named if spec.platform == platform]
        known = list(dict.fromkeys(spec.published_name for spec in other.specs if not spec.product))
        if not other.config.publish:
            mistake = f"stack {stack} publishes nothing: take `publish: false` out of it"
        elif not named:
            mistake = f"'{name}' is not an image of stack {stack}{suggest(name, known)}; it has: {', '.join(known)}"
        elif named[0].product:
            mistake = f"'{name}' of stack {stack} is a build product, and is never run"
        elif not fitting:
            platforms = ", ".join(spec.platform for spec in named)
            mistake = f"stack {stack} builds {name} for {platforms}, not for {platform}: add that there"
        else:
            tail = fitting[0].suffix.model_copy(update={"tail": self._config.tag_suffix, "zstd": None})
            parent = Elsewhere(
                stack=stack,
                image=fitting[0].name,
                repository=f"{other.config.registry.repository}/{name}",
                signer=other.config.signing.as_signer() if other.config.signing else None,
            )
            return _Base(fitting[0].model_copy(update={"suffix": tail}), parent)
        self._mistakes.append(f"{where}: on: {mistake}")
        return None

    def _sibling(self, name: str) -> _Base:
        return _Base(self._specs[name], Sibling(image=name))

    def _add(self, own: OwnImageConfig) -> None:
        where = f"{NAMESPACE}:images: {own.name}"
        on = own.on or self._last
        base = self._elsewhere(on, where) if "/" in on else self._sibling(on)
        if base is None:
            return
        if own.packages:
            name = _names(own)[-1]
            self._specs[name] = self._with(name, own.packages, base, f"{where}: packages")
            base = self._sibling(name)
        if own.dockerfile:
            self._check_inside(own.folder, f"{where}: dockerfile")
            self._specs[own.name] = ImageSpec(
                **_of_parent(base),
                name=own.name,
                context=own.folder,
                dockerfile=own.dockerfile.removeprefix(f"{own.folder}/"),
                args=own.args,
                description=f"{own.name} on {base.spec.published_name}",
            )

    def _check_inside(self, path: str, where: str) -> None:
        """Note a path that a link leads out of the checkout."""
        real = (self._root / path).resolve()
        if not real.is_relative_to(self._root.resolve()):
            self._mistakes.append(f"{where}: '{path}' is behind a link that leads out of the repository")

    def _with(self, name: str, packages: PackagesConfig, base: _Base, where: str) -> ImageSpec:
        """Return the image that has packages besides those of its parent."""
        pip = [*packages.pip, *(self._listed(packages, where) if packages.requirements else ())]
        distro = getattr(self._config, "distro", None) or ""
        if packages.apt and distro and not distro.startswith(("debian", "ubuntu")):
            self._mistakes.append(f"{where}.apt: {distro} has no apt: leave it out")
        for each in pip:
            wanted = requirement_name(each)
            if wanted in _decided(base.spec.packages):
                known = f"{where}.pip: '{one_line(each)}': "
                self._mistakes.append(
                    f"{known}{wanted} is pinned in an image below: leave it out, or change it there"
                    if wanted in _pinned_by_user(base.spec.packages)
                    else f"{known}the stack itself decides on {wanted}: leave it out, and set the stack's own key"
                )
        return ImageSpec(
            **_of_parent(base, pip, _unknown(self._config)),
            name=name,
            dockerfile=DOCKERFILE,
            args={PIP_ARG: "\n".join(pip), APT_ARG: "\n".join(packages.apt), USER_ARG: ""},
            description=f"{base.spec.published_name} with more packages",
        )

    def _listed(self, packages: PackagesConfig, where: str) -> Iterator[str]:
        """Yield the requirements of a file, without those that ``pip`` has too."""
        path = packages.requirements or ""
        try:
            self._check_inside(path, f"{where}.requirements")
            content = (self._root / path).read_bytes()[: _MOST_BYTES + 1]
            lines = content.decode("utf-8-sig").splitlines()
        except FileNotFoundError:
            self._mistakes.append(f"{where}.requirements: there is no file '{path}' in the repository: write it")
            return
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            self._mistakes.append(f"{where}.requirements: '{path}' cannot be read: {reason}")
            return
        if len(content) > _MOST_BYTES:
            self._mistakes.append(f"{where}.requirements: '{path}' has more than {_MOST_BYTES >> 20} MiB")
            return
        names = packages.pip_names
        for number, line in _joined(lines):
            text = line.partition(" #")[0].strip()
            if not text or text.startswith("#"):
                continue
            try:
                one = requirement(text)
            except ValueError as error:
                self._mistakes.append(f"{where}.requirements: {path}:{number}: '{one_line(text)}': {error}")
                continue
            name = requirement_name(one)
            if name in names:
                self._mistakes.append(
                    f"{where}.requirements: {path}:{number}: '{one_line(text)}': {name} is there twice"
                )
            names.append(name)
            yield one


def _joined(lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Yield the lines of a list of requirements, each with its number and joined with those on which it goes on.

    No comment goes on in the next line (pip, ``pip/_internal/req/req_file.py``, ``join_lines``).
    """
    start, first = "", 1
    for number, line in enumerate([*lines, ""], 1):
        first = first if start else number
        if line.endswith("\\") and not line.lstrip().startswith("#"):
            start += line[:-1]
        else:
            yield first, start + line
            start = ""


def _names(own: OwnImageConfig) -> list[str]:
    """Return the names of the images that an entry gives: its own, and that of its packages below a Dockerfile."""
    return [own.name, f"{own.name}-{_PACKAGES}"] if own.dockerfile and own.packages else [own.name]


def _unknown(config: StackConfig) -> Packages | None:
    """Return what is known of the packages of NVIDIA's images: pip's target, and that torch stays."""
    release = getattr(config, "ngc", None)
    row = ngc_release(release) if release else None
    if row is None or not (row.python and row.ubuntu):
        return None
    glibc = distro_release(f"ubuntu{row.ubuntu}").glibc
    built = ("torch", "torchvision", "torchaudio", "triton")
    return Packages(requirements=(), pythons=(row.python,), glibc=glibc, built=built)


def _of_parent(base: _Base, pip: Sequence[str] = (), default: Packages | None = None) -> dict[str, Any]:
    """Return what an image has of its parent.

    ``pip`` are its requirements besides those of the parent. ``default`` counts if the content of the parent is not
    known.
    """
    parent = base.spec
    onto = parent.packages or default
    return {
        "own": True,
        "packages": onto and Packages(requirements=tuple(pip), pythons=onto.pythons, glibc=onto.glibc, onto=onto),
        "platform": parent.platform,
        "parents": {"BASE_IMAGE": base.parent},
        "base_name": parent.labels.get(f"{LABEL_PREFIX}base.name"),
        "cuda": parent.cuda,
        "compiled": parent.compiled,
        "licenses": parent.licenses,
        "suffix": parent.suffix,
    }


def _decided(packages: Packages | None) -> set[str]:
    """Return the names of the packages whose versions a stack decides."""
    if packages is None:
        return {"torch", "torchvision", "torchaudio"}  # NVIDIA's images have them
    return {*_pinned(packages), *packages.built, *_decided(packages.onto)}


def _pinned_by_user(packages: Packages | None) -> set[str]:
    """Return the names of those among them that entries of the stack's file pin: they stand on others."""
    if packages is None or packages.onto is None:
        return set()
    return _pinned(packages) | _pinned_by_user(packages.onto)


def _pinned(packages: Packages) -> set[str]:
    return {requirement_name(each) for each in packages.requirements if "==" in each}
