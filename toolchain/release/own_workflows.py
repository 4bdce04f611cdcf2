"""The workflows that `slipway init` copies to a repository of one's own: a newer release may have other verbs."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from stacks.places import CODE
from toolchain.machine.files import write
from toolchain.release.own_repository import TEMPLATE

FOLDER: Final = Path(".github", "workflows")


class NewerWorkflows(NamedTuple):
    """What a newer release has otherwise: the texts to replace unedited files, and the edited files."""

    unedited: Mapping[Path, str]
    edited: tuple[Path, ...]

    def lines(self) -> list[str]:
        """Return a line for the files of each kind, for a person."""
        texts = {
            "`--write` copies the release's": self.unedited,
            "edited here, compare with those of a new `slipway init`": self.edited,
        }
        return [f"workflows, {text}: {', '.join(map(str, files))}" for text, files in texts.items() if files]


def copied() -> list[Path]:
    """Return the paths of the workflows that a repository has from this release."""
    return [FOLDER / path.name for path in sorted((TEMPLATE / FOLDER).iterdir())]


def newer(root: Path, code: Path) -> NewerWorkflows:
    """Compare a repository's workflows with those of this release, and these with those of the release in ``code``.

    A file that the repository has not, or the newer release, is left as it is.
    """
    unedited, edited = {}, []
    for path in copied():
        ours, theirs, own = TEMPLATE / path, code / TEMPLATE.relative_to(CODE) / path, root / path
        if not (own.is_file() and theirs.is_file()) or theirs.read_bytes() in {ours.read_bytes(), own.read_bytes()}:
            continue
        if own.read_bytes() == ours.read_bytes():
            unedited[path] = theirs.read_text(encoding="utf-8")
        else:
            edited.append(path)
    return NewerWorkflows(unedited, tuple(edited))


def replace(root: Path, workflows: NewerWorkflows) -> None:
    """Write a newer release's workflows over those that nobody edited."""
    for path, text in workflows.unedited.items():
        write(root / path, text)
