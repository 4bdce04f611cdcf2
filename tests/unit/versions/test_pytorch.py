"""torch's table: what the packages' metadata ties together, and what it refuses."""

from __future__ import annotations

from typing import get_args

import pytest

from containers.image.gpu.release_order import order
from stacks.versions.cuda_toolkit import Machine
from stacks.versions.incompatible import Incompatible
from stacks.versions.pytorch import (
    Companion,
    built_libraries,
    check_companion,
    check_python,
    companion_versions,
    missing_triton,
    published_features,
    torch_release,
    torch_versions,
    triton_warnings,
)
from stacks.versions.tables import satisfies, table
from tests.helpers.every import every

COMPANIONS: tuple[Companion, ...] = get_args(Companion)


def one_line(error: pytest.ExceptionInfo[Incompatible]) -> str:
    text = str(error.value)
    assert "\n" not in text
    assert text.startswith(f"{error.value.field}: '")
    assert f"; rule: {error.value.source}" in text
    return text


@every(
    "torch, vision, audio, text",
    [
        ("1.9.1", "0.10.1", "0.9.1", "0.10.1"),
        ("2.0.0", "0.15.1", "2.0.1", "0.15.1"),
        ("2.0.1", "0.15.2", "2.0.2", "0.15.2"),
        ("2.3.1", "0.18.1", "2.3.1", "0.18.0"),
        ("2.4.1", "0.19.1", "2.4.1", None),
        ("2.12.0", "0.27.0", "2.11.0", None),
        ("2.13.0", "0.28.0", "2.11.0", None),
        ("2.15.0", "0.29.2", "2.11.0", None),
    ],
)
def test_torch_companions_of_known_sets_are_accepted(torch: str, vision: str, audio: str, text: str | None) -> None:
    release = torch_release(torch)
    assert (release.vision, release.audio, release.text) == (vision, audio, text)


@every("version", torch_versions())
def test_torch_companions_of_every_release_are_accepted(version: str) -> None:
    release = torch_release(version)
    assert release.version == version
    assert release.pythons
    assert release.vision
    assert release.audio
    for package in COMPANIONS:
        fitting = {
            "vision": release.visions,
            "audio": release.audios,
            "text": release.texts,
            "xformers": release.xformers,
            "vllm": release.vllms,
        }[package]
        for companion in companion_versions(package):
            if companion in fitting:
                check_companion(version, package, companion)
            else:
                with pytest.raises(Incompatible) as error:
                    check_companion(version, package, companion)
                assert error.value.allowed == fitting
                one_line(error)


@every("package", COMPANIONS)
def test_every_companion_fits_some_torch(package: Companion) -> None:
    reached = {
        companion
        for torch in torch_versions()
        for companion in companion_versions(package)
        if companion
        in (torch_release(torch).xformers if package == "xformers" else getattr(torch_release(torch), f"{package}s"))
    }
    assert reached == set(companion_versions(package))


@every("section", ["torch", *COMPANIONS])
def test_torch_rows_are_sorted_by_version(section: str) -> None:
    versions = list(table("torch")[section])
    assert versions == sorted(versions, key=order)


def test_amendments_name_existing_rows_and_their_source() -> None:
    assert table("torch_amendments")
    for package, rows in table("torch_amendments").items():
        for version, row in rows.items():
            assert row["torch"] != table("torch")[package][version]["torch"]
            assert row["source"]


def test_mismatch_error_names_field_value_allowed_and_rule() -> None:
    with pytest.raises(Incompatible) as error:
        check_companion("2.0.1", "vision", "0.15.1", field="slipway:torch.vision")
    text = one_line(error)
    assert text.startswith("slipway:torch.vision: '0.15.1' does not go with torch 2.0.1; allowed: 0.15.2; ")
    assert "rule: the packages' own metadata" in text


def test_torchtext_with_wrong_metadata_is_refused() -> None:
    check_companion("2.3.1", "text", "0.18.0")
    with pytest.raises(Incompatible, match=r"torch\.text: '0\.18\.0' .* allowed: none; rule: pytorch/text issue 2272"):
        check_companion("2.4.0", "text", "0.18.0")


@every("value, meant", [("2.0", "2.0.1"), ("v2.0.1", "2.0.1"), ("2.0.l", "2.0.1")])
def test_torch_unknown_suggests_the_nearest(value: str, meant: str) -> None:
    with pytest.raises(Incompatible) as error:
        torch_release(value)
    assert f"(did you mean '{meant}'?)" in one_line(error)
    assert f"more from 1.9.1 to {torch_versions()[-1]};" in str(error.value)


def test_error_of_value_with_line_breaks_is_one_line() -> None:
    with pytest.raises(Incompatible) as error:
        torch_release("2.0.1\nFROM scratch")
    one_line(error)


