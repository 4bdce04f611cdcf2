"""CUDA's tables: toolkits, parents, compute capabilities, and CUDA with torch."""

from __future__ import annotations

import re
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from containers.image.gpu.release_order import line, order
from stacks.versions.archs import arch_list, default_archs, parse_archs
from stacks.versions.cuda_toolkit import Machine, check_cuda_listed, cuda_parent, cuda_release, cuda_versions
from stacks.versions.distros import distro_names, distro_release
from stacks.versions.incompatible import Incompatible, nearest
from stacks.versions.pytorch import check_cudnn, check_torch_cuda, torch_release, torch_versions, wheel_abi
from stacks.versions.tables import newest_from, table
from tests.helpers.every import every


@every("version", cuda_versions())
def test_cuda_rows_are_complete_with_parent_tags(version: str) -> None:
    release = cuda_release(version)
    assert release.archs
    assert release.gcc >= 8
    assert re.fullmatch(r"cu1[0-3][0-9]", release.wheels)
    for name in release.distros:
        for edition in ("base", "runtime", "devel"):
            assert cuda_parent(version, edition, name) == f"{version}-{edition}-{name}"
    for part, full in release.cudnn:
        tags = []
        for name in release.distros:
            try:
                tags.append(cuda_parent(version, "devel", name, cudnn=full.split(".")[0]))
            except Incompatible as error:
                assert error.field == "cudnn"
        assert tags
        assert all(tag.startswith(f"{version}-{part}-devel-") for tag in tags)


def test_cuda_rows_are_sorted_and_lines_have_releases() -> None:
    assert list(cuda_versions()) == sorted(cuda_versions(), key=order)
    lines = table("cuda")["line"]
    assert list(lines) == sorted(lines, key=order)
    assert set(lines) == {line(version) for version in cuda_versions()}
    for row in lines.values():
        assert row.get("nvcc") or row["source"]
        archs = row["archs"].split()
        assert archs == sorted(archs, key=lambda name: (order(name), name))
    released = {version.split(".")[0] for version in cuda_versions()}
    first = table("cuda_torch")["first"]
    assert {row for row in first if "." not in row} == released
    assert list(first) == sorted(first, key=order)
    assert [row["torch"] for row in first.values()] == sorted((row["torch"] for row in first.values()), key=order)


def test_cuda_driver_rises_with_version() -> None:
    drivers = [order(cuda_release(version).driver) for version in cuda_versions()]
    assert drivers == sorted(drivers)


@every(
    "version, oldest, newest",
    [
        ("10.2", "3.0", "7.5"),
        ("11.0.3", "3.5", "8.0"),
        ("11.3.1", "3.5", "8.6"),
        ("11.8.0", "3.5", "9.0"),
        ("12.0.1", "5.0", "9.0a"),
        ("12.8.1", "5.0", "12.0a"),
        ("12.9.1", "5.0", "12.1f"),
        ("13.0.2", "7.5", "12.1f"),
        ("13.2.1", "7.5", "12.1f"),
    ],
)
def test_cuda_capabilities_have_their_range(version: str, oldest: str, newest: str) -> None:
    assert (cuda_release(version).archs[0], cuda_release(version).archs[-1]) == (oldest, newest)


def test_thor_capability_is_renamed_in_cuda_13() -> None:
    assert "10.1" in cuda_release("12.9.1").archs
    assert "11.0" not in cuda_release("12.9.1").archs
    assert "11.0" in cuda_release("13.0.2").archs
    assert "10.1" not in cuda_release("13.0.2").archs


@every("value, meant", [("12.1", "12.1.1"), ("11.8", "11.8.0"), ("13.2", "13.2.1"), ("12.1.2", "12.1.1")])
def test_cuda_unfinished_suggests_the_full_version(value: str, meant: str) -> None:
    with pytest.raises(Incompatible) as error:
        check_cuda_listed(value)
    assert str(error.value).startswith(f"cuda: '{value}' is not a CUDA version")
    assert f"(did you mean '{meant}'?)" in str(error.value)


def test_error_with_long_list_shows_it_around_the_value() -> None:
    with pytest.raises(
        Incompatible, match=r"; allowed: 11\.7\.0, 11\.7\.1, 11\.8\.0, 12\.0\.0, .* more from 10\.2 to "
    ):
        check_cuda_listed("11.8.1")
    with pytest.raises(Incompatible, match=rf"{re.escape(cuda_versions()[-1])} and \d+ more from 10\.2"):
        check_cuda_listed("newest")


