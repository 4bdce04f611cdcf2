"""What `install-pip` says where pip fails, by pip's log; pip and Python are stand-ins."""

from __future__ import annotations

import subprocess
from pathlib import Path

from stacks.config.stack_file import ROOT
from tests.helpers.every import every

SCRIPT = ROOT / "dockerfiles/packages/layers/install-pip"
PYTHON = """#!/bin/sh
case $2 in
  pip) [ "$3" = --version ] && exit; while [ "$1" != --log ]; do shift; done; printf '%s\\n' "$LOGGED" > "$2"; exit 1 ;;
  import*) echo 0 0 ;;
esac
"""
URL = "2026-11-28T17:00:00,000 Could not fetch URL https://index.example.com/simple/einops/:"


@every(
    "logged, said",
    [
        (f"{URL} 503 Server Error: Service Unavailable - skipping", "the index does not answer as one"),
        (f"{URL} connection error: Max retries exceeded - skipping", "the index does not answer as one"),
        (f"{URL} 404 Client Error: Not Found - skipping", "nothing that the image has is replaced"),
        ("error: externally-managed-environment", "the image's Python is its distribution's"),
        ("ERROR: ResolutionImpossible", "nothing that the image has is replaced"),
    ],
)
def test_failed_pip_is_said_with_its_cause(logged: str, said: str, tmp_path: Path) -> None:
    for name, text in {"python3": PYTHON, **dict.fromkeys(("chown", "pip-index", "touch"), "#!/bin/sh\n")}.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    script = SCRIPT.read_text().replace("/srv/pip-index", str(tmp_path / "pip-index"))
    done = subprocess.run(
        ["/bin/sh", "-c", script],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin", "PIP_PACKAGES": "einops", "LOGGED": logged, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(f"slipway:packages.pip: {said}")
