"""`slipway inspect` beside the real loader: an image with planted defects, each file as the loader in it has it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.main import main
from containers.image.binaries import contents
from containers.image.local_image import open_image
from tests.images.engine import Image, base_image, docker, remove, unique
from tests.images.real_loader import differences, loadable, of_container

CONFIGURATION = "/opt/configured/lib\n"
MACHINE = 18
"""Where an ELF header has its machine."""


class Files:
    """Compiles what the image has below /opt."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def library(
        self, path: str, *flags: str, needs: tuple[str, ...] = (), source: str = "int {name}(void){{return 1;}}"
    ) -> None:
        """Compile `path`, whose soname is its file name; `needs` are paths of libraries."""
        name = Path(path).name
        code = source.format(name=name.split(".")[0].replace("-", "_"))
        self._compile(path, code, "-shared", "-fPIC", "-nostdlib", f"-Wl,-soname,{name}", *flags, needs=needs)

    def program(self, path: str, *flags: str, needs: tuple[str, ...] = ()) -> None:
        """Compile a program."""
        self._compile(path, "int main(void){return 0;}", *flags, needs=needs)

    def _compile(self, path: str, code: str, *flags: str, needs: tuple[str, ...]) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        libraries = [str(self.root / need) for need in needs]
        command: list[str | Path] = [
            "gcc",
            "-w",
            "-x",
            "c",
            "-",
            "-x",
            "none",
            "-o",
            file,
            "-Wl,--no-as-needed,--allow-shlib-undefined",
        ]
        command += ["-Wl,--unresolved-symbols=ignore-all", *flags, *libraries]
        subprocess.run(command, input=code, text=True, check=True)


OLD = "-Wl,--disable-new-dtags"
NEW = "-Wl,--enable-new-dtags"


def rpath(*folders: str, kind: str = NEW) -> str:
    return f"{kind},-rpath,{':'.join(folders)}"


def plant(files: Files) -> None:
    """Write the files, each folder a case."""
    plant_versions(files)
    plant_folders(files)
    plant_links(files)
    plant_other_files(files)


def plant_versions(files: Files) -> None:
    files.library("missing/libgone.so")
    files.program("missing/program", needs=("missing/libgone.so",))
    (files.root / "missing/libgone.so").unlink()

    script = files.root / "versions.map"
    script.write_text("V1 { global: f; }; V2 { global: g; } V1;\n")
    files.library(
        "version/libv.so", f"-Wl,--version-script={script}", source="int f(void){{return 1;}} int g(void){{return 2;}}"
    )
    files.library(
        "version/libuser.so",
        rpath("$ORIGIN"),
        needs=("version/libv.so",),
        source="int g(void); int h(void){{return g();}}",
    )
    files.program("version/program", rpath("$ORIGIN"), needs=("version/libuser.so",))
    script.write_text("V1 { global: f; };\n")
    files.library("version/libv.so", f"-Wl,--version-script={script}", source="int f(void){{return 1;}}")


def plant_folders(files: Files) -> None:
    files.library("runpath/lib/libr.so")
    files.program("runpath/wrong", rpath("/opt/runpath/nowhere"), needs=("runpath/lib/libr.so",))
    files.program("runpath/right", rpath("/opt/runpath/nowhere", "$ORIGIN/lib"), needs=("runpath/lib/libr.so",))

    for kind in ("inherited", "not-inherited", "overridden"):
        flag = NEW if kind == "not-inherited" else OLD
        files.library(f"{kind}/lib/libb.so")
        flags = (rpath("/opt/nowhere"),) if kind == "overridden" else ()
        files.library(f"{kind}/lib/liba.so", *flags, needs=(f"{kind}/lib/libb.so",))
        files.program(f"{kind}/program", rpath(f"/opt/{kind}/lib", kind=flag), needs=(f"{kind}/lib/liba.so",))

    files.library("preload/lib/libneeded.so")
    files.library("preload/libpre.so", rpath("$ORIGIN/lib"), needs=("preload/lib/libneeded.so",))

    files.library("environment/lib/libe.so")
    files.program("environment/program", needs=("environment/lib/libe.so",))

    for folder in ("", "glibc-hwcaps/x86-64-v2/", "glibc-hwcaps/x86-64-v3/"):
        files.library(f"capabilities/lib/{folder}libcapable.so")
    files.library("capabilities/lib/glibc-hwcaps/x86-64-v3/libonly.so")
    needs = ("capabilities/lib/libcapable.so", "capabilities/lib/glibc-hwcaps/x86-64-v3/libonly.so")
    files.program("capabilities/program", rpath("$ORIGIN/lib"), needs=needs)


