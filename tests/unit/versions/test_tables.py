"""The tables beside CUDA and torch: NCCL, MAGMA, extras, EFA, NGC; and how they all load."""

from __future__ import annotations

import contextlib
import functools
import gzip
import itertools
import json
from pathlib import Path
from typing import Any

import moto
import pytest

import stacks.versions
from containers.errors import SlipwayError
from containers.image.gpu.node_labels import GPU
from containers.image.gpu.release_order import line, older, order
from stacks.versions.aks import aks_node
from stacks.versions.cuda_toolkit import cuda_versions
from stacks.versions.efa_ngc import (
    check_nccl_not_older,
    check_ngc_listed,
    check_ofi_libfabric,
    check_ofi_nccl,
    efa_installer,
    efa_versions,
    needs_sync_memops,
    ngc_release,
    ngc_versions,
    ofi_nccl_tag,
)
from stacks.versions.extras import check_extra, check_extra_listed, check_extras_together, extra_archs, extras
from stacks.versions.incompatible import Incompatible, Unverified
from stacks.versions.nodes import EFA, INFINIBAND, node, node_names
from stacks.versions.pytorch import built_libraries, torch_versions
from stacks.versions.tables import table
from stacks.versions.torch_libraries import (
    check_nccl_package,
    hpcx_archive,
    hpcx_warnings,
    magma,
    nccl_package_warnings,
    nccl_release,
    nccl_versions,
)
from tests.helpers.every import every


def test_row_without_a_key_is_one_line() -> None:
    row = table("cuda")["release"]["13.2.1"]
    assert row["driver"]
    assert row.get("speed") is None
    with pytest.raises(SlipwayError) as error:
        _ = row["speed"]
    assert str(error.value) == (
        "stacks/versions/cuda.toml: [release] [13.2.1] has no 'speed'; add it: the comments of the file say what it is"
    )
    with pytest.raises(SlipwayError, match=r"^stacks/versions/archs\.toml: \[deepspeed-kernels\] has no 'speed'; "):
        _ = table("archs")["deepspeed-kernels"][0]["speed"]


def test_nccl_release_of_known_stacks_is_complete() -> None:
    seed = nccl_release("2.18.3-1", "12.1.1")
    assert (seed.tag, seed.apt, seed.apt_known) == ("v2.18.3-1", "2.18.3-1+cuda12.1", True)
    assert seed.wheel == "nvidia-nccl-cu12==2.18.3"
    assert nccl_release("2.16.2-1", "11.8.0").apt == "2.16.2-1+cuda11.8"
    today = nccl_release("2.30.4-1", "13.2.1")
    assert (today.wheel, today.apt_known) == ("nvidia-nccl-cu13==2.30.4", True)
    assert nccl_release("2.22.3-1", "11.8.0").wheel is None


@every("toolkit", cuda_versions())
def test_nccl_release_fits_a_cuda_or_is_too_old(toolkit: str) -> None:
    first = table("nccl")["first"][toolkit.split(".", maxsplit=1)[0]]["nccl"]
    for version in nccl_versions():
        if order(version) >= order(first):
            assert nccl_release(version, toolkit).version == version
        else:
            with pytest.raises(Incompatible, match=f"is too old for CUDA {toolkit}"):
                nccl_release(version, toolkit)


def test_nccl_packages_are_of_known_releases_and_cudas() -> None:
    tables = table("nccl")
    assert list(nccl_versions()) == sorted(nccl_versions(), key=order)
    for minor, versions in tables["apt"].items():
        assert minor in {line(version) for version in cuda_versions()}
        assert set(versions) <= set(nccl_versions())
    for minor, row in tables["packaged"].items():
        assert {row["from"], row.get("until", row["from"])} <= set(nccl_versions())
        assert tables["apt"][minor]
    for major, numbers in tables["pypi"].items():
        first = order(tables["first"][major]["nccl"])
        assert all(f"{number}-1" in nccl_versions() and order(number) >= first[:3] for number in numbers)


@every("minor", {line(version): version for version in cuda_versions()})
def test_nccl_with_known_package_is_accepted(minor: str) -> None:
    cuda = next(version for version in cuda_versions() if line(version) == minor)
    for version in table("nccl")["apt"].get(minor, ()):
        check_nccl_package(version, cuda)


