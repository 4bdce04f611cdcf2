"""Requirements of Python packages that an image's environments do not meet, on written metadata."""

from __future__ import annotations

import random
from collections.abc import Iterator

from containers.image.binaries.elf_file import Binary
from containers.image.owners import contradictions, distributions
from tests.helpers.elf_writer import elf
from tests.helpers.every import every
from tests.helpers.image_files import SITE, Files, image

DEBIAN = "usr/lib/python3/dist-packages"
LOCAL = "usr/local/lib/python3.11"


def package(name: str, version: str, *requires: str, python: str = "", site: str = SITE) -> Files:
    lines = ["Metadata-Version: 2.4", f"Name: {name}", f"Version: {version}"]
    lines += [f"Requires-Python: {python}"] if python else []
    lines += [*(f"Requires-Dist: {each}" for each in requires), "", "Requires-Dist: numpy<1"]
    return {f"{site}/{name.replace('-', '_')}-{version}.dist-info/METADATA": "\n".join(lines)}


def unmet(*packages: Files, architecture: str = "amd64") -> list[str]:
    files: Files = {path: content for each in packages for path, content in each.items()}
    return [str(one) for one in contradictions.unmet(image(files), architecture)]


def test_package_of_another_torch_is_named() -> None:
    vision = package("torchvision", "0.19.0", "numpy", "torch ==2.4.0", "pillow!=8.3.*,>=5.3.0")
    torch, numpy = package("torch", "2.5.1+cu124"), package("numpy", "2.4.6")
    assert unmet(vision, numpy, torch) == [
        "torchvision 0.19.0 requires torch==2.4.0, and /opt/venv has torch 2.5.1+cu124"
    ]
    assert unmet(vision, numpy, package("torch", "2.4.0+cu124")) == [], "a local version is of its release"
    assert unmet(vision, numpy) == [], "what is not there contradicts nothing"


def test_folder_of_a_wheel_says_its_name_and_version() -> None:
    """As for pip and uv, whatever its metadata says."""
    lying: Files = {f"{SITE}/sample_dep-3.dist-info/METADATA": "Name: other\nVersion: 1\n"}
    assert unmet(package("user", "1", "sample-dep>=2"), lying) == []
    assert unmet(package("user", "1", "sample-dep>=4"), lying) == [
        "user 1 requires sample-dep>=4, and /opt/venv has sample-dep 3"
    ]


def test_newest_of_two_records_of_a_package_counts() -> None:
    """As `pip install --ignore-installed` leaves the older one."""
    user, both = package("user", "1", "dep>=2"), {**package("dep", "1.0"), **package("dep", "2.0")}
    assert unmet(user, both) == []
    assert unmet(package("user", "1", "dep<2"), both) == ["user 1 requires dep<2, and /opt/venv has dep 2.0"]


@every(
    "requirement, met",
    [
        ("Sample_Dep>=2", False),
        ("sample.dep (<1.9)", True),
        ("sample-dep>=2; extra == 'test'", True),
        ("sample-dep>=2; extra == 'a' or extra == 'b'", True),
        ("sample-dep>=2; python_version < '3.11'", True),
        ("sample-dep>=2; python_version >= '3.11'", False),
        ("sample-dep>=2; python_full_version >= '3.11.3' and sys_platform == 'linux'", False),
        ("sample-dep>=2; platform_machine == 'aarch64'", True),
        ("sample-dep>=2; platform_machine == 'x86_64' or extra == 'gpu'", False),
        ("sample-dep>=2; sys_platform == 'win32'", True),
        ("sample-dep @ https://example.com/sample.zip", True),
        ("sample-dep[extra]~=1.7.1", False),
        ("sample-dep==1.*", True),
        ("sample-dep<2", True),
        ("sample-dep>=2.0.dev0", False),
        ("sample-dep>>2", True),
        ("sample-dep>=2; nonsense == 'x'", True),
        (f"sample-dep>=2; {'(' * 2000}os_name == 'posix'{')' * 2000}", True),
        ("", True),
    ],
)
def test_requirement_counts_as_pip_has_it(requirement: str, *, met: bool) -> None:
    assert (
        unmet(package("user", "1"), package("sample-dep", "1.8.2"), package("other", "3", requirement)) == []
    ) is met


