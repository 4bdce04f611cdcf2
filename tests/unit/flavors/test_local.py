"""``local`` stacks: what the name of their base says is held against the wheels that pip looks for."""

from __future__ import annotations

from typing import Any

import pytest

from stacks import flavors
from stacks.versions import torch_libraries
from stacks.versions.distros import base_system
from stacks.versions.pytorch import torch_release
from stacks.versions.torch_libraries import wheel_warnings
from tests.helpers.every import every
from tests.helpers.refusals import refusal_line


def load(**values: Any) -> Any:
    return flavors.load({"flavor": "local", **values}, "stack x")


def torch(version: str) -> dict[str, Any]:
    return {"version": version, "audio": False}


@every(
    "reference, expected",
    [
        ("debian:12-slim", ("3.11", "2.36", "apt")),
        ("debian:12.5", ("3.11", "2.36", "apt")),
        ("docker.io/library/debian:bookworm-20250101-slim", ("3.11", "2.36", "apt")),
        ("mirror.example:5000/library/ubuntu:noble-20241015", ("3.12", "2.39", "apt")),
        (f"ubuntu:22.04@sha256:{'0' * 64}", ("3.10", "2.35", "apt")),
        ("nvidia/cuda:13.2.1-base-ubuntu24.04", ("3.12", "2.39", "apt")),
        ("nvidia/cuda:13.2.1-base-rockylinux9", ("3.9", "2.34", "dnf")),
        ("redhat/ubi9:9.4", ("3.9", "2.34", "dnf")),
        ("buildpack-deps:jammy", ("3.10", "2.35", "apt")),
        ("python:3.12-slim-bookworm", ("3.12", "2.36", "apt")),
        ("python:3.10.4", ("3.10", None, "apt")),
        ("python:3.12-alpine3.20", (None, None, "apk")),
        ("alpine:3.20", (None, None, "apk")),
        ("acme/app:1.0-bookworm", (None, "2.36", "apt")),
        ("acme/fedora/app:1.0", (None, None, None)),
        ("debian:latest", (None, None, None)),
        ("acme/base:12", (None, None, None)),
        ("python:3-slim", (None, None, None)),
        ("debian:buster-slim", ("3.7", "2.28", "apt")),
        ("ubuntu:16.04", ("3.5", "2.23", "apt")),
        ("opensuse/tumbleweed:latest", (None, None, "zypper")),
        ("docker.io/opensuse/leap:15.6", (None, None, "zypper")),
        ("acme/leap:15.6", (None, None, None)),
        ("archlinux:base", (None, None, "pacman")),
        *((name, (None, None, "rpm")) for name in ("amazonlinux:2", "oraclelinux:7", "oraclelinux:8-slim", "centos:7")),
        ("public.ecr.aws/docker/library/debian:bookworm-slim", ("3.11", "2.36", "apt")),
        ("nvcr.io/nvidia/cuda:12.8.1-cudnn-devel-ubuntu22.04", ("3.10", "2.35", "apt")),
        ("localhost:5000/debian:bookworm-slim", ("3.11", "2.36", "apt")),
        ("acme/debian:bookworm-slim", (None, "2.36", "apt")),  # which may have another Python
        ("debian:bookworm-py312", (None, "2.36", "apt")),
        ("ghcr.io/acme/ubuntu:22.04", (None, "2.35", "apt")),
        ("ghcr.io/astral-sh/uv:python3.12-bookworm-slim", ("3.12", "2.36", "apt")),
        ("mirror.example/ghcr/astral-sh/uv:0.9-python3.10-trixie", ("3.10", "2.41", "apt")),
        ("ghcr.io/astral-sh/uv:bookworm-slim", ("3.11", "2.36", "apt")),
        ("hylang:1.3-python3.12-bookworm", ("3.12", "2.36", "apt")),
        ("node:20-bookworm", ("3.11", "2.36", "apt")),
        ("docker.io/library/node:lts-trixie-slim", ("3.13", "2.41", "apt")),
        ("golang:1.27rc1-bookworm", ("3.11", "2.36", "apt")),
        ("rust:1.80-slim-bullseye", ("3.9", "2.31", "apt")),
        ("ruby:3.3-bookworm", ("3.11", "2.36", "apt")),
        ("php:8.3-apache-bookworm", ("3.11", "2.36", "apt")),
        ("eclipse-temurin:21.0.5_11-jdk-noble", ("3.12", "2.39", "apt")),
        ("eclipse-temurin:8u502-b07-jre-jammy", ("3.10", "2.35", "apt")),
        ("eclipse-temurin:21-jre-ubi9-minimal", ("3.9", "2.34", "dnf")),
        ("gradle:8.5-jdk21-jammy", ("3.10", "2.35", "apt")),
        ("maven:3-eclipse-temurin-21-noble", ("3.12", "2.39", "apt")),
        ("swift:6.0-bookworm-slim", ("3.11", "2.36", "apt")),
        ("tomcat:10-jre21-temurin-noble", ("3.12", "2.39", "apt")),
        ("node:20-alpine3.20", (None, None, "apk")),
        ("node:20", (None, None, None)),
        ("acme/node:20-bookworm", (None, "2.36", "apt")),
        ("node:20-bookworm-py312", (None, "2.36", "apt")),
        ("pypy:3.11-bookworm", (None, "2.36", "apt")),
        ("mcr.microsoft.com/devcontainers/python:3.0-3.12-trixie", ("3.12", "2.41", "apt")),
        ("bitnami/python:3.12.4-debian-12-r3", ("3.12", "2.36", "apt")),
        ("mcr.microsoft.com/devcontainers/base:ubuntu-24.04", (None, "2.39", "apt")),
    ],
)
def test_base_system_is_what_the_reference_says(reference: str, expected: tuple[str | None, ...]) -> None:
    system = base_system(reference)
    assert (system.python, system.glibc, system.packages) == expected


