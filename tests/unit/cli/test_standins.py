"""The stand-ins of upstreams against the contracts: where one has a file that a contract names, the file is as the upstream's."""

from __future__ import annotations

import shutil
from pathlib import Path

from containers.image.gpu.release_order import order
from maintenance.upstream import pins
from maintenance.upstream.contract import components, contract
from maintenance.upstream.findings import findings
from maintenance.upstream.upstream_files import FolderFiles
from tests.fakes.upstreams.upstreams import HERE, standins
from tests.helpers.every import every

STOOD_IN = [
    name
    for name in components()
    if (repository := contract(name).repository) and (HERE / "repos" / repository).is_dir()
]
"""Their tags, of which all stacks are planned, are found by the tests: each worker of pytest collects these."""

OTHERWISE = {
    (
        "nvbandwidth",
        "add_executable",
    ): "calls the nvcc that it is told of, as the stand-in of nvcc is no compiler to CMake",
    ("apex", "datetime"): "names no day",
    ("vision", "jpeglib"): "links with libpng alone",
    ("vision", "libpng-config"): "names libpng itself",
    ("text", "git.*submodule"): "has the same setup.py in all releases",
}
"""What a stand-in does in another way than its upstream, by the component and a part of the expression."""


STANDS_IN_FOR = {
    "aks/archives.py": {"doca"},
    "aks/cuda.c": {"ngc"},
    "aks/gpus.py": {"ngc"},
    "aks/parent.sh": {"ngc"},
    "common/cmake": {"nvbandwidth"},
    "common/conda.py": {"magma", "micromamba"},
    "common/magma.py": {"magma"},
    "common/cuobjdump": {"cuda-toolkit"},
    "common/debs.py": {"cuda-images"},
    "common/hpcx.sh": {"hpcx"},
    "common/micromamba": {"micromamba"},
    "common/nvcc": {"cuda-toolkit"},
    "common/openmpi": {"openmpi"},
    "common/parent.sh": {"cuda-images"},
    "common/rocky-cuda.sh": {"cuda-images"},
    "common/rocky.sh": {"cuda-images"},
    "common/rpms.py": {"cuda-images"},
    "common/ucc.c": {"hpcx", "ucc"},
    "common/ucc.h": {"hpcx", "ucc"},
    "common/ucc_info.c": {"hpcx", "ucc"},
    "cuda13/install": {"cuda-images"},
    "cuda13/nccl.txt": {"cuda-images", "nccl"},
    "cuda13/packages.py": {"cuda-images", "cuda-toolkit"},
    "cuda13/toolkit.txt": {"cuda-toolkit"},
    "efa/archives.py": {"efa-installer", "openmpi", "pmix"},
    "efa/efa_installer.sh": {"efa-installer"},
    "efa/ngc.sh": {"ngc"},
    "efa/openmpi-configure": {"openmpi"},
    "efa/pmix-configure": {"pmix"},
    "efa/torch.c": {"ngc"},
    "efa/torch.py": {"ngc"},
}
"""The contracts of what each stand-in that is no repository stands in for."""

PARTS = {"repos/NVIDIA/cudnn-frontend", "repos/NVIDIA/cutlass", "repos/extension"}
"""What repositories' stand-ins have in common: a submodule, and an extension of torch."""


def test_every_standin_has_a_contract() -> None:
    folders = [path for path in HERE.iterdir() if path.is_dir() and path.name not in {"__pycache__", "repos"}]
    files = {path for folder in folders for path in folder.iterdir() if not path.name.startswith("__")}
    assert {path.relative_to(HERE).as_posix() for path in files} == set(STANDS_IN_FOR)
    assert {name for names in STANDS_IN_FOR.values() for name in names} <= set(components())


def test_every_repository_standin_has_a_contract() -> None:
    repositories = {path.relative_to(HERE).as_posix() for path in HERE.glob("repos/[!e]*/*")} | {"repos/extension"}
    assert repositories - PARTS <= {f"repos/{contract(name).repository}" for name in components()}
    assert repositories >= PARTS


def standin(name: str, tag: str, folder: Path) -> FolderFiles:
    """Write the stand-in of a component at a tag into a new folder, and return its files."""
    scratch, tree = folder / "scratch", folder / "tree"
    scratch.mkdir(parents=True)
    sources = standins(contract(name).repository, scratch)
    later = sorted((path for source in sources for path in source.glob(".since/*")), key=lambda path: order(path.name))
    version = contract(name).version(tag)
    for source in (*sources, *(path for path in later if version is None or order(version) >= order(path.name))):
        shutil.copytree(source, tree, dirs_exist_ok=True, ignore=shutil.ignore_patterns(".since", "__pycache__"))
    for facts in tree.rglob("facts.py"):  # a part of the setup.py beside it, which runs it
        with facts.with_name("setup.py").open("a") as setup:
            setup.write(facts.read_text())
    return FolderFiles(tree)


@every("name", STOOD_IN)
def test_standin_is_shaped_as_the_contract(name: str, tmp_path: Path) -> None:
    excused = [expression for component, expression in OTHERWISE if component == name]
    tags = pins.tags(contract(name))
    assert tags
    for tag, files in ((tag, standin(name, tag, tmp_path / tag)) for tag in tags):
        # A table says what is true of an upstream, of which a build shows nothing.
        rows = [
            row
            for row in contract(name).rows(tag)
            if row.stands.startswith("dockerfiles/") and files.matching(row.path)
        ]
        broken = [
            finding.missing
            for finding in findings(rows, files)
            if finding.missing and not any(part in finding.row.pattern + finding.row.absent for part in excused)
        ]
        assert rows, tag
        assert broken == [], tag


@every("name, expression", OTHERWISE)
def test_excuse_of_standin_is_needed(name: str, expression: str, tmp_path: Path) -> None:
    assert name in STOOD_IN
    missing = []
    for tag in pins.tags(contract(name)):
        results = findings(contract(name).rows(tag), standin(name, tag, tmp_path / tag))
        missing += [
            finding for finding in results if finding.missing and expression in finding.row.pattern + finding.row.absent
        ]
    assert missing
