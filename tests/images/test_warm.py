"""`slipway warm` on a published image: what a script leaves is a layer, and what scripts do wrong is one line."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from containers.image.registry_image import Image as Published
from containers.image.registry_image import fetch
from tests.engine.project import Project
from tests.images.engine import Image, base_image, docker, pushed, remove
from tests.images.test_start import PYTHON

CACHES = "import os; print({k: v for k, v in os.environ.items() if 'slipway/warm' in v})"
LEAVES = """#!/usr/bin/python3
import os, pathlib
for variable, text in (("TORCHINDUCTOR_CACHE_DIR", "graph"), ("TRITON_CACHE_DIR", "cubin")):
    folder = pathlib.Path(os.environ[variable], "b", "a")
    folder.mkdir(parents=True)
    (folder / "kernel.so").write_text(text)
    os.chmod(folder / "kernel.so", 0o4755)
    (folder / "data").write_text(text * 100)
"""


@pytest.fixture(scope="module")
def python_image() -> Iterator[str]:
    """An image with python3, of a user of its own, in the registry."""
    image = pushed((PYTHON + 'USER 1234:55\nENTRYPOINT ["/bin/false"]\n').format(base=base_image()), "warm")
    yield image.tag
    remove(image)


@pytest.fixture(scope="module")
def deployed(python_image: str, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project whose one image has python3, published."""
    project = Project(tmp_path_factory.mktemp("warm") / "project")
    project.add_stack()
    configure(project, base=python_image)
    project.write("warm/leaves.py", LEAVES)
    project.up()
    return project


@pytest.fixture
def project(deployed: Project, python_image: str, tmp_path: Path) -> Project:
    project = deployed.copy(tmp_path / "project")
    configure(project, base=python_image)
    return project


def configure(project: Project, script: str = "warm/leaves.py", *, base: str, **more: object) -> None:
    project.configure(base=base, warm={"script": script, "size": "4 MB", "seconds": 60, **more})


def warm(project: Project, *words: str, code: int = 0) -> str:
    before = containers()
    text = project.stacks("warm", "t", *words, "--no-gpu", code=code)
    assert containers() == before
    return text


def containers() -> list[str]:
    return docker("ps", "--all", "--quiet", "--filter", "name=slipway-warm-").stdout.split()


def reference(text: str) -> str:
    """Return the image that the printed lines name last, by its digest."""
    *_, (repository, digest) = re.findall(r" (\S+):[\w.-]+@(sha256:[0-9a-f]{64})", text)
    return f"{repository}@{digest}"


def layer_of(image: Published) -> dict[str, tuple[str, int, tuple[int, int]]]:
    entries = image.index(image.layers[-1]).entries
    return {path: (entry.kind, entry.mode, entry.owner) for path, entry in entries.items()}


def in_container(ref: str, *options: str) -> str:
    words = ["run", "--rm", "--entrypoint", "python3", *options, ref, "-c", CACHES]
    return docker(*words).stdout.strip().splitlines()[-1]


def test_script_leaves_a_layer_that_the_image_uses(project: Project) -> None:
    before = project.outputs()["images"]["link0"]
    ref = reference(warm(project))
    published, image = fetch(before["ref"]), fetch(ref)
    assert image.layers[:-1] == published.layers
    assert image.config == published.config
    [folder] = {path.split("/")[3] for path in layer_of(image) if path.count("/") == 3}
    root = f"opt/slipway/warm/{folder}"
    files = layer_of(image)
    assert files[f"{root}/inductor/b/a/kernel.so"] == ("file", 0o755, (1234, 55))
    assert files[f"{root}/triton/b/a/data"] == ("file", 0o644, (1234, 55))
    assert files[root] == ("directory", 0o755, (0, 0))
    assert {path.rsplit(".")[-1] for path in files if "dist-packages" in path} == {"py", "pyc", "pth"}
    variables = {"TORCHINDUCTOR_CACHE_DIR": f"/{root}/inductor", "TRITON_CACHE_DIR": f"/{root}/triton"}
    assert in_container(ref) == str(variables)
    # A cache that this user or this machine may not write to would fail: the image is as before.
    assert in_container(ref, "--user", "4321") == in_container(ref, "--read-only") == "{}"
    assert in_container(ref, "--env", "TRITON_CACHE_DIR=/tmp") == str({"TORCHINDUCTOR_CACHE_DIR": f"/{root}/inductor"})
    assert in_container(before["ref"]) == "{}"
    assert project.outputs()["images"]["link0"] == before


