"""What holds for every configuration of the family that is accepted, and that every row of the tables is in one."""

from __future__ import annotations

import re
from functools import cache
from itertools import product
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from containers.errors import SlipwayError
from containers.image.gpu.release_order import line
from stacks import flavors
from stacks.checks.collisions import StackImages, collisions
from stacks.identity.content import CHECKS
from stacks.spec import ImageSpec, parents_first
from stacks.tags import Revision, parse, render
from stacks.versions.archs import default_archs, parse_archs
from stacks.versions.cuda_toolkit import cuda_release, cuda_versions
from stacks.versions.distros import distro_names, distro_release
from stacks.versions.extras import extras
from stacks.versions.incompatible import Incompatible
from stacks.versions.pytorch import Companion, check_torch_cuda, companion_versions, torch_release, torch_versions
from stacks.versions.tables import table
from stacks.versions.torch_libraries import nccl_versions
from tests.helpers import dockerfile_stages as dockerfile
from tests.helpers.contents import checkout_fingerprints
from tests.helpers.every import every
from tests.helpers.refusals import refusal

NO_EXTRAS = {"deepspeed": False, "flashAttention": False, "apex": False}


def accepted(values: dict[str, Any]) -> bool:
    try:
        flavors.load(values, "stack x")
    except SlipwayError as error:
        assert all(line.startswith("stack x: slipway:") for line in str(error).splitlines()), error
        return False
    return True


def specs(values: dict[str, Any]) -> list[ImageSpec]:
    config = flavors.load(values, "stack x")
    return parents_first(flavors.flavor(config.flavor).images(config))


@cache
def cudas_for(torch: str, source: str, platform: str = "linux/amd64") -> list[str]:
    """Return the CUDA versions that this torch goes with, from where it comes."""
    release = torch_release(torch)
    lines = release.cudas if platform == "linux/amd64" else release.cudas_arm64
    if source == "wheel":
        return [cuda for cuda in cuda_versions() if line(cuda) in lines]
    fitting = []
    for cuda in cuda_versions():
        try:
            check_torch_cuda(torch, cuda, source="build")
        except Incompatible:
            continue
        fitting.append(cuda)
    return fitting


def refused_keys(values: dict[str, Any]) -> set[str]:
    try:
        flavors.load(values, "stack x")
    except SlipwayError as error:
        return set(re.findall(r"^stack x: slipway:(\w+)", str(error), re.MULTILINE))
    return set()


OPTIONAL = {"archList", "nccl", "hpcx", "extras", "transformerEngine", "flashAttention3"}
"""Keys that a configuration does without where their values do not go with the others."""

COMMITS = st.sampled_from(["38a1269", "b" * 40, False])
PINS = st.sampled_from(["1.0.0", "2.3.4-rc1", "38a1269", "b" * 40, False])


@st.composite
def configurations(draw: st.DrawFn) -> dict[str, Any]:
    """Configurations that go together: each value is drawn from what the ones before it allow, or left out."""
    torch = draw(st.sampled_from(torch_versions()))
    source = draw(st.sampled_from(["build", "wheel"]))
    platform = draw(st.sampled_from(["linux/amd64", "linux/arm64"]))
    cudas = [cuda for cuda in cudas_for(torch, source, platform) if cuda_release(cuda).cudnn]
    assume(cudas)
    cuda = cuda_release(draw(st.sampled_from(cudas)))
    pythons = torch_release(torch).pythons
    ours = [name for name in cuda.distros if name in distro_names() and distro_release(name).packages == "apt"]
    offered = [(name, python) for name in ours for python in distro_release(name).pythons if python in pythons]
    assume(offered)
    distro, python = draw(st.sampled_from(offered))
    release = torch_release(torch)
    archs = draw(st.none() | st.lists(st.sampled_from(cuda.archs), min_size=1, max_size=3, unique=True).map(" ".join))
    values = {
        "flavor": draw(st.sampled_from(["base", "nccl"])),
        "cuda": cuda.version,
        "distro": distro,
        "python": python,
        "platform": platform,
        "torch": {
            "version": torch,
            "vision": draw(st.none() | st.sampled_from(release.visions)),
            "audio": draw(st.sampled_from([None, False, *release.audios])),
            "source": source,
        },
        "archList": archs,
        "extras": {"deepspeed": draw(PINS), "apex": draw(COMMITS)}
        | {"flashAttention": draw(st.sampled_from([False, "1.0.9", "2.0.2", "2.8.3", "c" * 7]))}
        | {"xformers": draw(st.sampled_from([False, *release.xformers]))},
        "transformerEngine": draw(PINS),
        "flashAttention3": draw(COMMITS),
        "tagFields": draw(st.sampled_from([[], ["distro"], ["abi"], ["distro", "abi"]])),
        "tagSuffix": draw(st.none() | st.from_regex(r"[a-z]{1,3}[a-z0-9_.]{0,8}", fullmatch=True)),
        "maxJobs": draw(st.sampled_from([{}, 4, {"torch": 2, "default": 8}])),
    }
    if values["flavor"] == "nccl":
        values["nccl"] = draw(st.sampled_from(nccl_versions()))
        values["hpcx"] = draw(st.sampled_from([None, "v1/hpcx-v1.tbz"]))
        values["ncclTests"] = draw(st.sampled_from([None, "ghcr.io/acme/nccl-tests:1"]))
    for key in OPTIONAL & refused_keys(values):
        del values[key]
    assume(accepted(values))
    return values


