#!/usr/bin/env python3
"""report.py COMMAND...: run an image's GPU checks, and report what they measured as one line of JSON.

The line follows the output of COMMAND, in the file GPU_REPORT or else on standard output. `slipway evidence` reads it.
COMMAND adds to it what it measures: one JSON object for each line that it appends to the file GPU_MEASUREMENTS. The
exit status is that of COMMAND.

If COMMAND passes, the report times torch's first compiled step too, in a fresh process on one GPU. Its caches are an
empty folder, or the image's warm layer if that fits this machine. Where there is no such step, the report says why.

Variables that the report repeats: CHECKED_IMAGE, the image as REPOSITORY@sha256:...; NODE_PROFILE, the kind of node as
Slipway's stacks name it; NODE_NAME, by default the host's name: of several nodes, each one's report counts.

What NCCL's log looks like: src/transport/p2p.cc, shm.cc, net.cc and coll_net.cc ("via P2P/CUMEM", "via SHM/direct",
"via NET/IB/0", "via COLLNET/SHARP/0"), src/init.cc ("Using network Socket", "NCCL version 2.28.9+cuda13.0"), src/net.cc
up to 2.27 and src/plugin/net/ since ("Loaded net plugin Libfabric (v10)"). aws-ofi-nccl names its own version in
src/nccl_ofi_net.c ("Using aws-ofi-nccl 1.5.0aws", later "Initializing aws-ofi-nccl 1.13.2-aws").
"""

from __future__ import annotations

import ctypes
import datetime
import importlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from pathlib import Path
from typing import IO, Any

_NETWORK = re.compile(r"NCCL INFO .*Using network (.+?)\s*$")
_TRANSPORT = re.compile(r"NCCL INFO (?:Channel|CollNet) .* via ((?:P2P|SHM|NET|COLLNET)/[\w .-]+?)(?:/\d|\s*$|/)")
_PLUGIN = re.compile(
    r"NCCL INFO NET/(?:Plugin ?: Loaded (?:net|coll|collnet) plugin|OFI (?:Initializing|Using)(?= aws-ofi-nccl)) "
    r"(.+?)\s*$"
)
_VERSION = re.compile(r"NCCL version (\S+)")
_OF_LOG = {"version": _VERSION, "plugins": _PLUGIN, "networks": _NETWORK, "transports": _TRANSPORT}
_OF_CHECKS = re.compile(r"rank \d+: ")
"""How the checks that torchrun starts begin their lines."""
_MOST = 200
"""Lines of output in a report, and distinct names of each kind."""
_WIDTH = 300
"""Characters of each."""
_LINKS = 18
"""NVLinks of a GPU: NVML_NVLINK_MAX_LINKS in nvml.h of CUDA 12 and 13."""

_WARM = "/opt/slipway/warm/"
"""The folder of warm layers. The image's Python points the variables below there if a layer fits this machine: see
cli/warm/warm_hook.py."""
_CACHES = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "CUDA_CACHE_PATH")
"""Variables of the caches that a compiled step uses."""
_PATIENCE = 180
"""Seconds after which a first compiled step is not waited for: a job that ends first loses the report."""
_STEP = "import runpy, sys; runpy.run_path(sys.argv[1])['step'](sys.argv[2])"


def now() -> str:
    """Return the time in UTC, as RFC 3339 has it."""
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")  # noqa: UP017 - Python 3.8


def hardware() -> dict[str, Any]:
    """Return the driver's version and each GPU, as NVML names them; nothing without a driver."""
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return {"driver": "", "gpus": []}
    if nvml.nvmlInit_v2():
        return {"driver": "", "gpus": []}
    text = ctypes.create_string_buffer(96)
    driver = "" if nvml.nvmlSystemGetDriverVersion(text, len(text)) else text.value.decode()
    count = ctypes.c_uint()
    nvml.nvmlDeviceGetCount_v2(ctypes.byref(count))
    gpus = []
    for index in range(count.value):
        device = ctypes.c_void_p()
        if nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(device)):
            continue
        name = "" if nvml.nvmlDeviceGetName(device, text, len(text)) else text.value.decode()
        memory = (ctypes.c_ulonglong * 3)()  # total, free, used
        nvml.nvmlDeviceGetMemoryInfo(device, memory)
        active = ctypes.c_uint()
        links = sum(
            not nvml.nvmlDeviceGetNvLinkState(device, link, ctypes.byref(active)) and active.value
            for link in range(_LINKS)
        )
        gpus.append({"name": name, "memory": memory[0], "nvlinks": links})
    nvml.nvmlShutdown()
    return {"driver": driver, "gpus": gpus}


def communication(log: Path) -> dict[str, Any]:
    """Return which NCCL ran, the plugins that it loaded, the networks that it used, and its channels' transports."""
    lines = [
        line for file in log.parent.glob(f"{log.name}.*") for line in file.read_text(errors="replace").splitlines()
    ]
    names = {
        key: sorted({match[1].strip()[:_WIDTH] for line in lines if (match := pattern.search(line))})[:_MOST]
        for key, pattern in _OF_LOG.items()
    }
    return {**names, "version": names["version"][0] if names["version"] else ""}


def measurements(file: Path) -> dict[str, Any]:
    """Return what the checks measured, all in one: lists are joined, of other values the last one counts."""
    values: dict[str, Any] = {}
    for line in file.read_text(encoding="utf-8").splitlines():
        for key, value in json.loads(line).items():
            if isinstance(value, list):
                values[key] = sorted({*values.get(key, []), *value})[:_MOST]
            else:
                values[key] = value
    return values


def show(stream: IO[bytes], terminal: IO[bytes], lines: list[str]) -> None:
    """Show a stream as it comes, and keep its last lines."""
    for line in stream:
        terminal.write(line)
        terminal.flush()
        if text := line.decode(errors="replace").rstrip():
            lines.append(text[:_WIDTH])
            del lines[:-_MOST]