def test_equal_caches_are_an_equal_image(project: Project, python_image: str) -> None:
    first = reference(warm(project))
    project.write("warm/renamed.py", LEAVES)
    configure(project, "warm/renamed.py", base=python_image)
    assert f"{first.rpartition('@')[2]} is there already" in warm(project)
    # Another script that leaves the same: the folder's name tells them apart, and nothing else.
    project.write("warm/other.py", LEAVES + "# another\n")
    configure(project, "warm/other.py", base=python_image)
    other = reference(warm(project))
    assert other != first
    sizes = [{path.split("/", 4)[-1] for path in layer_of(fetch(ref))} for ref in (first, other)]
    assert sizes[0] - {""} >= {"inductor/b/a/data", "fits"} <= sizes[1]


def test_layer_of_another_machine_stays_and_is_not_used(project: Project, tmp_path: Path) -> None:
    other = project.copy(tmp_path / "other")
    hook = other.root / "cli/warm/warm_hook.py"
    text = hook.read_text()
    line = "    return [*_host(), "
    assert line in text
    hook.write_text(text.replace(line, '    return ["gpu NVIDIA H100 80GB HBM3", "driver 580", '))
    printed = warm(other)
    assert "for NVIDIA H100 80GB HBM3" in printed
    foreign = reference(printed)
    assert in_container(foreign) == "{}"
    both = reference(warm(project, "--onto", foreign))
    assert fetch(both).layers[:-1] == fetch(foreign).layers
    own = reference(warm(project))
    assert in_container(both) == in_container(own)
    # Both machines' layers have one tag, which says so whoever came first.
    assert both == reference(warm(other, "--onto", own))
    assert "already" in warm(project, "--onto", both)


def test_tag_of_a_faster_machine_is_not_moved(project: Project, python_image: str) -> None:
    """Two machines of one kind leave different files for one tag: the later one takes what the first has pushed."""
    text = "import os, time\nopen(os.environ['TRITON_CACHE_DIR'] + '/' + os.urandom(8).hex(), 'w').close()\ntime.sleep(8)\n"
    project.write("warm/random.py", text)
    configure(project, "warm/random.py", base=python_image)
    words = [sys.executable, "-m", "stacks", "warm", "t", "--no-gpu"]
    with subprocess.Popen(words, cwd=project.root, env=project.environment, stdout=-1, text=True) as first:
        assert first.stdout
        assert "on this machine" in first.stdout.readline()
        second = project.stacks(*words[3:])
        pushed = reference(first.stdout.read())
    assert f"{pushed.rpartition('@')[2]} is there already" in second
    assert reference(second) == pushed


