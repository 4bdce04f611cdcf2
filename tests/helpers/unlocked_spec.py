"""A spec of a stack without what ``stacks/lock.toml`` adds."""

from __future__ import annotations

from stacks.spec import ImageSpec


def unlocked(spec: ImageSpec) -> ImageSpec:
    """Return a spec as its flavor gives it: parents by tag, no commits and no files of packages."""
    parents = {
        name: parent.model_copy(update={"digest": None}) if hasattr(parent, "digest") else parent
        for name, parent in spec.parents.items()
    }
    packages = spec.packages and spec.packages.model_copy(update={"files": {}})
    return spec.model_copy(update={"parents": parents, "commits": {}, "packages": packages})
