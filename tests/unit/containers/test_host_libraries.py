"""Libraries of the host's driver that an image has itself: what a container with the host's gets."""

from __future__ import annotations

from containers.image.binaries import loading
from containers.image.binaries.elf_file import X86_64
from tests.helpers.elf_writer import LOADER, elf
from tests.helpers.every import every
from tests.helpers.image_files import SITE, Files, image

CUDA = "usr/local/cuda-12.9"
STUBS = f"{CUDA}/targets/x86_64-linux/lib/stubs"
STUB, DRIVER = (
    elf("libcuda.so.1", defined=["cuInit"]),
    elf("libcuda.so.1", defined=["cuInit", "cuDriver"], undefined=["cuDriverOfHost"]),
)
NAMED_STUBS: Files = {
    "usr/local/cuda": "->cuda-12.9",
    f"{CUDA}/lib64": "->targets/x86_64-linux/lib",
    f"{STUBS}/libcuda.so": STUB,
    f"{STUBS}/libnvidia-ml.so": elf("libnvidia-ml.so.1"),
}
FAULT = "of the host: it is a stub, to link with, and its functions fail"
PATH = "LD_LIBRARY_PATH=/usr/local/cuda/lib64/stubs"


def inspected(files: Files, *environment: str) -> tuple[list[str], dict[str, list[str]]]:
    result = loading.resolve(image(files, {"Env": list(environment)}), X86_64)
    return [str(fault) for fault in result.faults], result.hiding


def test_stubs_that_only_a_linker_finds_are_no_fault() -> None:
    assert inspected(NAMED_STUBS, "LIBRARY_PATH=/usr/local/cuda/lib64/stubs") == ([], {})


@every("folder", ["/usr/local/cuda/lib64/stubs", f"/{STUBS}", "/usr/local/cuda/lib64/stubs/:/usr/lib"])
def test_stubs_of_ld_library_path_are_faults(folder: str) -> None:
    first = folder.partition(":")[0].rstrip("/")
    assert inspected(NAMED_STUBS, f"LD_LIBRARY_PATH={folder}") == (
        [f"{first}/libcuda.so: hides libcuda.so {FAULT}", f"{first}/libnvidia-ml.so: hides libnvidia-ml.so {FAULT}"],
        {},
    )


def test_stub_that_is_linked_as_the_drivers_names_its_users() -> None:
    program = elf(needed=["libcuda.so.1"], interpreter=LOADER, undefined=["cuInit"])
    files = {**NAMED_STUBS, f"{STUBS}/libcuda.so.1": "->libcuda.so", "bin/p": program}
    faults, _ = inspected(files, PATH)
    assert f"/usr/local/cuda/lib64/stubs/libcuda.so.1: hides libcuda.so.1 {FAULT}; needed by /bin/p" in faults


def test_stub_that_a_program_needs_by_its_path_is_a_fault() -> None:
    path = f"/{STUBS}/libcuda.so"
    faults, _ = inspected({**NAMED_STUBS, "bin/p": elf(needed=[path], interpreter=LOADER)})
    assert faults == [f"{path}: hides {path} {FAULT}; needed by /bin/p"]


@every("kind", ["rpath", "runpath"])
def test_stub_by_the_path_of_a_library_is_a_fault(kind: str) -> None:
    """As CMake leaves it where it links with the driver."""
    extension = elf(needed=["libcuda.so.1"], **{kind: f"/{STUBS}"})  # type: ignore[arg-type]
    files = {**NAMED_STUBS, f"{STUBS}/libcuda.so.1": STUB, f"{SITE}/a/_a.so": extension}
    assert inspected(files) == ([f"/{STUBS}/libcuda.so.1: hides libcuda.so.1 {FAULT}; needed by /{SITE}/a/_a.so"], {})


def test_copy_of_a_stub_is_one() -> None:
    files = {**NAMED_STUBS, "opt/driver/libcuda.so.1": STUB}
    assert inspected(files, "LD_LIBRARY_PATH=/opt/driver")[0] == [
        f"/opt/driver/libcuda.so.1: hides libcuda.so.1 {FAULT}"
    ]