ARCHIVE = """import os, tarfile
out = os.fdopen(os.open("/proc/1/fd/1", os.O_WRONLY), "wb")
with tarfile.open(fileobj=out, mode="w|") as target:
    member = tarfile.TarInfo({name!r})
    member.type = tarfile.{kind}
    target.addfile(member)
"""
HOSTILE: Mapping[str, tuple[str, Mapping[str, object], str]] = {
    "fails": ("import sys; print('no such kernel'); sys.exit(3)", {}, r"failed with status 3: no such kernel"),
    "crashes": ("import os; os.kill(os.getpid(), 11)", {}, r"hostile.py: it was ended by signal 11$"),
    "hangs": ("import time; time.sleep(1000)", {"seconds": 3}, r"not done in 3 s: slipway:warm.seconds"),
    "prints-without-end": ("while True: print('x' * 10000)", {"seconds": 3}, r"not done in 3 s"),
    "fills-the-disk": (
        "import os\nwith open(os.environ['TRITON_CACHE_DIR'] + '/f', 'wb') as f:\n try:\n  while True: f.write(bytes(1 << 16)); f.flush()\n except OSError: pass",
        {},
        r"no room left in 4,000,000 bytes: see slipway:warm.size",
    ),
    "fills-with-empty-files": (
        "import os\nn = 0\ntry:\n while True: open(f\"{os.environ['TRITON_CACHE_DIR']}/{n}\", 'w').close(); n += 1\nexcept OSError: pass",
        {"size": "400 MB"},
        r"no room left in 400,000,000 bytes",
    ),
    "writes-outside": (
        "import sys\ntry: open('/usr/lib/python3.11/x.py', 'w')\nexcept OSError as error: sys.exit(str(error))",
        {},
        r"Read-only file system: '/usr/lib/python3.11/x.py'",
    ),
    "leaves-nothing": ("open('/tmp/x', 'w')", {}, r"left nothing in a cache"),
    "asks-the-network": (
        "import socket, sys\ntry: socket.create_connection(('192.0.2.1', 80), 2)\nexcept OSError as error: sys.exit(str(error))",
        {},
        r"Network is unreachable",
    ),
    "removes-files-of-the-image": (
        "import os; open(os.environ['TRITON_CACHE_DIR'] + '/.wh.python3', 'w')", {}, r"a name by which a layer removes files",
    ),
    "controls-the-terminal": (
        "import os; open(os.environ['TRITON_CACHE_DIR'] + '/\\x1b[2J', 'w')", {}, r"cannot be printed",
    ),
    "writes-its-own-archive": (
        ARCHIVE.format(name="../../../etc/passwd", kind="REGTYPE"), {}, r"'../../../etc/passwd' is in no cache",
    ),
    "writes-a-device-into-its-own-archive": (
        ARCHIVE.format(name="triton/x", kind="CHRTYPE"), {}, r"'triton/x' is no regular file",
    ),
    "writes-no-archive": (
        "import os; os.write(os.open('/proc/1/fd/1', os.O_WRONLY), b'x' * 5000)", {}, r"no archive of files",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_script_is_refused_in_one_line(project: Project, python_image: str, case: str) -> None:
    text, more, expected = HOSTILE[case]
    project.write("warm/hostile.py", text)
    configure(project, "warm/hostile.py", base=python_image, **more)
    *_, line = warm(project, code=1).splitlines()
    assert re.search(expected, line), line


def test_sockets_and_links_are_left_out(project: Project, python_image: str) -> None:
    text = LEAVES + (
        "import socket\nos.chdir(os.environ['TRITON_CACHE_DIR'])\nos.symlink('/etc/passwd', 'link')\n"
        "socket.socket(socket.AF_UNIX).bind('socket')\nos.link('b/a/data', 'second')\nos.mkfifo('pipe')\n"
        "os.system('sleep 1000 &')\nopen('locked', 'w').close()\nos.chmod('locked', 0)\nos.mkdir('shut', 0)\n"
        "for _ in range(1200): os.mkdir('d'); os.chdir('d')\n"
    )
    project.write("warm/links.py", text)
    configure(project, "warm/links.py", base=python_image)
    printed = warm(project)
    assert "left out: triton/link is no regular file; left out: triton/locked cannot be read: Permission" in printed
    assert "; left out: triton/pipe is no regular file and 2 more" in printed
    files = layer_of(fetch(reference(printed)))
    kinds = {path.rpartition("triton/")[2]: kind for path, (kind, *_) in files.items() if "triton/" in path}
    assert {name: kinds.get(name) for name in ("link", "socket", "pipe", "second", "b/a/data")} == {
        "link": None, "socket": None, "pipe": None, "second": "file", "b/a/data": "file",
    }  # fmt: skip
    assert {kind for kind, *_ in files.values()} == {"file", "directory"}


@pytest.mark.parametrize("line", ["#!/bin/sh\r\n", ""])
def test_script_that_nothing_runs_is_one_line(project: Project, python_image: str, line: str) -> None:
    project.write("warm/steps", line + "printf x > $CUDA_CACHE_PATH/index\n")
    configure(project, "warm/steps", base=python_image)
    (printed,) = warm(project, code=1).splitlines()
    assert printed.endswith("its first line must name a program of the image, as #!/bin/sh does")


def test_script_that_is_no_python_runs_by_its_first_line(project: Project, python_image: str) -> None:
    project.write("warm/steps", "#!/bin/sh\nset -e\nprintf x > $CUDA_CACHE_PATH/index\n")
    configure(project, "warm/steps", base=python_image)
    assert any(path.endswith("/cuda/index") for path in layer_of(fetch(reference(warm(project)))))


@pytest.mark.parametrize("onto", ["{repository}:tag", "{repository}@sha256:" + "0" * 63, "other/x@sha256:" + "0" * 64])
def test_onto_without_digest_is_refused(project: Project, onto: str) -> None:
    repository = project.outputs()["images"]["link0"]["ref"].partition("@")[0]
    assert re.search(
        "by its digest|with a tag or a digest", warm(project, "--onto", onto.format(repository=repository), code=1)
    )


def test_onto_another_image_is_refused(project: Project) -> None:
    repository = project.outputs()["images"]["link0"]["ref"].partition("@")[0]
    docker("pull", f"{repository}@{project.outputs()['images']['link0']['digest']}")
    other = pushed("FROM scratch\nLABEL a=b\nCOPY --from=" + base_image() + " /etc/debian_version /\n", "onto")
    tag = f"{repository}:other"
    docker("tag", other.tag, tag)
    docker("push", "--quiet", tag)
    digest = fetch(tag).digest
    remove(Image(tag))
    remove(other)
    assert "with warm layers alone" in warm(project, "--onto", f"{repository}@{digest}", code=1)
