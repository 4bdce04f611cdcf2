"""How many compilers run at once: from cores, control groups of both versions, memory, the component and MAX_JOBS."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from stacks.config.stack_file import ROOT

JOBS = ROOT / "dockerfiles/common/build/jobs"
GIB = 1024**3


TORCH = ("3", "64")
"""GiB of memory for each compiler, and the most compilers; as for PyTorch."""
FLASH_ATTENTION = ("8", "12")
XFORMERS = ("10", "8")


def jobs(
    root: Path,
    component: tuple[str, ...],
    *,
    cores: int = 64,
    memory: int = 1024,
    max_jobs: str = "",
    files: dict[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run the script on a machine of so many cores and GiB, with these files below / besides."""
    machine = {
        "proc/meminfo": f"MemTotal: 1 kB\nMemAvailable: {memory * 1024**2} kB\n",
        "proc/self/cgroup": "0::/\n",
        **(files or {}),
    }
    for path, content in machine.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(content)
    program = root / "bin/nproc"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho {cores}\n")
    program.chmod(0o755)
    environment = {"PATH": f"{program.parent}:{os.environ['PATH']}", "JOBS_ROOT": str(root), "MAX_JOBS": max_jobs}
    return subprocess.run([JOBS, *component], capture_output=True, text=True, env=environment, check=False)


V1 = "4:memory:/docker/b\n3:cpu,cpuacct:/docker/b\n0::/docker/b\n"


@pytest.mark.parametrize(
    ("component", "machine", "expected"),
    [
        (TORCH, {}, 64),  # as many as torch takes at most
        (TORCH, {"cores": 16}, 16),
        (TORCH, {"memory": 30}, 10),  # 3 GiB each
        (FLASH_ATTENTION, {"memory": 30}, 3),  # 8 GiB each
        (FLASH_ATTENTION, {}, 12),
        (XFORMERS, {"memory": 39}, 3),
        (TORCH, {"memory": 1}, 1),  # never none
        (TORCH, {"max_jobs": "5"}, 5),
        (TORCH, {"cores": 4, "max_jobs": "5"}, 4),
        # version 2: in the mount itself, as in a container, and below it, as without a namespace
        (TORCH, {"files": {"sys/fs/cgroup/cpu.max": "350000 100000\n"}}, 3),
        (TORCH, {"files": {"sys/fs/cgroup/cpu.max": "50000 100000\n"}}, 1),
        (TORCH, {"files": {"sys/fs/cgroup/cpu.max": "max 100000\n"}}, 64),
        (TORCH, {"files": {"sys/fs/cgroup/memory.max": f"{12 * GIB}\n"}}, 4),
        (TORCH, {"files": {"sys/fs/cgroup/memory.max": "max\n"}}, 64),
        (
            TORCH,
            {"files": {"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": f"{9 * GIB}\n"}},
            3,
        ),
        # version 1
        (
            TORCH,
            {"files": {"proc/self/cgroup": V1, "sys/fs/cgroup/memory/docker/b/memory.limit_in_bytes": f"{6 * GIB}\n"}},
            2,
        ),
        (
            TORCH,
            {"files": {"proc/self/cgroup": V1, "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n"}},
            64,
        ),
        (
            TORCH,
            {
                "files": {
                    "proc/self/cgroup": V1,
                    "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "200000\n",
                    "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
                }
            },
            2,
        ),
        (
            TORCH,
            {
                "files": {
                    "proc/self/cgroup": V1,
                    "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
                    "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
                }
            },
            64,
        ),
    ],
)
def test_jobs_are_the_least_of_machine_component_and_limit(
    tmp_path: Path, component: tuple[str, ...], machine: dict[str, object], expected: int
) -> None:
    done = jobs(tmp_path, component, **machine)  # type: ignore[arg-type]
    assert (done.returncode, done.stdout) == (0, f"{expected}\n"), done.stderr


@pytest.mark.parametrize("wrong", ["0", "-1", "two", "1.5", "08"])
def test_jobs_with_malformed_limit_is_one_line(tmp_path: Path, wrong: str) -> None:
    done = jobs(tmp_path, TORCH, max_jobs=wrong)
    assert done.returncode != 0
    assert done.stderr == f"jobs: MAX_JOBS is '{wrong}'; give a whole number from 1 on, or nothing\n"


@pytest.mark.parametrize("wrong", [(), ("3",), ("3", "64", "1")])
def test_jobs_without_both_limits_is_one_line(tmp_path: Path, wrong: tuple[str, ...]) -> None:
    done = jobs(tmp_path, wrong)
    assert done.returncode != 0
    assert done.stderr == (
        "jobs: expected GiB for each job and the most jobs, such as '3 64', "
        f"not '{' '.join(wrong)}'; a recipe names both as 'jobs'\n"
    )


@pytest.mark.parametrize(
    ("architectures", "options"),
    [
        (["9.0"], " -gencode=arch=compute_90,code=sm_90"),
        (
            ["8.0", "12.0+PTX"],
            (
                " -gencode=arch=compute_80,code=sm_80 -gencode=arch=compute_120,code=sm_120"
                " -gencode=arch=compute_120,code=compute_120"
            ),
        ),
    ],
)
def test_gencode_of_archs_has_nvcc_options(architectures: list[str], options: str) -> None:
    script = ROOT / "dockerfiles/common/build/gencode"
    assert subprocess.run([script, *architectures], capture_output=True, text=True, check=True).stdout == options