def test_python_that_a_package_is_not_for_is_named() -> None:
    assert unmet(package("a", "1", python=">=3.12")) == ["a 1 requires Python >=3.12, and /opt/venv has Python 3.11"]
    assert unmet(package("a", "1", python=">=3.8,<3.12")) == []
    assert unmet(package("a", "1", python=">=3.11.4")) == []


def test_environments_count_each_on_its_own() -> None:
    user, old = (
        package("user", "1", "numpy>=2"),
        package("numpy", "1.26.4", site="opt/other/lib/python3.11/site-packages"),
    )
    assert unmet(user, old) == []
    assert unmet(user, package("numpy", "1.26.4", site=DEBIAN)) == [], "a virtual environment has its own packages"


def test_packages_of_debian_are_found_after_local_ones() -> None:
    local, debian = f"{LOCAL}/dist-packages", package("numpy", "1.26.4", site=DEBIAN)
    user = package("user", "1", "numpy>=2", site=local)
    assert unmet(user, debian) == ["user 1 requires numpy>=2, and /usr has numpy 1.26.4"]
    assert unmet(user, debian, package("numpy", "2.1.0", site=local)) == []
    own = package("user", "1", "numpy>=2", site=f"{LOCAL}/site-packages")
    assert unmet(own, debian) == [], "a Python of its own below /usr/local does not see Debian's packages"


def test_licence_before_a_requirement_is_passed_over() -> None:
    """A field goes on in lines that begin with a space, of which some have nothing else."""
    text = "Name: user\nVersion: 1\nLicense: MIT\n        \n        of somebody\nRequires-Dist: a>2\n\nRequires-Dist: b>2\n"
    files: Files = {f"{SITE}/user-1.dist-info/METADATA": text}
    assert unmet(files, package("a", "1"), package("b", "1")) == ["user 1 requires a>2, and /opt/venv has a 1"]


def test_field_may_be_folded_and_of_any_case() -> None:
    """pip 23.2 and uv 0.13 read both."""
    text = "NAME:user\nVersion: 1\nrequires-dist: a\r\n (>2)\nRequires-Dist: b\n\t>2 ;\n python_version < '3'\n\nbody"
    files: Files = {f"{SITE}/user-1.dist-info/METADATA": text}
    assert unmet(files, package("a", "1"), package("b", "1")) == ["user 1 requires a>2, and /opt/venv has a 1"]


def test_malformed_metadata_says_nothing() -> None:
    drawn, [content] = random.Random(3), package("user", "1", "sample-dep>=2").values()
    assert isinstance(content, str)
    for _ in range(500):
        changed = bytearray(content.encode())
        for _ in range(drawn.randrange(1, 9)):
            changed[drawn.randrange(len(changed))] = drawn.randrange(256)
        distributions.distribution("x.dist-info/METADATA", bytes(changed))
    assert distributions.distribution("x.dist-info/METADATA", b"Version: 1\n") is None
    assert unmet({f"{SITE}/user-1.dist-info/METADATA": f"Name: user\nVersion: 1\nRequires-Dist: a{'(' * 5000}"}) == []
    nested: Files = {
        f"{SITE}/setuptools/_vendor/user-1.dist-info/METADATA": "Name: user\nVersion: 1\nRequires-Dist: a>2"
    }
    assert unmet(nested, package("a", "1")) == []