@every(
    "version, cuda, message",
    [
        (
            "2.30.4-1",
            "12.1.1",
            "allowed: 2.17.1-1, 2.18.1-1, 2.18.3-1; rule: NVIDIA/nccl#1142, stacks/versions/nccl.toml",
        ),
        ("2.18.5-1", "12.1.1", "allowed: 2.17.1-1, 2.18.1-1, 2.18.3-1; rule: "),
        ("2.19.3-1", "11.8.0", "allowed: 2.15.5-1, 2.16.2-1, 2.16.5-1; rule: pytorch/builder#1671"),
        ("2.18.3-1", "12.9.1", "allowed: 2.26.5-1, "),
        ("2.30.4-1", "13.0.2", "allowed: 2.27.7-1, 2.28.3-1, 2.28.9-1; rule: NVIDIA/nccl#2281"),
    ],
)
def test_nccl_without_package_for_a_cuda_is_refused(version: str, cuda: str, message: str) -> None:
    with pytest.raises(Incompatible) as error:
        check_nccl_package(version, cuda)
    assert str(error.value).startswith(
        f"nccl: '{version}' has no package for CUDA {line(cuda)} in NVIDIA's apt archive; {message}"
    )


@every("version, cuda", [("2.32.3-1", "13.4.1"), ("2.32.3-1", "12.9.1"), ("2.18.1-1", "11.8.0")])
def test_nccl_with_possible_package_is_accepted(version: str, cuda: str) -> None:
    check_nccl_package(version, cuda)
    assert not nccl_release(version, cuda).apt_known


def test_nccl_release_unknown_is_refused() -> None:
    with pytest.raises(
        Incompatible, match=r"nccl: '2\.18\.3' is not a known NCCL release \(did you mean '2\.18\.3-1'\?\)"
    ):
        nccl_release("2.18.3", "12.1.1")
    with pytest.raises(Incompatible, match=r"'2\.18\.3-1' is too old for CUDA 13\.2\.1;"):
        nccl_release("2.18.3-1", "13.2.1")


@every("toolkit", cuda_versions())
def test_magma_of_every_cuda_exists_or_has_a_reason(toolkit: str) -> None:
    minor = line(toolkit)
    if minor in table("magma")["gap"]:
        with pytest.raises(Incompatible) as error:
            magma(toolkit)
        assert table("magma")["gap"][minor] in str(error.value)
        assert minor not in error.value.allowed
    else:
        assert magma(toolkit).package == f"magma-cuda{minor.replace('.', '')}"


def test_magma_of_cuda_11_4_is_refused_with_the_reason() -> None:
    with pytest.raises(
        Incompatible, match=r"magma: '11\.4\.3' has no MAGMA package \(magma-cuda114 was never released"
    ):
        magma("11.4.3")


def test_magma_rows_are_known_cudas() -> None:
    rows, lines = {*table("magma")["package"], *table("magma")["gap"]}, {line(version) for version in cuda_versions()}
    assert rows == lines, (
        f"write each line of cuda.toml into magma.toml, in `package` or, with the reason why it has none, in [gap]: "
        f"{sorted(lines - rows)}; take out {sorted(rows - lines)}"
    )


def test_extra_with_old_cuda_or_python_is_refused() -> None:
    check_extra("flash-attention", "2.0.2", cuda_version="11.8.0", python="3.8")
    check_extra("flash-attention", "2.5.0", cuda_version="11.6.2")
    check_extra("deepspeed", "0.9.4", cuda_version="10.2", python="3.6")
    with pytest.raises(
        Incompatible,
        match=r"extras\.flashAttention: '2\.8\.3' does not build with cuda 11\.6; allowed: cuda 11\.7 and",
    ):
        check_extra("flash-attention", "2.8.3", cuda_version="11.6.2")
    with pytest.raises(
        Incompatible, match=r"'2\.8\.3' does not build with python 3\.8; allowed: python 3\.9 and newer"
    ):
        check_extra("flash-attention", "2.8.3", cuda_version="12.1.1", python="3.8")


@every(
    "name, version",
    [
        ("deepspeed", "77.7.7"),
        ("deepspeed", "0.18.99"),
        ("flash-attention", "9.9"),
        ("flash-attention", "2.8.4"),
        ("flash-attention4", "4.0.0.beta99"),
        ("transformer-engine", "2.99"),
    ],
)
def test_extra_that_was_never_released_is_unverified(name: str, version: str) -> None:
    with pytest.raises(Unverified, match=rf"{extras()[name].key}: '{version}' is not a known release of"):
        check_extra_listed(name, version)