def test_release_candidates_fit_what_their_releases_fit() -> None:
    assert torch_release("2.0.0-rc1").visions == ("0.15.1",)
    check_companion("2.0.0-rc1", "vision", "0.15.0-rc1")
    check_companion("2.0.0-rc6", "vision", "0.15.1")
    check_companion("2.0.0-rc6", "audio", "2.0.0-rc2")
    check_companion("2.0.1", "vision", "0.15.2-rc1")
    for torch, vision, allowed in (
        ("2.0.0-rc1", "0.14.0-rc1", "0.15.1"),
        ("2.0.1-rc1", "0.15.99", "0.15.2"),
        ("2.0.1-rc1", "0.15.99-rc1", "0.15.2"),
        ("2.0.1-rc1", "0.15", "0.15.2"),
        ("2.0.1-rc1", "0.15.1", "0.15.2"),
        ("2.0.1", "0.15.0-rc1", "0.15.2"),
    ):
        with pytest.raises(Incompatible) as error:
            check_companion(torch, "vision", vision)
        message = (
            f"torch.vision: '{vision}' does not go with torch {torch}; allowed: {allowed}; rule: the packages' own"
        )
        assert one_line(error).startswith(message)


def test_check_python_covers_packages_and_machines() -> None:
    check_python("2.0.1", "3.11", companions={"vision": "0.15.2", "audio": "2.0.2"})
    check_python("2.15.0", "3.15", companions={"vision": "0.29.2"})
    with pytest.raises(
        Incompatible, match=r"python: '3\.7' has no amd64 wheel of torch 2\.0\.1.* allowed: 3\.8, 3\.9,"
    ):
        check_python("2.0.1", "3.7")
    with pytest.raises(Incompatible, match=r"'3\.15' has no amd64 wheel of torchaudio 2\.11\.0"):
        check_python("2.15.0", "3.15", companions={"audio": "2.11.0"})
    with pytest.raises(Incompatible, match=r"'3\.11' has no arm64 wheel of torch 1\.13\.1"):
        check_python("1.13.1", "3.11", machine="arm64")


@every(
    "version, specifier, met",
    [
        ("2.0.1", "==2.0.1", True),
        ("2.0.10", "==2.0.1", False),
        ("2.10.0", ">=2.9.1", True),
        ("2.4.0", ">=2.3.0,<2.4.0", False),
        ("2.3.1", ">=2.3.0,<2.4.0", True),
        ("2.3.1", "", False),
    ],
)
def test_satisfies_compares_each_clause(version: str, specifier: str, met: bool) -> None:
    assert satisfies(version, specifier) is met


@every(
    "torch, cuda, libraries",
    [
        ("2.0.1", "12.1.1", {}),
        ("2.5.1", "12.4.1", {}),
        ("2.6.0", "11.8.0", {}),
        ("2.6.0", "12.4.1", {"cusparselt": "0.6.2"}),
        ("2.8.0", "12.4.1", {}),
        ("2.9.1", "12.8.1", {"cusparselt": "0.7.1", "nvshmem": "3.3.20"}),
        ("2.9.1", "13.0.2", {"cusparselt": "0.8.0"}),
        ("2.11.0", "13.0.2", {"cusparselt": "0.8.0", "nvshmem": "3.4.5"}),
        ("2.14.1", "12.9.1", {"cusparselt": "0.8.1", "nvshmem": "3.4.5"}),
        ("2.15.0", "13.2.1", {"cusparselt": "0.8.1", "nvshmem": "3.7.2"}),
    ],
)
def test_built_libraries_are_those_of_published_wheels(torch: str, cuda: str, libraries: dict[str, str]) -> None:
    assert built_libraries(torch, cuda) == libraries


@every(
    "torch, machine, missing",
    [
        ("2.8.0", "arm64", "3.4.0"),
        ("2.0.1", "arm64", "2.0.0"),
        ("2.9.0", "arm64", None),
        ("2.15.0", "arm64", None),
        ("1.13.1", "arm64", None),
        ("2.8.0", "amd64", None),
    ],
)
def test_triton_without_a_wheel_for_arm64_is_missing(torch: str, machine: Machine, missing: str | None) -> None:
    assert missing_triton(torch, machine) == missing
    lines = triton_warnings(torch, machine)
    why = f"it needs {missing}, and the Python index has it for arm64 from 3.5.0 on, stacks/versions/cuda_torch.toml"
    begin = f"slipway:torch.version: torch {torch} is built without Triton, so torch.compile makes no code for GPUs"
    assert lines == ([f"{begin}: {why}"] if missing else [])


@every(
    "torch, row",
    [("2.13.0", "2.13.0"), ("2.14.1", "2.14.1"), ("2.14.9", "2.14.1"), ("2.15.0-rc1", "2.15.0")],
)
def test_features_are_those_of_the_wheel_of_this_line(torch: str, row: str) -> None:
    read = table("torch_features")[row]
    assert published_features(torch, cuda=True) == (*read["gpu"], *read["cpu"])
    assert published_features(torch, cuda=False) == (*read["cpu"],)


def test_features_of_line_that_was_not_read_are_none() -> None:
    assert published_features("2.12.1", cuda=True) == published_features("2.99.0", cuda=True) == ()


def test_wheel_of_each_read_release_has_what_users_miss() -> None:
    for release, read in table("torch_features").items():
        assert {"lapack", "mkl", "linalg", "gloo", "compile"} <= {*read["cpu"]}, release
        assert {"magma", "cusparselt", "nvshmem", "flash-attention", "nccl"} <= {*read["gpu"]}, release
        assert f"torch {release}+" in read["source"]