@every(
    "files, named",
    [
        (["a.cpython-310-x86_64-linux-gnu.so"], True),
        (["a.cpython-311-x86_64-linux-gnu.so"], False),
        (["a.cpython-310-x86_64-linux-gnu.so", "a.cpython-311-x86_64-linux-gnu.so"], False),
        (["a.cpython-310-x86_64-linux-gnu.so", "a.py"], False),
        (["a.cpython-310-x86_64-linux-gnu.so", "a.abi3.so"], False),
        (["a.cpython-310-x86_64-linux-gnu.so", "b.cpython-311-x86_64-linux-gnu.so"], True),
        (["a.abi3.so"], False),
        (["c.cpython-310-x86_64-linux-gnu.so"], False),
        (["\udcff.cpython-310-x86_64-linux-gnu.so"], False),
    ],
)
def test_extension_of_another_python_is_named(files: list[str], named: bool) -> None:
    module = elf(defined=["PyInit_a", "PyInit_b"])
    read = image({f"{SITE}/pack/{name}": module if name.endswith(".so") else "" for name in files})
    path = f"/{SITE}/pack/a.cpython-310-x86_64-linux-gnu.so"
    expected = [f"{path} requires Python 3.10, and /opt/venv has Python 3.11"]
    assert [str(one) for one in contradictions.unmet(read, "amd64")] == (expected if named else [])


@every("other, named", [("gnu", True), ("musl", False)])
def test_extension_for_another_c_library_is_named(other: str, *, named: bool) -> None:
    """As of packages that a stage with Alpine installed. The extensions of Python itself say what it is built for."""
    name = "cpython-311-x86_64-linux-musl.so"
    own: Files = {f"usr/local/lib/python3.11/lib-dynload/_b.{name.replace('musl', other)}": elf()}
    expected = [f"/{SITE}/a.{name} requires Python 3.11 for x86_64-linux-musl, and /opt/venv has Python 3.11"]
    assert unmet({f"{SITE}/a.{name}": elf(defined=["PyInit_a"])}, own) == (expected if named else [])
    assert unmet({f"{SITE}/a.{name}": elf(), f"{SITE}/a.{name.replace('musl', other)}": elf()}, own) == []


@every(
    "own, other, named",
    [
        ([], ["_a.cpython-311-x86_64-linux-gnu.so", "_b.abi3.so"], True),
        (["_a.cpython-311-aarch64-linux-gnu.so"], ["_b.abi3.so"], False),
        ([], ["libattach_x86_64.so", "data.so"], False),
        (["_a.abi3.so"], [], False),
    ],
)
def test_package_for_another_processor_is_a_fault(own: list[str], other: list[str], *, named: bool) -> None:
    """As of a wheel for this machine that a build for another platform copies."""
    machines = {**dict.fromkeys(own, 183), **dict.fromkeys(other, 62)}
    files: Files = {f"{SITE}/user/{name}": elf(machine=number) for name, number in machines.items()}
    record = "".join(f"user/{name},sha256=AAAA,7\n" for name in machines)
    read = image({**files, f"{SITE}/user-1.5.dist-info/RECORD": record})
    lines = [str(row.fault()) for row in contradictions.unmet(read, "arm64")]
    expected = (
        f"/{SITE}/user/_a.cpython-311-x86_64-linux-gnu.so: user 1.5 requires x86-64 by its build: /opt/venv has Python for "
        "aarch64; likewise 1 more of its files"
    )
    assert lines == ([expected] if named else [])


def numpy_module(*texts: str, needs: str = "PyCapsule_GetPointer") -> bytes:
    return elf("_m.so", rodata=b"\0".join(text.encode() for text in texts), undefined=[needs])


OF_NUMPY_1 = numpy_module("module compiled against API version 0x%x but this version of numpy is 0x%x . Check")
OF_NUMPY_2 = numpy_module(
    "module compiled against ABI version 0x%x but this version of numpy is 0x%x",
    "module was compiled against NumPy C-API version 0x%x (NumPy 1.25) but the running NumPy has C-API version 0x%x.",
)
OF_CYTHON = numpy_module("numpy.core.multiarray failed to import")