def plant_links(files: Files) -> None:
    files.library("link/out/libnext.so")
    files.library("link/out/libl.so", rpath("$ORIGIN"), needs=("link/out/libnext.so",))
    (files.root / "link/lib").mkdir()
    (files.root / "link/lib/libl.so").symlink_to("../out/libl.so")
    files.program("link/program", rpath("$ORIGIN/lib"), needs=("link/out/libl.so",))
    (files.root / "link/folder").symlink_to("/opt/link/out")
    files.program("link/through", rpath("$ORIGIN/folder"), needs=("link/out/libl.so",))
    (files.root / "link/circle").symlink_to("circle")
    files.program("link/around", rpath("$ORIGIN/circle", "$ORIGIN/folder"), needs=("link/out/libl.so",))

    files.library("configured/lib/libc1.so")
    files.library("configured/lib/glibc-hwcaps/x86-64-v2/libc1.so")
    files.program("configured/program", needs=("configured/lib/libc1.so",))
    files.library("later/lib/liblate.so")
    files.program("later/program", needs=("later/lib/liblate.so",))

    files.library("tokens/lib/x86_64-linux-gnu/libt.so")
    files.program("tokens/program", rpath("/opt/tokens/${LIB}"), needs=("tokens/lib/x86_64-linux-gnu/libt.so",))


def plant_other_files(files: Files) -> None:
    files.library("machine/right/libm1.so")
    (files.root / "machine/wrong").mkdir()
    changed = bytearray((files.root / "machine/right/libm1.so").read_bytes())
    changed[MACHINE] = 183
    (files.root / "machine/wrong/libm1.so").write_bytes(changed)
    files.program("machine/program", rpath("$ORIGIN/wrong", "$ORIGIN/right"), needs=("machine/right/libm1.so",))
    files.program("machine/lost", rpath("$ORIGIN/wrong"), needs=("machine/right/libm1.so",))

    for kind, content in (("text", b"INPUT(libreal.so)\n"), ("short", b"\x7fELF"), ("empty", b"")):
        files.library(f"invalid/{kind}/libi.so")
        files.program(f"invalid/{kind}/program", rpath("$ORIGIN"), needs=(f"invalid/{kind}/libi.so",))
        (files.root / f"invalid/{kind}/libi.so").write_bytes(content)

    files.library("own-folders/libz.so.1")
    files.program("own-folders/program", "-Wl,-z,nodefaultlib", needs=("own-folders/libz.so.1",))
    (files.root / "own-folders/libz.so.1").unlink()

    files.library("twice/one/libs.so")
    files.library("twice/two/libs.so")
    files.library("twice/one/libx.so", rpath("/opt/twice/one"), needs=("twice/one/libs.so",))
    files.library("twice/two/liby.so", rpath("/opt/twice/two"), needs=("twice/two/libs.so",))
    files.program(
        "twice/program", rpath("/opt/twice/one", "/opt/twice/two"), needs=("twice/one/libx.so", "twice/two/liby.so")
    )

    files.library("slash/libp.so", "-Wl,-soname,/opt/slash/libp.so")
    files.program("slash/program", needs=("slash/libp.so",))
    files.program("slash/origin", needs=("slash/libp.so",))

    files.library(
        "symbol/libundefined.so", source="int nowhere_defined(void); int {name}(void){{return nowhere_defined();}}"
    )
    files.program("static/program", "-static")
    files.program("interpreter/program", "-Wl,--dynamic-linker=/lib64/ld-other.so.9")


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Image]:
    folder = tmp_path_factory.mktemp("planted")
    plant(Files(folder / "opt"))
    (folder / "opt.conf").write_text(CONFIGURATION)
    (folder / "later.conf").write_text("/opt/later/lib\n")
    (folder / "Dockerfile").write_text(
        f"FROM {base_image()}\nCOPY opt /opt\nCOPY opt.conf /etc/ld.so.conf.d/\nRUN ldconfig\n"
        "COPY later.conf /etc/ld.so.conf.d/\nENV LD_LIBRARY_PATH=/opt/environment/lib\n"
        "ENV LD_PRELOAD=/opt/preload/libpre.so:/opt/preload/libgone.so\n"
    )
    image = Image(unique("inspect"))
    docker("build", "--tag", image.tag, folder)
    yield image
    remove(image)