def test_cuda_parent_of_known_stacks_is_their_tag() -> None:
    assert cuda_parent("12.1.1", "devel", "ubuntu20.04", cudnn="8") == "12.1.1-cudnn8-devel-ubuntu20.04"
    assert cuda_parent("11.3.1", "devel", "ubuntu20.04", cudnn="8") == "11.3.1-cudnn8-devel-ubuntu20.04"
    assert cuda_parent("10.2", "devel", "ubuntu18.04", cudnn="8") == "10.2-cudnn8-devel-ubuntu18.04"
    assert cuda_parent("12.3.2", "runtime", "ubi9", cudnn="9") == "12.3.2-cudnn9-runtime-ubi9"
    assert cuda_parent("13.2.1", "devel", "ubuntu24.04", cudnn="9") == "13.2.1-cudnn-devel-ubuntu24.04"
    assert cuda_parent("13.3.1", "base", "ubuntu26.04") == "13.3.1-base-ubuntu26.04"


@every(
    "distro, edition, cudnn, says",
    [
        ("ubuntu24.04", "devel", None, r"distro: 'ubuntu24\.04' has no nvidia/cuda image of CUDA 12\.1\.1"),
        ("ubuntu2004", "devel", None, r"\(did you mean 'ubuntu20\.04'\?\)"),
        ("ubuntu20.04", "devel", "9", r"cudnn: '9' is not the cuDNN .* allowed: 8; rule"),
        ("ubuntu20.04", "base", "8", "has no base edition with cuDNN; allowed: runtime, devel"),
    ],
)
def test_cuda_parent_that_does_not_exist_is_refused(distro: str, edition: str, cudnn: str | None, says: str) -> None:
    with pytest.raises(Incompatible, match=says):
        cuda_parent("12.1.1", edition, distro, cudnn=cudnn)  # type: ignore[arg-type]


def test_gcc_of_every_parent_fits_its_cuda() -> None:
    """The Dockerfiles install the distribution's own compiler."""
    for version in cuda_versions():
        for name in cuda_release(version).distros:
            if name in distro_names() and distro_release(name).packages == "apt":
                assert distro_release(name).gcc <= cuda_release(version).gcc, f"{version} {name}"


@every("section", ["abi", "constraints", "cudnn", "gcc"])
def test_build_rows_cover_every_torch_and_are_all_used(section: str) -> None:
    rows = table("cuda_torch")[section]
    assert {newest_from(rows, torch) for torch in torch_versions()} == {*rows}
    assert list(rows) == sorted(rows, key=order)


@every(
    "torch, cudnn, says",
    [
        ("1.13.1", "7.6.5.32", None),
        ("2.0.1", "7.6.5.32", "cudnn: '7.6.5.32' is too old to build torch 2.0.1 with; allowed: cuDNN 8.0 and newer, "),
        ("2.2.2", "8.9.6.50", None),
        (
            "2.2.2",
            "9",
            "cudnn: '9' is too new to build torch 2.2.2 with; allowed: cuDNN 8.0 and newer, before 9; rule: ",
        ),
        (
            "2.3.0",
            "8.0.5.39",
            "cudnn: '8.0.5.39' is too old to build torch 2.3.0 with; allowed: cuDNN 8.1 and newer; r",
        ),
        ("2.3.0", "9", None),
        ("2.15.0", "9.20.0.48", None),
    ],
)
def test_torch_accepts_cudnn_within_its_bounds(torch: str, cudnn: str, says: str | None) -> None:
    if says is None:
        check_cudnn(torch, cudnn)
        return
    with pytest.raises(Incompatible) as caught:
        check_cudnn(torch, cudnn)
    assert str(caught.value).startswith(says)


def test_cuda_parent_without_cudnn_is_refused() -> None:
    with pytest.raises(Incompatible, match=r"on ubuntu18\.04; allowed: none;"):
        cuda_parent("12.1.0", "devel", "ubuntu18.04", cudnn="8")


@every(
    "version, distro, cudnn, tag",
    [
        ("12.1.1", "ubuntu20.04", "8", "12.1.1-cudnn8-devel-ubuntu20.04"),
        ("13.2.1", "ubuntu24.04", "9", "13.2.1-cudnn-devel-ubuntu24.04"),
        ("11.8.0", "ubuntu22.04", "8", "11.8.0-cudnn8-devel-ubuntu22.04"),
        ("11.0.3", "ubuntu18.04", None, "11.0.3-devel-ubuntu18.04"),
    ],
)
def test_cuda_parent_for_arm64_has_the_same_tag(version: str, distro: str, cudnn: str | None, tag: str) -> None:
    assert cuda_parent(version, "devel", distro, cudnn=cudnn, machine="arm64") == tag