@given(configurations(), st.none() | st.from_regex(r"[a-z][a-z0-9.-]{0,10}[a-z]", fullmatch=True))
def test_accepted_config_has_valid_tags(values: dict[str, Any], branch: str | None) -> None:
    for spec in specs(values):
        tag = render(Revision(branch=branch, commit="a1b2c3d", mark="01234567"), spec.suffix)
        assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}", tag)
        assert parse(tag)[1] == spec.suffix


TAKEN: dict[tuple[str, str | None], dict[str, bool]] = {}


@given(configurations())
def test_accepted_config_has_all_arguments(values: dict[str, Any]) -> None:
    for spec in specs(values):
        if (spec.dockerfile, spec.target) not in TAKEN:
            stages = dockerfile.of(spec)
            checks = {} if spec.product else stages.arguments(CHECKS)
            TAKEN[spec.dockerfile, spec.target] = {**stages.arguments(spec.target), **checks}
        taken = TAKEN[spec.dockerfile, spec.target]
        given_ = {*spec.args, *spec.parents, *spec.tuning, *spec.label_args}
        assert given_ <= set(taken)
        assert {name for name, default in taken.items() if not default} <= given_


def changed(values: dict[str, Any], other: dict[str, Any], keys: set[str]) -> dict[str, Any]:
    return {key: (other if key in keys else values).get(key) for key in {**values, **other}}