def test_every_release_of_an_extra_and_its_tags_are_known() -> None:
    for name, extra in extras().items():
        for version in (*extra.releases, extra.default or ""):
            if "." in version:
                check_extra_listed(name, version)
    check_extra_listed("flash-attention", "2.8.0")  # its tag; the index has 2.8.0.post2
    check_extra_listed("transformer-engine", "1.7")  # older than what the index has


def test_extra_too_old_for_torch_is_refused() -> None:
    check_extra("deepspeed", "0.18.8", cuda_version="13.0.1", torch="2.13.0")
    check_extra("deepspeed", "0.19.5", cuda_version="13.2.1", torch="2.15.0")
    check_extra("deepspeed", "a" * 40, cuda_version="13.2.1", torch="2.15.0")
    with pytest.raises(
        Incompatible,
        match=r"'0\.18\.8' does not build with torch 2\.14\.0; allowed: 0\.19\.5 and newer",
    ):
        check_extra("deepspeed", "0.18.8", cuda_version="13.2.1", torch="2.14.0")


@every(
    "version, cuda, message",
    [
        ("0.4", "13.0.2", "does not build with cuda 13.0; allowed: 1.11 and newer; rule: TransformerEngine 0.9 docum"),
        ("0.5", "12.9.1", "does not build with cuda 12.9; allowed: 1.9 and newer; rule: TransformerEngine 0.9 docume"),
        ("1.0", "13.2.1", "does not build with cuda 13.2; allowed: 1.11 and newer; rule: TransformerEngine 0.9 docum"),
        ("1.9", "13.2.1", "does not build with cuda 13.2; allowed: 1.11 and newer; rule: TransformerEngine 0.9 docum"),
        (
            "1.10",
            "13.2.1",
            "does not build with cuda 13.2; allowed: 1.11 and newer; rule: TransformerEngine's build_to",
        ),
        (
            "1.10",
            "11.8.0",
            "does not build with cuda 11.8; allowed: cuda 12.0 and newer; rule: TransformerEngine's bui",
        ),
    ],
)
def test_extra_too_old_for_cuda_is_refused(version: str, cuda: str, message: str) -> None:
    with pytest.raises(Incompatible) as error:
        check_extra("transformer-engine", version, cuda_version=cuda)
    assert str(error.value).startswith(f"transformerEngine: '{version}' {message}")


@every(
    "version, cuda",
    [
        ("0.4", "12.9.1"),
        ("1.8", "12.8.1"),
        ("1.9", "12.9.1"),
        ("1.9", "11.8.0"),
        ("1.11", "13.2.1"),
        ("2.12", "13.2.1"),
    ],
)
def test_extra_just_new_enough_for_cuda_is_accepted(version: str, cuda: str) -> None:
    check_extra("transformer-engine", version, cuda_version=cuda)


def test_every_torch_of_deepep_has_its_nvshmem() -> None:
    pairs = []
    for torch, cuda in itertools.product(torch_versions(), cuda_versions()):
        with contextlib.suppress(Incompatible):
            check_extra("deepep", "567632d", cuda_version=cuda, torch=torch)
            pairs.append((torch, cuda))
    assert ("2.9.1", "12.6.3") in pairs
    assert ("2.9.1", "12.9.1") in pairs
    assert ("2.10.0", "13.0.2") in pairs
    assert ("2.15.0", "13.2.1") in pairs
    assert [pair for pair in pairs if older(built_libraries(*pair)["nvshmem"], "3.3.9")] == []


def test_deepep_with_torch_without_nvshmem_is_refused() -> None:
    with pytest.raises(
        Incompatible,
        match=r"'567632d' needs NVSHMEM 3\.3\.9, which torch 2\.9\.1 with cuda 13\.0 has not; allowed: torch 2\.10\.0 and newer; ",
    ):
        check_extra("deepep", "567632d", cuda_version="13.0.2", torch="2.9.1")


