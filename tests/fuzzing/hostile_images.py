"""Hostile images: each is made of one to four features of hostile size, and inspected by the real command.

`python -m tests.fuzzing.hostile_images --images 10000` inspects one for each seed and prints what took too much.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import itertools
import json
import os
import random
import struct
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import zstandard

from stacks.config.stack_file import ROOT
from tests.fakes.registry import INDEX, LAYER, MANIFEST, digest_of, serve
from tests.helpers.elf_writer import elf, loader
from tests.helpers.rpm_writer import endless, header, rpmdb

MEMORY: Final = 512 << 10
"""KiB that the command may take."""
SECONDS: Final = 60

_BLOCK: Final = 1 << 20

Chunks = Iterator[bytes]
CONTROL: Final = "\x1b]0;owned\x07\x9b31m\u202e\r\n::add-mask::x\n##[error]x\t`|<img src=x>`"
"""What a terminal, Markdown and a job's log would take for more than text."""


def member(name: str, content: bytes = b"", kind: bytes = tarfile.REGTYPE, **more: Any) -> bytes:
    """Return a file of an archive."""
    info = tarfile.TarInfo(name)
    info.type, info.size = kind, len(content)
    for key, value in more.items():
        setattr(info, key, value)
    return info.tobuf(tarfile.PAX_FORMAT, errors="surrogateescape") + content + bytes(-len(content) % 512)


def zeros(name: str, size: int, start: bytes = b"") -> Chunks:
    """Yield a file of zeros after its start."""
    info = tarfile.TarInfo(name)
    info.size = size
    yield info.tobuf(tarfile.GNU_FORMAT) + start
    left = size - len(start) + -size % 512
    while left > 0:
        yield bytes(min(left, _BLOCK))
        left -= _BLOCK


