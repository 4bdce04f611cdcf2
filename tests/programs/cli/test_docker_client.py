"""Programs that run in containers of `slipway start` and `slipway warm`."""

import subprocess
import sys
import time
from pathlib import Path

from cli.startup import measurement
from cli.warm import warm_run
from tests.helpers.every import every


@every(
    "words, stdin",
    [
        ([measurement._SCRIPT.read_text(), "1", "slow", "0", "", ""], b""),
        ([warm_run.PROGRAM, warm_run.HOOK, "caches", "s.py", "1"], b"import time; time.sleep(20)"),
    ],
)
def test_container_ends_where_nobody_ends_it(words: list[str], stdin: bytes, tmp_path: Path) -> None:
    """Whoever started it was killed."""
    (tmp_path / "caches").mkdir()
    (tmp_path / "slow.py").write_text("import time; time.sleep(20)")
    begun = time.monotonic()
    with (tmp_path / "stderr").open("wb") as stderr:
        subprocess.run([sys.executable, "-c", *words], input=stdin, stderr=stderr, cwd=tmp_path, check=False)
    assert 1 <= time.monotonic() - begun < 15