@every("version", ["4.0.0.beta4", "4.0.0.beta27", "4.0.0", "abcdef1"])
def test_attention4_at_any_pin_needs_its_python(version: str) -> None:
    check_extra("flash-attention4", version, cuda_version="12.9.1", python="3.10", archs="9.0")
    with pytest.raises(Incompatible, match=r"does not build with python 3\.9; allowed: python 3\.10 and newer; rule: "):
        check_extra("flash-attention4", version, cuda_version="12.9.1", python="3.9", archs="9.0")


def test_extra_at_commit_is_accepted_for_any_cuda() -> None:
    check_extra("transformer-engine", "a" * 40, cuda_version="13.2.1")


def test_engine_needing_newer_python_is_refused() -> None:
    check_extra("transformer-engine", "2.8", cuda_version="12.6.3", python="3.8")
    with pytest.raises(Incompatible, match=r"does not build with python 3\.8; allowed: python 3\.10 and newer; rule: "):
        check_extra("transformer-engine", "2.9", cuda_version="12.6.3", python="3.8")


@every("version", ["2.2", "2.8", "2.12", "2.14.1"])
def test_engine_importing_older_attention3_is_refused(version: str) -> None:
    check_extras_together({"transformer-engine": version})
    with pytest.raises(Incompatible, match=r"allowed: 2\.15 and newer, flashAttention3: false; rule: backends\.py:141"):
        check_extras_together({"transformer-engine": version, "flash-attention3": "15270e6"})


@every("version", ["1.13", "2.1", "2.15", "2.17.1", "a" * 40])
def test_engine_importing_present_attention3_is_accepted(version: str) -> None:
    check_extras_together({"transformer-engine": version, "flash-attention3": "15270e6"})


@every("name", ["flash-attention", "flash-attention4", "deepspeed", "transformer-engine"])
def test_extra_rows_are_sorted_by_version(name: str) -> None:
    assert list(extras()[name].needs) == sorted(extras()[name].needs, key=order)


@every("version", efa_versions())
def test_efa_installers_have_ubuntu_and_plugin(version: str) -> None:
    installer = efa_installer(version)
    assert installer.ubuntus
    assert (installer.ofi_nccl is not None) == (order(version) >= order("1.38.0"))
    if installer.ofi_nccl:
        ofi_nccl_tag(installer.ofi_nccl if order(installer.ofi_nccl) >= (1, 14) else f"{installer.ofi_nccl}-aws")


def test_efa_rules_apply_from_their_installer_on() -> None:
    assert [efa_installer(v).disable_ngc for v in ("1.29.0", "1.47.0", "1.48.0", "1.51.0")] == [
        False,
        False,
        True,
        True,
    ]
    assert efa_installer("1.50.0").ofi_nccl == "1.21.1"
    assert efa_installer("1.29.0").ubuntus == ("20.04", "22.04")
    assert efa_installer("1.43.0").ubuntus == ("22.04", "24.04")
    assert needs_sync_memops("1.29.0", "2.19.3-1")
    assert not needs_sync_memops("1.29.0", "2.18.3-1")
    assert not needs_sync_memops("1.29.1", "2.19.3-1")
    assert list(efa_versions()) == sorted(efa_versions(), key=order)


@every(
    "version, tag",
    [("1.7.3-aws", "v1.7.3-aws"), ("v1.12.1-aws", "v1.12.1-aws"), ("1.14.0", "v1.14.0"), ("1.19.0", "v1.19.0")],
)
def test_ofi_nccl_tag_has_its_prefix_and_suffix(version: str, tag: str) -> None:
    assert ofi_nccl_tag(version) == tag


@every(
    "version, says",
    [
        ("1.19.0-aws", r"efa\.ofiNccl: '1\.19\.0-aws' is not how that release is named .*; allowed: 1\.19\.0;"),
        ("1.7.3", r"'1\.7\.3' is not how .*; allowed: 1\.7\.3-aws;"),
        ("master", "'master' is not an aws-ofi-nccl version"),
    ],
)
def test_ofi_nccl_with_wrong_suffix_is_refused(version: str, says: str) -> None:
    with pytest.raises(Incompatible, match=says):
        ofi_nccl_tag(version)