@every(
    "version, distro, cudnn, says",
    [
        (
            "10.2",
            "ubuntu18.04",
            "8",
            "distro: 'ubuntu18.04' has no nvidia/cuda image for arm64 of CUDA 10.2; allowed: none; ",
        ),
        (
            "11.8.0",
            "ubuntu18.04",
            "8",
            "distro: 'ubuntu18.04' has no nvidia/cuda image for arm64 of CUDA 11.8.0 (did you mean 'ubuntu22.04'?); allowed: ",
        ),
        (
            "11.4.1",
            "ubuntu20.04",
            "8",
            "cudnn: '8' is not the cuDNN of any nvidia/cuda image of CUDA 11.4.1 on ubuntu20.04 for arm64; allowed: none; ",
        ),
        (
            "12.2.2",
            "ubi9",
            "8",
            "cudnn: '8' is not the cuDNN of any nvidia/cuda image of CUDA 12.2.2 on ubi9 for arm64; ",
        ),
        ("12.1.1", "ubuntu24.04", None, "distro: 'ubuntu24.04' has no nvidia/cuda image of CUDA 12.1.1 (did"),
    ],
)
def test_cuda_parent_never_published_for_arm64_is_refused(
    version: str, distro: str, cudnn: str | None, says: str
) -> None:
    with pytest.raises(Incompatible) as refused:
        cuda_parent(version, "devel", distro, cudnn=cudnn, machine="arm64")
    assert str(refused.value).startswith(says)


def test_rows_of_arm64_name_parents_that_amd64_has() -> None:
    for version, lacks in table("cuda")["arm64"].items():
        named = {*lacks.get("without", ()), *lacks.get("no_cudnn", ())}
        assert named
        assert named <= {*cuda_release(version).distros}


# Lists of compute capabilities


@every(
    "text, version, canonical",
    [
        ("8.0 8.6;9.0+PTX", "11.8.0", "8.0 8.6 9.0+PTX"),
        ("7.5;8.6", "11.3.1", "7.5 8.6"),
        ("9.0,8.0 , 8.0", "12.1.1", "8.0 9.0"),
        ("86 sm_90 SM80", "12.1.1", "8.0 8.6 9.0"),
        ("Hopper ada", "12.1.1", "8.9+PTX 9.0+PTX"),
        ("8.6 8.6+ptx", "11.3.1", "8.6+PTX"),
        ("120 100 9.0a", "12.8.1", "9.0a 10.0 12.0"),
        ("10.3f", "12.9.1", "10.3f"),
        ("\n 5.2\t6.0 ", "11.3.1", "5.2 6.0"),
    ],
)
def test_arch_list_unambiguous_is_accepted(text: str, version: str, canonical: str) -> None:
    assert arch_list(text, version) == canonical


@every(
    "text, version, says",
    [
        (
            "10.0",
            "11.8.0",
            r"archs: '10\.0' cannot be compiled by CUDA 11\.8\.0; allowed: 3\.5, .*, 9\.0; rule: ptxas of",
        ),
        ("8.0", "10.2", r"archs: '8\.0' cannot be compiled by CUDA 10\.2; allowed: 3\.0, .*, 7\.5; rule: nvcc"),
        ("6.1", "13.0.2", r"'6\.1' cannot be compiled by CUDA 13\.0\.2; allowed: 7\.5, "),
        ("10.0a", "12.6.3", r"'10\.0a' cannot .*; allowed: 9\.0a; "),
        (
            "9.0a",
            "11.8.0",
            r"^archs: '9\.0a' cannot be compiled by CUDA 11\.8\.0; allowed: 3\.5, .*, 8\.9, 9\.0; rule: ptxas of",
        ),
        ("\uff18.0", "12.1.1", "^archs: '\uff18.0' is not a compute capability; allowed: capabilities such as"),
        ("\u0668.\u0660", "12.1.1", "is not a compute capability; allowed: capabilities such as"),
        ("\u017fm_90", "12.1.1", "is not a compute capability; allowed: capabilities such as"),
        ("8.0 Ampere", "12.1.1", r"'Ampere' stands for more than one compute capability; allowed: 8\.0, 8\.6, 8\.7"),
        ("blackwell+PTX", "12.8.1", "stands for more than one"),
        ("8.6 +PTX", "12.1.1", r"'\+PTX' is not a compute capability"),
        ("compute_90", "12.1.1", "is not a compute capability; allowed: capabilities such as"),
        ("12", "13.2.1", "'12' is not a compute capability"),
        ("8", "13.2.1", "is not a compute capability"),
        ("8.0|9.0", "12.1.1", "is not a compute capability"),
        ("", "12.1.1", "names no compute capability"),
        (" ;, ", "12.1.1", "names no compute capability"),
        ("8.0 $(id)", "12.1.1", r"'\$\(id\)' is not a compute capability"),
    ],
)
def test_arch_list_ambiguous_fails_with_one_line(text: str, version: str, says: str) -> None:
    with pytest.raises(Incompatible, match=says) as error:
        arch_list(text, version)
    assert "\n" not in str(error.value)


