"""The checks of the family's images beyond those of the real torch image: each says no to what it is there for."""

from __future__ import annotations

from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from tests.images import chain
from tests.images.engine import DOCKERFILES, check_planted
from tests.images.family.conftest import Built, stacks
from tests.images.test_local import CHECKS

PACKAGES = "/opt/venv/lib/python3*/site-packages"
USER = "HOME=/home/slipway exec setpriv --reuid 1000 --regid 1000 --clear-groups"

FAULTS = {
    "common/checks/base/10-slim.sh": (
        "base-cu121",
        "torch-extras",
        "ln -s true /usr/bin/gcc",
        "a base image has no gcc",
    ),
    "common/checks/python/10-bytecode.sh": (
        "base-cu121",
        "torch",
        f"echo >> $(echo {PACKAGES}/pip/__init__.py)",
        "1 modules would be compiled at each start: /opt/venv/lib/python3",
    ),
    "torch/checks/compiler/10-python.sh": (
        "base-cu121",
        "torch",
        "rm /usr/include/python3*/Python.h",
        "the image has no headers of Python in /usr/include/python3",
    ),
    "nccl-tests/checks/cudnn": (
        "nccl-cu121",
        "nccl-tests",
        "sed -i 's/VERSION .*/VERSION 1/' /usr/include/cudnn_version.h",
        "cuDNN's header is not of the version that its library is",
    ),
    "nccl-tests/checks/hpcx": (
        "nccl-cu121",
        "nccl-tests",
        "echo prefix=/build-result/hpcx > /opt/hpcx/ucx/lib/pkgconfig/ucx.pc",
        "these still name the machine that built them",
    ),
    "nccl-tests/checks/mpi": (
        "nccl-cu121",
        "nccl-tests",
        "rm /opt/hpcx/ompi/lib/openmpi/mca_pml_ucx.so",
        "mca_pml_ucx.so: No such",
    ),
    "nccl-tests/checks/nccl": (
        "nccl-cu121",
        "nccl-tests",
        "sed -i -E 's/(NCCL_MINOR|NCCL_VERSION_CODE) .*/\\1 1/' /usr/include/nccl.h",
        "NCCL is not 2.18.3-1: 0 2.1.3",
    ),
    "nccl-tests/checks/plugin": (
        "nccl-cu121",
        "nccl-tests",
        "export LD_LIBRARY_PATH=/usr/local/nvidia/lib",
        "NCCL's plugin does not load: libnccl-net.so: cannot open shared object file",
    ),
    "nccl-tests/checks/sshd": (
        "nccl-cu121",
        "nccl-tests",
        "sed -i s,^OPAL_PREFIX=.*,OPAL_PREFIX=/elsewhere, /etc/environment",
        "OPAL_PREFIX is '/elsewhere' in a session, '/opt/hpcx/ompi' in the image",
    ),
    "nccl-tests/checks/tools": ("nccl-cu121", "nccl-tests", "rm /usr/lib/libgdrapi.so.2", "libgdrapi.so.2"),
    "nccl-tests/checks/user": ("nccl-cu121", "nccl-tests", "userdel slipway", "slipway"),
    "torch/checks/nccl/10-extension.py": (
        "nccl-cu121",
        "torch",
        f"sed -i 's/in os.environ.*split():/in [\"8.0\"]:/' {PACKAGES}/torch/utils/cpp_extension.py",
        "not for all of ['70', '75', '80', '86', '89', '90']",
    ),
    "torch/checks/nccl/20-mpi.sh": (
        "nccl-cu121",
        "torch",
        "sed -i s,/opt/venv/bin:,, /etc/environment",
        "a session that sshd opens has not the environment's Python",
    ),
    "torch/checks/built/10-links.py": (
        "nccl-cu121",
        "torch",
        "mv /opt/hpcx/ucc/lib/libucc.so.1 /usr/lib/x86_64-linux-gnu/ && ldconfig",
        "libtorch_cuda.so does not take libucc\\.so\\.1 from /opt/hpcx/ucc: /",
    ),
    "torch-extras/checks/build/10-extras.py": (
        "base-cu121",
        "torch-extras",
        "mkdir /media/apex && touch /media/apex/apex-9.9-py3-none-any.whl",
        "apex: 9.9 was built, but 0.1 is installed",
    ),
    "torch-extras/checks/build/20-dependencies.sh": (
        "base-cu121",
        "torch-extras",
        f"rm -r {PACKAGES}/einops*",
        "flash-attn 2.0.2 requires einops, which is not installed",
    ),
}
"""Check -> stack and image, what is broken for it there, as root, and what it then says."""


SLIM = "common/checks/base"
"""The checks of a stack with `slim: true`."""


def keys(folder: str) -> dict[str, bool]:
    """Return the further keys of the stack in whose build a folder's checks run."""
    return {"slim": True} if folder == SLIM else {}


def case(folder: str, stack: str, *values: str) -> ParameterSet:
    """Return a test's parameters; what only a further stack has is slow."""
    marks = [pytest.mark.slow] if keys(folder) else stacks(stack)[0].marks
    return pytest.param(*values, marks=marks)


RUN = {(check.rpartition("/")[0], stack, name) for check, (stack, name, *_) in FAULTS.items()} | {
    ("torch/checks/build", "base-cu121", "torch"),
    ("common/checks/base", "base-cu121", "torch"),
}
"""A folder of checks, and stack and image in whose build they run."""

FOLDERS = ("common", "nccl-tests", "torch", "torch-extras")
PARTS = DOCKERFILES / "common/checks"
"""What checks are made of."""


def test_checks_without_real_torch_have_a_fault_each() -> None:
    files = (path for name in FOLDERS for path in (DOCKERFILES / name / "checks").rglob("*") if path.is_file())
    checks = [path for path in files if path.parent not in {CHECKS, PARTS}]
    elsewhere = {"torch/checks/gpu.py", "torch-extras/checks/gpu.py"}
    assert sorted(FAULTS) == sorted({path.relative_to(DOCKERFILES).as_posix() for path in checks} - elsewhere)


@pytest.mark.parametrize(
    "check", [case(check.rpartition("/")[0], stack, check) for check, (stack, *_) in sorted(FAULTS.items())]
)
def test_check_of_faulty_image_fails(built: Built, check: str) -> None:
    stack, name, fault, message = FAULTS[check]
    user = "exec" if name == "nccl-tests" else USER
    script = f"set -e; cat > /tmp/check; chmod +x /tmp/check; {{ {fault}; }} >&2; {user} /tmp/check"
    images = built(stack, **keys(check.rpartition("/")[0]))
    image, program = images.image(name), (DOCKERFILES / check).read_text()
    options = ("--user=0", f"--volume={PARTS}:/srv:ro")
    assert message in image.fails("sh", "-c", script, options=options, text=program)


@pytest.mark.parametrize(("folder", "stack", "name"), [case(run[0], run[1], *run) for run in sorted(RUN)])
def test_build_with_failing_check_fails(built: Built, context: Path, folder: str, stack: str, name: str) -> None:
    images = built(stack, **keys(folder))
    arguments = chain.checks_arguments(images.planned[name], images.names)
    check_planted(context, folder, arguments, image=name)
