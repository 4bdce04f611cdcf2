"""What `slipway init` writes, what it refuses, and the release that a repository pins."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import stat
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from cli import main
from stacks.places import CHECKED, CODE, RELEASE
from toolchain.checkout import Checkout
from toolchain.machine.files import write
from toolchain.machine.toolchain_error import ToolchainError
from toolchain.release import own_repository
from toolchain.release.release_archive import FILES, LOCK, archive

DIGEST = hashlib.sha256(b"a wheel").hexdigest()


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The metadata of an installed wheel, first among those that this Python finds."""
    folder = tmp_path / "site" / "slipway-9.8.7.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: slipway\nVersion: 9.8.7\n")
    monkeypatch.syspath_prepend(folder.parent)
    return folder


def installed_from(site: Path, url: str, **hashes: str) -> None:
    """Record where the wheel is from, as pip does (PEP 610)."""
    (site / "direct_url.json").write_text(json.dumps({"url": url, "archive_info": {"hashes": hashes}}))


def test_init_pins_wheel_of_file_by_its_hash(site: Path, tmp_path: Path) -> None:
    wheel = tmp_path / "a wheel.whl"
    wheel.write_bytes(b"a wheel")
    installed_from(site, wheel.as_uri())  # pip before 23.1 records no hash
    assert own_repository.make(tmp_path / "team") == 0
    pin = (tmp_path / "team/requirements.txt").read_text()
    assert f"\nslipway==9.8.7 --hash=sha256:{DIGEST}\n" in pin
    assert str(tmp_path) not in pin
    own_repository.check_pin(Checkout(tmp_path / "team"))


def test_init_pins_wheel_of_address_by_that(site: Path, tmp_path: Path) -> None:
    url = "https://example.com/slipway-9.8.7-py3-none-any.whl"
    installed_from(site, url, sha256=DIGEST)
    own_repository.make(tmp_path / "team")
    assert f"\nslipway @ {url} --hash=sha256:{DIGEST}\n" in (tmp_path / "team/requirements.txt").read_text()
    own_repository.check_pin(Checkout(tmp_path / "team"))


@pytest.mark.parametrize("secret", ["?token=abc", "?X-Amz-Signature=abc&x=1", "#abc"])
def test_init_writes_no_secret_of_an_address(site: Path, tmp_path: Path, secret: str) -> None:
    url = "https://example.com/slipway-9.8.7-py3-none-any.whl"
    installed_from(site, f"{url.replace('//', '//me:abc@')}{secret}", sha256=DIGEST)
    own_repository.make(tmp_path / "team")
    pin = (tmp_path / "team/requirements.txt").read_text()
    assert "abc" not in pin.replace(DIGEST, "")
    assert f"\nslipway @ {url} --hash=sha256:{DIGEST}\n" in pin


def test_init_writes_a_git_repository_without_our_code(site: Path, tmp_path: Path) -> None:
    installed_from(site, "https://example.com/s.whl", sha256=DIGEST)
    own_repository.make(tmp_path / "team")
    files = {
        path.relative_to(tmp_path / "team").as_posix()
        for path in (tmp_path / "team").rglob("*")
        if path.is_file() and ".git/" not in path.as_posix()
    }
    assert files == {
        *(".gitignore", "Pulumi.yaml", "__main__.py", "requirements.txt", "stacks/Pulumi.local.yaml"),
        *("images/trainer/Dockerfile", "images/trainer/train.py"),
        *(f".github/workflows/{name}.yml" for name in ("preview", "publish", "up", "warm")),
    }
    done = subprocess.run(
        ["git", "-C", tmp_path / "team", "symbolic-ref", "HEAD"], capture_output=True, text=True, check=True
    )
    assert done.stdout == "refs/heads/main\n"
    line = (tmp_path / "team/stacks/Pulumi.local.yaml").read_text().splitlines()[0]
    assert line == f"# yaml-language-server: $schema=../{RELEASE}/stacks/stack.schema.json", "an editor finds it"


def test_init_keeps_what_a_host_put_there(site: Path, tmp_path: Path) -> None:
    installed_from(site, "https://example.com/s.whl", sha256=DIGEST)
    (tmp_path / "README.md").write_text("ours")
    (tmp_path / "team").mkdir()
    (tmp_path / "README.md").rename(tmp_path / "team/README.md")
    own_repository.make(tmp_path / "team")
    assert (tmp_path / "team/README.md").read_text() == "ours"