def test_arch_unknown_to_torch_is_refused() -> None:
    assert arch_list("10.0", "12.8.1", torch="2.7.0") == "10.0"
    with pytest.raises(
        Incompatible, match=r"'10\.0' is not known to torch 2\.0\.1.*rule: torch/utils/cpp_extension\.py of"
    ):
        arch_list("10.0", "12.8.1", torch="2.0.1")
    with pytest.raises(
        Incompatible, match=r"'9\.0a' is not known to torch 2\.0\.1, .*; allowed: 5\.0, .*, 8\.9, 9\.0; rule"
    ):
        arch_list("9.0a", "12.1.1", torch="2.0.1")


@st.composite
def lists(draw: st.DrawFn) -> tuple[str, tuple[tuple[str, bool], ...], str]:
    """Some capabilities of some CUDA, and one of the ways to write them."""
    version = draw(st.sampled_from(cuda_versions()))
    archs = draw(
        st.lists(st.tuples(st.sampled_from(cuda_release(version).archs), st.booleans()), min_size=1, max_size=8)
    )
    written = []
    for name, ptx in archs:
        spelled = draw(st.sampled_from([name, name.replace(".", ""), "sm_" + name.replace(".", "")]))
        written += [spelled + draw(st.sampled_from(["+PTX", "+ptx"])) if ptx else spelled]
    separators = draw(
        st.lists(st.sampled_from([" ", ",", ";", ", ", " ; ", "\t"]), min_size=len(archs), max_size=len(archs))
    )
    text = "".join(part for pair in zip(written, separators, strict=True) for part in pair)
    return version, tuple(archs), text


@given(lists())
def test_arch_list_in_any_form_has_one_canonical_form(case: tuple[str, tuple[tuple[str, bool], ...], str]) -> None:
    version, archs, text = case
    canonical = arch_list(text, version)
    assert arch_list(canonical, version) == canonical
    assert {(arch.name, arch.ptx) for arch in parse_archs(canonical)} == {
        (name, any(ptx for other, ptx in archs if other == name)) for name, _ in archs
    }
    assert re.fullmatch(r"\d+\.\d[af]?(\+PTX)?( \d+\.\d[af]?(\+PTX)?)*", canonical)
    names = [order(arch.name) for arch in parse_archs(canonical)]
    assert names == sorted(names)


@given(st.text(max_size=30), st.sampled_from(cuda_versions()))
def test_arch_list_of_any_text_is_read_or_fails_in_one_line(text: str, version: str) -> None:
    try:
        canonical = arch_list(text, version)
    except Incompatible as error:
        assert "\n" not in str(error)
        assert error.field == "archs"
    else:
        assert arch_list(canonical, version) == canonical


@every("profile, version", product(table("archs"), cuda_versions()))
def test_default_archs_are_canonical_and_compile(profile: str, version: str) -> None:
    try:
        archs = default_archs(profile, version)
    except Incompatible as error:
        assert order(version) < order("11.0")
        assert "has nothing that CUDA" in str(error)
    else:
        assert arch_list(archs, version) == archs