def test_library_that_asks_another_one_is_no_stub() -> None:
    shim = elf("libcuda.so.1", ["libshim.so.1"], defined=["cuInit"], undefined=["_ZN4shim4initEv"])
    files: Files = {
        **NAMED_STUBS,
        "opt/driver/libcuda.so.1": shim,
        "opt/driver/libshim.so.1": elf("libshim.so.1", defined=["_ZN4shim4initEv"]),
    }
    assert inspected(files, "LD_LIBRARY_PATH=/opt/driver") == ([], {"libcuda.so.1": ["/opt/driver/libcuda.so.1"]})


def test_stub_in_the_folder_of_the_driver_stays_unless_a_link() -> None:
    """`ldconfig` in the container leads a link to the host's library, and leaves a file."""
    copied = {**NAMED_STUBS, "usr/lib64/libcuda.so.1": STUB}
    assert inspected(copied)[0] == [f"/usr/lib64/libcuda.so.1: hides libcuda.so.1 {FAULT}"]
    linked: Files = {**NAMED_STUBS, "usr/lib64/libcuda.so.1": f"->../../{STUBS}/libcuda.so"}
    assert inspected(linked) == ([], {})
    for variable in ("LD_PRELOAD=/usr/lib64/libcuda.so.1", "LD_PRELOAD=libcuda.so.1"):
        assert inspected(linked, variable) == ([], {})
        assert inspected(copied, variable)[0] == [f"/usr/lib64/libcuda.so.1: hides libcuda.so.1 {FAULT}"]


@every("stub", ["/usr/local/cuda/lib64/stubs/libcuda.so", f"/{STUBS}/libcuda.so"])
def test_preloaded_stub_is_a_fault(stub: str) -> None:
    fault = f"{stub}: hides libcuda.so.1 {FAULT}"
    assert inspected(NAMED_STUBS, f"LD_PRELOAD={stub}") == ([fault], {})
    assert inspected({**NAMED_STUBS, "etc/ld.so.preload": f"# the driver\n{stub}\n"}) == ([fault], {})
    assert inspected(NAMED_STUBS, f"LD_PRELOAD=/gone/libcuda.so {stub}") == ([fault], {})


def test_preloaded_library_of_the_image_is_no_fault() -> None:
    files: Files = {**NAMED_STUBS, "opt/libjemalloc.so.2": elf("libjemalloc.so.2"), "opt/compat/libcuda.so.1": DRIVER}
    assert inspected(files, "LD_PRELOAD=/opt/libjemalloc.so.2") == ([], {})
    compat = "/opt/compat/libcuda.so.1"
    assert inspected(files, f"LD_PRELOAD={compat}") == ([], {"libcuda.so.1": [compat]})
    assert inspected(files, "LD_PRELOAD=libcuda.so") == ([], {}), "in no folder that is searched"


def test_library_for_newer_cuda_on_old_drivers_is_a_line() -> None:
    files = {
        **NAMED_STUBS,
        f"{CUDA}/compat/libcuda.so.1": "->libcuda.so.575.57.08",
        f"{CUDA}/compat/libcuda.so.575.57.08": DRIVER,
    }
    place = "/usr/local/cuda/compat/libcuda.so.1"
    assert inspected(files) == ([], {})
    assert inspected(files, "LD_LIBRARY_PATH=/usr/local/cuda/compat") == ([], {"libcuda.so.1": [place]})


def test_driver_that_a_wheel_has_copied_is_not_the_hosts() -> None:
    name = "libcuda-0a1b2c3d.so.1"
    files: Files = {
        f"{SITE}/a/_a.so": elf(needed=[name], rpath="$ORIGIN/../a.libs"),
        f"{SITE}/a.libs/{name}": elf(name, data=bytes(64)),
    }
    place = f"/{SITE}/a/../a.libs/{name}"
    assert inspected(files) == ([], {name: [place]})
    assert inspected({**files, **NAMED_STUBS, f"{SITE}/a.libs/{name}": STUB})[0] == [
        f"{place}: hides {name} {FAULT}; needed by /{SITE}/a/_a.so"
    ]
