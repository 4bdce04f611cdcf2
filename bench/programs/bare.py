"""A program without Slipway: a ``docker.Image`` for each image, with its digest as an output."""

import json
from pathlib import Path

import pulumi
import pulumi_docker as docker

config = json.loads(Path("images.json").read_text(encoding="utf-8"))
images = {
    name: docker.Image(
        name,
        image_name=f"{config['repository']}/{name}:latest",
        build=docker.DockerBuildArgs(
            context="dockerfiles",
            dockerfile=f"dockerfiles/{name}/Dockerfile",
            platform="linux/amd64",
            args=args,
        ),
        registry=docker.RegistryArgs(server=config["repository"].partition("/")[0]),
    )
    for name, args in config["images"].items()
}
pulumi.export("images", {name: image.repo_digest for name, image in images.items()})