@pytest.mark.parametrize(
    ("existing", "message"),
    [
        ("team", "team is a file: name a new folder"),
        ("team/stacks/x", "team has stacks already: name a new folder, or an empty one"),
        ("team/.gitignore", "team has .gitignore already"),
        ("team/data/x", "team has data already"),
    ],
)
def test_init_where_something_is_changes_nothing(existing: str, message: str, site: Path, tmp_path: Path) -> None:
    installed_from(site, "https://example.com/s.whl", sha256=DIGEST)
    (tmp_path / existing).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / existing).write_text("ours")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ToolchainError, match=re.escape(message)):
        own_repository.make(tmp_path / "team")
    assert sorted(tmp_path.rglob("*")) == before


def test_init_goes_on_where_one_was_ended(site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ended before each of its files is in place, with a half of it beside; the pin is the last one."""
    installed_from(site, "https://example.com/s.whl", sha256=DIGEST)

    def there(folder: Path) -> dict[str, str]:
        files = (path for path in folder.rglob("*") if path.is_file() and ".git/" not in path.as_posix())
        return {path.relative_to(folder).as_posix(): path.read_text() for path in files}

    own_repository.make(tmp_path / "whole")
    whole = there(tmp_path / "whole")
    for number in range(len(whole)):
        left = [number]

        def ended(path: Path, target: Path, left: list[int] = left) -> Path:
            left[0] -= 1
            if left[0] < 0:
                path.write_text(path.read_text()[:10])
                raise KeyboardInterrupt
            return Path(os.replace(path, target) or target)  # noqa: PTH105 - what is replaced here

        with monkeypatch.context() as patched:
            patched.setattr(Path, "replace", ended)
            with pytest.raises(KeyboardInterrupt):
                own_repository.make(tmp_path / f"team{number}")
        assert "requirements.txt" not in there(tmp_path / f"team{number}")
        assert own_repository.make(tmp_path / f"team{number}") == 0
        assert there(tmp_path / f"team{number}") == whole


def test_init_names_the_command_as_it_can_be_run(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "bin" / "slipway"
    write(tmp_path / CHECKED, f"\n{program.with_name('python')} -m pip\n")
    write(program, "", mode=0o755)
    monkeypatch.setattr(own_repository, "CODE", tmp_path)
    installed_from(site, "https://example.com/slipway-9.8.7-py3-none-any.whl", sha256=DIGEST)
    own_repository.make(tmp_path / "team")
    assert f"\n  {program} check " in capsys.readouterr().out
    monkeypatch.setenv("PATH", str(program.parent), prepend=os.pathsep)
    own_repository.make(tmp_path / "other")
    assert "\n  slipway check " in capsys.readouterr().out


def test_init_without_git_says_so(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    installed_from(site, "https://example.com/s.whl", sha256=DIGEST)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert own_repository.make(tmp_path / "team") == 0
    assert "git is missing" in capsys.readouterr().out


def test_init_without_a_known_hash_is_refused(site: Path, tmp_path: Path) -> None:
    installed_from(site, "https://example.com/s.whl")
    with pytest.raises(ToolchainError, match="has not recorded the hash"):
        own_repository.make(tmp_path / "team")
    assert not (tmp_path / "team").exists()


def test_other_release_than_pinned_does_not_run(site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed_from(site, "https://example.com/s.whl", sha256=DIGEST)
    own_repository.make(tmp_path / "team")
    installed_from(site, "https://example.com/s.whl", sha256="0" * 64)
    with pytest.raises(ToolchainError, match=f"with the hash {DIGEST[:12]}, and 9.8.7 with 000000000000 runs"):
        own_repository.check_pin(Checkout(tmp_path / "team"))
    with monkeypatch.context() as patch:
        (tmp_path / "checked").write_text("no release is checked yet\npython -m pip\n")  # as it is unpacked
        patch.setattr(own_repository, "CODE", tmp_path)
        with pytest.raises(ToolchainError):
            own_repository.check_pin(Checkout(tmp_path / "team"))
        patch.setattr(main, "CODE", tmp_path)
        patch.setattr(main, "ROOT", tmp_path / "team")
        with pytest.raises(SystemExit, match="pins another release of Slipway than runs"):
            main.run()  # of the environment that the refused release left, as `. .slipway/env` has it on PATH
    (tmp_path / "team/requirements.txt").write_text("pulumi==3.0\n")
    with pytest.raises(ToolchainError, match="pins no release of Slipway"):
        own_repository.check_pin(Checkout(tmp_path / "team"))


@pytest.mark.parametrize(
    ("lines", "options"),
    [
        ("slipway==9.8.6", " --no-index --find-links <the folder with the wheel>"),
        ("--no-index\n--find-links wheels\nslipway==9.8.6", ""),
        ("slipway @ https://example.com/slipway-9.8.6-py3-none-any.whl", ""),
    ],
)
@pytest.mark.usefixtures("site")
def test_advice_for_another_release_asks_no_index(lines: str, options: str, tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text(f"{lines} --hash=sha256:{DIGEST}\n")
    with pytest.raises(ToolchainError) as caught:
        own_repository.check_pin(Checkout(tmp_path))
    assert str(caught.value).endswith(f"-m pip install --require-hashes -r requirements.txt{options}`")


@pytest.mark.parametrize(
    "pin", ["slipway==9.8.70", "slipway==19.8.7", "slipway @ https://example.com/slipway-9.8.70-py3.whl"]
)
def test_release_of_an_index_runs_under_its_own_pin(pin: str, site: Path, tmp_path: Path) -> None:
    """pip records no hash of a wheel that it has from an index."""
    assert site.exists()
    for line in ("slipway==9.8.7", "slipway @ https://example.com/slipway-9.8.7-py3-none-any.whl"):
        (tmp_path / "requirements.txt").write_text(f"{line} --hash=sha256:{DIGEST}\n")
        own_repository.check_pin(Checkout(tmp_path))
    (tmp_path / "requirements.txt").write_text(f"{pin} --hash=sha256:{DIGEST}\n")
    with pytest.raises(ToolchainError, match="and 9.8.7 with an unknown one runs"):
        own_repository.check_pin(Checkout(tmp_path))


def test_archive_has_recipes_as_git_has_them() -> None:
    content = archive(CODE)
    assert content == archive(CODE)
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        members = {member.name: member for member in tar}
    recipes = [path for path in (CODE / "dockerfiles").rglob("*") if "__pycache__" not in path.parts]
    for path in recipes:
        if path.is_symlink():
            assert members[path.relative_to(CODE).as_posix()].linkname == str(path.readlink())
        elif path.is_file():
            executable = bool(path.stat().st_mode & stat.S_IXUSR)
            assert members[path.relative_to(CODE).as_posix()].mode == (0o755 if executable else 0o644)
    own = [
        name for name in members if re.fullmatch(r"stacks/(Pulumi\..*|lock\.toml)|Pulumi\.yaml|requirements\.txt", name)
    ]
    assert own == []


def test_archive_of_a_checkout_has_what_git_has(tmp_path: Path) -> None:
    for name in (*FILES, LOCK, "cli/main.py", ".gitignore", "stacks/Pulumi.mine.yaml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("venv\n")
    for words in (["init", "--quiet"], ["add", "."]):
        subprocess.run(["git", "-C", tmp_path, *words], check=True)
    for name in ("policies/venv/ignored.py", "cli/.netrc"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("canary")
    with tarfile.open(fileobj=io.BytesIO(archive(tmp_path))) as tar:
        assert set(tar.getnames()) == {*FILES, "requirements.lock", "cli/main.py"}


def test_lock_of_release_has_the_same_hashes() -> None:
    def pins(name: str) -> dict[str, str]:
        text = (CODE / name).read_text()
        return {match[1]: match[0] for match in re.finditer(r"^(\S+?)==.*(?:\n +--hash.*)+", text, re.MULTILINE)}

    everything, run = pins("requirements.lock"), pins("requirements.run.lock")
    assert {"pulumi", "pydantic", "uv"} <= run.keys()
    assert not {"pytest", "mypy", "hatchling"} & run.keys()
    assert run.items() <= everything.items()


def test_launcher_and_code_agree_on_the_folder() -> None:
    text = (CODE / "toolchain/release/launcher.py").read_text()
    imported = set(re.findall(r"^(?:from|import) (\w+)", text, re.MULTILINE))
    assert imported <= set(sys.stdlib_module_names)
