"""The report of an image's GPU checks, as ``dockerfiles/common/gpu/report.py`` writes it, and what is required of it.

A report is a line of JSON that a job wrote, which may have run anything: it is read as data, and attested as what the
signer holds for true.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Final, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from stacks.config.gates.promotion_gate import GpuChecks
from stacks.errors import SlipwayError, one_line
from stacks.versions.nodes import GPU, node

LIMIT: Final = 1 << 20
"""Bytes of one report."""

SHARE: Final = 1 / 3
NVLINK: Final = 64.0
"""The rule of ``dockerfiles/torch/checks/gpu.py``: where one GPU copies to another at more than NVLINK GB/s, which only
NVLink does, NCCL's bus bandwidth is at least SHARE of that."""

_PREFIX: Final = '{"gpuChecks"'
_DIGEST: Final = re.compile(r".*@(sha256:[0-9a-f]{64})")

Text = Annotated[str, Field(max_length=300)]
Texts = Annotated[tuple[Text, ...], Field(max_length=200)]
Rate = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", alias_generator=to_camel)


class Gpu(_Part):
    """A GPU: its name and its memory in bytes, as NVML says them, and how many of its NVLinks are up."""

    name: Text
    memory: int = Field(0, ge=0)
    nvlinks: int = Field(0, ge=0)


class Nccl(_Part):
    """Which NCCL ran, what its log says of it, and the transports of its channels, such as ``P2P/CUMEM``.

    ``plugins`` are those for networks that it loaded, such as ``Libfabric (v10)`` and ``aws-ofi-nccl 1.16.2``; none of
    NCCL's own networks, ``IB`` and ``Socket``. ``networks`` are those that it used.
    """

    version: Text = ""
    plugins: Texts = ()
    networks: Texts = ()
    transports: Texts = ()


class Measured(_Part):
    """What the checks measured. Bandwidths are in GB/s; ``gpus`` is how many GPUs an all-reduce ran over."""

    torch: Text = ""
    cuda: Text = ""
    cuda_driver: Text = ""
    bus_bandwidth: Rate | None = None
    copy_bandwidth: Rate | None = None
    gpus: int | None = Field(None, ge=1)
    peer_access: bool | None = None
    kernels: Texts = ()
    networks: Texts = ()


class Report(_Part):
    """The report of one run of an image's GPU checks on one node."""

    gpu_checks: Literal[1]
    result: Literal["PASSED", "FAILED"]
    image: Text = ""
    profile: Text = ""
    node: Text = ""
    started: AwareDatetime
    finished: AwareDatetime
    driver: Text = ""
    gpus: Annotated[tuple[Gpu, ...], Field(max_length=64)] = ()
    nccl: Nccl = Nccl()
    measured: Measured = Measured()
    checks: Texts = ()
    failure: Text = ""

    @property
    def digest(self) -> str:
        """The digest of the image that was checked; empty if the report names none."""
        match = _DIGEST.fullmatch(self.image)
        return match[1] if match else ""

    @property
    def networks(self) -> set[str]:
        """The networks that NCCL used: those that the checks judged, else those in NCCL's log."""
        return {*(self.measured.networks or self.nccl.networks)}

    @property
    def hardware(self) -> str:
        """The GPUs and the driver, in words."""
        names = list(dict.fromkeys(gpu.name for gpu in self.gpus))
        return f"{len(self.gpus)} x {', '.join(names) or 'no GPU'}, driver {self.driver or 'unknown'}"

    def predicate(self) -> dict[str, Any]:
        """Return the report as it is attested."""
        return self.model_dump(mode="json", by_alias=True)

    def summary(self) -> str:
        """Return what the report says, as one clause."""
        measured = self.measured
        rate = f", {measured.bus_bandwidth:g} GB/s bus bandwidth" if measured.bus_bandwidth is not None else ""
        where = f" on {self.profile}" if self.profile else ""
        why = f": {one_line(self.failure, 200)}" if self.failure else ""
        times = self.finished.isoformat(timespec="seconds")
        return one_line(f"{self.result}{where}, {self.hardware}{rate}, {times}{why}", 500)


