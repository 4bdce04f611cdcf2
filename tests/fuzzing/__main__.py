"""Fuzz parsers: ``python -m tests.fuzzing SECONDS [NAME]...``, or `make fuzz`, which installs atheris.

The name ``tonight`` is the parser whose turn it is by the date: each has one before any has its second.

What is found stays in ``.slipway/fuzzing``: a corpus for each harness, from which the next run goes on, and the inputs
of crashes, hangs (ten seconds) and of more than 2 GB of memory. Such an input becomes a regression test.
"""

from __future__ import annotations

import datetime
import importlib
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

FOLDER = Path(".slipway/fuzzing")
INSTRUMENTED = [
    *(
        "containers.image.binaries",
        "containers.image.gpu",
        "containers.image.layers",
        "containers.image.owners",
        "containers.evidence",
        "containers.evidence.vulnerabilities",
        "containers.image.gpu.kubectl",
    ),
    *(
        "containers.engine",
        "containers.engine.engine",
        "containers.engine.engine_platforms",
        "containers.registry.logins.azure_login",
    ),
    "toolchain.provider.build",
    *("toolchain.provider.docker_api.push_progress", "components.runners.kubernetes.cluster_health"),
    *(
        "containers.image.local_image",
        "containers.image.registry_image",
        "containers.registry.client",
        "containers.registry.transport",
        "containers.evidence.cosign",
    ),
    *("scaler", "toolchain.provider.docker_api.registry_digest"),
    *("ci.verbs.comment", "cli.verify", "maintenance.refresh.torch_table", "maintenance.refresh.apt_index"),
    *(
        "containers.dockerfile",
        "stacks.identity.content",
        "containers.dockerfile.ignore",
        "containers.dockerfile.wildcards",
    ),
    *("stacks.config.stack_file", "stacks.lock", "containers.registry.reference", "containers.errors"),
    *("tarfile", "tomllib", "http.client", "html.parser", "zipfile", "urllib3.response"),
]
"""The modules whose branches guide the fuzzer; of the libraries, those that parse what comes from outside."""

WORDS = (
    *("null", "true", "1e999", "-1", "NaN", "[]", "{}", r'"\ud800"', r'"\n"', '"', "\\", "[[[[[[[[", '{"a":'),
    *("\r\n", "\r\n\r\n", "\n--\n", "HTTP/1.1 200 X\r\n", "HTTP/1.1 401 X\r\n", "HTTP/1.1 503 X\r\n"),
    *("Content-Length: ", "Transfer-Encoding: chunked\r\n", "Content-Encoding: gzip\r\n", "Location: http://"),
    *('Link: <http://x?a>; rel="next"\r\n', 'WWW-Authenticate: Bearer realm="http://', "Retry-After: ", "0\r\n\r\n"),
    *("2026-01-01T00:00:00Z", "0001-01-01T00:00:00+23:59", "9" * 20, "sha256:", " " * 40, "\t", "\0", "\u202e", "../"),
    *("FROM ", "ARG A=", "${A:-", "<<A\n", "--from=", "**/", "[^", "fetch-source ", "#", "'", "$"),
)
"""What the fuzzer puts into inputs, beside what it finds in comparisons."""


def _quoted(word: str) -> str:
    """Return a word as an entry of a dictionary of libFuzzer's."""
    return '"' + "".join(f"\\x{byte:02x}" for byte in word.encode()) + '"'


def tonight(names: Iterable[str], day: datetime.date) -> str:
    """Return the name whose turn it is on a day."""
    turns = sorted(names)
    return turns[day.toordinal() % len(turns)]


def main(seconds: str, *names: str) -> int:
    """Fuzz some parsers, or all, one after another; return how many do not take an input that was found."""
    harnesses = importlib.import_module("tests.fuzzing.harnesses").HARNESSES
    today = datetime.datetime.now(datetime.UTC).date()
    names = tuple(tonight(harnesses, today) if name == "tonight" else name for name in names)
    if unknown := [name for name in names if name not in harnesses]:
        sys.exit(f"fuzzing: no harness '{unknown[0]}': there are {', '.join(harnesses)}")
    failed = 0
    for name in names or harnesses:
        words = [sys.executable, "-m", "tests.fuzzing", "--one", seconds, name]
        failed += bool(subprocess.run(words, check=False).returncode)
    return failed


def fuzz(seconds: str, name: str) -> None:
    """Fuzz one parser until an input is found that it does not take, or the time is over."""
    atheris = importlib.import_module("atheris")  # `make fuzz` installs it beside the environment
    with atheris.instrument_imports(include=INSTRUMENTED):
        harness = importlib.import_module("tests.fuzzing.harnesses").HARNESSES[name]
    corpus = FOLDER / "corpus" / name
    corpus.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(harness.seeds):
        (corpus / f"seed-{number}").write_bytes(seed)
    words = FOLDER / "words"
    words.write_text("".join(f"{_quoted(word)}\n" for word in WORDS), encoding="ascii")
    limits = [f"-dict={words}", "-timeout=10", "-rss_limit_mb=2048", "-max_len=65536", "-print_final_stats=1"]
    places = [f"-artifact_prefix={FOLDER}/{name}-", str(corpus)]
    atheris.Setup([sys.argv[0], f"-max_total_time={seconds}", *limits, *places], harness.run)
    atheris.Fuzz()


if __name__ == "__main__":
    if sys.argv[1] == "--one":
        fuzz(*sys.argv[2:])
    sys.exit(main(*sys.argv[1:]))