@every(
    "values, reason",
    [
        (
            {"torch": torch("1.12.1")},
            "'debian:bookworm-slim' has Python 3.11, of which there is no amd64 wheel of torch 1.12.1; allowed: ubuntu:20.04,",
        ),
        (
            {"base": "ubuntu:24.04", "torch": torch("2.1.0")},
            "slipway:base: 'ubuntu:24.04' has Python 3.12, of which there is no amd64 wheel of torch 2.1.0;",
        ),
        (
            {"base": "debian:trixie-slim", "platform": "linux/arm64", "torch": torch("2.5.1")},
            "has Python 3.13, of which there is no arm64 wheel of torch 2.5.1;",
        ),
        (
            {"base": "python:3.9-slim"},
            "slipway:base: 'python:3.9-slim' has Python 3.9, of which there is no amd64 wheel of torch 2.14.1;",
        ),
        (
            {"base": "ghcr.io/astral-sh/uv:python3.12-bookworm-slim", "torch": torch("2.1.0")},
            "has Python 3.12, of which there is no amd64 wheel of torch 2.1.0;",
        ),
        (
            {"base": "eclipse-temurin:21-jdk-noble", "torch": torch("2.1.0")},
            "has Python 3.12, of which there is no amd64 wheel of torch 2.1.0;",
        ),
        (
            {"base": "acme/python:3.11-bionic", "torch": torch("2.7.0")},
            "has glibc 2.27, and the amd64 wheel of torch 2.7.0 needs 2.28;",
        ),
        (
            {"base": "acme/python:3.11-bionic", "platform": "linux/arm64", "torch": torch("2.6.0")},
            "has glibc 2.27, and the arm64 wheel of torch 2.6.0 needs 2.28;",
        ),
        ({"base": "rockylinux/rockylinux:9"}, "has dnf, and the Dockerfile installs with apt; allowed: ubuntu:18.04,"),
        ({"base": "python:3.12-alpine"}, "has apk, and the Dockerfile installs with apt;"),
    ],
)
def test_base_without_a_wheel_is_refused(values: dict[str, Any], reason: str) -> None:
    assert reason in refusal_line(load, **values)


def test_bases_that_are_offered_take_the_wheel() -> None:
    """Of those with a glibc that is new enough, where an older one was the reason."""
    line = refusal_line(load, base="acme/python:3.11-bionic", torch=torch("2.7.0"))
    assert "; allowed: ubuntu:20.04, " in line
    line = refusal_line(load, base="rockylinux/rockylinux:9", torch=torch("2.7.0"))
    assert "; allowed: ubuntu:18.04, " in line


@every(
    "values",
    [
        {},
        {"base": "ubuntu:22.04", "torch": torch("1.12.1")},
        {"base": "python:3.10-slim", "torch": torch("1.12.1")},
        {"base": "acme/base:1.0", "torch": torch("1.12.1")},
        {"base": "acme/python:3.11-bionic", "torch": torch("2.6.0")},
        {"base": "nvidia/cuda:13.2.1-base-ubuntu24.04"},
        {"base": "acme/debian:bookworm-py310", "torch": torch("1.12.1")},
        {"base": "acme/node:20-bookworm", "torch": torch("1.12.1")},
        {"base": "ghcr.io/astral-sh/uv:python3.10-bookworm", "torch": torch("1.12.1")},
        {"base": "mcr.microsoft.com/devcontainers/python:3.0-3.12-trixie"},
    ],
)
def test_base_with_a_wheel_or_unknown_is_taken(values: dict[str, Any]) -> None:
    assert load(**values).warnings == load().warnings


