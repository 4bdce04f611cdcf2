"""What the compiler cache of wheels serves, and what it does not: real ccache and g++, and a stand-in of nvcc."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.fakes.compiler_storage import storage
from tests.helpers.compiler_calls import compiler_calls
from tests.images.engine import DOCKERFILES, base_image, docker, unique

NVCC = """\
#!/bin/sh
# As nvcc does: compiles for each of the architectures, preprocesses for the first alone, and reads this variable.
set -eu
# shellcheck disable=SC2086
set -- "$@" ${NVCC_APPEND_FLAGS:-}
architectures=
preprocesses=
for argument do
  shift
  case $argument in
    --arch=*) architectures="$architectures ${argument#*=}" ;;
    -E) preprocesses=-E ;;
    *) set -- "$@" "$argument" ;;
  esac
done
for architecture in $architectures; do
  g++ $preprocesses -x c++ "-D__CUDA_ARCH__=$architecture" "$@"
  [ -z "$preprocesses" ] || break
done
"""

SITE, INCLUDE = "/usr/lib/pythons/{}/lib/site-packages", "/usr/lib/pythons/{}/include"
HEADERS = {
    f"{SITE}/torch/include/torch/torch.h": "#include <torch/version.h>\ninline const char *torch_header() { return __FILE__; }\n",
    f"{SITE}/torch/include/torch/version.h": "#define TORCH_VERSION_PATCH 0\n",
    f"{INCLUDE}/Python.h": '#define PYTHON_VERSION "{}"\n',
    "/usr/lib/pythons/{}/bin/python": f"""#!/bin/sh\ncase $* in *'"include"'*) echo {INCLUDE} ;; *) echo {SITE} ;; esac\n""",
}
SOURCES = {
    "operator.cpp": "#include <torch/torch.h>\nconst char *operator_of() { return torch_header(); }\n",
    "binding.cpp": "#include <torch/torch.h>\n#include <Python.h>\nconst char *version = PYTHON_VERSION;\n",
    "kernel.cu": '#include <torch/torch.h>\n#if __CUDA_ARCH__ >= 90\n#include "newer.h"\n#endif\nint kernel = 1;\n',
    "newer.h": "int newer = 1;\n",
}
CALLS = {"operator.cpp", "binding.cpp", "kernel.cu"}

COMPILE = """
set -eu
rm -rf /root/.cache/ccache
. /mnt/compiler-cache
mkdir -p "$SOURCE/build/temp.$VERSION"
cd "$SOURCE/build/temp.$VERSION"
site=/usr/lib/pythons/$VERSION/lib/site-packages
flags="-I$site/torch/include -I/usr/lib/pythons/$VERSION/include -g $FLAGS"
export CCACHE_STATSLOG=/tmp/statslog
rm -f "$CCACHE_STATSLOG"
for name in operator binding; do
  g++ -MMD -MF "$PWD/$name.o.d" $flags -c "$SOURCE/$name.cpp" -o "$PWD/$name.o"
done
$PYTORCH_NVCC --generate-dependencies-with-compile --dependency-output "$PWD/kernel.o.d" $flags $ARCHITECTURES \
  -c "$SOURCE/kernel.cu" -o "$PWD/kernel.o"
cat "$CCACHE_STATSLOG"
"""


class Machine:
    """A container with compilers, ccache and the settings under test."""

    def __init__(self, container: str, remote: str) -> None:
        self.container, self.remote = container, remote

    def sh(self, script: str, **environment: str) -> str:
        """Run a script, and return what it printed."""
        variables = [f"--env={name}={value}" for name, value in environment.items()]
        return docker("exec", *variables, self.container, "sh", "-euc", script, "/mnt/build").stdout

    def write(self, files: dict[str, str]) -> None:
        """Write files, by path."""
        for path, text in files.items():
            self.sh('mkdir -p "${FILE%/*}"; printf %s "$TEXT" > "$FILE"; chmod +x "$FILE"', FILE=path, TEXT=text)

    def put_source(self, folder: str) -> None:
        """Put the sources into a folder."""
        self.write({f"{folder}/{name}": text for name, text in SOURCES.items()})

    def hits(
        self, source: str = "/one", python: str = "3.10", flags: str = "", archs: str = "80 90", **more: str
    ) -> set[str]:
        """Compile with an empty local cache, and return the names of the files whose objects were in the remote one."""
        log = self.sh(
            COMPILE,
            SOURCE=source,
            VERSION=python,
            FLAGS=flags,
            ARCHITECTURES=" ".join(f"--arch={arch}" for arch in archs.split()),
            PATH=f"/usr/lib/pythons/{python}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            CUDA_HOME="/cuda",
            CCACHE_REMOTE=self.remote,
            **{"CLEAN": "", **more},
        )
        calls = compiler_calls(log)
        assert sorted(name for name, _ in calls) == sorted(CALLS), log
        return {name for name, hit in calls if hit}


@contextmanager
def running(image: str, entries: dict[str, bytes]) -> Iterator[Machine]:
    """Run a machine with a remote cache until the block ends."""
    volume = f"--volume={DOCKERFILES / 'wheels'}:/mnt:ro"
    with storage(entries) as remote:
        container = docker("run", "--detach", "--init", "--network=host", volume, image, "sleep", "600").stdout.split()[
            -1
        ]
        yield Machine(container, remote)
        docker("rm", "--force", container)