@every(
    "module, version, expected",
    [
        (OF_NUMPY_1, "2.0.0rc1", ["<2", "fault"]),
        (OF_NUMPY_1, "2.4.6", ["<2", "fault"]),
        (OF_NUMPY_1, "1.26.4", []),
        (OF_NUMPY_2, "1.24.4", [">=1.25", "fault"]),
        (OF_NUMPY_2, "1.25.0", []),
        (OF_NUMPY_2, "2.4.6", []),
        (OF_CYTHON, "2.4.6", ["<2", "line"]),
        (OF_CYTHON, "1.26.4", []),
        (numpy_module("numpy._core.multiarray failed to import"), "2.4.6", []),
        (numpy_module("numpy.core.multiarray failed to import", needs="f"), "2.4.6", []),
    ],
)
def test_extension_of_another_numpy_is_named(module: bytes, version: str, expected: list[str]) -> None:
    files = {**package("numpy", version), f"{SITE}/user/_m.cpython-311-x86_64-linux-gnu.so": module}
    rows = contradictions.unmet(image(files), "amd64")
    kinds = ["fault" if row.files else "line" for row in rows]
    assert [*(row.requirement.removeprefix("numpy").removesuffix(" by its build") for row in rows), *kinds] == expected


def test_extensions_of_another_numpy_are_one_fault_by_package() -> None:
    record = "".join(f"user/_{name}.so,sha256=AAAA,7\n" for name in "abc")
    files: Files = {
        **package("numpy", "2.4.6"),
        f"{SITE}/user-1.5.dist-info/RECORD": record,
        **{f"{SITE}/user/_{name}.so": OF_NUMPY_1 for name in "abc"},
        f"{SITE}/torch/lib/libtorch_python.so": OF_NUMPY_1,
        "opt/other/lib/python3.11/site-packages/user/_a.so": OF_NUMPY_1,
    }
    torch, user = sorted(contradictions.unmet(image(files), "amd64"), key=lambda row: row.files)
    assert (torch.by, torch.files) == (f"/{SITE}/torch/lib/libtorch_python.so", ()), "torch goes on without NumPy"
    assert str(user.fault()) == (
        f"/{SITE}/user/_a.so: user 1.5 requires numpy<2 by its build: /opt/venv has numpy 2.4.6; "
        "likewise 2 more of its files"
    )


def test_package_with_an_extension_for_this_numpy_is_no_line() -> None:
    """As h5py 3.16, which imports one of its modules with NumPy 2 alone."""
    record = "user/_a.so,sha256=AAAA,7\nuser/_b.so,sha256=AAAA,7\n"
    files: Files = {f"{SITE}/user-1.5.dist-info/RECORD": record, f"{SITE}/user/_b.so": OF_NUMPY_2}
    files |= package("numpy", "1.24.4")
    assert [*contradictions.unmet(image({**files, f"{SITE}/user/_a.so": OF_NUMPY_1}), "amd64")] == []
    assert len([*contradictions.unmet(image({**files, f"{SITE}/user/_a.so": OF_NUMPY_2}), "amd64")]) == 1


TARGET, HOME, BASE = "opt/target", "root/.local/lib/python3.11/site-packages", f"{LOCAL}/site-packages"
SEES_BASE: Files = {
    "opt/venv/pyvenv.cfg": "home = /usr/local/bin\ninclude-system-site-packages = true\nversion = 3.11.9\n",
    "usr/local/bin/python3.11": elf(),
}
ALONE: Files = {**SEES_BASE, "opt/venv/pyvenv.cfg": "home = /usr/local/bin\ninclude-system-site-packages = false\n"}


@every(
    "files, user, numpy, place",
    [
        (SEES_BASE, SITE, BASE, "/opt/venv"),
        (ALONE, SITE, BASE, ""),
        (ALONE, BASE, SITE, ""),
        (SEES_BASE, BASE, SITE, "/opt/venv"),
        (SEES_BASE, SITE, HOME, "/opt/venv"),
        (ALONE, SITE, HOME, ""),
        (SEES_BASE, HOME, BASE, "/usr/local"),
        (SEES_BASE, "home/app/.local/lib/python3.11/site-packages", BASE, ""),
        (SEES_BASE, TARGET, TARGET, "/usr/local"),
        (ALONE, SITE, TARGET, "/opt/venv"),
        (ALONE, SITE, "opt/other/lib/python3.11/site-packages", ""),
        ({"usr/bin/python3.11": elf()}, TARGET, DEBIAN, "/usr"),
        ({"usr/bin/python3.11": elf()}, f"{LOCAL}/dist-packages", DEBIAN, "/usr"),
    ],
)
def test_packages_of_each_folder_that_python_searches_count(files: Files, user: str, numpy: str, place: str) -> None:
    packages = {**package("user", "1", "numpy>=2", site=user), **package("numpy", "1.26.4", site=numpy)}
    read = image({**files, **packages}, {"Env": [f"PYTHONPATH=/{TARGET}:/opt/other/lib/python3.12/site-packages"]})
    expected = [f"user 1 requires numpy>=2, and {place} has numpy 1.26.4"] if place else []
    assert [str(one) for one in contradictions.unmet(read, "amd64")] == expected


