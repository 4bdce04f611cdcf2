"""The Pulumi CLI, its language host and the docker provider: the official thing first, and nothing ever half there."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.fakes.pulumi_release import PROGRAMS, Release, archive, pin
from tests.toolchain.clone import Clone
from toolchain.checkout import Checkout
from toolchain.machine import apt, golang
from toolchain.machine.network import net
from toolchain.parts import language_host, pulumi_cli
from toolchain.parts.plugins import provider_choice

GO = """
case "$1" in
  env) echo go1.99.0 ;;
  build)
    while [ "$1" != -o ]; do shift; done
    echo started >> "$BUILDS"
    printf '#!/bin/sh\\n' > "$2"
    while [ -e "$BUILDS.wait" ]; do sleep 0.05; done
    printf 'echo v%s\\n' "$VERSION" >> "$2"
    chmod +x "$2" ;;
  mod) ;;
  list) echo "$SDK" ;;
esac
"""
"""A stand-in of Go: a build takes as long as the file `$BUILDS.wait` is there, and writes its program in two halves."""


@pytest.fixture
def builder(clone: Clone, tmp_path: Path) -> Path:
    """Put the stand-in of Go on the clone's PATH; return the file in which it notes its builds."""
    sdk = tmp_path / "sdk" / "python"
    for script in ("cmd/pulumi-language-python-exec", "dist/pulumi-resource-pulumi-python"):
        (sdk / script).parent.mkdir(parents=True)
        (sdk / script).write_text(f"#!/bin/sh\n# {script}\n")
    # What each dependency is, of those that are edited.
    for file, edits in pulumi_cli.EDITS["github.com/nbutton23/zxcvbn-go"].items():
        (sdk.parent / file).parent.mkdir(parents=True)
        (sdk.parent / file).write_text("".join(old for old, _ in edits))
    builds = tmp_path / "builds"
    for name in ("pulumi", "pulumi-docker"):
        if not (clone.root / "toolchain/releases.toml").exists() or name != "pulumi":
            pin(clone.root, name, clone.checkout.locked(name))
    # In the program, as it gets no variable that Go does not need.
    values = {"BUILDS": builds, "SDK": sdk.parent, "VERSION": clone.checkout.locked("pulumi")}
    shebang, code = GO.split("\n", 1)
    clone.program("go", "\n".join([shebang, *(f"{name}='{value}'" for name, value in values.items()), code]))
    return builds


def _until(path: Path) -> None:
    end = time.monotonic() + 20
    while not path.exists():
        assert time.monotonic() < end, f"{path} did not appear"
        time.sleep(0.02)


def test_cli_is_official_release_where_reachable(clone: Clone, release: Release) -> None:
    part = clone.get("pulumi_cli")
    assert part["version"] == release.version
    assert part["path"] == [str(clone.checkout.bin)]
    assert {file.name for file in clone.checkout.bin.iterdir()} == set(PROGRAMS)
    host = clone.get("language_host")
    assert host["used"] == str(clone.checkout.bin / "pulumi-language-python")
    assert host["why"] == ""


def test_second_run_downloads_nothing(clone: Clone, release: Release) -> None:
    first = clone.get("pulumi_cli")
    count = len(release.requests)
    assert clone.get("pulumi_cli") == first
    assert len(release.requests) == count


def _truncate(release: Release) -> None:
    release.truncated.add(release.name)


def _corrupt(release: Release) -> None:
    release.files[release.name] = b"not what was published"


def _without_archive(release: Release) -> None:
    del release.files[release.name]


def _hang(release: Release) -> None:
    release.silent.set()


