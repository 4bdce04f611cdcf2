import os
import sys

name, requires = "deepspeed", ["torch", "numpy", "psutil", "py-cpuinfo"]
module = "deepspeed_fused_adam"
nvcc = [f"--threads={os.environ.get('DS_NVCC_THREADS', 8)}"]
# Without that file, setup.py:265 at v0.19.5 puts git's commit into the version, of which nothing is known here.
version = lambda: None if os.path.isfile('build.txt') else open("version.txt").read().strip().lstrip("v") + "+unknown"


def others():
    """The operators that are chosen; that for files is left out where libaio is not there, as op_builder/async_io.py:109 does."""
    import glob
    import re

    built = {}
    for path in glob.glob("op_builder/*.py"):
        variable = re.search(r"""BUILD_VAR = ["'](\w+)""", open(path).read())
        operator = os.path.basename(path)[:-3]
        if not variable or os.environ.get(variable[1]) != "1" or (operator == "async_io" and not os.path.exists("/usr/include/libaio.h")):
            continue
        built[f"deepspeed.{operator}_op"] = ["aio"] if operator == "async_io" else []
    return built


def gate():
    # op_builder/builder.py:956 at v0.19.5 takes both for its operators for the CPU.
    sys.path.insert(0, "")
    from op_builder.builder import OpBuilder

    flags = [OpBuilder().cpu_arch(), OpBuilder().simd_width()]
    if "-march=native" in flags or "-D__AVX512__" in flags:
        raise SystemExit(f"compiled for the processor of this machine, not of those that run it: {flags}")
    if os.environ.get("DS_ACCELERATOR") != "cuda":
        raise SystemExit("no GPU in sight, and DS_ACCELERATOR is not cuda: no operator of CUDA would be built")
    if os.environ.get("DS_BUILD_OPS") != "0":
        raise SystemExit("DS_BUILD_OPS is not 0: operators that nobody named would be built")
    if os.environ.get("DS_ENABLE_NINJA") != "1":
        raise SystemExit("DS_ENABLE_NINJA is not set: one file would be compiled after the other")
    if os.environ.get("DS_BUILD_FUSED_ADAM") != "1":
        raise SystemExit("DS_BUILD_FUSED_ADAM is not set: operators would be compiled when they are first used")
    import cpuinfo  # noqa: F401
    import psutil  # noqa: F401
