"""Fuzz parsers: ``python -m tests.fuzzing SECONDS [NAME]...``, or `make fuzz`, which installs atheris.

What is found stays in ``.slipway/fuzzing``: a corpus for each harness, from which the next run goes on, and the inputs
of crashes, hangs (ten seconds) and of more than 2 GB of memory. Such an input becomes a regression test.
"""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

FOLDER = Path(".slipway/fuzzing")
INSTRUMENTED = [
    *("oci.binaries", "oci.gpu", "oci.layers", "oci.owners", "oci.evidence", "oci.vulnerabilities", "oci.kubectl"),
    *("oci.engine", "oci.engine_platforms", "oci.logins.azure_login", "components.engines.relayed_build"),
    *("toolchain.docker_provider.build", "toolchain.docker_provider.docker_api.engine"),
    *("toolchain.docker_provider.docker_api.push_progress", "components.runners.kubernetes.cluster_health"),
    *("oci.local_image", "oci.registry_image", "oci.client", "oci.transport", "oci.cosign"),
    *("components.runners.ec2.scaler", "toolchain.docker_provider.docker_api.registry_digest"),
    *("ci.verbs.comment", "cli.verify", "cli.torch_table", "cli.refresh.apt_index"),
    *("stacks.identity.dockerfile", "stacks.identity.content", "stacks.identity.ignore", "stacks.identity.wildcards"),
    *("stacks.config.stack_file", "stacks.lock", "stacks.references", "tarfile"),
]
"""The modules whose branches guide the fuzzer."""


def main(seconds: str, *names: str) -> int:
    """Fuzz some parsers, or all, one after another; return how many do not take an input that was found."""
    harnesses = importlib.import_module("tests.fuzzing.harnesses").HARNESSES
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
    limits = ["-timeout=10", "-rss_limit_mb=2048", "-max_len=65536", "-print_final_stats=1"]
    places = [f"-artifact_prefix={FOLDER}/{name}-", str(corpus)]
    atheris.Setup([sys.argv[0], f"-max_total_time={seconds}", *limits, *places], harness.run)
    atheris.Fuzz()


if __name__ == "__main__":
    if sys.argv[1] == "--one":
        fuzz(*sys.argv[2:])
    sys.exit(main(*sys.argv[1:]))