def test_metadata_of_setuptools_and_distutils_counts() -> None:
    head = "Metadata-Version: 1.1\nName: {}\nVersion: {}\n"
    files: Files = {
        f"{SITE}/user-1.0-py3.11.egg-info/PKG-INFO": head.format("user", "1.0"),
        f"{SITE}/user-1.0-py3.11.egg-info/requires.txt": "old<2\n\n[dev]\nnumpy>=3\n[:python_version > '3']\nnumpy>=2\n[x:y]\nold<1\n",
        f"{SITE}/old-2.5.egg-info": head.format("old", "2.5"),
        f"{SITE}/developed.egg-info/PKG-INFO": head.format("developed", "3"),
        f"{SITE}/developed.egg-info/requires.txt": "old>3",
        f"{SITE}/lost.egg-info/requires.txt": "old>3",
        f"{SITE}/numpy-1.26.4.egg-info/PKG-INFO": head.format("numpy", "1.26.4") + "Requires-Dist: old>2.4\n",
        f"{SITE}/numpy-1.26.4.egg-info/requires.txt": "[:platform_machine == 'aarch64']\nold<2\n",
    }
    assert unmet(files) == [
        "user 1.0 requires old<2, and /opt/venv has old 2.5",
        "user 1.0 requires numpy>=2, and /opt/venv has numpy 1.26.4",
        "developed 3 requires old>3, and /opt/venv has old 2.5",
    ]


@every("user, numpy, refused", [(SITE, BASE, True), (BASE, SITE, False), (BASE, BASE, True)])
def test_extension_counts_by_each_numpy_that_it_may_meet(user: str, numpy: str, *, refused: bool) -> None:
    """A file that one environment can load is no fault."""
    files = {
        **SEES_BASE,
        **package("numpy", "2.1.0", site=numpy),
        **package("numpy", "1.26.4" if user != numpy else "2.1.0", site=user if user == BASE else HOME),
        f"{user}/user/_m.cpython-311-x86_64-linux-gnu.so": OF_NUMPY_1,
        f"{BASE}/numpy/random/_m.cpython-311-x86_64-linux-gnu.so": OF_NUMPY_2,
    }
    rows = contradictions.unmet(image(files, {"Env": ["HOME=/nobody"]}), "amd64")
    assert [(row.has, bool(row.files)) for row in rows] == [("numpy 2.1.0", refused)]


@every(
    "variables, faults",
    [
        ([], 1),
        (["PYTHONNOUSERSITE=1"], 0),
        (["PYTHONUSERBASE=/srv"], 0),
        (["PYTHONUSERBASE=/root/.local", "HOME=/nobody"], 1),
    ],
)
def test_users_packages_count_where_python_searches_them(variables: list[str], faults: int) -> None:
    files = {
        **package("numpy", "2.1.0", site=BASE),
        **package("numpy", "1.24.4", site=HOME),
        f"{BASE}/user/_m.cpython-311-x86_64-linux-gnu.so": OF_NUMPY_2,
    }
    assert len(contradictions.unmet(image(files, {"Env": variables}), "amd64")) == faults


def test_environment_that_does_not_say_so_sees_its_base() -> None:
    settings: Files = {
        "opt/venv/pyvenv.cfg": "home = /usr/local/bin\nversion = 3.11.9\n",
        "usr/local/bin/python3.11": elf(),
    }
    files = {**settings, **package("user", "1", "numpy>=2"), **package("numpy", "1.26.4", site=BASE)}
    assert unmet(files) == ["user 1 requires numpy>=2, and /opt/venv has numpy 1.26.4"]


