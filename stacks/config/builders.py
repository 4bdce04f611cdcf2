"""The settings for the builders of a stack's images in both kinds of runners, ``build`` and ``build.platforms``."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence


def build_key(platform: str, first: str) -> str:
    """Return the key below ``slipway:runners`` of a platform's builder; ``first`` is the platform of ``build``."""
    return "build" if platform == first else f"build.platforms.{platform}"


def taking(builders: Iterable[str], platform: str) -> str:
    """Return the platform of the builder that takes a platform's images, of those of all builders.

    What is the same for all platforms, such as a source, may be for a platform of none. The first one takes it.
    """
    platforms = [*builders]
    return platform if platform in platforms else platforms[0]


def check(builders: Iterable[str], first: str, platforms: Sequence[str], engines: Collection[str]) -> None:
    """Check that each builder has images to build.

    ``builders`` are their platforms, ``first`` is that of ``build`` itself. ``platforms`` are those of the stack's
    images, ``engines`` those that ``slipway:engines`` builds.

    Raises ValueError: an engine builds a platform's images too, or the stack has none for it.
    """
    for platform in builders:
        key = f"runners.{build_key(platform, first)}"
        if platform in engines:
            raise ValueError(f"{key}: slipway:engines.{platform} builds these images: leave one of the two out")
        if platform != first and platform not in platforms:
            raise ValueError(f"{key}: the stack has {' and '.join(platforms)}: leave it out")