BROKEN = {
    "truncated": (_truncate, r"cut off after \d+ of \d+ bytes"),
    "wrong checksum": (_corrupt, r"SHA-256 is \w+\.\.\., pinned is \w+\.\.\."),
    "archive missing": (_without_archive, r"HTTP 404"),
    "hanging": (_hang, r"timed out|no answer"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_cli_is_built_after_bad_download(clone: Clone, release: Release, builder: Path, case: str) -> None:
    spoil, reason = BROKEN[case]
    spoil(release)
    begun = time.monotonic()
    part = clone.get("pulumi_cli")
    assert time.monotonic() - begun < net.CONNECT_SECONDS + 6
    assert part["version"] == f"{release.version}, built from its Go module"
    assert re.search(f"^not on PATH; official release: .*({reason})", part["why"])
    assert builder.read_text() == "started\n"
    assert {file.name for file in clone.checkout.bin.iterdir()} == {"pulumi"}


def test_cli_is_built_after_refused_connection(clone: Clone, builder: Path) -> None:
    clone.env["SLIPWAY_PULUMI_BASE_URL"] = "http://127.0.0.1:9"
    assert "127.0.0.1:9: connection refused" in clone.get("pulumi_cli")["why"]
    assert builder.exists()


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://me:s3cret@127.0.0.1:9/x", "http://127.0.0.1:9/x/?.*: an address with user:password@ is not taken"),
        (
            "https://me:s3cret@mirror.invalid/x",
            "https://mirror.invalid/x/?.*: an address with user:password@ is not taken",
        ),
        ("https://me:s3cret@127.0.0.1:x/x", "https://127.0.0.1:x/x/?.* is not an https:// address"),
        ("http://me:s3cret@mirror.invalid/x", "http://mirror.invalid/x/?.* is not an https:// address"),
        ("mirror.invalid/x", "mirror.invalid/x/?.* is not an https:// address"),
        ("https:///x", "https:///x/?.* is not an https:// address"),
        ("https://[::1/x", r"https://\[::1/x/?.* is not an https:// address"),
    ],
)
def test_unreachable_source_is_one_line_without_password(clone: Clone, builder: Path, url: str, why: str) -> None:
    clone.env |= {"SLIPWAY_PULUMI_BASE_URL": url, "SLIPWAY_PULUMI_PLUGIN_URL": url}
    process = clone.start("pulumi_cli")
    output = "".join(process.communicate(timeout=60))
    assert process.returncode == 0, output
    assert builder.exists()
    part = clone.get("plugins.provider_choice")
    assert part["used"] == "embedded provider"
    assert re.fullmatch(why, part["why"])
    noted = "".join(file.read_text() for file in (clone.checkout.state / "parts").iterdir())
    assert re.search(f"official release: {why}", noted.replace("\\\\", "\\"))
    for text in (output, noted):
        assert "s3cret" not in text
        assert "Traceback" not in text


def test_plain_http_to_other_machine_is_refused(clone: Clone, builder: Path) -> None:
    clone.env["SLIPWAY_PULUMI_BASE_URL"] = "http://mirror.invalid/pulumi"
    assert "http://mirror.invalid/pulumi/pulumi-" in (why := clone.get("pulumi_cli")["why"])
    assert why.endswith("is not an https:// address")
    assert builder.exists()


def test_silent_host_is_probed_once_in_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(net, "CONNECT_SECONDS", 0.3)
    with Release("1.0.0") as release:
        release.silent.set()
        assert net.unreachable([f"{release.url}/a"])
        begun = time.monotonic()
        assert net.unreachable([f"{release.url}/b"])
        assert time.monotonic() - begun < 0.1
        assert release.requests == ["a"]


def test_cli_without_download_and_go_is_one_line(clone: Clone, builder: Path) -> None:
    clone.env["SLIPWAY_PULUMI_BASE_URL"] = "http://127.0.0.1:9"
    clone.program("go", 'if [ "$1" = env ]; then echo go1.99.0; else echo "no module for you" >&2; exit 1; fi')
    error = clone.refused("pulumi_cli")
    assert error.startswith("slipway: no Pulumi CLI (not on PATH; official release: 127.0.0.1:9: connection refused;")
    assert "no module for you" in error
    assert error.endswith(f"install Pulumi {clone.checkout.locked('pulumi')} and run this again")
    assert not builder.exists()


