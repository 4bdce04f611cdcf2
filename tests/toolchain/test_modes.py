"""The modes of what goes into images are those that git records, whatever the umask of the clone was."""

import stat
from pathlib import Path

import pytest

from tests.toolchain.clone import Clone
from toolchain import modes


@pytest.mark.parametrize(("files", "folders"), [(0o600, 0o700), (0o640, 0o750), (0o664, 0o775), (0o644, 0o755)])
def test_context_gets_modes_that_git_records(clone: Clone, files: int, folders: int) -> None:
    context = clone.root / modes.CONTEXT
    (context / "torch/checks").mkdir(parents=True)
    plain, script, link = context / "torch/Dockerfile", context / "torch/checks/10-x.sh", context / "torch/link"
    for path in (plain, script):
        path.write_text("x\n")
    plain.chmod(files)
    script.chmod(files | (folders & 0o111))
    outside = clone.root / "outside"
    outside.write_text("x\n")
    outside.chmod(0o600)
    link.symlink_to("../../outside")
    for folder in (context / "torch/checks", context / "torch", context):
        folder.chmod(folders)

    modes.normalize(clone.checkout)

    def mode(path: Path) -> int:
        return stat.S_IMODE(path.stat().st_mode)

    assert {mode(context), mode(context / "torch"), mode(script.parent), mode(script)} == {0o755}
    assert mode(plain) == 0o644
    assert mode(outside) == 0o600
