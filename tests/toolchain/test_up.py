"""`make up` around Pulumi: the real CLI on a small program, in a checkout of its own."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.toolchain.clone import ROOT, Clone, make
from toolchain import environment
from toolchain.checkout import Checkout
from toolchain.machine.toolchain_error import ToolchainError
from toolchain.parts.part import Part, recall
from toolchain.pulumi_run import stack_command

UP = """
import sys
from pathlib import Path
from toolchain import environment
from toolchain.checkout import Checkout
from toolchain.parts.part import Part
from toolchain.pulumi_run import stack_command

environment.prepare()
checkout = Checkout(Path(sys.argv[1]))
parts = [Part("all", "", "", env={"PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true"}, path=sys.argv[3].split(":"))]
sys.exit(getattr(stack_command, sys.argv[4])(checkout, sys.argv[2], environment.variables(checkout, parts)))
"""
PROGRAM = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
from components.runtime import end_at_interrupt
end_at_interrupt()
import asyncio, pulumi, time
from pathlib import Path
"""
RUNS = """
pulumi.export("images", {})
pulumi.export("secret", pulumi.Output.secret("hidden"))
Path("running").touch()
while Path("wait").exists():
    time.sleep(0.1)
"""
AWAITS = """
async def end():
    Path("running").touch()
    while Path("wait").exists():
        await asyncio.sleep(0.1)
pulumi.export("end", pulumi.Output.from_input(end()))
"""