def test_efa_installer_unknown_is_refused() -> None:
    with pytest.raises(
        Incompatible, match=r"efa\.installer: 'latest' is not a known EFA installer; allowed: 1\.4.* more from"
    ):
        efa_installer("latest")
    check_ofi_nccl("1.7.4-aws", "2.16.2-1")
    check_ofi_nccl("1.19.0", "2.18.3-1")
    with pytest.raises(
        Incompatible, match=r"nccl: '2\.16\.2-1' is too old for aws-ofi-nccl 1\.19\.0; allowed: 2\.17\.1 and"
    ):
        check_ofi_nccl("1.19.0", "2.16.2-1")


def test_plugin_newer_than_its_libfabric_is_refused() -> None:
    check_ofi_libfabric("1.12.1-aws", "1.32.0")
    check_ofi_libfabric("1.13.0-aws", "1.33.0")
    check_ofi_libfabric("", "1.32.0")
    with pytest.raises(
        Incompatible,
        match=r"^efa\.ofiNccl: '1\.13\.0-aws' needs libfabric 1\.22, which EFA installer 1\.32\.0 has not; "
        r"allowed: a release before 1\.13\.0, efa\.installer 1\.33\.0 and newer; rule: aws/aws-ofi-nccl m4/",
    ):
        check_ofi_libfabric("1.13.0-aws", "1.32.0")


@every("version", ngc_versions())
def test_ngc_releases_have_known_fields(version: str) -> None:
    release = ngc_release(version)
    assert release.cuda
    assert release.cuda in cuda_versions()
    if release.nccl:
        assert f"{release.nccl}-1" in nccl_versions()
        check_nccl_not_older(version, f"{release.nccl}-1")


@every(
    "version, torch, cuda",
    [
        ("25.08", "2.8.0", "13.0"),
        ("25.11", "2.10.0", "13.0"),
        ("26.04", "2.12.0", "13.2"),
        ("26.07", "2.13.0", "13.3"),
        ("26.08", "2.14.0", "13.4"),
    ],
)
def test_ngc_release_that_people_build_on_is_listed(version: str, torch: str, cuda: str) -> None:
    release = ngc_release(version)
    check_ngc_listed(version)
    assert (release.python, (release.torch or "").partition("a")[0], (release.cuda or "")[:4]) == ("3.12", torch, cuda)


def test_ngc_release_of_known_stacks_is_complete() -> None:
    assert (ngc_release("23.10").ubuntu, ngc_release("23.10").nccl) == ("22.04", "2.19.3")
    assert (ngc_release("25.03").ubuntu, ngc_release("25.03").python, ngc_release("25.03").cuda) == (
        "24.04",
        "3.12",
        "12.8.1",
    )
    assert ngc_release("26.05").nccl is None


def test_nccl_older_than_parent_is_refused() -> None:
    check_nccl_not_older("24.09", "2.23.4-1")
    check_nccl_not_older("26.05", "2.7.8-1")  # not known, so not refused
    with pytest.raises(
        Incompatible, match=r"nccl.version: '2\.19\.3-1' is older than the NCCL of nvcr\.io/nvidia/pytorch:24\.09-py3"
    ):
        check_nccl_not_older("24.09", "2.19.3-1")
    with pytest.raises(Incompatible, match=r"'24\.13' is not a known release .* \(did you mean '24\.1\d'\?\)"):
        ngc_release("24.13")


@every("path", sorted(Path(stacks.versions.__file__).parent.glob("*.toml")))
def test_tables_start_with_their_source(path: Path) -> None:
    comment = path.read_text(encoding="utf-8").split("\n\n", 1)[0] + path.read_text(encoding="utf-8")[:1500]
    assert comment.startswith("# ")
    assert any(word in comment for word in ("Source", "source", "coreweave/", "metadata"))


@functools.cache
def _ec2_instance_types() -> dict[str, Any]:
    """Return EC2's answer to DescribeInstanceTypes, which moto keeps."""
    path = Path(moto.__file__).parent / "ec2/resources/instance_types.json.gz"
    types: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
    return types