@pytest.mark.parametrize(("version", "usable"), [("+0.0", True), ("+1.0", True), ("-1.0", False), ("major", False)])
def test_cli_on_path_is_used_unless_older_than_sdk(clone: Clone, release: Release, version: str, usable: bool) -> None:
    major, minor, patch = (int(number) for number in release.version.split("."))
    versions = {
        "+0.0": (major, minor),
        "+1.0": (major, minor + 1),
        "-1.0": (major, minor - 1),
        "major": (major + 1, minor),
    }
    text = f"{versions[version][0]}.{versions[version][1]}.{patch}"
    clone.program("pulumi", f"echo v{text}")
    clone.program("pulumi-language-python", "echo")
    part = clone.get("pulumi_cli")
    if usable:
        assert (part["used"], part["version"], part["path"]) == (str(clone.programs / "pulumi"), text, [])
        assert clone.get("language_host")["used"] == str(clone.programs / "pulumi-language-python")
        assert not release.requests
    else:
        assert part["used"] == str(clone.checkout.bin / "pulumi")
        assert f"{clone.programs / 'pulumi'} is {text}, the SDK needs {release.version} or newer" in part["why"]


def test_cli_on_path_is_looked_up_each_time(clone: Clone, release: Release) -> None:
    major, minor, patch = (int(number) for number in release.version.split("."))
    clone.program("pulumi-language-python", "echo")
    for text in (f"{major}.{minor}.{patch}", f"{major}.{minor + 1}.0"):
        clone.program("pulumi", f"echo v{text}")
        assert [clone.get(part)["version"] for part in ("pulumi_cli", "language_host")] == [text, text]
    clone.program("pulumi", f"echo v{major}.{minor - 1}.0")
    assert clone.get("pulumi_cli")["version"] == release.version
    (clone.programs / "pulumi").unlink()
    assert clone.get("pulumi_cli")["used"] == str(clone.checkout.bin / "pulumi")


def test_moved_checkout_gets_new_launcher(installable: Clone) -> None:
    installable.env["SLIPWAY_DOCKER_PROVIDER"] = "embedded"
    installable.get("plugins.provider_choice")
    installable.root = installable.root.rename(installable.root.with_name("moved"))
    part = installable.get("plugins.provider_choice")
    launcher = provider_choice._program(installable.checkout)
    assert part["path"] == []
    assert f"PYTHONPATH={installable.root} " in launcher.read_text()


def test_launcher_of_an_earlier_version_is_replaced(installable: Clone) -> None:
    part = installable.get("plugins.provider_choice")
    launcher = provider_choice._program(installable.checkout)
    text = launcher.read_text()
    launcher.write_text(text.replace(provider_choice.MODULE, "toolchain.docker_provider"))
    assert installable.get("plugins.provider_choice") == part
    assert (part["used"], launcher.read_text()) == ("embedded provider", text)


def test_language_host_is_built_for_cli_without_one(clone: Clone, builder: Path) -> None:
    clone.program("pulumi", f"echo v{clone.checkout.locked('pulumi')}")
    part = clone.get("language_host")
    assert part["why"] == f"not beside {clone.programs / 'pulumi'}"
    assert {file.name for file in clone.checkout.bin.iterdir()} == {*PROGRAMS, language_host.PYTHON} - {"pulumi"}
    for program in ("pulumi-resource-pulumi-python", language_host.PYTHON):
        assert (clone.checkout.bin / program).stat().st_mode & 0o111
    assert part["env"] == {"PULUMI_PYTHON_CMD": str(clone.checkout.bin / language_host.PYTHON)}
    assert builder.read_text() == "started\n"


LIST = ("-m", "pip", "list", "-v", "--format", "json")
"""As the built host asks for packages."""


def _host_python(*arguments: str, **more: str) -> str:
    script = Path(language_host.__file__).with_name(language_host.PYTHON)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        [script, *arguments], check=True, capture_output=True, text=True, env={**os.environ, "PATH": path, **more}
    )
    return done.stdout


def test_host_python_lists_packages_as_pip_does(tmp_path: Path) -> None:
    for folder, version in (("first", "1.0"), ("second", "2.0")):
        metadata = tmp_path / folder / f"pulumi_acme-{version}.dist-info/METADATA"
        metadata.parent.mkdir(parents=True)
        metadata.write_text(f"Metadata-Version: 2.1\nName: pulumi-acme\nVersion: {version}\n\nVersion: of its text\n")
    (tmp_path / "first/empty-1.0.dist-info").mkdir()  # what an interrupted installation leaves
    path = f"{tmp_path / 'first'}:{tmp_path / 'second'}"
    command = [sys.executable, *LIST]
    done = subprocess.run(command, check=True, capture_output=True, env={**os.environ, "PYTHONPATH": path})
    known = [{key: package[key] for key in ("name", "version", "location")} for package in json.loads(done.stdout)]
    known = [package for package in known if package["name"] != "empty"]
    listed = json.loads(_host_python(*LIST, PYTHONPATH=path))
    assert {"name": "pulumi-acme", "version": "1.0", "location": str(tmp_path / "first")} in listed
    assert sorted(listed, key=repr) == sorted(known, key=repr)