def run(command: list[str], variables: dict[str, str]) -> tuple[int, list[str], list[str]]:
    """Run a command; show its output; return its exit status and the last lines of both streams."""
    output: list[str] = []
    errors: list[str] = []
    with subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        threads = [
            threading.Thread(target=show, args=(process.stdout, sys.stdout.buffer, output)),
            threading.Thread(target=show, args=(process.stderr, sys.stderr.buffer, errors)),
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return process.returncode, output, errors


def failure(errors: list[str], status: int) -> str:
    """Return why the checks failed: the last line of theirs. torchrun writes a summary of its own below these."""
    of_checks = [line for line in errors if _OF_CHECKS.match(line)] or errors
    return of_checks[-1] if of_checks else f"exit status {status}"


def step(file: str) -> None:
    """Take torch's first compiled step, and end this process; write its seconds to a file, or why there are none.

    It is the step of `slipway start` (cli/startup/in_container.py). torch's import, its CUDA context and cuBLAS are no
    part of it.
    """
    try:
        result = timed_step()
    except BaseException as error:  # whatever the image raises is the answer
        result = {"missing": reason(error)}
    Path(file).write_text(json.dumps(result), encoding="utf-8")
    os._exit(0)  # the processes that compile take seconds to end


def timed_step() -> dict[str, Any]:
    """Return the seconds of a first compiled step, or why torch has none."""
    torch: Any = importlib.import_module("torch")  # an image may have none
    if not hasattr(getattr(torch, "compiler", None), "is_compiling"):
        return {"missing": f"torch {torch.__version__} has no torch.compiler.is_compiling"}
    if not torch.cuda.is_available():
        return {"missing": "torch sees no GPU"}
    ones = torch.ones(256, 256, device="cuda")
    (ones @ ones).sum().item()

    def compiled(value: Any) -> Any:
        # Not so where torch.compile is switched off, as by TORCH_COMPILE_DISABLE=1.
        if not torch.compiler.is_compiling():
            raise RuntimeError("torch.compile compiled nothing")
        return torch.nn.functional.gelu(value @ value).sum()

    start = time.monotonic()
    torch.compile(compiled)(ones).item()
    return {"seconds": round(time.monotonic() - start, 3)}


def reason(error: BaseException) -> str:
    """Return in words why a step could not be compiled."""
    if isinstance(error, ModuleNotFoundError) and error.name == "torch":
        return "no torch"
    # Triton compiles launchers: python/triton/runtime/build.py.
    if "Failed to find C compiler" in str(error):
        return "no C compiler"
    header = Path(sysconfig.get_paths()["include"], "Python.h")
    if "CalledProcessError" in str(error) and not header.exists():
        return f"no {header}"
    return " ".join(f"{type(error).__name__}: {error}".split())[:_WIDTH]


def first_step() -> dict[str, Any]:
    """Return the seconds of a fresh process's first compiled step, or why there are none; and its caches."""
    warm = os.environ.get(_CACHES[0], "").startswith(_WARM)
    folder = Path(tempfile.mkdtemp())
    variables = {} if warm else {name: str(folder / name) for name in _CACHES}
    command = [sys.executable, "-c", _STEP, __file__, str(folder / "step")]
    none = subprocess.DEVNULL  # a pipe would be open as long as the processes that compile
    process = subprocess.Popen(command, env={**os.environ, **variables}, stdin=none, stdout=none, stderr=none)
    try:
        status = process.wait(_PATIENCE)
        result = json.loads((folder / "step").read_text(encoding="utf-8"))
    except subprocess.TimeoutExpired:
        result = {"missing": f"it was not done in {_PATIENCE} s"}
    except (OSError, ValueError):
        result = {"missing": f"its process ended with status {status}"}
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)  # a process that compiled may still write there
    return {**result, "caches": "warm layer" if warm else "empty"}


def main() -> None:
    """Run the checks and write the report."""
    command = sys.argv[1:]
    if not command:
        sys.exit("report.py: give the command that runs the checks, such as: report.py python gpu.py")
    with tempfile.TemporaryDirectory() as folder:
        log, measured = Path(folder, "nccl"), Path(folder, "measurements")
        measured.touch()
        variables = {
            **os.environ,
            # %h and %p are NCCL's own: the host, and the number of the process.
            "NCCL_DEBUG": "INFO",
            "NCCL_DEBUG_SUBSYS": "INIT,NET,ENV,GRAPH",
            "NCCL_DEBUG_FILE": f"{log}.%h.%p",
            "GPU_MEASUREMENTS": str(measured),
        }
        started = now()
        try:
            status, output, errors = run(command, variables)
        except OSError as error:
            sys.exit(f"report.py: {command[0]} cannot be run: {error.strerror}")
        measured_step = {"missing": "the checks failed"} if status else first_step()
        report = {
            "gpuChecks": 1,
            "result": "FAILED" if status else "PASSED",
            "image": os.environ.get("CHECKED_IMAGE", ""),
            "profile": os.environ.get("NODE_PROFILE", ""),
            "node": os.environ.get("NODE_NAME") or platform.node(),
            "started": started,
            "finished": now(),
            **hardware(),
            "nccl": communication(log),
            "measured": {**measurements(measured), "firstStep": measured_step},
            "checks": output,
            "failure": failure(errors, status) if status else "",
        }
    line = json.dumps(report)
    if path := os.environ.get("GPU_REPORT"):
        Path(path).write_text(f"{line}\n", encoding="utf-8")
    else:
        print(line, flush=True)
    sys.exit(status if status >= 0 else 128 - status)


if __name__ == "__main__":
    main()