class Project:
    """A small Pulumi program with one stack, brought up as `make up` does."""

    def __init__(self, clone: Clone) -> None:
        self.root = clone.root
        self.checkout = clone.checkout
        self.env: dict[str, str] = {}
        ready_checkout = Checkout.here()
        noted = [recall(ready_checkout, name) for name in ("Python packages", "Pulumi CLI", "Python language host")]
        parts = [part for part in noted if part is not None]
        assert len(parts) == 3, "the toolchain is not ready: run `make ready`"
        self.path = ":".join(
            dict.fromkeys(folder for part in parts for folder in part.path or [str(Path(part.used).parent)])
        )
        (self.root / "Pulumi.yaml").write_text("name: slipway\nruntime: python\nstackConfigDir: stacks\n")
        (self.root / "__main__.py").write_text(PROGRAM + RUNS)
        (self.root / "stacks").mkdir(exist_ok=True)
        self.tracked = self.root / "stacks" / "Pulumi.local.yaml"
        self.tracked.write_text("config:\n  slipway:flavor: local\n")
        environment.save(self.checkout, [Part("all", "", "", path=self.path.split(":"))])

    def start(self, verb: str = "up") -> subprocess.Popen[str]:
        words = [sys.executable, "-c", UP, str(self.root), "local", self.path, verb]
        env = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", **self.env}
        return subprocess.Popen(words, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def up(self, verb: str = "up") -> str:
        process = self.start(verb)
        out, _ = process.communicate(timeout=120)
        assert process.returncode == 0, out
        return out

    def hold(self) -> subprocess.Popen[str]:
        """Start an update whose program runs until `wait` is removed."""
        (self.root / "wait").touch()
        process = self.start()
        until = time.monotonic() + 60
        while not (self.root / "running").exists():
            assert process.poll() is None, process.communicate()[0]
            assert time.monotonic() < until
            time.sleep(0.05)
        return process

    def source(self, command: str) -> subprocess.CompletedProcess[str]:
        """Run a command in a shell that has sourced `.slipway/env`."""
        words = ["sh", "-c", f". .slipway/env && {command}"]
        env = {"PATH": "/usr/bin:/bin", "PULUMI_CONFIG_PASSPHRASE": "the user's own", **self.env}
        return subprocess.run(words, cwd=self.root, env=env, capture_output=True, text=True, check=False, timeout=60)

    def pulumi(self) -> int:
        """Return the pid of the Pulumi that brings this project's stack up."""
        for file in (self.checkout.backend / ".pulumi" / "locks").rglob("*.json"):
            return int(json.loads(file.read_text())["pid"])
        raise AssertionError("nobody holds the stack")


@pytest.fixture
def project(clone: Clone) -> Project:
    return Project(clone)


def test_up_creates_stack_once_and_keeps_tracked_file(project: Project) -> None:
    tracked = project.tracked.read_text()
    assert re.search(r"^Resources: 1 created \(\d+ s\)$", project.up(), re.MULTILINE)
    again = project.up()
    assert re.search(r"^Resources: 1 unchanged \(\d+ s\)$", again, re.MULTILINE)
    assert "hidden" not in again
    assert project.tracked.read_text() == tracked
    configuration = (project.checkout.config / "Pulumi.local.yaml").read_text()
    assert configuration.startswith(tracked)
    assert configuration.count("encryptionsalt:") == 1
    project.tracked.write_text(tracked + "  slipway:more: 1\n")
    project.up()
    assert "slipway:more: 1" in (project.checkout.config / "Pulumi.local.yaml").read_text()
    value = project.source("pulumi stack output --stack local --show-secrets secret")
    assert value.stdout.strip() == "hidden", value.stderr


def test_commands_of_readme_leave_checkout_clean(project: Project) -> None:
    git = ["git", "-C", str(project.root)]
    (project.root / ".gitignore").write_text("/.slipway/\n__pycache__/\nrunning\n")
    for words in (["init", "-q"], ["add", "."], ["-c", "user.name=n", "-c", "user.email=e", "commit", "-qm", "all"]):
        subprocess.run([*git, *words], check=True)
    readme = (ROOT / "README.md").read_text()
    assert set(re.findall(r"`make (up|preview)\b", readme)) == {"up", "preview"}
    assert not re.search(r"^\$ (?:.*&& )?pulumi (?:preview|up)\b", readme, re.MULTILINE), "adds a salt to the YAML"
    assert "1 to create" in project.up("preview")
    assert "1 created" in project.up()
    assert project.source("pulumi stack output --stack local").returncode == 0
    assert subprocess.run([*git, "status", "--porcelain"], capture_output=True, check=True).stdout == b""


def test_destroy_keeps_the_file_of_the_stack(project: Project) -> None:
    tracked = project.tracked.read_text()
    project.up()
    out = project.up("destroy")
    assert "Destroying stack local" in out
    assert "Resources: 1 deleted" in out
    assert "stacks/Pulumi.local.yaml and the published images stay" in out
    assert project.tracked.read_text() == tracked
    assert "1 created" in project.up()


@pytest.mark.parametrize(
    "command",
    [
        "pulumi up -s local --yes --skip-preview",
        pytest.param(
            "pulumi --non-interactive up --stack=organization/slipway/local --yes --skip-preview",
            marks=pytest.mark.slow,
        ),
        "pulumi stack select local && pulumi up --yes --skip-preview && pulumi preview && pulumi refresh --yes",
        pytest.param("PULUMI_STACK=local pulumi up --yes --skip-preview", marks=pytest.mark.slow),
        pytest.param("pulumi stack init local && pulumi up --yes --skip-preview", marks=pytest.mark.slow),
        pytest.param(
            "cd stacks && pulumi -C .. stack init -s local --no-select && pulumi up -s local --yes --skip-preview",
            marks=pytest.mark.slow,
        ),
        "cd stacks && pulumi -C .. up -slocal --yes --skip-preview && pulumi destroy -s local --yes",
    ],
)
def test_plain_pulumi_creates_stack_and_keeps_tracked_file(project: Project, command: str) -> None:
    """The stack was never named before; the salt of this machine's passphrase goes into a copy of its file."""
    tracked = project.tracked.read_text()
    done = project.source(f"export PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION=true; {command}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 created" in done.stdout
    assert project.tracked.read_text() == tracked
    again = project.up()
    assert "Resources: 1 " in again


def test_plain_pulumi_keeps_secret_of_a_new_stack(project: Project) -> None:
    """A secret belongs into the tracked file, with the salt that decrypts it."""
    program = project.root / "__main__.py"
    program.write_text(f"{program.read_text()}\npulumi.export('token', pulumi.Config('slipway').get_secret('token'))\n")
    done = project.source("pulumi config set -s local --secret token hidden-token && pulumi up -s local --yes")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "secure: " in project.tracked.read_text()
    assert project.tracked.read_text().count("encryptionsalt:") == 1
    assert "Resources: 1 " in project.up()
    shown = project.source("pulumi stack output -s local --show-secrets token")
    assert shown.stdout.strip() == "hidden-token"


def test_plain_pulumi_initializes_a_stack_only_once(project: Project) -> None:
    tracked = project.tracked.read_text()
    assert project.source("pulumi stack init local").returncode == 0
    again = project.source("pulumi stack init local")
    assert "already exists" in again.stderr
    assert project.tracked.read_text() == tracked


def test_plain_pulumi_elsewhere_gets_its_words_as_they_are(project: Project) -> None:
    """A stack without a file, another project and another backend are Pulumi's own affair."""
    none = project.source("pulumi up -s nccl-cu121 --yes --skip-preview")
    assert none.returncode != 0
    assert "no stack named 'nccl-cu121' found" in none.stderr
    project.source("mkdir other && printf 'name: slipway\nruntime: yaml\n' > other/Pulumi.yaml")
    other = project.source("cd other && pulumi preview -s local")
    assert "no stack named 'local' found" in other.stderr
    assert project.source("pulumi version").stdout.startswith("v3.")


def test_users_backend_has_users_passphrase(project: Project) -> None:
    (project.root / "theirs").mkdir()
    backend = "export PULUMI_BACKEND_URL=file://$PWD/theirs PULUMI_CONFIG_PASSPHRASE=secret"
    done = project.source(f"{backend} && pulumi stack init local && pulumi config set --secret --stack local a b")
    assert done.returncode == 0, done.stderr
    value = project.source(f"{backend} && rm -r .slipway/passphrase && pulumi config get --stack local a")
    assert value.stdout.strip() == "b", value.stderr


@pytest.mark.parametrize(
    ("names", "excepted"),
    [(("http_proxy", "https_proxy", "no_proxy"), ""), (("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"), "corp.invalid")],
)
def test_up_reaches_this_machine_past_proxy(project: Project, names: tuple[str, str, str], excepted: str) -> None:
    project.env = {names[0]: "http://127.0.0.1:9", names[1]: "http://127.0.0.1:9", names[2]: excepted}
    (project.root / "__main__.py").write_text(
        "import os\nassert os.environ['no_proxy'] == os.environ['NO_PROXY']\n"
        f"assert os.environ['no_proxy'].split(',') == {['127.0.0.1', 'localhost', '::1', *filter(None, [excepted])]}\n"
    )
    project.up()
    done = project.source(
        ". .slipway/env && pulumi preview --stack local --config-file .slipway/config/Pulumi.local.yaml"
    )
    assert done.returncode == 0, done.stdout + done.stderr


LAYERS = '{"layers": [{"digest": "sha256:a", "size": 1500000000}, {"digest": "sha256:b", "size": 620000000}]}'
LIST = """{"manifests": [
  {"digest": "sha256:attestation", "platform": {"os": "unknown", "architecture": "unknown"}},
  {"digest": "sha256:image", "platform": {"os": "linux", "architecture": "amd64"}}]}"""


@pytest.mark.parametrize(
    ("manifest", "size", "line"),
    [
        (f"echo '{LAYERS}'", "echo 78000000", ["  2.12 GB compressed, 78 MB unpacked"]),
        (
            f"case $4 in r/torch@sha256:image) echo '{LAYERS}' ;; *) echo '{LIST}' ;; esac",
            "exit 1",
            ["  2.12 GB compressed"],
        ),
        ("exit 1", "echo 5790000000", ["  5.79 GB unpacked"]),
        ("echo '{}'", "exit 1", []),
        ("""echo '{"manifests": [{"digest": "x"}]}'""", "exit 1", []),
        ("echo no JSON", "echo no number", []),
    ],
)
@pytest.mark.parametrize("host", ["", "unix:///s"])
def test_usage_has_known_sizes_and_run_command(
    clone: Clone, manifest: str, size: str, line: list[str], host: str
) -> None:
    clone.program("docker", f"case $1 in manifest) {manifest} ;; image) {size} ;; esac")
    environment = {"PATH": f"{clone.programs}:/usr/bin:/bin", **({"DOCKER_HOST": host} if host else {})}
    run = f"  {'DOCKER_HOST=unix:///s ' if host else ''}docker run --rm -it r/torch@sha256:1"
    assert stack_command._usage("torch", "r/torch@sha256:1", environment) == ["torch: r/torch@sha256:1", *line, run]


@pytest.mark.parametrize("body", [RUNS, AWAITS], ids=["runs", "awaits"])
def test_up_forwards_interrupt_once_and_leaves_no_lock(project: Project, body: str) -> None:
    (project.root / "__main__.py").write_text(PROGRAM + body)
    process = project.hold()
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGTERM)  # as GitHub's runner ends a job
    (project.root / "wait").unlink()
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 130, out
    assert re.search("^Interrupted: .*; the next run goes on from here$", out.splitlines()[-1])
    assert not re.search("Traceback|terminating$", out)
    project.up()


def test_lock_of_dead_pulumi_is_taken_by_next_up(project: Project) -> None:
    process = project.hold()
    with pytest.raises(
        ToolchainError, match=r"^stack local is locked by a Pulumi \(process \d+ on .*\): wait for it to end$"
    ):
        stack_command.check_lock(project.checkout, "local")
    pid = project.pulumi()
    os.kill(pid, signal.SIGKILL)
    (project.root / "wait").unlink()
    process.communicate(timeout=60)
    with pytest.raises(ToolchainError, match="that has ended: `slipway up local` or `slipway destroy local` goes on"):
        stack_command.check_lock(project.checkout, "local")
    assert project.up().startswith(f"Unlocked stack local: the Pulumi that held it (process {pid}, ")


@pytest.mark.parametrize(("name", "hint"), [("locl", "did you mean local? "), ("unlike", ""), ("../x", "")])
def test_unknown_stack_is_one_line(project: Project, name: str, hint: str) -> None:
    (project.root / "stacks" / "Pulumi.nccl.yaml").touch()
    with pytest.raises(ToolchainError) as caught:
        stack_command.check_name(project.checkout, name)
    assert str(caught.value) == f"unknown stack {name!r}: {hint}there are local, nccl (stacks/Pulumi.<stack>.yaml)"


def test_up_works_in_folder_of_any_name(tmp_path: Path) -> None:
    project = Project(make(tmp_path / "with space, 'quote' and ü, #, ?, %41 and $HOME"))
    project.up()
    assert (project.checkout.backend / ".pulumi" / "stacks" / "slipway" / "local.json").exists()
    assert project.source("pulumi stack ls").stdout.count("local") == 1