@pytest.fixture(scope="module")
def first_build() -> Iterator[tuple[str, dict[str, bytes]]]:
    """An image with two Pythons, CUDA and the sources, and what the first build left in the remote cache."""
    tag, entries = unique("compilers"), dict[str, bytes]()
    text = f"FROM {base_image()}\nCOPY common/layers /srv/layers\nRUN /srv/layers/apt-install ccache g++\n"
    docker("build", f"--tag={tag}", "--network=host", "--file=-", DOCKERFILES, text=text)
    with running(tag, entries) as machine:
        for python in ("3.10", "3.11"):
            machine.write({path.replace("{}", python): text.replace("{}", python) for path, text in HEADERS.items()})
        machine.write({"/cuda/bin/nvcc": NVCC, "/cuda/nvvm/bin/cicc": "1"})
        machine.put_source("/one")
        docker("commit", machine.container, tag)
        assert machine.hits() == set()
    yield tag, entries
    docker("rmi", "--force", tag)


@pytest.fixture
def machine(first_build: tuple[str, dict[str, bytes]]) -> Iterator[Machine]:
    """A machine with the remote cache as the first build left it."""
    image, entries = first_build
    with running(image, dict(entries)) as machine:
        yield machine


def test_same_build_again_takes_all(machine: Machine) -> None:
    machine.sh("touch $(readlink -f /usr/bin/g++ /usr/bin/gcc) /cuda/bin/nvcc")  # as installed once more
    assert machine.hits() == CALLS


def test_other_python_and_folder_take_all_but_bindings(machine: Machine) -> None:
    machine.put_source("/other/place")
    assert machine.hits("/other/place", "3.11") == CALLS - {"binding.cpp"}


def test_header_with_other_version_is_no_miss_of_gcc(machine: Machine) -> None:
    """As with torch's patch releases. nvcc's calls are not looked up by what the preprocessor makes of them."""
    machine.write({f"{SITE.format('3.10')}/torch/include/torch/version.h": "#define TORCH_VERSION_PATCH 1\n"})
    assert machine.hits() == {"operator.cpp", "binding.cpp"}


def test_clean_build_takes_nothing(machine: Machine) -> None:
    assert machine.hits(CLEAN="1") == set()


@pytest.mark.parametrize(
    ("options", "missed"),
    [
        ({"flags": "-O1"}, CALLS),
        ({"archs": "80 90 100"}, {"kernel.cu"}),
        ({"archs": "90"}, {"kernel.cu"}),
        ({"NVCC_APPEND_FLAGS": "-O1"}, {"kernel.cu"}),
    ],
)
def test_changed_flag_is_missed(machine: Machine, options: dict[str, str], missed: set[str]) -> None:
    assert machine.hits(**options) == CALLS - missed


@pytest.mark.parametrize(
    ("file", "text", "missed"),
    [
        (
            f"{SITE.format('3.10')}/torch/include/torch/torch.h",
            "inline const char *torch_header() { return 0; }\n",
            CALLS,
        ),
        ("/one/newer.h", "int newer = 2;\n", {"kernel.cu"}),
        ("/one/kernel.cu", "#if __CUDA_ARCH__ >= 90\nint kernel = 1;\n#endif\n", {"kernel.cu"}),
    ],
    ids=["torch", "header of one architecture", "source"],
)
def test_changed_file_is_missed(machine: Machine, file: str, text: str, missed: set[str]) -> None:
    machine.write({file: text})
    assert machine.hits() == CALLS - missed


@pytest.mark.parametrize(
    "program", ["/cuda/nvvm/bin/cicc", "$(readlink -f /usr/bin/as)", "$(g++ -print-prog-name=cc1plus)"]
)
def test_other_compiler_is_missed(machine: Machine, program: str) -> None:
    machine.sh(f"printf x >> {program}")  # past its end, which no loader reads
    assert machine.hits() == set()


def test_remote_cache_with_password_is_refused(machine: Machine) -> None:
    script = ". /mnt/compiler-cache"
    options = ("--env=CCACHE_REMOTE=http://me:hunter2@host", machine.container, "sh", "-euc", script, "/mnt/build")
    refused = docker("exec", *options, check=False)
    assert refused.returncode == 1
    assert refused.stdout.startswith(
        "build: CCACHE_REMOTE holds a user:password@, which would stay in the image's history"
    )
    assert len(refused.stdout.splitlines()) == 1


def test_variables_of_other_releases_are_set(machine: Machine) -> None:
    """ccache 4.5, which Ubuntu 22.04 has, knows the second alone; torch from 2.14 on calls ccache without the third."""
    script = '. /mnt/compiler-cache; echo "$CCACHE_REMOTE_STORAGE $CCACHE_SECONDARY_STORAGE $TORCH_NO_COMPILER_WRAPPER"'
    python = "/usr/lib/pythons/3.10/bin:/usr/bin:/bin"
    variables = {"SOURCE": "/one", "CUDA_HOME": "/cuda", "CLEAN": "", "CCACHE_REMOTE": "http://cache", "PATH": python}
    assert machine.sh(script, **variables) == "http://cache http://cache 1\n"
