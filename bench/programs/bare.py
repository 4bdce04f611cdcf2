"""The program that one would write without Slipway: a ``docker.Image`` for each image, and its digest as an output."""

import json
from pathlib import Path

import pulumi
import pulumi_docker as docker

asked = json.loads(Path("images.json").read_text(encoding="utf-8"))
built = {
    name: docker.Image(
        name,
        image_name=f"{asked['repository']}/{name}:latest",
        build=docker.DockerBuildArgs(
            context="dockerfiles",
            dockerfile=f"dockerfiles/{name}/Dockerfile",
            platform="linux/amd64",
            args=args,
        ),
        registry=docker.RegistryArgs(server=asked["repository"].partition("/")[0]),
    )
    for name, args in asked["images"].items()
}
pulumi.export("images", {name: image.repo_digest for name, image in built.items()})
