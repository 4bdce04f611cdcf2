"""A platform's name, such as ``linux/arm64``, as images and engines have it."""


def system(platform: str) -> str:
    """Return a platform's operating system: ``linux`` of ``linux/arm64``."""
    return _parts(platform)[0]


def architecture(platform: str) -> str:
    """Return a platform's architecture: ``arm64`` of ``linux/arm64``."""
    return _parts(platform)[1]


def _parts(platform: str) -> list[str]:
    return platform.split("/")