@every(
    "name",
    ["eks-p4d", "eks-p5", "eks-p5e", "eks-p5en", "eks-p6-b200", "eks-p6-b300", "eks-g5g", "eks-g6", "eks-g6e"],
)
def test_eks_node_has_what_its_instance_type_has(name: str) -> None:
    kind = node(name)
    described = _ec2_instance_types()[kind.selector["node.kubernetes.io/instance-type"]]
    assert kind.most(GPU) == sum(gpu["Count"] for gpu in described["GpuInfo"]["Gpus"])
    assert kind.most(EFA) == described["NetworkInfo"].get("EfaInfo", {}).get("MaximumEfaInterfaces", 0)
    assert [kind.arch.replace("amd64", "x86_64")] == described["ProcessorInfo"]["SupportedArchitectures"]
    assert kind.cores == described["VCpuInfo"]["DefaultVCpus"]
    assert (kind.memory or 0) * 1024 == described["MemoryInfo"]["SizeInMiB"]


def test_eks_node_of_gb200_is_arm64_with_four_of_each() -> None:
    kind = node("eks-p6e-gb200")
    assert (kind.arch, kind.most(GPU), kind.most(EFA)) == ("arm64", 4, 4)


@every("name", ["aks-ndv5", "aks-nd-h200-v5", "aks-gb200", "aks-gb300"])
def test_aks_node_of_runners_is_that_of_images(name: str) -> None:
    kind, image = node(name), aks_node(name)
    assert kind.selector["node.kubernetes.io/instance-type"] == image.sku
    assert (f"linux/{kind.arch}", kind.most(GPU), kind.most(INFINIBAND)) == (image.platform, image.gpus, image.rdma)


def test_node_of_arm64_is_selected_by_its_processor() -> None:
    arm64 = [name for name in node_names() if node(name).arch == "arm64"]
    assert arm64 == ["cpu-arm64", "eks-g5g", "eks-p6e-gb200", "aks-gb200", "aks-gb300"]
    for name in node_names():
        selected = node(name).selector.get("kubernetes.io/arch", node(name).arch)
        assert selected == node(name).arch
        assert "kubernetes.io/arch" in node(name).selector or name not in arm64


@every("cuda, distro", [("13.2.1", "ubuntu22.04"), ("13.2.1", "ubuntu24.04")])
def test_hpcx_for_arm64_that_is_known_warns_of_nothing(cuda: str, distro: str) -> None:
    archive = hpcx_archive(cuda, distro, machine="arm64")
    assert archive.endswith(f"-{distro}-cuda13-aarch64.tbz")
    assert hpcx_warnings(archive) == []


def test_hpcx_for_amd64_warns_of_nothing() -> None:
    for major in ("11", "12", "13"):
        for distro in table("hpcx")[major]:
            assert hpcx_warnings(hpcx_archive(f"{major}.0.0", distro)) == []


def test_hpcx_for_arm64_in_doubt_names_one_that_is_known() -> None:
    archive = hpcx_archive("12.9.1", "ubuntu22.04", machine="arm64")
    known = "v2.20/hpcx-v2.20-gcc-mlnx_ofed-ubuntu22.04-cuda12-aarch64.tbz"
    source = "stacks/versions/hpcx.toml; another archive can be named in slipway:hpcx"
    doubt = f"slipway:hpcx: {archive} may not exist, and the build fails without it; {known} is known; {source}"
    assert hpcx_warnings(archive) == [doubt]
    archive = hpcx_archive("12.9.1", "ubuntu24.04", machine="arm64")
    assert hpcx_warnings(archive)[0].startswith(
        f"slipway:hpcx: {archive} may not exist, and the build fails without it; stacks/"
    )


def test_nccl_package_for_arm64_is_looked_up_there() -> None:
    assert nccl_package_warnings("2.17.1-1", "12.1.1", machine="arm64") == []
    assert nccl_package_warnings("2.18.3-1", "12.1.1") == []
    assert nccl_package_warnings("2.18.3-1", "12.1.1", machine="arm64") == [
        "slipway:nccl: NVIDIA's apt archive may not have 2.18.3-1+cuda12.1 for arm64; the build fails without it"
    ]


def test_nccl_packages_for_arm64_can_exist() -> None:
    for cuda, releases in table("nccl")["apt_arm64"].items():
        version = next(release for release in reversed(cuda_versions()) if line(release) == cuda)
        for release in releases:
            check_nccl_package(release, version)


@every("version, archs", [("2.8.3", "9.0"), ("2.8.4", "9.0 11.0"), ("0251105a2fb1", "9.0 11.0")])
def test_flash_attention_has_code_for_thor_from_its_release_on(version: str, archs: str) -> None:
    assert extra_archs("flash-attention", version, "9.0 11.0") == archs