def test_default_archs_equal_upstream_lists() -> None:
    assert default_archs("torch-2023-08", "12.1.1", torch="2.0.1") == "7.0 7.5 8.0 8.6 8.9 9.0+PTX"
    assert default_archs("torch", "12.6.3") == "8.0 8.9 9.0+PTX"
    assert default_archs("torch", "13.2.1", torch="2.13.0") == "8.0 8.9 9.0 10.0 12.0+PTX"
    assert default_archs("torch", "13.2.1", machine="arm64") == "9.0 10.0 12.0+PTX"
    assert default_archs("torch", "12.1.1", machine="arm64") == "9.0+PTX"
    assert default_archs("universal-2021-11", "11.3.1", torch="1.9.1") == "5.2 6.0 6.1 7.0 7.5 8.0 8.6+PTX"
    assert default_archs("universal-2021-11", "10.2", torch="1.9.1") == "5.2 6.0 6.1 7.0 7.5+PTX"
    with pytest.raises(Incompatible, match=r"'torche' is not a profile.* \(did you mean 'torch'\?\)"):
        default_archs("torche", "12.1.1")


# CUDA and torch


@every("torch", torch_versions())
def test_official_builds_are_in_the_table_and_accepted(torch: str) -> None:
    release = torch_release(torch)
    lines = {line(version) for version in cuda_versions()}
    assert set(release.cudas) <= lines
    assert release.cuda in release.cudas
    for version in cuda_versions():
        if line(version) in release.cudas:
            check_torch_cuda(torch, version, source="wheel")
            check_torch_cuda(torch, version, source="build")
        else:
            with pytest.raises(Incompatible) as error:
                check_torch_cuda(torch, version, source="wheel")
            assert error.value.allowed == release.cudas


@every("torch", torch_versions())
def test_official_arm64_builds_alone_are_accepted(torch: str) -> None:
    release = torch_release(torch)
    assert bool(release.cudas_arm64) == (order(torch) >= (2, 4))
    assert set(release.cudas_arm64) <= set(release.cudas)
    if release.cudas_arm64 and release.cuda_arm64:
        assert release.cuda_arm64 in release.cudas_arm64
    for version in cuda_versions():
        if line(version) in release.cudas_arm64:
            check_torch_cuda(torch, version, source="wheel", machine="arm64")
        else:
            with pytest.raises(Incompatible) as error:
                check_torch_cuda(torch, version, source="wheel", machine="arm64")
            assert error.value.allowed == (release.cudas_arm64 or ("2.4.0 and newer", "source: build"))


@every(
    "torch, published",
    [
        ("2.8.0", True),
        ("2.9.1", True),
        ("2.11.0", True),
        ("2.12.0", False),
        ("2.12.1", True),
        ("2.13.0", True),
        ("2.7.1", False),
    ],
)
def test_wheel_for_cuda_129_is_one_of_the_index(torch: str, *, published: bool) -> None:
    """The index cu129 has them, and PyTorch's release matrix names none after 2.8."""
    if published:
        check_torch_cuda(torch, "12.9.1", source="wheel")
    else:
        with pytest.raises(Incompatible, match=r"'12\.9\.1' has no official wheel of torch"):
            check_torch_cuda(torch, "12.9.1", source="wheel")


@every(
    "torch, version, message",
    [
        ("2.7.0", "11.8.0", "cuda: '11.8.0' has no official arm64 wheel of torch 2.7.0; allowed: 12.8; rule: "),
        ("2.7.1", "12.6.3", "cuda: '12.6.3' has no official arm64 wheel of torch 2.7.1; allowed: 12.8; rule: "),
        ("2.8.0", "12.8.1", "cuda: '12.8.1' has no official arm64 wheel of torch 2.8.0; allowed: 12.9; rule: "),
        ("2.5.1", "12.1.1", "cuda: '12.1.1' has no official arm64 wheel of torch 2.5.1; allowed: 12.4; rule: "),
        *(
            (
                torch,
                version,
                f"torch.version: '{torch}' has no official arm64 wheel with CUDA; allowed: 2.4.0 and newer, source: bu",
            )
            for torch, version in (("2.0.1", "11.8.0"), ("2.3.0", "12.1.1"), ("1.10.0", "10.2"))
        ),
    ],
)
def test_wheel_never_published_for_arm64_is_refused(torch: str, version: str, message: str) -> None:
    check_torch_cuda(torch, version, source="wheel", machine="amd64")
    with pytest.raises(Incompatible) as error:
        check_torch_cuda(torch, version, source="wheel", machine="arm64")
    assert str(error.value).startswith(message)


