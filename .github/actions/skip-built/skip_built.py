"""Print the outputs of the action: the key of a build, the image's name with it, and whether the registry has that."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from containers.dockerfile.build_key import build_key
from containers.errors import SlipwayError, one_line


def outputs(inputs: dict[str, str]) -> dict[str, str]:
    """Return the outputs. What nobody knows before the build has no key, and is built."""
    try:
        arguments = dict(line.strip().split("=", 1) for line in inputs["BUILD_ARGS"].splitlines() if line.strip())
    except ValueError:
        sys.exit("build-args: expected a line NAME=VALUE for each")
    file, context = Path(inputs["FILE"]), Path(inputs["CONTEXT"])
    try:
        key = build_key(file, context, inputs["TARGET"] or None, arguments, inputs["PLATFORM"]).key
    except SlipwayError as error:
        print(f"no key, so it is built: {one_line(str(error), 400)}", file=sys.stderr)
        return {"key": "", "image": "", "built": "false"}
    image = f"{inputs['IMAGE']}:key-{key}"
    # Whatever keeps the registry from saying that it has the image, the build is right.
    plain = ["--insecure"] if image.startswith(("127.0.0.1:", "localhost:")) else []
    words = ["docker", "manifest", "inspect", *plain, image]
    environment = {**os.environ, "DOCKER_CLI_EXPERIMENTAL": "enabled"}
    built = subprocess.run(words, capture_output=True, check=False, env=environment).returncode == 0
    print(f"{image}: {'is there' if built else 'is not there yet'}", file=sys.stderr)
    return {"key": key, "image": image, "built": str(built).lower()}


names = ("IMAGE", "FILE", "CONTEXT", "TARGET", "BUILD_ARGS", "PLATFORM")
for name, value in outputs({name: os.environ.get(f"SLIPWAY_{name}", "") for name in names}).items():
    print(f"{name}={value}")