def _names(size: int) -> Chunks:
    for number in range(1 + size // 4000):
        yield member(f"{number}" + "x" * min(size, 4 << 20))


def _files(size: int) -> Chunks:
    return (member(f"{number:x}") for number in range(size))


def _folders(size: int) -> Chunks:
    for number in range(1 + size // 5000):
        yield member(f"{number}/" + "a/" * size)


def _links(size: int) -> Chunks:
    """Yield links whose targets lead through other links, forty deep."""
    for number in range(50):
        yield member(f"l{number}", kind=tarfile.SYMTYPE, linkname="/".join([f"l{number + 1}/../a"] * min(size, 900)))
    for number in range(size):
        yield member(f"l0/{number}")


def _hard_links(size: int) -> Chunks:
    yield member("a", b"x")
    for number in range(size):
        yield member(
            f"{number}", kind=tarfile.LNKTYPE, linkname=random.Random(number).choice(["a", f"{number - 1}", "b"])
        )


def _headers(size: int, kind: bytes = tarfile.XHDTYPE) -> Chunks:
    """Yield extended headers, each with many records, before files."""
    records = b"".join(b"%d %06d=1\n" % (12, number) for number in range(min(size, 80_000)))
    info = tarfile.TarInfo("x")
    info.type, info.size = kind, len(records)
    for _ in range(1 + size // 100):
        yield info.tobuf(tarfile.GNU_FORMAT) + records + bytes(-len(records) % 512)
    yield member("x")


def _attributes(size: int) -> Chunks:
    for number in range(size):
        yield member(f"{number}", pax_headers={f"SCHILY.xattr.user.{number}": "x" * min(size, 60_000)})


def _whiteouts(size: int) -> Chunks:
    for number in range(size):
        yield member(f"d/{number}/.wh..wh..opq") + member(f"d/.wh.{number}") + member(f"d/{number}/x")


def _sparse(size: int) -> Chunks:
    yield member("x", kind=tarfile.GNUTYPE_SPARSE) * size


def _stated(size: int) -> Chunks:
    info = tarfile.TarInfo("x")
    info.size = 1 << min(size, 60)
    yield info.tobuf(tarfile.GNU_FORMAT)


def _zeros(size: int) -> Chunks:
    yield from zeros("x", size << 20)


def _bigger_elf(size: int) -> Chunks:
    yield from zeros("usr/lib/libbig.so", size << 18, elf("libbig.so"))


def _gpu_code(size: int) -> Chunks:
    """Yield a library whose GPU code is zeros."""
    start = bytearray(elf("libgpu.so", gpu=bytes(8)))
    place = struct.unpack_from("<Q", start, 40)[0] + 64 + 24
    struct.pack_into("<QQ", start, place, 0x100, size << 18)
    yield from zeros("usr/lib/libgpu.so", size << 18, bytes(start))


def _libraries(size: int) -> Chunks:
    """Yield libraries that all need each other, and search many folders for it."""
    count = 1 + size // 100
    names = [f"l{number}.so" for number in range(count)]
    folders = ":".join(f"/d{number}" for number in range(min(size, 2000)))
    for name in names:
        yield member(f"usr/lib64/{name}", elf(name, [*names, f"{name}.absent"], rpath=folders), mode=0o755)
    yield member("usr/lib64/ld-linux-x86-64.so.2", loader(), mode=0o755)
    yield member("lib64", kind=tarfile.SYMTYPE, linkname="usr/lib64")


def _needs(size: int) -> Chunks:
    """Yield a library whose needs all have one long name."""
    name = "x" * size
    tags = b"".join(struct.pack("<QQ", 1, 1) for _ in range(size))
    yield from _tables(tags, b"\0" + name.encode() + b"\0")


def _versions(size: int) -> Chunks:
    data = struct.pack("<HHIII", 1, 65535, 1, 16, 1) + struct.pack("<IHHII", 0, 0, 2, 1, 1) + bytes(size * 4)
    yield from _tables(struct.pack("<QQQQ", 0x6FFFFFFE, 0, 0x6FFFFFFF, 1 << 31), b"\0" + data)


def _symbols(size: int) -> Chunks:
    """Yield a library whose symbols have one long name that ends late."""
    symbols = struct.pack("<IBBHQQ", 1, 0x12, 0, 0, 0, 0) * min(size, 200_000)
    data = elf("libs.so", undefined=["x" * size], data=symbols)
    yield member("usr/lib/libs.so", data)
    yield from _tables(struct.pack("<QQQQ", 6, 64, 4, 64), b"\0" + symbols + b"x" * size + b"\0")


def _tables(tags: bytes, strings: bytes) -> Chunks:
    """Yield a library of a dynamic segment whose names begin at address 0 of the file's end."""
    start = 64 + 2 * 56
    dynamic = tags + struct.pack("<QQQQQQ", 5, start, 10, len(strings), 0, 0)
    size = start + len(strings) + len(dynamic)
    head = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\2\1\1" + bytes(9), 3, 62, 1, 0, 64, 0, 0, 64, 56, 2, 64, 0, 0)
    head += struct.pack("<IIQQQQQQ", 1, 5, 0, 0, 0, size, size, 4096)
    place = start + len(strings)
    head += struct.pack("<IIQQQQQQ", 2, 6, place, place, place, len(dynamic), len(dynamic), 8)
    yield member("usr/lib/libtables.so", head + strings + dynamic)


def _loader_configuration(size: int) -> Chunks:
    """Yield configuration that includes itself by patterns, and a cache whose texts overlap."""
    count = min(1 + size // 100, 3000)
    text = "".join(f"include {'*' * (1 + number % 30)}.conf\n/d{number}\n" for number in range(count)).encode()
    yield member("etc/ld.so.conf", text)
    for number in range(count):
        yield member(f"etc/{number}.conf", text[:4000])
    entries = b"".join(struct.pack("<iIIIII", 0x303, 48, 48, 0, 0, 0) for _ in range(size))
    head = b"glibc-ld.so.cache1.1" + struct.pack("<IIB3xI12x", size, 0, 0, 0)
    yield member("etc/ld.so.cache", head + entries + b"x" * size + b"\0")
    yield from _libraries(200)


def _records(size: int) -> Chunks:
    """Yield what package managers record: lines and values without end."""
    text = b"".join(b"%x,sha256=a,\n" % number for number in range(size))
    site = "usr/lib/python3/" + "y" * min(size, 3000)
    for number in range(1 + size // 50_000):
        yield member(f"{site}/site-packages/p{number}-1.dist-info/RECORD", text)
        yield member(f"var/lib/dpkg/info/p{number}.md5sums", b"a  b\n" * size)
        yield member(f"opt/conda-meta/p{number}-1-0.json", b'{"paths_data": {"paths": [' + b"[]," * size + b"[]]}}")
        yield member(f"opt/conda-meta/q{number}-1-0.json", b"[" * size)


def _packages(size: int) -> Chunks:
    """Yield the metadata of packages that require each other, and lie about their names, versions and Pythons."""
    for number in range(size):
        text = f"Name: q{number}\nVersion: {'9' * 99}\nRequires-Python: >=\nRequires-Dist: p{number + 1} (>=\n"
        text += f"Requires-Dist: p{number // 2}>{number}; python_version\nRequires-Dist: p{number}[x]==1.*.*\n"
        yield member(f"usr/lib/python3.11/site-packages/p{number}-1.dist-info/METADATA", text.encode())


def _databases(size: int) -> Chunks:
    paths = {f"/{'x' * size}/{number}": ("a", 1) for number in range(size)}
    yield member(
        "var/lib/rpm/rpmdb.sqlite", random.Random(size).choice([endless(), rpmdb(header("a", "1", "1", files=paths))])
    )
    page = bytearray(512)
    struct.pack_into("<III", page, 12, 0x061561, 9, 512)
    struct.pack_into("<I", page, 32, size)
    item = bytearray(512)
    struct.pack_into("<HHBB", item, 20, 2, 0, 0, 13)
    struct.pack_into("<HH", item, 26, 500, 480)
    item[480] = 3
    struct.pack_into("<II", item, 484, 1, size * 500)
    yield member("var/lib/rpm/Packages", bytes(page) + bytes(item) * size)


def _control(size: int) -> Chunks:
    """Yield names that a terminal takes for more."""
    for number in range(1 + size // 1000):
        name = f"usr/lib/{CONTROL}{number}.so"
        yield member(
            name, elf(CONTROL, [CONTROL], needs={CONTROL: [CONTROL]}, undefined=[CONTROL], rpath=CONTROL), mode=0o755
        )
        yield member(f"etc/{CONTROL}{number}.conf", CONTROL.encode())
    yield member("usr/lib64/ld-linux-x86-64.so.2", loader(), mode=0o755)
    yield member("lib64", kind=tarfile.SYMTYPE, linkname="usr/lib64")


def _garbage(size: int) -> Chunks:
    yield random.Random(size).randbytes(min(size, _BLOCK))


LAYERS: Final[dict[str, tuple[int, Callable[[int], Chunks]]]] = {
    "names": (6_000_000, _names),
    "files": (3_000_000, _files),
    "folders": (2_000_000, _folders),
    "links": (100_000, _links),
    "hard links": (1_000_000, _hard_links),
    "headers": (200_000, _headers),
    "global headers": (200_000, partial(_headers, kind=tarfile.XGLTYPE)),
    "attributes": (60_000, _attributes),
    "whiteouts": (500_000, _whiteouts),
    "sparse": (100_000, _sparse),
    "stated size": (60, _stated),
    "zeros": (20_000, _zeros),
    "large library": (20_000, _bigger_elf),
    "GPU code": (8_000, _gpu_code),
    "libraries": (200_000, _libraries),
    "needs": (1_000_000, _needs),
    "versions": (3_000_000, _versions),
    "symbols": (3_000_000, _symbols),
    "loader configuration": (300_000, _loader_configuration),
    "records": (2_000_000, _records),
    "packages": (1_000_000, _packages),
    "databases": (3_000, _databases),
    "control characters": (100_000, _control),
    "garbage": (1_000_000, _garbage),
}
"""Features of a layer: the largest size, and what writes it."""


class _Deep(int):
    """A list in a list, as many times."""


def _repeat(size: int, manifest: dict[str, Any], config: dict[str, Any]) -> None:
    manifest["layers"] *= size
    config["rootfs"]["diff_ids"] *= size


DOCUMENTS: Final[dict[str, tuple[int, Callable[[int, dict[str, Any], dict[str, Any]], None]]]] = {
    "many layers": (30_000, _repeat),
    "wide configuration": (1_000_000, lambda size, _, config: config.update(x=[[]] * size)),
    "deep configuration": (100_000, lambda size, _, config: config.update(x=_Deep(size))),
    "environment": (
        50_000,
        lambda size, _, config: config["config"].update(
            Env=[f"LD_LIBRARY_PATH={':'.join(f'/d{number}' for number in range(size))}", f"LD_PRELOAD={'a ' * size}"]
        ),
    ),
    "labels": (
        30_000,
        lambda size, _, config: config["config"].update(Labels={f"{n}{CONTROL}": CONTROL for n in range(size)}),
    ),
    "platform": (3_000_000, lambda size, _, config: config.update(os=CONTROL + "x" * size, architecture=CONTROL)),
    "media type": (3_000_000, lambda size, manifest, _: manifest["layers"][0].update(mediaType=CONTROL + "x" * size)),
    "smaller size": (2, lambda size, manifest, _: manifest["layers"][0].update(size=size)),
    "history": (30_000, lambda size, _, config: config.update(history=[{"created_by": CONTROL}] * size)),
}
"""Features of the manifest and the configuration."""


_COMMAND: Final = """
import atexit, os, sys
peak = lambda: [line for line in open("/proc/self/status") if line.startswith("VmHWM:")][0]
atexit.register(lambda: (sys.stdout.flush(), os.write(2, peak().encode())))
from cli.main import run
run()
"""
"""The command, which says its own peak at the end: `ru_maxrss` has that of the process that starts it, too."""

PLACES: Final = (
    "registry",
    "folder",
    "archive",
    "docker archive",
    "endless registry",
    "index of an index",
    "FIFO",
    "device",
)


def packed(chunks: Iterable[bytes], kind: str) -> tuple[bytes, str]:
    """Return an archive, compressed: zstd with a window of any size, gzip in many members, or plain; and its digest."""
    output = io.BytesIO()
    writer: Any = output
    if kind == "zstd":
        parameters = zstandard.ZstdCompressionParameters.from_level(1, window_log=27, enable_ldm=False)
        writer = zstandard.ZstdCompressor(compression_params=parameters).stream_writer(output, closefd=False)
    elif kind == "gzip":
        writer = gzip.GzipFile(fileobj=output, mode="wb", compresslevel=1, mtime=0)
    digest = hashlib.sha256()
    for chunk in itertools.chain(chunks, [bytes(1024)]):
        writer.write(chunk)
        digest.update(chunk)
    if writer is not output:
        writer.close()
    return output.getvalue(), f"sha256:{digest.hexdigest()}"


@dataclass
class Recipe:
    """An image: its features with their sizes, how its layers are packed, and where it is."""

    features: Sequence[tuple[str, int]]
    packing: str = "zstd"
    place: str = "registry"
    options: Sequence[str] = ()
    blobs: dict[str, bytes] = field(default_factory=dict)

    @classmethod
    def of(cls, seed: int) -> Recipe:
        """Return the recipe of a seed; sizes are uniform in their logarithm, up to hostile ones."""
        choice = random.Random(seed)
        names = choice.sample([*LAYERS, *DOCUMENTS], choice.choice([1, 1, 2, 3, 4]))
        sizes = [(name, int(({**LAYERS, **DOCUMENTS}[name][0] + 1) ** choice.random())) for name in names]
        form = choice.choice([(), (), ("--json",), ("--markdown",), ("--html",)])
        place = choice.choices(PLACES, [6, 2, 2, 3, 1, 1, 0.2, 0.2])[0]
        return cls(sizes, choice.choice(["zstd", "zstd", "gzip", "tar"]), place, form)

    def document(self) -> bytes:
        """Return the manifest; it and what it names are in `blobs`."""
        layers = [packed(LAYERS[name][1](size), self.packing) for name, size in self.features if name in LAYERS]
        layers = layers or [packed([member("x")], self.packing)]
        suffix = "" if self.packing == "tar" else f"+{self.packing}"
        manifest: dict[str, Any] = {"schemaVersion": 2, "mediaType": MANIFEST}
        manifest["layers"] = [
            {"digest": self.keep(layer), "size": len(layer), "mediaType": LAYER + suffix} for layer, _ in layers
        ]
        config: dict[str, Any] = {"os": "linux", "architecture": "amd64", "config": {}}
        config["rootfs"] = {"diff_ids": [diff_id for _, diff_id in layers]}
        for name, size in self.features:
            if name in DOCUMENTS:
                DOCUMENTS[name][1](size, manifest, config)
        deep = config.get("x")
        body = json.dumps(config).encode()
        if isinstance(deep, _Deep):
            body = body[: body.rindex(str(int(deep)).encode())] + b"[" * deep + b"]" * deep + b"}"
        manifest["config"] = {"digest": self.keep(body), "size": len(body)}
        return json.dumps(manifest).encode()

    def keep(self, blob: bytes) -> str:
        """Keep a blob; return its digest."""
        digest = digest_of(blob)
        self.blobs[digest] = blob
        return digest


def write(recipe: Recipe, folder: Path) -> Path:
    """Write an image to a folder, as a layout, an archive, or what is neither; return what is to be inspected."""
    layout = folder / "layout"
    (layout / "blobs/sha256").mkdir(parents=True)
    manifest = recipe.document()
    for digest, blob in {**recipe.blobs, digest_of(manifest): manifest}.items():
        (layout / "blobs" / digest.replace(":", "/")).write_bytes(blob)
    entry = {"mediaType": MANIFEST, "digest": digest_of(manifest), "size": len(manifest)}
    (layout / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [entry]}))
    config = json.loads(manifest)["config"]["digest"]
    blob = layout / "blobs" / config.replace(":", "/")
    if recipe.place == "FIFO":
        blob.unlink()
        os.mkfifo(blob)
    elif recipe.place == "device":
        blob.unlink()
        blob.symlink_to("/dev/zero")
    elif recipe.place in {"archive", "docker archive"}:
        if recipe.place == "docker archive":
            (layout / "index.json").unlink()
            paths = [f"blobs/{layer['digest'].replace(':', '/')}" for layer in json.loads(manifest)["layers"]]
            names = {"Config": f"blobs/{config.replace(':', '/')}", "RepoTags": [CONTROL], "Layers": paths}
            (layout / "manifest.json").write_text(json.dumps([names]))
        with tarfile.open(folder / "image.tar", "w") as archive:
            archive.add(layout, "")
        return folder / "image.tar"
    return layout


class Result(NamedTuple):
    """What an inspection took: seconds of the clock and of the processor, KiB; and what it printed."""

    seconds: float
    processor: float
    memory: int
    status: int
    output: bytes

    def fault(self) -> str:
        """Return what is wrong; empty if nothing is."""
        text = self.output.decode(errors="replace")
        if self.status not in {0, 1} or "Traceback" in text:
            return f"status {self.status}: {text[-600:]}"
        if self.memory > MEMORY:
            return f"{self.memory >> 10} MiB"
        if min(self.seconds, self.processor) > SECONDS:
            return f"{self.processor:.0f} s of the processor"
        escaped = [c for c in text if not (c.isprintable() or c == "\n")]
        return f"it prints {escaped[0]!r}" if escaped else ""


def inspected(target: str, options: Sequence[str] = ()) -> Result:
    """Inspect an image by the real command, in a process of its own."""
    words = [sys.executable, "-c", _COMMAND, "inspect", target, *options]
    path = os.pathsep.join((str(ROOT), *sys.path))
    environment = {**os.environ, "PYTHONPATH": path, "DOCKER_CONFIG": "/nonexistent"}
    start = time.monotonic()
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment) as process:
        output = process.stdout.read() if process.stdout else b""
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    processor = usage.ru_utime + usage.ru_stime
    output, _, peak = output.rpartition(b"VmHWM:")
    memory = int(peak.split()[0]) if peak else 0
    return Result(time.monotonic() - start, processor, memory, process.returncode, output)


def inspect(recipe: Recipe) -> Result:
    """Make an image, and inspect it where it is."""
    with tempfile.TemporaryDirectory() as folder:
        if recipe.place in {"folder", "archive", "docker archive", "FIFO", "device"}:
            return inspected(str(write(recipe, Path(folder))), recipe.options)
    with serve() as registry:
        body = recipe.document()
        registry.blobs.update(recipe.blobs)
        digest = digest_of(body)
        registry.manifests[digest] = (MANIFEST, body)
        registry.digests["a/b:1"] = digest
        if recipe.place == "endless registry":
            config = json.loads(body)["config"]["digest"]
            registry.endless.add(config)
        elif recipe.place == "index of an index":
            for number in range(1000):
                platform = {"os": CONTROL, "architecture": str(number)}
                entry = {"digest": registry.digests["a/b:1"], "platform": platform}
                registry.manifest("a/b:1", INDEX, {"mediaType": INDEX, "manifests": [entry]})
        recipe.blobs.clear()
        return inspected(f"{registry.address}/a/b:1", recipe.options)


def _of_seed(seed: int) -> tuple[int, Recipe, Result]:
    """Run one seed in a process of its own, so that what makes an image keeps no memory."""
    recipe = Recipe.of(seed)
    return seed, recipe, inspect(recipe)


def main() -> int:
    """Inspect the images of many seeds; return 1 if one took too much."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0, help="The first seed.")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--seconds", type=float, default=1e9, help="Begin no image after these.")
    options = parser.parse_args()
    import multiprocessing

    end = time.monotonic() + options.seconds
    counts, faults, worst = 0, 0, [0.0, 0.0]
    refused = 0
    with multiprocessing.Pool(options.workers, maxtasksperchild=20) as pool:
        for seed, recipe, result in pool.imap_unordered(_of_seed, range(options.first, options.first + options.images)):
            counts += 1
            refused += b"refused:" in result.output
            worst = [max(worst[0], result.processor), max(worst[1], result.memory / 1024)]
            if fault := result.fault():
                faults += 1
                print(f"seed {seed}: {recipe.features} {recipe.packing} {recipe.place}: {fault}", flush=True)
            if counts % 500 == 0:
                print(f"{counts} images, {faults} faults", flush=True)
            if time.monotonic() > end:
                pool.terminate()
                break
    print(
        f"{counts} images, {refused} over the budget, {faults} faults; at most {worst[0]:.0f} s of the processor "
        f"and {worst[1]:.0f} MiB"
    )
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