@every(
    "torch, version, machine, abi",
    [
        ("2.5.1", "12.4.1", "amd64", "0"),
        ("2.5.1", "12.4.1", "arm64", "0"),
        ("2.6.0", "11.8.0", "amd64", "0"),
        ("2.6.0", "12.4.1", "amd64", "0"),
        ("2.6.0", "12.6.3", "amd64", "1"),
        ("2.6.0", "12.6.3", "arm64", "1"),
        ("2.7.0", "11.8.0", "amd64", "1"),
        ("2.15.0", "13.2.1", "arm64", "1"),
    ],
)
def test_wheel_abi_changes_with_torch_2_6_and_2_7(torch: str, version: str, machine: Machine, abi: str) -> None:
    assert wheel_abi(torch, version, machine=machine) == abi


def test_every_cuda_builds_some_torch_and_rows_are_used() -> None:
    for version in cuda_versions():
        assert any(_builds(torch, version) for torch in torch_versions())
    assert set(map(line, table("cuda_torch")["builds"])) == {line(torch) for torch in torch_versions()}


def _builds(torch: str, version: str) -> bool:
    try:
        check_torch_cuda(torch, version, source="build")
    except Incompatible:
        return False
    return True


@every(
    "torch, version, says",
    [
        (
            "2.12.0",
            "11.8.0",
            r"cuda: '11\.8\.0' is too old to build torch 2\.12\.0 with; allowed: 12\.1 and newer; rule: Caffe2",
        ),
        (
            "2.0.1",
            "13.2.1",
            r"is newer than torch 2\.0\.1 builds with; allowed: 11\.x, 12\.x before 12\.9; rule: the fir",
        ),
        ("2.8.0", "13.0.2", r"is newer than torch 2\.8\.0 builds with; allowed: 11\.x, 12\.x; rule: "),
        ("1.13.1", "12.1.1", r"is newer than torch 1\.13\.1 builds with; allowed: 10\.x, 11\.x; rule: "),
        ("1.9.1", "12.1.1", r"is newer than torch 1\.9\.1 builds with; allowed: 10\.x, 11\.x before 11\.5; rule: "),
        (
            "1.10.2",
            "11.5.2",
            r"^cuda: '11\.5\.2' is newer than torch 1\.10\.2 builds with; allowed: 10\.x, 11\.x before 11\.5; rule: .*cub",
        ),
        (
            "2.3.1",
            "12.9.1",
            r"newer than torch 2\.3\.1 builds with; allowed: 11\.x, 12\.x before 12\.9; rule: .*nvToolsExt",
        ),
        (
            "2.4.1",
            "12.9.0",
            r"newer than torch 2\.4\.1 builds with; allowed: 11\.x, 12\.x before 12\.9; rule: .*nvToolsExt",
        ),
        ("2.0.0-rc1", "13.0.2", "is newer than torch"),
    ],
)
def test_torch_build_with_wrong_cuda_is_refused(torch: str, version: str, says: str) -> None:
    with pytest.raises(Incompatible, match=says):
        check_torch_cuda(torch, version, source="build")


def test_first_torch_of_a_minor_cuda_builds_with_it() -> None:
    for torch, version in (("1.10.2", "11.4.3"), ("1.11.0", "11.5.2"), ("2.4.1", "12.8.1"), ("2.8.0", "12.9.1")):
        check_torch_cuda(torch, version, source="build")


def test_torch_build_without_wheel_is_accepted() -> None:
    for version in ("11.8.0", "12.0.1", "12.1.1"):
        check_torch_cuda("2.0.1", version, source="build")
    check_torch_cuda("1.9.1", "11.3.1", source="build")
    check_torch_cuda("1.9.1", "10.2", source="build")
    with pytest.raises(
        Incompatible, match=r"'12\.1\.1' has no official wheel of torch 2\.0\.1; allowed: 11\.7, 11\.8; rule"
    ):
        check_torch_cuda("2.0.1", "12.1.1", source="wheel")


@every(
    "value, allowed, near",
    [
        ("12.1", ["12.1.0", "12.1.1", "12.2.2"], "12.1.1"),
        ("v2.0.1", ["2.0.0", "2.0.1"], "2.0.1"),
        ("2.18.3", ["2.18.3-1", "2.18.5-1"], "2.18.3-1"),
        ("ubuntu2204", ["ubuntu20.04", "ubuntu22.04"], "ubuntu22.04"),
        ("2.16.0", ["2.6.0", "2.15.0"], None),
        ("", ["2.0.0"], None),
        ("nothing alike", ["2.0.0"], None),
    ],
)
def test_nearest_of_value_is_the_likely_version(value: str, allowed: list[str], near: str | None) -> None:
    assert nearest(value, allowed) == near
