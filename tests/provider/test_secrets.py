"""Build secrets: a step that mounts one has it, and it is nowhere else."""

from __future__ import annotations

import json
import secrets
import subprocess
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest

from tests.provider.plugin import SELECTED, Failure, Plugin, started
from tests.provider.test_image import Maker, maker  # noqa: F401 - a fixture
from toolchain.provider.provider import UPDATE_SETTINGS
from toolchain.provider.provider_base import plain

MOUNT = "--mount=type=secret,id=netrc,target=/dev/netrc,mode=0444"
TAKES = "[ -f /dev/netrc ] && /bin/busybox sha256sum < /dev/netrc > /sum || echo none > /sum"


def dockerfile(step: str) -> str:
    return (
        f'FROM scratch\nCOPY busybox /bin/\nARG NONCE\nRUN {MOUNT} ["/bin/busybox", "sh", "-euc", {json.dumps(step)}]\n'
    )


@pytest.fixture
def lender(program: Path, docker_host: str) -> Iterator[Plugin]:
    """A plugin of its own, which has secrets that no other test may see."""
    with started(program) as running:
        running.configure(host=docker_host)
        yield running


@pytest.fixture
def lent(lender: Plugin, engine: docker.DockerClient, folder: Path, repository: str, shell: Path) -> Maker:
    """A maker of images whose folder has a shell."""
    (folder / "busybox").write_bytes(shell.read_bytes())
    (folder / "busybox").chmod(0o755)
    return Maker(lender, engine, folder, repository)


if SELECTED == "official":

    def test_official_provider_has_no_function_for_secrets(lender: Plugin) -> None:
        with pytest.raises(Failure):
            lender.invoke(UPDATE_SETTINGS, {"secrets": {}, "masked": []})

else:

    def test_secret_reaches_its_step_and_nothing_else(lent: Maker) -> None:
        password = f"canary{secrets.token_hex(8)}"
        netrc = f"machine a.test login u password {password}\n"
        lent.plugin.invoke(UPDATE_SETTINGS, {"secrets": {"netrc": netrc}, "masked": [password]})
        # A status line shows the newest text after a pause of half a second.
        step = f"/bin/busybox cat /dev/netrc; /bin/busybox sleep 1; {TAKES}"
        outputs = lent.create({"Dockerfile": dockerfile(step)}, build={"args": {"NONCE": password[6:12]}})
        expected = subprocess.run(
            ["sha256sum"], input=netrc, capture_output=True, text=True, check=True
        ).stdout.split()[0]
        assert lent.text(f"{lent.name}:v1", "/sum").split()[0] == expected
        assert "netrc" not in lent.files(f"{lent.name}:v1")
        saved = b"".join(lent.engine.images.get(f"{lent.name}:v1").save())
        assert password.encode() not in saved
        output = "\n".join([*lent.plugin.lines(), *lent.plugin.stderr, json.dumps(plain(outputs), default=str)])
        assert password not in output
        assert "machine a.test login u password [secret]" in output

    def test_step_without_its_secret_is_built(lent: Maker) -> None:
        lent.create({"Dockerfile": dockerfile(TAKES)}, build={"args": {"NONCE": secrets.token_hex(4)}})
        assert lent.text(f"{lent.name}:v1", "/sum") == "none\n"

    def test_other_secret_value_takes_step_from_cache(lent: Maker) -> None:
        nonce = secrets.token_hex(4)
        digests = set()
        for password in ("first-canary", "second-canary"):
            lent.plugin.invoke(UPDATE_SETTINGS, {"secrets": {"netrc": password}, "masked": [password]})
            made = lent.create({"Dockerfile": dockerfile(TAKES)}, build={"args": {"NONCE": nonce}})
            digests.add(plain(made)["repoDigest"])
        assert len(digests) == 1

    def test_secret_in_failed_step_is_masked_in_error(lent: Maker) -> None:
        lent.plugin.invoke(UPDATE_SETTINGS, {"secrets": {"netrc": "first-canary"}, "masked": ["first-canary"]})
        with pytest.raises(Failure, match=r"\[secret\]") as failure:
            lent.create(
                {"Dockerfile": dockerfile("/bin/busybox cat /dev/netrc; exit 3")}, build={"args": {"NONCE": "x"}}
            )
        assert "first-canary" not in str(failure.value)