@pytest.fixture(scope="module")
def archive(planted: Image, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("archive") / "planted.tar"
    docker("save", "--output", path, planted.tag)
    return path


def test_each_file_resolves_as_by_loader_in_it(planted: Image, archive: Path) -> None:
    read = contents.read(open_image(str(archive)))
    files = [path for number, path in enumerate(loadable(read)) if not number % 10 or path.startswith("opt/")]
    assert differences(planted, read, files) == []


def test_loader_in_image_reads_planted_files(planted: Image) -> None:
    """The referee itself: it finds what is there, and misses what is planted."""
    listings = of_container(
        planted, ["opt/inherited/program", "opt/missing/program", "opt/version/program", "opt/invalid/text/program"]
    )
    assert listings["opt/inherited/program"].libraries >= {"/opt/inherited/lib/liba.so", "/opt/inherited/lib/libb.so"}
    assert "/opt/preload/lib/libneeded.so" in listings["opt/inherited/program"].libraries
    assert listings["opt/missing/program"].missing == {"libgone.so"}
    assert listings["opt/version/program"].versions == {("/opt/version/libuser.so", "/opt/version/libv.so", "V2")}
    assert listings["opt/invalid/text/program"].failed


def test_inspect_planted_defects_gives_one_line_each(archive: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(archive), "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["loader"]["notPreloaded"] == {"/opt/preload/libgone.so": "not in the image"}
    faults = {(fault["file"].removeprefix("/opt/"), fault["missing"]): fault for fault in report["faults"]}
    assert {key: fault["reason"] for key, fault in faults.items()} == {
        ("missing/program", "missing libgone.so"): "not in the image",
        ("version/libuser.so", "missing version V2 of /opt/version/libv.so"): "",
        ("runpath/wrong", "missing libr.so"): "/opt/runpath/lib/libr.so is in no folder that is searched",
        (
            "not-inherited/lib/liba.so",
            "missing libb.so",
        ): "/opt/not-inherited/lib/libb.so is in no folder that is searched",
        ("overridden/lib/liba.so", "missing libb.so"): "/opt/overridden/lib/libb.so is in no folder that is searched",
        (
            "link/out/libl.so",
            "missing libnext.so",
        ): "/opt/link/out/libnext.so is in no folder that is searched, opened as /opt/link/lib/libl.so",
        ("later/program", "missing liblate.so"): "/opt/later/lib/liblate.so is not in /etc/ld.so.cache; run ldconfig",
        ("machine/lost", "missing libm1.so"): "/opt/machine/right/libm1.so is in no folder that is searched",
        ("invalid/text/program", "missing libi.so"): "/opt/invalid/text/libi.so is no ELF file",
        ("invalid/empty/program", "missing libi.so"): "/opt/invalid/empty/libi.so is no ELF file",
        (
            "invalid/empty/libi.so",
            "cannot be loaded",
        ): "it has 0 bytes, which is no library; install the package that has it again",
        (
            "invalid/short/program",
            "missing libi.so",
        ): "/opt/invalid/short/libi.so cannot be loaded: malformed: a table at 0 ends after the file",
        ("invalid/short/libi.so", "cannot be loaded"): "malformed: a table at 0 ends after the file",
        (
            "own-folders/program",
            "missing libc.so.6",
        ): "/usr/lib/x86_64-linux-gnu/libc.so.6 is in a default folder, and the file is linked with nodefaultlib",
        (
            "own-folders/program",
            "missing libz.so.1",
        ): "/usr/lib/x86_64-linux-gnu/libz.so.1.2.13 is in a default folder, and the file is linked with nodefaultlib",
        ("interpreter/program", "missing /lib64/ld-other.so.9"): "no such loader",
        ("symbol/libundefined.so", "missing symbol nowhere_defined"): "no library defines it",
    }
    assert faults["version/libuser.so", "missing version V2 of /opt/version/libv.so"]["users"] == [
        "/opt/version/program"
    ]