@settings(max_examples=settings().max_examples // 3)  # each draws two stacks that go together
@given(
    configurations(), configurations(), st.sets(st.sampled_from(["torch", "extras", "archList", "python", "platform"]))
)
def test_equal_names_and_tags_are_equal_images_or_collide(
    values: dict[str, Any], other: dict[str, Any], keys: set[str]
) -> None:
    nearby = {key: value for key, value in changed(values, other, keys).items() if value is not None}
    assume(accepted(nearby))
    one, two = specs(values), specs(nearby)
    prints, others = checkout_fingerprints(one), checkout_fingerprints(two)
    suffixes = {spec.name: spec.suffix for spec in one if not spec.product}
    alike = [spec.name for spec in two if not spec.product and suffixes.get(spec.name) == spec.suffix]
    unequal = [name for name in alike if prints[name] != others[name]]
    reported = collisions([StackImages("a", "r.example", one), StackImages("b", "r.example", two)])
    assert bool(reported) == bool(unequal)
    for name in unequal:
        assert re.search(rf"[ :]{name}[, ]", reported[0])


def witness(flavor: str = "base", **values: Any) -> bool:
    return accepted({"flavor": flavor, "extras": NO_EXTRAS, **values})


@cache
def torches_with(cuda: str) -> list[str]:
    return [torch for torch in torch_versions() if cuda in cudas_for(torch, "build")]


def combinations_of(torch: str) -> list[dict[str, Any]]:
    """Return what to build a torch with: CUDA, distribution and Python that go with it."""
    pythons, distros = torch_release(torch).pythons, distro_names()
    return [
        {"cuda": cuda, "distro": distro, "python": python}
        for cuda in cudas_for(torch, "build")
        if cuda_release(cuda).cudnn
        for distro in cuda_release(cuda).distros
        if distro in distros
        for python in distro_release(distro).pythons
        if python in pythons
    ]


@every("cuda", cuda_versions())
def test_every_cuda_builds_or_has_no_cudnn_parent(cuda: str) -> None:
    if not cuda_release(cuda).cudnn:
        with pytest.raises(
            SlipwayError, match=f"slipway:cuda: '{cuda}' has no nvidia/cuda image with cuDNN; allowed: "
        ):
            flavors.load({"flavor": "base", "cuda": cuda, "distro": cuda_release(cuda).distros[-1]}, "x")
        return
    for distro in cuda_release(cuda).distros:
        if distro in distro_names() and distro_release(distro).packages == "apt":
            parts = dict.fromkeys(full.split(".")[0] for _, full in cuda_release(cuda).cudnn)
            without = table("cuda")["release"][cuda].get("no_cudnn", {})
            if any(distro in names for names in without.values()):
                continue
            for cudnn in parts:
                assert any(
                    witness(torch={"version": torch}, cuda=cuda, distro=distro, python=python, cudnn=cudnn)
                    for torch in torches_with(cuda)
                    for python in distro_release(distro).pythons
                ), f"{distro} {cudnn}"


@every("torch", torch_versions())
def test_every_torch_builds_with_each_companion(torch: str) -> None:
    release = torch_release(torch)
    built = next(c for c in combinations_of(torch) if witness(torch={"version": torch}, **c))
    for vision in release.visions:
        assert witness(torch={"version": torch, "vision": vision}, **built)
    for audio in release.audios:
        assert witness(torch={"version": torch, "audio": audio}, **built)
    for xformers in release.xformers:
        assert witness(torch={"version": torch}, **built | {"extras": {**NO_EXTRAS, "xformers": xformers}})


@every("package, field", [("vision", "visions"), ("audio", "audios"), ("xformers", "xformers")])
def test_every_companion_fits_some_torch(package: Companion, field: str) -> None:
    releases = map(torch_release, torch_versions())
    fitting = {version for release in releases for version in getattr(release, field)}
    assert fitting == set(companion_versions(package))


@every("torch, machine", product(torch_versions(), ["amd64", "arm64"]))
def test_every_published_cuda_of_a_torch_installs(torch: str, machine: str) -> None:
    wheels = {"version": torch, "source": "wheel"}
    release = torch_release(torch)
    for published in release.cudas if machine == "amd64" else release.cudas_arm64:
        releases = [cuda for cuda in cuda_versions() if line(cuda) == published]
        assert any(
            witness(
                torch={**wheels, "audio": audio}, cuda=cuda, distro=distro, python=python, platform=f"linux/{machine}"
            )
            for audio in (None, False)
            for cuda in releases
            for distro in cuda_release(cuda).distros
            if distro in distro_names()
            for python in distro_release(distro).pythons
        ), published


@every("nccl", nccl_versions())
def test_every_nccl_builds_in_some_stack(nccl: str) -> None:
    stacks = [
        {"cuda": "11.0.3", "distro": "ubuntu20.04", "torch": {"version": "1.9.1"}},
        {"cuda": "12.4.1", "distro": "ubuntu22.04", "torch": {"version": "2.4.0"}},
        {"cuda": "13.2.1", "distro": "ubuntu24.04", "torch": {"version": "2.15.0"}},
    ]
    assert any(witness("nccl", nccl=nccl, **values) for values in stacks)


@every("major, distro", [(major, name) for major in ("11", "12", "13") for name in table("hpcx")[major]])
def test_every_hpcx_builds_in_some_stack(major: str, distro: str) -> None:
    stacks = {
        "11": {"cuda": "11.8.0", "torch": {"version": "2.1.0"}, "nccl": "2.18.3-1"},
        "12": {"cuda": "12.6.3", "torch": {"version": "2.4.0"}, "nccl": "2.23.4-1"},
        "13": {"cuda": "13.2.1", "torch": {"version": "2.12.0"}, "nccl": "2.30.4-1"},
    }
    config = flavors.load({"flavor": "nccl", "extras": NO_EXTRAS, "distro": distro, **stacks[major]}, "x")
    (private,) = (spec for spec in flavors.flavor("nccl").images(config) if spec.name == "hpcx-build")
    assert private.args["HPCX_ARCHIVE"] == f"{table('hpcx')[major][distro]}-x86_64.tbz"


@every("name", table("distros"))
def test_every_python_of_a_distro_builds_or_is_refused(name: str) -> None:
    row = table("distros")[name]
    cudas = [cuda for cuda in cuda_versions() if name in cuda_release(cuda).distros]
    reason = row.get("refused") or ("has no apt" if row["packages"] != "apt" else None)
    if reason or not cudas:
        requested = {"flavor": "base", "cuda": cudas[-1] if cudas else "12.1.1", "distro": name}
        assert (reason or "has no nvidia/cuda image of CUDA 12.1.1; allowed: ") in refusal(flavors.load, requested, "x")
        return
    for python in distro_release(name).pythons:
        assert any(
            witness(torch={"version": torch}, cuda=cuda, distro=name, python=python)
            for cuda in cudas
            if cuda_release(cuda).cudnn
            for torch in torches_with(cuda)
        ), python


@every("minor", table("cuda")["line"])
def test_every_capability_builds_or_is_unknown_to_torch(minor: str) -> None:
    offered = [
        {**values, "torch": {"version": torch}}
        for cuda in cuda_versions()
        if line(cuda) == minor
        for torch in torches_with(cuda)
        for values in combinations_of(torch)
        if values["cuda"] == cuda
    ]
    builds = cache(lambda place: witness(**offered[place]))  # of some thousand, few are asked for
    built = next(filter(builds, range(len(offered))))
    for arch in cuda_release(offered[built]["cuda"]).archs:
        knowing = [place for place, each in enumerate(offered) if arch in torch_release(each["torch"]["version"]).archs]
        if (place := next(filter(builds, knowing), None)) is not None:
            assert witness(**offered[place], archList=f"{arch}+PTX")
        else:
            requested = {"flavor": "base", "extras": NO_EXTRAS, **offered[built], "archList": arch}
            assert f"slipway:archList: '{arch}' is not known to torch " in refusal(flavors.load, requested, "x")


@every("name", table("cuda")["name"])
def test_every_architecture_name_is_accepted(name: str) -> None:
    today: dict[str, Any] = {
        "cuda": "13.4.2",
        "distro": "ubuntu24.04",
        "torch": {"version": torch_versions()[-1]},
    }
    assert witness(**today, archList=name.capitalize())


@every(
    "row, machine",
    [(row, machine) for row in table("archs")["torch"] for machine in ("amd64", "arm64") if machine in row],
)
def test_every_default_arch_list_is_in_some_stack(row: dict[str, str], machine: str) -> None:
    defaults = [
        default_archs("torch", cuda, torch=torch, machine="amd64" if machine == "amd64" else "arm64")
        for cuda in cuda_versions()
        for torch in torches_with(cuda)
        if any(arch.name in torch_release(torch).archs for arch in parse_archs(row[machine]))
        and any(arch.name in cuda_release(cuda).archs for arch in parse_archs(row[machine]))
    ]
    assert row[machine] in defaults


EXTRAS = {
    "flash-attention": ("extras", "flashAttention"),
    "flash-attention4": ("extras", "flashAttention4"),
    "deepep": ("extras", "deepep"),
    "deepspeed": ("extras", "deepspeed"),
    "flash-attention3": ("flashAttention3",),
    "transformer-engine": ("transformerEngine",),
}


@every("name, row", [(extra.name, row) for extra in extras().values() for row in extra.needs])
def test_every_row_of_an_extra_builds(name: str, row: str) -> None:
    pin = "a" * 40 if row == "any" else row
    *outer, key = EXTRAS[name]
    requested: dict[str, Any] = {"extras": {**NO_EXTRAS, key: pin}} if outer else {key: pin}
    stacks = [
        {"cuda": "11.8.0", "distro": "ubuntu20.04", "torch": {"version": "2.0.1"}},
        {"cuda": "12.6.3", "distro": "ubuntu22.04", "torch": {"version": "2.4.0"}},
        {"cuda": "13.2.1", "distro": "ubuntu24.04", "torch": {"version": "2.15.0"}},
    ]
    # A row may come before its release.
    given = {"flavor": extras()[name].flavor or "base", "extras": NO_EXTRAS, "unverified": True, **requested}
    assert any(accepted({**given, **values}) for values in stacks)


WRITTEN = st.text(max_size=6) | st.from_regex(r"[0-9]{1,2}(\.[0-9]{1,2}){0,3}(-[0-9])?", fullmatch=True)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | WRITTEN,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(WRITTEN | st.just("version"), inner, max_size=2),
    max_leaves=4,
)


@pytest.mark.parametrize(
    ("flavor", "key"),
    [
        (flavor, field.alias or name)
        for flavor in ("base", "nccl")
        for name, field in flavors.flavor(flavor).Config.model_fields.items()
        if name not in ({"flavor"} if flavor == "base" else flavors.flavor("base").Config.model_fields)
    ],
)
@settings(max_examples=settings().max_examples // 3)  # for each of the keys
@given(value=ANYTHING)
def test_any_value_is_accepted_or_refused_with_its_key(flavor: str, key: str, value: Any) -> None:
    try:
        config = flavors.load({"flavor": flavor, key: value}, "stack x")
        flavors.flavor(flavor).images(config)
    except SlipwayError as error:
        for mistake in str(error).splitlines():
            assert re.match(r"stack x: (slipway:[A-Za-z.0-9\[\]]+|config)", mistake), mistake