def test_host_python_runs_all_else_as_it_is() -> None:
    program = "import sys; print(sys.prefix, sys.argv[1:])"
    assert _host_python("-c", program, "-v", "two words") == f"{sys.prefix} ['-v', 'two words']\n"


def test_killed_build_is_repeated(clone: Clone, builder: Path) -> None:
    clone.env["SLIPWAY_PULUMI_BASE_URL"] = "http://127.0.0.1:9"
    wait = builder.with_name("builds.wait")
    wait.touch()
    process = clone.start("pulumi_cli")
    _until(builder)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (clone.checkout.bin / "pulumi").exists()
    second = clone.start("pulumi_cli")  # the build that was left behind still holds the lock
    assert second.stdout
    assert second.stdout.readline().startswith("Waiting for another run in this checkout: get, process ")
    assert builder.read_text() == "started\n"
    wait.unlink()
    _, err = second.communicate(timeout=30)
    assert second.returncode == 0, err
    assert builder.read_text() == "started\nstarted\n"
    assert (clone.checkout.bin / "pulumi").read_text().endswith(f"echo v{clone.checkout.locked('pulumi')}\n")


def test_killed_download_is_repeated(clone: Clone, release: Release) -> None:
    release.silent.set()
    process = clone.start("pulumi_cli")
    while not release.requests:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    release.silent.clear()
    release.released.set()
    assert clone.get("pulumi_cli")["version"] == release.version


def test_new_sdk_gets_new_cli(clone: Clone, release: Release) -> None:
    clone.get("pulumi_cli")
    lock = clone.checkout.lock
    lock.write_text(lock.read_text().replace(f"pulumi=={release.version}", "pulumi==3.999.0"))
    with Release("3.999.0") as newer:
        clone.env["SLIPWAY_PULUMI_BASE_URL"] = newer.url
        newer.pin(clone.root)
        assert clone.get("pulumi_cli")["version"] == "3.999.0"


def test_built_programs_have_version_of_sdk() -> None:
    sdk = Checkout.here().locked("pulumi")
    assert golang.required("cli", "github.com/pulumi/pulumi/pkg/v3") == sdk
    assert golang.required("cli", "github.com/pulumi/pulumi/sdk/v3") == sdk


