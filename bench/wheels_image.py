"""A large image: wheels of a real release, installed as one layer."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from bench import program
from bench.private_engine import PrivateEngine
from bench.setting import BenchSetting
from toolchain.machine.steps import step

_REQUIREMENT: Final = "vllm==0.21.0"
_QUICK: Final = "scipy==1.17.1"
_ARG: Final = "ARG REQUIREMENT\n"


def build(setting: BenchSetting, builder: PrivateEngine, name: str, section: str) -> None:
    """Build the image in an engine, with small wheels in a quick run."""
    requirement = _requirement(setting)
    with step(f"{section}: building an image of {requirement}"):
        arguments = {"BASE_IMAGE": setting.engine.parent(), "REQUIREMENT": requirement}
        builder.engine.build(program.PROGRAMS / "wheels", name, arguments)


def write(setting: BenchSetting, folder: Path) -> None:
    """Write the same image's Dockerfile to a folder, whose one argument is its parent."""
    text = (program.PROGRAMS / "wheels" / "Dockerfile").read_text()
    folder.mkdir(parents=True)
    (folder / "Dockerfile").write_text(text.replace(_ARG, f'ARG REQUIREMENT="{_requirement(setting)}"\n'))


def _requirement(setting: BenchSetting) -> str:
    return _QUICK if setting.quick else _REQUIREMENT
