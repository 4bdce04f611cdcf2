"""``python -m bench [SECTION]...``: run the sections, and print one table."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from bench.figures import Measurement, table, verdict
from bench.sections import (
    cold_build,
    diff_cost,
    engine_sharing,
    family_sizes,
    history_scan,
    image_size,
    inspect_cost,
    preview_overhead,
    push_cost,
    torch_bump,
)
from bench.services import MeasuredEngine, registry
from bench.setting import BenchSetting
from containers.errors import SlipwayError
from toolchain.checkout import Checkout
from toolchain.machine.steps import elapsed, say
from toolchain.machine.toolchain_error import ToolchainError

BUDGET_SECONDS: Final = 45 * 60
"""No round begins later; a running round or build continues to its end."""

SECTIONS: Final[Mapping[str, Callable[[BenchSetting], Iterator[Measurement]]]] = {
    "a": preview_overhead.run,
    "b": cold_build.run,
    "c": torch_bump.run,
    "d": image_size.run,
    "e": history_scan.run,
    "f": family_sizes.run,
    "g": diff_cost.run,
    "h": inspect_cost.run,
    "i": engine_sharing.run,
    "j": push_cost.run,
}


def main(words: Sequence[str] | None = None) -> int:
    """Run the chosen sections; return 0, even if targets are missed, or 1 after an error of one line."""
    options = _parser().parse_args(words)
    chosen = sorted(set(options.sections)) or list(SECTIONS)
    rows: list[Measurement] = []
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # SIGTERM stops the children too, like Ctrl-C
    # A background job ignores SIGINT, and its children would too: Pulumi would wait 5 s for each plugin to stop.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        _run(chosen, rows, quick=options.quick)
    except (ToolchainError, SlipwayError, OSError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nbench: interrupted; its images are removed", file=sys.stderr)
        return 130
    finally:
        if rows:
            say(f"\n{table(rows)}\n\n{verdict(rows)}")
            if options.json:
                text = json.dumps({"rows": [row.as_json() for row in rows]}, indent=2)
                options.json.write_text(text + "\n", encoding="utf-8")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure Slipway against its alternatives.")
    parser.add_argument(
        "sections",
        nargs="*",
        choices=[*SECTIONS, []],
        metavar="SECTION",
        help=f"{', '.join(SECTIONS)}; default: all",
    )
    parser.add_argument("--quick", action="store_true", help="fewer rounds and fewer images")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all values there too")
    return parser


def _run(chosen: Sequence[str], rows: list[Measurement], *, quick: bool) -> None:
    # A user's Python keeps compiled modules. Without them, every run compiles Slipway's and none of its packages'.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    checkout, began = Checkout.here(), time.monotonic()
    if "SLIPWAY_REGISTRY" not in os.environ:
        raise SlipwayError("not in Slipway's environment: run `make bench`, or `. .slipway/env` first")
    say(f"Sections {', '.join(chosen)}; at most {elapsed(BUDGET_SECONDS)}, then no new round begins")
    engine = MeasuredEngine(checkout)
    folder = checkout.state / "bench"
    folder.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(dir=folder, prefix="run-") as scratch,
        registry(checkout, Path(scratch) / "registry") as private_registry,
        engine.tidied(private_registry.address),
    ):
        setting = BenchSetting(checkout, Path(scratch), engine, private_registry, quick, began + BUDGET_SECONDS)
        for name in chosen:
            for row in SECTIONS[name](setting):
                rows.append(row)
                say(f"  {table([row]).splitlines()[1]}")


if __name__ == "__main__":
    sys.exit(main())
