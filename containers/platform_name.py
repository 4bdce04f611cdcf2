"""A platform's name, such as ``linux/arm64``, as images and engines have it."""


def system(platform: str) -> str:
    """Return a platform's operating system: ``linux`` of ``linux/arm64``."""
    return _parts(platform)[0]


def architecture(platform: str) -> str:
    """Return a platform's architecture: ``arm64`` of ``linux/arm64``."""
    return _parts(platform)[1]


def normal(platform: str) -> str:
    """Return the one name of a platform: ``linux/amd64`` of ``linux/x86_64`` (containerd/platforms, database.go)."""
    name, slash, machine = platform.lower().partition("/")
    machine = machine.replace("x86_64", "amd64").replace("x86-64", "amd64").replace("aarch64", "arm64")
    return name + slash + {"amd64/v1": "amd64", "arm64/v8": "arm64"}.get(machine, machine)


def _parts(platform: str) -> list[str]:
    return platform.split("/")
