"""What runs in a container of the image: it prints how long each phase took, as one line of JSON.

Its arguments are the seconds that it may take, a module to import, 1 to use a GPU, and the name and text of the user's
own first step, both empty if there is none. The image's own Python runs it, from 3.6 on, with nothing but the standard
library.
"""

import time

BEGAN = time.time()

import faulthandler  # noqa: E402 - the interpreter's first line is a time
import importlib  # noqa: E402
import json  # noqa: E402
import os  # noqa: E402
import subprocess  # noqa: E402
import sys  # noqa: E402
import sysconfig  # noqa: E402
import tempfile  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402


def process_age() -> float:
    """Return for how long this process has run, to 0.02 s: proc_pid_stat(5), field 22, in ticks since the boot."""
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    return float(Path("/proc/uptime").read_text().split()[0]) - ticks / os.sysconf("SC_CLK_TCK")


def context(torch: Any) -> None:
    """Make the first CUDA context."""
    torch.zeros(1, device="cuda")
    torch.cuda.synchronize()


def kernel(torch: Any) -> None:
    """Run the first kernel of cuBLAS."""
    ones = torch.ones(256, 256, device="cuda")
    (ones @ ones).sum().item()


def compiled(torch: Any) -> None:
    """Compile a first step by Inductor, and run it."""
    # Of older versions of torch nothing says whether it compiles.
    is_compiling = getattr(getattr(torch, "compiler", None), "is_compiling", lambda: True)

    def step(value: Any) -> Any:
        # Not so where torch.compile is switched off, as by TORCH_COMPILE_DISABLE=1.
        if not is_compiling():
            raise RuntimeError("torch.compile compiled nothing")
        return torch.nn.functional.gelu(value @ value).sum()

    torch.compile(step)(torch.ones(256, 256, device="cuda")).item()


def lacking(error: str) -> str:
    """Return what the image lacks to compile Triton's launchers (python/triton/runtime/build.py); empty if nothing."""
    if "Failed to find C compiler" in error:
        return "no C compiler"
    header = Path(sysconfig.get_paths()["include"], "Python.h")
    return f"no {header}" if "CalledProcessError" in error and not header.exists() else ""


def script(name: str, text: str) -> None:
    """Run the user's own first step, in a process and a folder of its own."""
    folder = tempfile.mkdtemp()
    file = Path(folder, name)
    file.write_text(text, encoding="utf-8")
    with tempfile.TemporaryFile() as printed:  # a pipe would be open as long as the processes that compile
        status = subprocess.call(
            [sys.executable, str(file)], stdin=subprocess.DEVNULL, stdout=printed, stderr=printed, cwd=folder
        )
        if status:
            printed.seek(-min(300, printed.tell()), os.SEEK_END)
            lines = printed.read().decode(errors="replace").strip().splitlines() or ["it printed nothing"]
            raise RuntimeError(f"{name} ended with status {status}: {lines[-1]}")


def measure(module: str, own: str, text: str, report: Any) -> None:
    """Import a module. With a GPU in the report, take torch's first steps too; the last is the user's own if given."""
    seconds, spent = report["seconds"], time.process_time()

    def timed(phase: str, work: Any, *arguments: Any) -> Any:
        start, report["phase"] = time.time(), phase
        result = work(*arguments)
        seconds[phase] = time.time() - start
        return result

    if module:
        imported = timed("import", importlib.import_module, module)
        seconds["import_cpu"] = time.process_time() - spent
        report["version"] = str(getattr(imported, "__version__", ""))
    if module == "torch" and report["gpu"]:
        timed("context", context, imported)
        report["device"] = imported.cuda.get_device_name(0)
        timed("kernel", kernel, imported)
        if hasattr(imported, "compile") and not own:
            try:
                timed("compiled", compiled, imported)
            except Exception as error:
                if not lacking(str(error)):
                    raise
                report["skipped"] = f"compiled: {lacking(str(error))}"
    if own:
        timed("script", script, own, text)


def main(limit: str, module: str, gpu: str, own: str, text: str) -> None:
    """Print the report; the first phase that fails ends it."""
    # Whoever started the container ends it before, unless they were killed.
    faulthandler.dump_traceback_later(float(limit), exit=True)
    # Whatever a library prints goes elsewhere.
    output = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    started = time.time() - process_age()
    report = {"started": started, "gpu": gpu == "1", "seconds": {"interpreter": BEGAN - started}}
    report["python"] = sys.version.split()[0]
    report["boot"] = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    try:
        measure(module, own, text, report)
    except BaseException as error:  # whatever the image raises is the answer
        report["reason"] = f"{type(error).__name__}: {error}"
    output.write("\n" + json.dumps(report) + "\n")
    output.flush()
    # Threads and the driver take their time to end, which is not measured.
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
