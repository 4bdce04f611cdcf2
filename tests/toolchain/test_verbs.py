"""The verbs and the Makefile: what they print, and how they fail."""

import errno
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.helpers.json_shape import differing
from tests.helpers.needs import needs
from tests.toolchain.clone import ROOT, Clone, services_of
from toolchain import doctor, environment, lint, ready, verbs
from toolchain.checkout import Checkout
from toolchain.machine import locking, steps
from toolchain.machine.network import trust_store
from toolchain.machine.toolchain_error import ToolchainError
from toolchain.parts import base_image, docker_engine, docker_registry
from toolchain.parts.part import Part, recall, remember
from toolchain.release import own_repository

HOLD = """
import sys
from pathlib import Path
from toolchain.checkout import Checkout
from toolchain.machine.locking import alone

with alone(Checkout(Path(sys.argv[1])), "up") as let_beside:
    let_beside()
    print("in", flush=True)
    sys.stdin.read()
"""
BESIDE = HOLD.replace("alone", "beside").replace('"up") as let_beside', '"local")').replace("    let_beside()\n", "")


@contextmanager
def held(clone: Clone, program: str = HOLD, *, ends: bool = True) -> Iterator[subprocess.Popen[str]]:
    """Run a block while a program holds a lock of a checkout, and lets go; unless it ``ends``, the block is done before."""
    holder = subprocess.Popen(
        [sys.executable, "-c", program, str(clone.root)],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdin is not None
    assert holder.stdout is not None
    assert holder.stdout.readline() == "in\n"
    end = threading.Timer(0.5 if ends else 60, holder.stdin.close)
    end.start()
    yield holder
    waited = holder.stdin.closed
    end.cancel()
    holder.stdin.close()
    assert holder.wait() == 0
    assert waited is ends


CERTIFICATES = "-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n"


def test_doctor_names_every_part(capfd: pytest.CaptureFixture[str]) -> None:
    assert doctor.doctor(Checkout.here()) == 0, "a part is missing: run `make ready`"
    output = capfd.readouterr().out
    for kind in ready.KINDS:
        assert re.search(rf"^{kind.name} +\S.* \(.*\)$", output, re.MULTILINE)
    assert "missing" not in output


def test_doctor_as_json_is_alone_and_as_documented(capfd: pytest.CaptureFixture[str]) -> None:
    assert verbs.main(["doctor", "--json"]) == 0, "a part is missing: run `make ready`"
    output = capfd.readouterr()
    document = json.loads(output.out)
    assert output.err == ""
    assert differing("doctor", document) == []
    assert [part["name"] for part in document["parts"]] == [kind.name for kind in ready.KINDS]
    assert document["bytes"][".slipway"] > 0


@pytest.mark.parametrize("words", [["preview", "--json", "absent"], ["prune", "--json"]])
def test_error_beside_json_is_one_line(
    words: list[str], clone: Clone, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Checkout, "here", lambda: clone.checkout)
    monkeypatch.setenv("PULUMI_BACKEND_URL", "https://example.invalid")
    assert verbs.main(words) == 1
    output = capfd.readouterr()
    assert output.out == ""
    assert re.fullmatch(r"slipway: [^\n]+\n", output.err)


def test_doctor_on_fresh_checkout_changes_nothing(
    clone: Clone, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("DOCKER_HOST", "SLIPWAY_REGISTRY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", "/nonexistent")
    assert doctor.doctor(clone.checkout) == 1
    output = capfd.readouterr().out.splitlines()
    assert [line.split("  ")[0] for line in output[:-1]] == [kind.name for kind in ready.KINDS]
    assert all(line.endswith("missing") for line in output[:-1])
    assert output[-1] == f"{len(ready.KINDS)} missing: `make up` or `make ready` gets them"
    assert not clone.checkout.state.exists()


def test_down_ends_own_services_and_doctor_reports_it(
    clones: tuple[Clone, Clone], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    needs("root")
    first, second = clones
    docker_registry.get(first.checkout)
    docker_engine.get(first.checkout)
    docker_registry.get(second.checkout)
    monkeypatch.setattr(Checkout, "here", lambda: first.checkout)
    capfd.readouterr()
    for output in ("Stopped: Docker engine, registry", "Nothing of this checkout was running"):
        assert verbs.main(["down"]) == 0
        assert capfd.readouterr().out == f"{output}\n"
    assert not services_of(first.root)
    assert services_of(second.root)
    assert verbs.main(["doctor"]) == 1
    lines = capfd.readouterr().out.splitlines()
    for name in (docker_engine.NAME, docker_registry.NAME):
        assert f"{name:<22}not running: `make up` or `make ready` starts it" in lines


@pytest.mark.parametrize("verb", ["up", "preview"])
@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("a b", "unknown stack 'a b': there are "),
        ("it's", 'unknown stack "it\'s": there are '),
        ("$$(id)", "unknown stack '$(id)': there are "),
        ("-x", "unknown stack '-x': there are "),
        ("", "no stack is named: there are "),
    ],
)
def test_make_passes_stack_name_unchanged(verb: str, name: str, error: str) -> None:
    words = ["make", "-C", str(ROOT), "--no-print-directory", verb, f"STACK={name}"]
    outside = {key: value for key, value in os.environ.items() if key not in {"MAKEFLAGS", "MAKELEVEL"}}
    output = subprocess.run(words, capture_output=True, text=True, check=False, env=outside).stderr.splitlines()
    assert output[0].startswith(f"slipway: {error}"), output
    assert output[1:] == [line for line in output if line.startswith("make: ***")]


def test_note_of_other_checkout_is_ignored(clone: Clone, tmp_path: Path) -> None:
    remember(clone.checkout, Part("a part", "here", "1"))
    assert recall(clone.checkout, "a part") == Part("a part", "here", "1")
    moved = clone.root.rename(tmp_path / "moved")
    assert recall(Checkout(moved), "a part") is None


def test_second_run_waits_with_one_line(clone: Clone, capfd: pytest.CaptureFixture[str]) -> None:
    with held(clone) as holder, locking.alone(clone.checkout, "up"):
        pass
    waited = (
        rf"Waiting for another run in this checkout: up, process {holder.pid}, since \d{{4}}-\S+T\d\d:\d\d:\d\d\S+\n"
    )
    assert re.fullmatch(waited, capfd.readouterr().out)


@pytest.mark.parametrize(
    ("words", "status", "error"),
    [
        (["up", "locl"], 1, "slipway: unknown stack 'locl': did you mean local? "),
        (["upp"], 2, "invalid choice: 'upp'"),
        ([], 2, "the following arguments are required: VERB"),
    ],
)
def test_wrong_arguments_are_one_line(
    words: list[str], status: int, error: str, capfd: pytest.CaptureFixture[str]
) -> None:
    try:
        code = verbs.main(words)
    except SystemExit as end:
        code = end.code  # type: ignore[assignment]
    assert code == status
    assert error in capfd.readouterr().err.splitlines()[-1]


def test_full_disk_keeps_nobody_from_making_room(tmp_path: Path) -> None:
    checkout = Checkout(tmp_path)
    program = (
        "import sys; from pathlib import Path; from toolchain.checkout import Checkout;"
        "from toolchain.machine.locking import alone\n"
        "with alone(Checkout(Path(sys.argv[1])), 'down'): print('held')"
    )
    limited = ["prlimit", "--fsize=0", sys.executable, "-c", program, str(tmp_path)]
    done = subprocess.run(limited, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("held\n", 0), done.stderr
    assert (checkout.state / "lock").read_text() == ""


def test_folder_of_another_user_is_not_worked_in(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def fail(_checkout: Checkout, *, as_json: bool) -> int:  # noqa: ARG001 - as the function has it
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), "there")

    monkeypatch.setattr(doctor, "doctor", fail)
    assert verbs.main(["doctor"]) == 1
    assert capfd.readouterr().err == "slipway: there: Permission denied\n"
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    assert verbs.main(["doctor"]) == 1
    assert "; the repository is another user's: work in a clone of your own\n" in capfd.readouterr().err


def test_full_disk_is_one_line(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    def fail(_checkout: Checkout, *, as_json: bool) -> int:  # noqa: ARG001 - as the function has it
        with Path("/dev/full").open("w") as full:
            full.write("x")
        raise AssertionError

    monkeypatch.setattr(doctor, "doctor", fail)
    assert verbs.main(["doctor"]) == 1
    assert re.fullmatch(r"slipway: no space left on the disk of \S+\n", capfd.readouterr().err)
    monkeypatch.setattr(own_repository, "make", lambda _: fail(Checkout.here(), as_json=False))
    assert verbs.main(["init", "team"]) == 1
    assert capfd.readouterr().err == "slipway: no space left on the disk of team\n"


def test_read_only_folder_is_no_full_disk(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    def fail(_checkout: Checkout, *, as_json: bool) -> int:  # noqa: ARG001 - as the function has it
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), "/ro/a")

    monkeypatch.setattr(doctor, "doctor", fail)
    monkeypatch.setattr(verbs, "FULL_BYTES", 1 << 60)  # an image of such a file system has no free bytes
    assert verbs.main(["doctor"]) == 1
    assert capfd.readouterr().err == "slipway: /ro/a: Read-only file system\n"


@pytest.mark.parametrize(
    ("number", "again", "handler", "status"),
    [
        (signal.SIGINT, signal.SIGTERM, signal.SIG_DFL, 130),  # as GitHub's runner ends a job
        (signal.SIGHUP, signal.SIGHUP, signal.SIG_DFL, 130),  # a terminal that is closed may send two
        (signal.SIGHUP, signal.SIGHUP, signal.SIG_IGN, 0),  # as nohup has it
    ],
)
def test_signal_ends_a_verb_as_ctrl_c(
    number: int, again: int, handler: signal.Handlers, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    cleaned = []

    def raised(*_: object, **__: object) -> int:
        try:
            signal.raise_signal(number)
        finally:
            signal.raise_signal(again)
            cleaned.append(number)
        return 0

    monkeypatch.setattr(doctor, "doctor", raised)
    before = {each: signal.signal(each, handler) for each in {again, signal.SIGHUP}}
    try:
        assert verbs.main(["doctor"]) == status
        assert cleaned == [number]
    finally:
        for each, former in before.items():
            signal.signal(each, former)


def test_make_help_lists_every_target() -> None:
    makefile = (ROOT / "Makefile").read_text()
    declared = re.search(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    assert declared
    output = subprocess.run(
        ["make", "-C", ROOT, "--no-print-directory"], capture_output=True, text=True, check=True
    ).stdout
    listed = re.findall(r"^  make ([a-z-]+) +\S", output, re.MULTILINE)
    assert sorted([*listed, "help"]) == sorted(declared[1].split())


def test_lint_finds_scripts_and_workflows_by_content() -> None:
    commands = {Path(words[0]).name: words[1:] for words in lint.checks(Checkout.here())}
    assert set(commands) == {"ruff", "mypy", "hadolint", "shellcheck", "zizmor", "actionlint"}
    workflows = set((ROOT / ".github" / "workflows").glob("*.yml"))
    assert workflows
    assert all(workflows <= set(commands[name]) for name in ("zizmor", "actionlint"))
    assert ROOT / ".ci" / "run" in commands["shellcheck"]
    assert all(str(file).endswith("/Dockerfile") for file in commands["hadolint"])


def test_failing_command_is_one_line_with_its_log(tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match=r"^`sh -c .*` failed \(3\): last words; all output is in .*/log$"):
        steps.command(["sh", "-c", "echo first; echo last words; echo; exit 3"], tmp_path / "log")
    assert (tmp_path / "log").read_text() == "first\nlast words\n\n"


def test_step_shows_progress_and_time(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(steps, "HEARTBEAT_SECONDS", 0.05)
    with steps.step("Working", "takes a while"):
        time.sleep(0.2)
    lines = capfd.readouterr().out.splitlines()
    assert lines[0] == "Working (takes a while) ..."
    assert lines[1] == "  still running: Working (0 s)"
    assert lines[-1] == "Working: done in 0 s"


def test_trust_store_adds_only_missing_certificates() -> None:
    ours, theirs = CERTIFICATES.format("AAAA"), CERTIFICATES.format("BBBB")
    wrapped = CERTIFICATES.format("BB\nBB")
    assert trust_store.additional(ours + theirs + ours, wrapped) == [ours]
    assert trust_store.additional(theirs, wrapped) == []


def test_archive_of_same_files_is_same_image(tmp_path: Path) -> None:
    contents = []
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        tarball = tmp_path / folder / "layer.tar"
        tarball.write_bytes(b"a layer")
        base_image._archive(tarball, "name:tag", tmp_path / folder / "image.tar", "arm64")
        assert json.loads((tmp_path / folder / "config.json").read_text())["architecture"] == "arm64"
        contents.append([(tmp_path / folder / name).read_bytes() for name in ("config.json", "manifest.json")])
    assert contents[0] == contents[1]


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("echo bookworm-slim: Pulling from library/debian", ""),
        ("echo bookworm-slim: Pulling from library/debian; echo no such host >&2; exit 1", "no such host"),
        ("echo denied >&2; exit 1", "denied"),
        ("exec sleep 60", "no registry answered within 1 s"),
        ("echo bookworm-slim: Pulling from library/debian; exec sleep 60", "not pulled within 2 s"),
    ],
)
def test_pull_without_registry_ends_soon(clone: Clone, monkeypatch: pytest.MonkeyPatch, script: str, why: str) -> None:
    monkeypatch.setattr(base_image, "FIRST_WORD_SECONDS", 1.0)
    monkeypatch.setattr(base_image, "PULL_SECONDS", 2.0)
    clone.program("docker", script)
    assert base_image._pull({"PATH": f"{clone.programs}:/usr/bin:/bin"}) == why


@pytest.mark.parametrize("makefile", [True, False], ids=["checkout", "release"])
def test_older_python_is_told_what_its_folder_has(tmp_path: Path, *, makefile: bool) -> None:
    """A release has no Makefile. The running Python says that it is older."""
    (tmp_path / "toolchain").mkdir()
    (tmp_path / "toolchain/__init__.py").touch()
    main = (ROOT / "toolchain/__main__.py").read_text()
    (tmp_path / "toolchain/__main__.py").write_text(f"import sys\nsys.version_info = (3, 10)\n{main}")
    if makefile:
        (tmp_path / "Makefile").touch()
    words = [sys.executable, "-m", "toolchain"]
    refused = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert refused.returncode == 1
    assert refused.stderr.startswith("slipway: Python 3.")
    assert refused.stderr.count("\n") == 1
    assert ("make" in refused.stderr) is makefile


def test_preview_waits_for_no_run_of_another_stack(
    clone: Clone, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """It does for a run that replaces or deletes what it reads, and where it needs something first."""
    (clone.root / "stacks").mkdir(exist_ok=True)
    (clone.root / "stacks/Pulumi.local.yaml").touch()
    previewed: list[str] = []
    parts = [Part("a part", "here", "1")]
    monkeypatch.setattr(verbs, "ready", lambda *_, **__: parts)
    monkeypatch.setattr(environment, "variables", lambda *_: {})
    monkeypatch.setitem(verbs.ON_STACK, "preview", lambda _, stack, *__: previewed.append(stack) or 0)
    another, getting = "another run in this checkout: ", "a run that gets parts of this checkout\n"
    for run, there, waits in (
        ("up nccl", parts, ""),
        ("up nccl", None, f"{another}up nccl, "),
        ("up local", parts, f"{another}up local, "),
        ("prune", parts, f"{another}prune, "),
        ("up nccl, at its parts", parts, getting),
    ):
        monkeypatch.setattr(verbs, "ready_for_preview", lambda *_, there=there: there)
        verb, _, at_parts = run.partition(", ")
        program = HOLD.replace("    let_beside()\n", "") if at_parts else HOLD
        with held(clone, program.replace('"up"', f'"{verb}"'), ends=bool(waits)):
            assert verbs._on_stack(clone.checkout, "preview", "local") == 0
        said = capfd.readouterr().out
        assert said.startswith(f"Waiting for {waits}") if waits else not said
    assert previewed == ["local"] * 5
    assert not locking.held_by_another(clone.checkout, "local")


def test_prune_waits_for_a_preview_beside_another_run(clone: Clone, capfd: pytest.CaptureFixture[str]) -> None:
    (clone.checkout.state / "logs").mkdir(parents=True, exist_ok=True)
    with held(clone, BESIDE), locking.alone(clone.checkout, "prune"):
        pass
    assert capfd.readouterr().out == "Waiting for a preview in this checkout\n"


def test_two_previews_of_a_stack_take_turns(clone: Clone, capfd: pytest.CaptureFixture[str]) -> None:
    """Beside another stack's run. Previews of two stacks run at once."""
    (clone.checkout.state / "logs").mkdir(parents=True, exist_ok=True)
    with held(clone, BESIDE, ends=False), locking.beside(clone.checkout, "nccl"):
        pass
    assert capfd.readouterr().out == ""
    with held(clone, BESIDE), locking.beside(clone.checkout, "local"):
        pass
    assert capfd.readouterr().out == "Waiting for another preview of local\n"
