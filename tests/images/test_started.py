"""What an image starts, beside real containers of it: each entry point as the engine, runc and the kernel take it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pytest

from containers.image.binaries import contents
from containers.image.binaries.elf_file import X86_64
from containers.image.layers.layer import LayerIndex
from containers.starting import started_programs
from tests.images.engine import Image, base_image, docker, remove, unique

_DOCKERFILE = """FROM {base}
RUN useradd --uid 1000 --groups video app && mkdir -p /t/closed && cd /t && cp /bin/true real && : > empty && echo text > text \\
 && printf '#!/t/real\\n' > s1 && for n in 2 3 4 5 6; do printf "#!/t/s$((n-1))\\n" > s$n; done \\
 && printf '#!/bin/sh\\r\\n' > crlf && printf '#!/t/gone\\n' > gone-interpreter && printf '#!/usr/bin/env -S gone -u\\n' > env-gone \\
 && printf '#!/usr/bin/env true\\n' > env && printf "#!/t/real%4096s\\n" | tr ' ' a > long && printf '#!/t/real %4096s\\n' a > long-argument \\
 && printf '#!/bin/sh\\nexec "$@"\\n' > wrapper && ln -s loop loop && ln -s /t/nowhere dangling && ln -s real link \\
 && head -c 64 /bin/true > header && cp /bin/true arm && printf '\\267\\0' | dd of=arm bs=1 seek=18 conv=notrunc 2>/dev/null \\
 && find /t -type f -exec chmod 755 {{}} + && cp real closed/real && chmod 750 closed && cp real mode && chmod 754 mode && printf '#!/bin/sh\\n' > unreadable && chmod 711 unreadable \\
 && cp real group && chgrp video group && chmod 750 group && cp real plain && chmod 644 plain
"""


class Case(NamedTuple):
    """What is started, and by whom."""

    words: tuple[str, ...]
    user: str = ""


CASES = [
    *(Case((f"/t/{name}",)) for name in ["real", "s1", "s5", "s6", "crlf", "gone-interpreter", "env-gone", "env", "long", "long-argument", "loop"]),
    *(Case((f"/t/{name}",)) for name in ["dangling", "link", "empty", "text", "arm", "plain", "closed", "gone"]),
    *(Case((f"/t/{name}",), "app") for name in ["real", "s5", "closed/real", "mode", "unreadable", "group"]),
    Case(("/t/wrapper", "/t/gone")),
    Case(("/t/wrapper", "/t/real")),
    Case(("true",)),
    Case(("gone",)),
    Case(("true --help",)),
    Case(("/bin/sh", "-c", "set -e; exec gone")),
    Case(("/bin/sh", "-c", "A=1 exec /t/s5")),
    Case(("/t/real",), "1234:44"),
    Case(("/t/group",), "1234:44"),
    Case(("/t/group",), "1234"),
    Case(("/t/real",), "nobody-knows"),
    Case(("/t/real",), "app:nobody-knows"),
]  # fmt: skip


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Image, LayerIndex]]:
    image, name = Image(unique("started")), unique("started").replace("/", "-").replace(":", "-")
    docker("build", "--tag", image.tag, "-", text=_DOCKERFILE.format(base=base_image()))
    archive = tmp_path_factory.mktemp("started") / "files.tar"
    docker("create", f"--name={name}", image.tag, "true")
    try:
        docker("export", f"--output={archive}", name)
    finally:
        docker("rm", name)
    from containers.image.layers.layer import index

    with archive.open("rb") as file:
        yield image, index(file, "application/vnd.oci.image.layer.v1.tar", facts=contents.facts)
    remove(image)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.user or 'root'} {' '.join(case.words)}")
def test_program_is_a_fault_if_no_container_starts(started: tuple[Image, LayerIndex], case: Case) -> None:
    image, files = started
    config = {"Entrypoint": list(case.words), "User": case.user, "Env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin"]}
    faults = started_programs.faults(contents.of([files], config), X86_64, "linux/amd64")
    first, *rest = case.words
    # As in a cluster: before it starts a program, runc 1.1 has the capabilities that it will not give to the program.
    options = [f"--user={case.user}", "--cap-drop=ALL"] if case.user else []
    done = docker("run", "--rm", *options, f"--entrypoint={first}", image.tag, *rest, check=False)
    assert bool(faults) == bool(done.returncode), (list(map(str, faults)), done.returncode, done.stdout)