def test_go_caches_of_two_builds_in_one_process_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first removal is still at it."""
    checkout, removals = Checkout(tmp_path), []
    monkeypatch.setattr(subprocess, "Popen", lambda words, **_: removals.append(words))
    for number in range(2):
        with golang.caches(checkout):
            module = checkout.cache / "go" / "modules" / str(number)
            module.mkdir(parents=True)
    assert sorted(checkout.cache.glob("go/**")) == []
    assert sorted(map(str, checkout.cache.glob("go.removed-*"))) == sorted(map(str, removals[1][2:]))
    assert len(removals[1][2:]) == 2


def test_go_build_ignores_users_settings(clone: Clone, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"GOWORK": "/go.work", "GOFLAGS": "-mod=vendor", "GOOS": "plan9", "GOARCH": "386"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("GOPROXY", "https://proxy.invalid")
    # Set, not unset: what is unset comes from the file of `go env -w`.
    expected = {"GOWORK": "off", "GOFLAGS": "-mod=readonly", "GOOS": "linux", "GOARCH": apt.machine()}
    assert golang._environment(clone.checkout).items() >= {**expected, "GOPROXY": "https://proxy.invalid"}.items()


def test_cli_build_leaves_clients_of_clouds_unoptimized(clone: Clone, monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list[str]] = []
    monkeypatch.setattr(golang, "_go", lambda *_: "go")
    monkeypatch.setattr(golang, "command", lambda words, *_, **__: commands.append([str(word) for word in words]))
    with suppress(FileNotFoundError):  # nothing is built
        golang.build(clone.checkout, "cli", "x", clone.root / "x", unoptimized=pulumi_cli.UNOPTIMIZED)
    assert "-tags=disable_grpc_modules" in commands[0]
    flags = [word for word in commands[0] if word.startswith("-gcflags=")]
    assert flags[0] == "-gcflags=all=-dwarf=false"  # for `go build` the last pattern that fits a package counts
    assert "-gcflags=github.com/aws/...=-dwarf=false -N -l" in flags
    busy = ("pkg/v3/backend", "pkg/v3/engine", "pkg/v3/resource", "pulumi/sdk", "grpc")
    assert not [flag for flag in flags for package in busy if package in flag]


def test_cli_is_built_with_edited_copies_of_dependencies(clone: Clone, builder: Path) -> None:
    clone.env["SLIPWAY_PULUMI_BASE_URL"] = "http://127.0.0.1:9"
    module_copy = builder.with_name("module_copy")
    go = clone.programs / "go"
    copy = (
        'for word; do case $word in -modfile=*) cp -r "$(dirname "${word#*=}")" ' + f"'{module_copy}' ;; esac; done\n"
    )
    go.write_text(go.read_text().replace("    while [", f"    {copy}    while [", 1))
    clone.get("pulumi_cli")
    required = (golang.MODULES / "cli/go.mod").read_text()
    module = (module_copy / "go.mod").read_text()
    assert module.startswith(required)
    replaced = dict(re.findall(r"^replace (\S+) => (\S+)$", module.removeprefix(required), re.MULTILINE))
    assert set(replaced) == set(pulumi_cli.EDITS)
    assert (module_copy / "go.sum").read_text() == (golang.MODULES / "cli/go.sum").read_text()
    for dependency, copied in replaced.items():
        files = module_copy / Path(copied).name
        assert (files / "go.mod").read_text() == f"module {dependency}\n"
        assert (files / "frequency/frequency.go").read_text() == "func Load() {\n"
        assert "func init" not in (files / "matching/matching.go").read_text()


def test_cli_with_other_text_to_edit_is_one_line(clone: Clone, builder: Path) -> None:
    clone.env["SLIPWAY_PULUMI_BASE_URL"] = "http://127.0.0.1:9"
    (builder.with_name("sdk") / "frequency/frequency.go").write_text("func init() {}\n")
    error = clone.refused("pulumi_cli")
    assert "github.com/ccojocar/zxcvbn-go has not once in frequency/frequency.go: func init() {" in error
    assert not builder.exists()


@pytest.fixture
def installable(clone: Clone) -> Clone:
    """A clone with the real Pulumi CLI of this checkout, which installs plugins."""
    cli = pulumi_cli.find(Checkout.here())
    assert cli is not None, "the Pulumi CLI is missing: run `make ready`"
    (clone.programs / "pulumi").symlink_to(cli.used)
    return clone


def _plugin(clone: Clone) -> tuple[str, bytes]:
    """Pin a plugin; return its file."""
    version = clone.checkout.locked("pulumi-docker")
    content = archive("", {"pulumi-resource-docker": ""})
    pin(clone.root, "pulumi-docker", version, content)
    return f"pulumi-resource-docker-v{version}-linux-{apt.machine()}.tar.gz", content


def test_docker_provider_is_official_where_reachable(installable: Clone, release: Release) -> None:
    name, content = _plugin(installable)
    release.files[name] = content
    installable.env["SLIPWAY_PULUMI_PLUGIN_URL"] = release.url
    part = installable.get("plugins.provider_choice")
    assert (part["used"], part["why"], part["env"]) == (
        "official plugin",
        "",
        {"SLIPWAY_DOCKER_PROVIDER": "official", **provider_choice.ON_DEMAND},
    )
    program = provider_choice._program(installable.checkout)
    assert provider_choice.MODULE not in program.read_text()
    count = len(release.requests)
    assert installable.get("plugins.provider_choice") == part
    assert len(release.requests) == count


def test_docker_provider_is_embedded_where_unreachable(installable: Clone, release: Release) -> None:
    installable.env["SLIPWAY_PULUMI_PLUGIN_URL"] = release.url
    _plugin(installable)
    part = installable.get("plugins.provider_choice")
    assert part["used"] == "embedded provider"
    assert "404" in part["why"]
    assert part["path"] == [], "Pulumi warns of a plugin on PATH at each start"
    launcher = provider_choice._program(installable.checkout)
    assert launcher.stat().st_mode & 0o111
    assert "-m toolchain.provider" in launcher.read_text()


def test_docker_provider_can_be_forced(installable: Clone, release: Release) -> None:
    installable.env |= {"SLIPWAY_PULUMI_PLUGIN_URL": release.url, "SLIPWAY_DOCKER_PROVIDER": "official"}
    name, content = _plugin(installable)
    assert re.search(
        "^slipway: the official docker provider .* is not available: .*404",
        installable.refused("plugins.provider_choice"),
    )
    installable.env["SLIPWAY_DOCKER_PROVIDER"] = "embedded"
    assert installable.get("plugins.provider_choice")["why"] == "SLIPWAY_DOCKER_PROVIDER=embedded"
    release.files[name] = content
    installable.env["SLIPWAY_DOCKER_PROVIDER"] = "official"
    assert installable.get("plugins.provider_choice")["used"] == "official plugin"
    assert provider_choice.MODULE not in provider_choice._program(installable.checkout).read_text()
    installable.env["SLIPWAY_DOCKER_PROVIDER"] = "offical"
    assert installable.refused("plugins.provider_choice") == (
        "slipway: SLIPWAY_DOCKER_PROVIDER=offical: allowed are official and embedded"
    )


def test_embedded_provider_stays_where_official_one_fails(installable: Clone, release: Release) -> None:
    installable.env["SLIPWAY_PULUMI_PLUGIN_URL"] = release.url
    part = installable.get("plugins.provider_choice")
    launcher = provider_choice._program(installable.checkout).read_text()
    installable.env["SLIPWAY_DOCKER_PROVIDER"] = "official"
    installable.refused("plugins.provider_choice")
    del installable.env["SLIPWAY_DOCKER_PROVIDER"]
    assert provider_choice._program(installable.checkout).read_text() == launcher
    assert installable.get("plugins.provider_choice") == part


@pytest.mark.parametrize(
    ("name", "title", "needed", "instead"),
    [
        (
            "aws",
            "AWS provider",
            "ECR and runners on EC2 need",
            "do without: another kind of slipway:registry, no slipway:runners of kind ec2",
        ),
        ("kubernetes", "Kubernetes provider", "runners on a cluster need", "leave slipway:runners out"),
    ],
)
def test_cloud_provider_is_installed_or_taken_from_path(
    installable: Clone, release: Release, name: str, title: str, needed: str, instead: str
) -> None:
    version = installable.checkout.locked(f"pulumi-{name}")
    program, module = f"pulumi-resource-{name}", "plugins.plugin"
    installable.env["SLIPWAY_PULUMI_PLUGIN_URL"] = release.url
    content = archive("", {program: ""})
    pin(installable.root, f"pulumi-{name}", version, content)
    assert re.fullmatch(
        f"slipway: the {title} {version}, which {needed}, is not available: .*404.*; put {program} on PATH, or {instead}",
        installable.refused(module, name),
    )
    release.files[f"{program}-v{version}-linux-{apt.machine()}.tar.gz"] = content
    part = installable.get(module, name)
    assert (part["used"], part["version"]) == ("official plugin", version)
    installable.program(program, "echo")
    assert installable.get(module, name)["used"] == str(installable.programs / program)


@pytest.mark.slow
def test_real_cli_and_language_host_build_from_modules(clone: Clone, tmp_path: Path) -> None:
    clone.env |= {"SLIPWAY_PULUMI_BASE_URL": "http://127.0.0.1:9", "HOME": str(tmp_path)}
    clone.get("python_env")
    assert clone.get("pulumi_cli")["version"].endswith("built from its Go module")
    assert clone.get("language_host")["version"].endswith("built from its Go module")
    assert pulumi_cli._version_of(clone.checkout, str(clone.checkout.bin / "pulumi")) == clone.checkout.locked("pulumi")
    assert {file.name for file in clone.checkout.bin.iterdir()} == set(PROGRAMS)
    assert not (tmp_path / "go").exists()