def test_extension_counts_for_the_python_that_it_is_for() -> None:
    """As Debian's pandas beside a newer Python with a NumPy of its own."""
    newer = "usr/local/lib/python3.12/dist-packages"
    files: Files = {
        **package("numpy", "1.24.2", site=DEBIAN),
        **package("numpy", "2.1.0", site=newer),
        f"{DEBIAN}/pandas/_m.cpython-311-x86_64-linux-gnu.so": OF_NUMPY_1,
        **dict.fromkeys(["usr/bin/python3.11", "usr/bin/python3.12"], elf()),
    }
    assert unmet(files) == []


def test_file_that_a_build_has_left_is_no_module() -> None:
    files: Files = {**package("numpy", "2.1.0", site=BASE), "app/m/_m.cpython-311-x86_64-linux-gnu.so": OF_NUMPY_1}
    left = {path.replace("app/m", "app/build/lib.linux-x86_64-cpython-311/m"): file for path, file in files.items()}
    rows = [contradictions.unmet(image(each, {"Env": ["PYTHONPATH=/app"]}), "amd64") for each in (files, left)]
    assert [len(row) for row in rows] == [1, 0]


def test_folder_of_pythonpath_may_be_a_link() -> None:
    files: Files = {
        **package("user", "1", "numpy>=2", site="opt/v2"),
        **package("numpy", "1.26.4", site=BASE),
        "opt/now": "->v2",
    }
    rows = contradictions.unmet(image(files, {"Env": ["PYTHONPATH=/opt/now"]}), "amd64")
    assert [str(one) for one in rows] == ["user 1 requires numpy>=2, and /usr/local has numpy 1.26.4"]


def test_package_that_an_earlier_folder_hides_is_not_imported() -> None:
    """As Debian's NumPy beside a newer one of the Python index."""
    local = f"{LOCAL}/dist-packages"
    files = {
        **package("numpy", "2.1.0", site=local),
        **package("numpy", "1.24.2", site=DEBIAN),
        f"{local}/numpy/__init__.py": "",
        f"{DEBIAN}/numpy/random/_m.cpython-311-x86_64-linux-gnu.so": OF_NUMPY_1,
        "usr/bin/python3.11": elf(),
    }
    assert unmet(files) == []
    assert len(unmet({**files, f"{DEBIAN}/pandas/_m.cpython-311-x86_64-linux-gnu.so": OF_NUMPY_1})) == 1


@every("built, named", [("313t", True), ("313", False)])
def test_extension_of_a_python_without_its_lock_is_of_another(built: str, *, named: bool) -> None:
    files: Files = {
        f"opt/venv/lib/python3.13/site-packages/a/_a.cpython-{built}-x86_64-linux-gnu.so": elf(defined=["PyInit__a"])
    }
    assert bool(unmet(files)) is named


def test_extension_of_pythonpath_is_for_a_python_of_the_image() -> None:
    extension = f"{TARGET}/a/_a.cpython-310-x86_64-linux-gnu.so"
    for python, expected in (
        ("11", [f"/{extension} requires Python 3.10, and /usr/local has Python 3.11"]),
        ("10", []),
    ):
        module = elf(defined=["PyInit__a"])
        read = image({extension: module, f"usr/local/bin/python3.{python}": elf()}, {"Env": [f"PYTHONPATH=/{TARGET}/"]})
        assert [str(one) for one in contradictions.unmet(read, "amd64")] == expected


class Passes(dict[str, Binary]):
    """Binaries that count how often all of them are gone through."""

    passes = 0

    def __iter__(self) -> Iterator[str]:
        self.passes += 1
        return super().__iter__()


def test_binaries_are_gone_through_equally_often() -> None:
    def passes(count: int) -> int:
        names = [f"m{number}" for number in range(count)]
        modules = {f"{SITE}/a/{name}.cpython-39-x86_64-linux-gnu.so": elf(defined=[f"PyInit_{name}"]) for name in names}
        contents = image(modules)
        contents.binaries = Passes(contents.binaries)
        assert len(contradictions.unmet(contents, "amd64")) == count
        return contents.binaries.passes

    assert passes(40) == passes(4)