@every(
    "base",
    [
        "ubuntu:latest",
        "docker.io/library/debian:latest",
        "debian:stable-slim",
        "python:3-slim",
        "rockylinux/rockylinux:latest",
        "node:20",
        "golang:1.23",
        "eclipse-temurin:21-jdk",
        "ghcr.io/astral-sh/uv:debian-slim",
        "pypy:3.11-bookworm",
    ],
)
def test_public_base_of_unknown_python_is_a_warning(base: str) -> None:
    [line] = [each for each in load(base=base, torch=torch("1.12.1")).warnings if each.startswith("slipway:base:")]
    assert line == (
        f"slipway:base: '{base}' does not say its Python and glibc; torch 1.12.1 has amd64 wheels for Python 3.7, 3.8, 3.9, 3.10 "
        "and glibc 2.17 or newer, and the build fails on others; name a release: ubuntu:20.04, ubuntu:22.04, "
        "debian:11-slim, python:3.10-slim"
    )


@every(
    "base, pythons, glibc",
    [
        ("debian:bookworm-slim", ("3.11",), "2.36"),
        ("python:3.12-slim", ("3.12",), "2.28"),  # no older one has torch's wheel
        ("acme/base:1.0", torch_release("2.14.1").pythons, None),
        ("acme/app:1.0-bookworm", torch_release("2.14.1").pythons, None),
    ],
)
def test_packages_are_resolved_for_the_python_of_the_base(
    base: str, pythons: tuple[str, ...], glibc: str | None
) -> None:
    """A package that another Python lacks is none of its business."""
    spec = flavors.images(load(base=base, torch={"version": "2.14.1"}))[0]
    assert spec.packages
    assert (spec.packages.pythons, spec.packages.glibc) == (pythons, glibc)


def test_torch_without_cuda_on_arm64_is_a_warning() -> None:
    old, new = (load(platform="linux/arm64", torch=torch(version)) for version in ("2.10.0", "2.11.0"))
    expected = (
        "slipway:torch.version: torch 2.10.0 does not use GPUs on arm64: that wheel on the Python index has no CUDA;"
        " 2.11.0 and newer have it, stacks/versions/torch.toml"
    )
    assert expected in old.warnings
    assert not any("does not use GPUs" in line for line in (*new.warnings, *load(torch=torch("2.10.0")).warnings))


@every(
    "version, platform, warned",
    [
        ("2.7.1", "linux/amd64", False),
        ("2.8.0", "linux/amd64", True),
        ("2.9.1", "linux/amd64", True),
        ("2.10.0", "linux/amd64", True),
        ("2.10.0", "linux/arm64", False),  # which has no CUDA
        ("2.11.0", "linux/amd64", False),
    ],
)
def test_cudnn_of_a_wheel_that_computes_wrong_is_a_warning(version: str, platform: str, *, warned: bool) -> None:
    config = load(base="python:3.12-slim", platform=platform, torch=torch(version))
    expected = (
        f"slipway:torch.version: torch {version}: the cuDNN 9.10.2.21 of its wheel may compute 3D convolutions in bfloat16"
        " wrong; 2.11.0 has a newer one; pytorch/pytorch#163539: seen with 9.8, gone with 9.13"
    )
    assert [line for line in config.warnings if "cuDNN" in line] == [expected] * warned


@every("platform, warned", [("linux/amd64", False), ("linux/arm64", True)])
def test_nccl_of_a_wheel_that_is_known_to_hang_is_a_warning(platform: str, *, warned: bool) -> None:
    expected = (
        "slipway:torch.version: torch 2.11.0: with the NCCL 2.28.9 of its wheel on arm64, collectives stop without an "
        "error; 2.12.0 has a newer one; marin-community/marin#8038: seven of seven runs on GB200"
    )
    local = load(base="python:3.12-slim", platform=platform, torch=torch("2.11.0"))
    published = {"version": "2.11.0", "vision": "0.26.0", "audio": "2.11.0", "source": "wheel"}
    family = {"flavor": "base", "cuda": "13.0.2", "distro": "ubuntu24.04", "platform": platform, "torch": published}
    for config in (local, flavors.load(family, "stack x")):
        assert [line for line in config.warnings if "NCCL" in line] == [expected] * warned


def test_wrong_cudnn_of_the_newest_torch_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_libraries, "torch_versions", lambda: ("2.9.1", "2.10.0"))
    [line] = wheel_warnings("2.9.1", "amd64")
    assert line.endswith(" wrong; pytorch/pytorch#163539: seen with 9.8, gone with 9.13")