def parse(text: str, where: str) -> Report:
    """Return the last report in the output of a job; ``where`` names the output in errors.

    Raises:
        SlipwayError: there is none, or it is malformed.
    """
    lines = [line for line in text.splitlines() if line.startswith(_PREFIX)]
    if not lines:
        raise SlipwayError(
            f"{one_line(where)}: no report of GPU checks is in it; run them by dockerfiles/common/gpu/report.py"
        )
    if len(lines[-1]) > LIMIT:
        raise SlipwayError(f"{one_line(where)}: the report is longer than {LIMIT} bytes")
    try:
        return Report.model_validate_json(lines[-1])
    except ValidationError as error:
        raise SlipwayError(f"{one_line(where)}: the report is malformed: {_first(error)}") from None


def of_predicate(predicate: Any, ref: str) -> Report:
    """Return an attested report.

    Raises:
        SlipwayError: the predicate is none.
    """
    try:
        return Report.model_validate(predicate)
    except ValidationError as error:
        raise SlipwayError(f"{ref}: gpu: what is attested is no report of GPU checks: {_first(error)}") from None


def _first(error: ValidationError) -> str:
    problem = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(map(str, problem["loc"]))
    return one_line(f"{place}: {problem['msg']}" if place else problem["msg"])


def newest(reports: Sequence[Report]) -> Report:
    """Return the report whose checks ended last; of several, one that failed."""
    return max(reports, key=lambda report: (report.finished, report.result == "FAILED"))


def violations(report: Report, required: GpuChecks) -> Iterator[str]:
    """Yield what a report lacks, a clause for each. Its numbers are judged again, whatever its result says."""
    measured = report.measured
    if report.result != "PASSED":
        yield f"the GPU checks failed: {one_line(report.failure, 200) or 'no reason is given'}"
    elif _slow(measured):
        yield (
            f"the report says PASSED, but {measured.bus_bandwidth:g} GB/s bus bandwidth is less than a third of what "
            f"one GPU copies to another, {measured.copy_bandwidth:g} GB/s"
        )
    count = min(len(report.gpus), measured.gpus or len(report.gpus))
    if count < required.gpus:
        yield f"they ran on {count} GPUs, and {required.gpus} are required"
    if required.profile:
        yield from _other_node(report, required.profile)
    if required.bus_bandwidth:
        if measured.bus_bandwidth is None:
            yield f"they measured no bus bandwidth, and {required.bus_bandwidth:g} GB/s are required"
        elif measured.bus_bandwidth < required.bus_bandwidth:
            yield f"{measured.bus_bandwidth:g} GB/s bus bandwidth, and {required.bus_bandwidth:g} are required"
    if required.network and report.networks != {required.network}:
        names = ", ".join(one_line(name) for name in sorted(report.networks)) or "no known network"
        yield f"NCCL used {names}, and {required.network} alone is required"


def _slow(measured: Measured) -> bool:
    bus, copy = measured.bus_bandwidth, measured.copy_bandwidth
    return bus is not None and copy is not None and copy > NVLINK and bus < SHARE * copy


def _other_node(report: Report, profile: str) -> Iterator[str]:
    """Yield why the node was none of the profile: its name, its GPUs' model, or their number."""
    if report.profile != profile:
        yield f"they ran on {one_line(report.profile) or 'a node of no stated profile'}, and {profile} is required"
        return
    row = node(profile)
    others = [gpu.name for gpu in report.gpus if not re.search(rf"\b{re.escape(row.gpu or '')}\b", gpu.name)]
    if others:
        yield f"a node of {profile} has {row.gpu}, and they ran on {one_line(others[0])}"
    if len(report.gpus) > row.most(GPU):
        yield f"a node of {profile} has {row.most(GPU)} GPUs, and they ran on {len(report.gpus)}"
