"""The builder's far side: a real ssh server, in a container that shares the tests' Docker engine.

Stand-ins, as AWS cannot be reached: ``aws ssm start-session`` runs the server on its own standard input and output, so that
there is no port here either; the keys that EC2 Instance Connect would let in are read from the aliases' folders; and
``slipway-ready`` says that Docker answers, which there has no volume.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from components.runners.ec2.builder.ssh_config import USER
from tests.images.engine import base_image, client, docker, unique

DOCKERFILE = f"""ARG BASE_IMAGE
FROM ${{BASE_IMAGE}}
RUN apt-get update && apt-get install -y --no-install-recommends openssh-server && mkdir -p /run/sshd
# By another name, as the engine's socket is root's alone.
RUN useradd --non-unique --uid 0 --create-home --shell /bin/bash {USER}
RUN printf '#!/bin/sh\\nexec docker version --format x >/dev/null\\n' >/usr/local/bin/slipway-ready && chmod +x /usr/local/bin/slipway-ready
"""
_SERVER = "/usr/sbin/sshd -i -o 'AuthorizedKeysFile={keys}' -o StrictModes=no -o MaxSessions=500"
_AWS = """#!/bin/sh
# In place of AWS's CLI. The first time, Session Manager's agent has not called yet.
echo "$@" >>{calls}
if [ "$(wc -l <{calls})" -eq 1 ]; then
  echo "An error occurred (TargetNotConnected) when calling the StartSession operation" >&2
  exit 254
fi
[ ! -e {calls}.broken ] || {{ echo "An error occurred (AccessDeniedException)" >&2; exit 254; }}
DOCKER_HOST={engine} exec {docker} exec -i {container} {server}
"""


@contextmanager
def far_side(folder: Path, aliases: Sequence[Path], engine: str) -> Iterator[Path]:
    """Put the stand-ins' programs into a folder, and yield the file that notes how Session Manager is called.

    Builders with several ``aliases`` are all this one.
    """
    tag = unique("far-side")
    (folder / "far").mkdir()
    (folder / "far/Dockerfile").write_text(DOCKERFILE)
    docker("build", "--network=host", "--build-arg", f"BASE_IMAGE={base_image()}", "--tag", tag, folder / "far")
    socket = engine.removeprefix("unix://")
    for alias in aliases:
        alias.mkdir(mode=0o700, parents=True)
    keys = " ".join(f"/{alias.name}/key.pub" for alias in aliases)
    volumes = [
        *(f"{alias}:/{alias.name}:ro" for alias in aliases),
        f"{socket}:/var/run/docker.sock",
        f"{client()}:/usr/bin/docker:ro",
    ]
    options = [word for volume in volumes for word in ("--volume", volume)]
    container = docker("run", "--detach", "--init", "--network=none", *options, tag, "sleep", "infinity").stdout.strip()
    calls = folder / "calls-of-aws"
    scripts = {
        "aws": _AWS.format(
            calls=calls, engine=engine, docker=client(), container=container, server=_SERVER.format(keys=keys)
        ),
        "session-manager-plugin": "#!/bin/sh\n",
    }
    for name, text in scripts.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    try:
        yield calls
    finally:
        docker("rm", "--force", container)
        docker("rmi", "--force", tag)
        shutil.rmtree(folder / "far")
