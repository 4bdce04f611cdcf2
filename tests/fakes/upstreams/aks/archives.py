"""archives.py DIRECTORY: DOCA's repositories, signed, and the stand-in of the driver.

The packages have the names and files that are asked of them, and need each other at one version; their libibverbs is Debian's.
"""

import shutil
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

from tests.fakes.upstreams.common.debs import Repository

HERE = Path(__file__).parent
LIB = Path("/usr/lib/x86_64-linux-gnu")
RELEASES = {"2.9.1": ("4.30.1-8", "ubuntu24.04"), "3.2.1": ("4.34.1-10", "ubuntu24.04")}
"""DOCA, the version of the firmware tools that it needs, and the distribution."""


def run(*command: object) -> str:
    return subprocess.run([str(part) for part in command], check=True, stdout=subprocess.PIPE, text=True).stdout


def repository(folder: Path, release: str, mft: str, key: str) -> None:
    """Make the repository of a release; the firmware tools are there at a newer version as well, as in NVIDIA's CUDA repository."""
    made = Repository(folder)
    made.add("mft", mft, {"usr/bin/mst": "#!/bin/sh\n"})
    library = (LIB / "libibverbs.so.1").resolve()
    # Older by its number than Debian's, which must not be taken for it.
    made.add("libibverbs1", "1:0.1-doca", {f"usr/lib/x86_64-linux-gnu/{library.name}": library},
             "libnl-3-200, libnl-route-3-200", {"usr/lib/x86_64-linux-gnu/libibverbs.so.1": library.name})  # fmt: skip
    needs = f"mft (= {mft}), libibverbs1 (= 1:0.1-doca)"
    made.add("doca-ofed-userspace", f"{release}-018000", {"opt/mellanox/doca/userspace": release}, needs)
    sharp = ("int sharp_coll_init(void) { return 0; }", "libsharp_coll.so.5")
    made.add("sharp", "3.9.1-1", {"opt/mellanox/sharp/lib/libsharp_coll.so.5": sharp}, "",
             {"opt/mellanox/sharp/lib/libsharp_coll.so": "libsharp_coll.so.5"})  # fmt: skip
    made.index()
    packages = (folder / "Packages").read_bytes()
    release_file = folder / "Release"
    release_file.write_text(
        "Origin: DOCA-HOST\nDate: Wed, 01 Jan 2020 00:00:00 UTC\n"
        f"SHA256:\n {sha256(packages).hexdigest()} {len(packages)} Packages\n"
    )
    run("gpg", "--batch", "--yes", "--local-user", key, "--clearsign", "--output", folder / "InRelease", release_file)
    (folder / "GPG-KEY-Mellanox.pub").write_text(run("gpg", "--armor", "--export", key))


def main() -> None:
    out, key = Path(sys.argv[1]), "tests@localhost"
    run("gpg", "--batch", "--passphrase", "", "--quick-generate-key", key, "rsa2048", "sign", "never")
    for release, (mft, distro) in RELEASES.items():
        repository(out / "doca" / release / distro / "x86_64", release, mft, key)
    # Signed by nobody's key: what apt must refuse.
    forged = shutil.copytree(out / "doca/3.2.1", out / "doca/6.6.6")
    (forged / "ubuntu24.04/x86_64/InRelease").write_text((forged / "ubuntu24.04/x86_64/Release").read_text())
    driver = out / "driver/libcuda.so.1"
    driver.parent.mkdir()
    run("gcc", "-shared", "-fPIC", "-o", driver, "-Wl,-soname,libcuda.so.1", HERE / "cuda.c")


if __name__ == "__main__":
    main()
