"""The report of an image's GPU checks, as ``dockerfiles/common/gpu/report.py`` writes it, and what is required of it.

A report is a line of JSON from a job, which may have run anything: it is read as data, and attested as what the signer
holds for true.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Annotated, Any, Final, Literal, Protocol

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from containers.errors import SlipwayError, one_line

LIMIT: Final = 1 << 20
"""Bytes of one report."""

_NODES: Final = 1024
"""Most reports of one run."""

NVLINK: Final = 64.0
"""GB/s: what copies faster from one GPU to another does so over NVLink, and is judged by the rule below."""
WAIT: Final = 200.0
"""Microseconds: the checks fail where the smallest copy over NVLink takes longer."""
LOSS: Final = 0.15
"""The share of an expected rate that is missing in a run that is slow, if no other share is accepted."""
Operation = Literal["all-reduce", "broadcast", "all-gather", "reduce-scatter"]
_OPERATIONS: Final[dict[Operation, Callable[[int], tuple[int, float]]]] = {
    "all-reduce": lambda gpus: (2 * (gpus - 1), 0.25),
    "broadcast": lambda gpus: (gpus, 0),
    "all-gather": lambda gpus: (gpus - 1, 0.4),
    "reduce-scatter": lambda gpus: (gpus - 1, 0.38),
}
"""The rule of ``dockerfiles/torch/checks/gpu.py``, which measured its numbers: in how many steps each GPU sends a part
to the next one, and what it does for itself, as a share of a step."""

_PREFIX: Final = '{"gpuChecks"'
_DIGEST: Final = re.compile(r".*@(sha256:[0-9a-f]{64})")

Text = Annotated[str, Field(max_length=300)]
Texts = Annotated[tuple[Text, ...], Field(max_length=200)]
Rate = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_Size = Annotated[int, Field(ge=1, le=1 << 20)]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", alias_generator=to_camel)


class Gpu(_Part):
    """A GPU: its name and its memory in bytes, as NVML says them, and how many of its NVLinks are up."""

    name: Text
    memory: int = Field(0, ge=0)
    nvlinks: int = Field(0, ge=0)


class Nccl(_Part):
    """The NCCL of a run, its own log about it, and the transports of its channels, such as ``P2P/CUMEM``.

    ``plugins`` are those for networks that it loaded, such as ``Libfabric (v10)`` and ``aws-ofi-nccl 1.16.2``; none of
    NCCL's own networks, ``IB`` and ``Socket``. ``networks`` are those that it used.
    """

    version: Text = ""
    plugins: Texts = ()
    networks: Texts = ()
    transports: Texts = ()


class FirstStep(_Part):
    """The seconds of a first compiled step in a fresh process, and what its caches were; or why it is ``missing``."""

    seconds: Rate | None = None
    caches: Literal["empty", "warm layer"] = "empty"
    missing: Text = ""

    @property
    def words(self) -> str:
        """The step as a clause; empty of a report from before it was measured."""
        if self.missing:
            return f"first compiled step not measured: {self.missing}"
        return "" if self.seconds is None else f"first compiled step {self.seconds:g} s, caches: {self.caches}"


class Measured(_Part):
    """What the checks measured. Bandwidths are in GB/s; an all-reduce ran over ``gpus`` GPUs of ``nodes`` nodes.

    ``rates`` are bus bandwidths of NCCL's operations by MiB. ``copy_wait`` is what the smallest copy from one GPU to
    another takes, in microseconds.
    """

    torch: Text = ""
    cuda: Text = ""
    cuda_driver: Text = ""
    bus_bandwidth: Rate | None = None
    copy_bandwidth: Rate | None = None
    copy_wait: Rate = 0
    rates: Annotated[dict[Operation, Annotated[dict[_Size, Rate], Field(max_length=32)]], Field(max_length=8)] = {}
    gpus: int | None = Field(None, ge=1, le=1 << 20)
    nodes: int | None = Field(None, ge=1)
    peer_access: bool | None = None
    kernels: Texts = ()
    networks: Texts = ()
    first_step: FirstStep = FirstStep()


class GpuReport(_Part):
    """The report of one run of an image's GPU checks on one node, and those of the ``others`` of its nodes."""

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
    others: Annotated[tuple[GpuReport, ...], Field(max_length=_NODES)] = ()

    @property
    def every(self) -> Iterator[GpuReport]:
        """Yield this report and those of the other nodes."""
        yield self
        for other in self.others:
            yield from other.every

    @property
    def digest(self) -> str:
        """The digest of the image that was checked; empty if the report names none."""
        match = _DIGEST.fullmatch(self.image)
        return match[1] if match else ""

    @property
    def passed(self) -> bool:
        """Whether the checks passed on every node."""
        return all(report.result == "PASSED" for report in self.every)

    @property
    def ended(self) -> datetime:
        """When the last node ended."""
        return max(report.finished for report in self.every)

    @property
    def networks(self) -> set[str]:
        """The networks that NCCL used: those that the checks judged, else those in NCCL's log."""
        return {*(self.measured.networks or self.nccl.networks)}

    @property
    def hardware(self) -> str:
        """The GPUs of all nodes and the driver, in words."""
        gpus = [gpu for report in self.every for gpu in report.gpus]
        names = list(dict.fromkeys(gpu.name for gpu in gpus))
        return f"{len(gpus)} x {', '.join(names) or 'no GPU'}, driver {self.driver or 'unknown'}"

    def predicate(self) -> dict[str, Any]:
        """Return the report as it is attested."""
        return self.model_dump(mode="json", by_alias=True)

    def summary(self) -> str:
        """Return what the report says, as one clause."""
        measured = self.measured
        rate = f", {measured.bus_bandwidth:g} GB/s bus bandwidth" if measured.bus_bandwidth is not None else ""
        first = f", {worst}" if (worst := _slowest(report.measured.first_step for report in self.every).words) else ""
        where = f" on {self.profile}" if self.profile else ""
        failure = next((report.failure for report in self.every if report.failure), "")
        why = f": {one_line(failure, 200)}" if failure else ""
        times = self.ended.isoformat(timespec="seconds")
        result = "PASSED" if self.passed else "FAILED"
        return one_line(f"{result}{where}, {self.hardware}{rate}{first}, {times}{why}", 500)


def parse(text: str, where: str) -> GpuReport:
    """Return the reports in the output of a job: the one that measured bandwidth has those of the others.

    A run on several nodes has one of each. ``where`` names the output in errors.

    Raises SlipwayError: there is none, or one is malformed.
    """
    lines = [line for line in text.splitlines() if line.startswith(_PREFIX)]
    if not lines:
        raise SlipwayError(
            f"{one_line(where)}: no report of GPU checks is in it; run them by dockerfiles/common/gpu/report.py"
        )
    if any(len(line) > LIMIT for line in lines):
        raise SlipwayError(f"{one_line(where)}: the report is longer than {LIMIT} bytes")
    if len(lines) > _NODES:
        raise SlipwayError(f"{one_line(where)}: {len(lines)} reports; at most {_NODES} are read: give those of one run")
    try:
        reports = [GpuReport.model_validate_json(line) for line in lines]
    except ValidationError as error:
        raise SlipwayError(f"{one_line(where)}: the report is malformed: {_first(error)}") from None
    first, *others = sorted(reports, key=lambda report: report.measured.bus_bandwidth is None)
    return first.model_copy(update={"others": (*first.others, *others)})


def _slowest(steps: Iterable[FirstStep]) -> FirstStep:
    """Return the slowest of the steps of nodes; one that was not measured before all others."""
    return max(steps, key=lambda step: (bool(step.missing), step.seconds or 0))


def of_predicate(predicate: Any, ref: str) -> GpuReport:
    """Return an attested report. Raises SlipwayError: the predicate is none."""
    try:
        return GpuReport.model_validate(predicate)
    except ValidationError as error:
        raise SlipwayError(f"{ref}: gpu: what is attested is no report of GPU checks: {_first(error)}") from None


def _first(error: ValidationError) -> str:
    problem = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(map(str, problem["loc"]))
    return one_line(f"{place}: {problem['msg']}" if place else problem["msg"])


def newest(reports: Sequence[GpuReport]) -> GpuReport:
    """Return the report whose checks ended last; of several, one that failed."""
    return max(reports, key=lambda report: (report.ended, not report.passed))


class GpuRequirements(Protocol):
    """What is required of GPU checks."""

    @property
    def profile(self) -> str | None:
        """The kind of node; None for any."""

    @property
    def gpus(self) -> int:
        """The least number of GPUs."""

    @property
    def bus_bandwidth(self) -> float | None:
        """The least bus bandwidth in GB/s; None for any."""

    @property
    def first_step(self) -> float | None:
        """The most seconds of a first compiled step; None for any."""

    @property
    def network(self) -> str | None:
        """The only network that NCCL may have used; None for any."""

    @property
    def accepted_loss(self) -> float | None:
        """The share of an expected rate that NCCL may lack; None for that of :data:`LOSS`."""

    @property
    def gpus_of_node(self) -> tuple[str, int]:
        """The model of the GPUs of a node of the profile, and their number."""


def violations(report: GpuReport, required: GpuRequirements) -> Iterator[str]:
    """Yield what a report lacks, a clause for each. Its numbers are judged again, whatever its result says."""
    measured, every = report.measured, list(report.every)
    for each in every:
        clauses = list(_of_node(each, required))
        yield from (f"node {one_line(each.node)}: {clause}" for clause in clauses) if report.others else clauses
    yield from _missing(every)
    total = _gpus(every)
    count = min(total, measured.gpus or total)
    if count < required.gpus:
        yield f"they ran on {count} GPUs, and {required.gpus} are required"
    if required.bus_bandwidth:
        if measured.bus_bandwidth is None:
            yield f"they measured no bus bandwidth, and {required.bus_bandwidth:g} GB/s are required"
        elif measured.bus_bandwidth < required.bus_bandwidth:
            yield f"{measured.bus_bandwidth:g} GB/s bus bandwidth, and {required.bus_bandwidth:g} are required"


def _of_node(report: GpuReport, required: GpuRequirements) -> Iterator[str]:
    """Yield what the report of one node lacks."""
    measured = report.measured
    if report.result != "PASSED":
        yield f"the GPU checks failed: {one_line(report.failure, 200) or 'no reason is given'}"
    else:
        yield from _slow(measured, required.accepted_loss or LOSS)
    if required.first_step:
        yield from _late(measured.first_step, required.first_step)
    if required.profile:
        yield from _other_node(report, required.profile, *required.gpus_of_node)
    if required.network and report.networks != {required.network}:
        names = ", ".join(one_line(name) for name in sorted(report.networks)) or "no known network"
        yield f"NCCL used {names}, and {required.network} alone is required"


def _missing(reports: Sequence[GpuReport]) -> Iterator[str]:
    """Yield the nodes without a report, by the number of nodes and GPUs that the reports name."""
    nodes = max(report.measured.nodes or 1 for report in reports)
    names = {report.node for report in reports}
    if len(names) < nodes:
        yield f"they ran on {nodes} nodes, and the reports are of {len(names)}: give those of all nodes"
    gpus = max(report.measured.gpus or 0 for report in reports)
    if (shown := _gpus(reports)) < gpus and len(names) >= nodes:
        yield f"an all-reduce ran over {gpus} GPUs, and the reports are of {shown}: give those of all nodes"


def _gpus(reports: Sequence[GpuReport]) -> int:
    """Return the number of GPUs in reports. Those of one node, such as of two attempts, are of the same GPUs."""
    gpus: dict[str, int] = {}
    for report in reports:
        gpus[report.node] = max(len(report.gpus), gpus.get(report.node, 0))
    return sum(gpus.values())


def _slow(measured: Measured, accepted: float) -> Iterator[str]:
    """Yield a line if NCCL lacks more than an accepted share beside the copies between two GPUs over NVLink."""
    copy, gpus, bus = measured.copy_bandwidth, measured.gpus, measured.bus_bandwidth
    if copy is None or copy <= NVLINK or gpus is None or gpus == 1:
        return
    rates = [(name, size, rate) for name, by_size in measured.rates.items() for size, rate in by_size.items()]
    if bus is not None:
        rates.append(("all-reduce", max(measured.rates.get("all-reduce", {1024: bus}), default=1024), bus))
    wait = min(measured.copy_wait, WAIT)
    lost, name, size, rate = max(
        ((_lost(*each, gpus, copy, wait), *each) for each in rates), default=(0, "all-reduce", 0, 0)
    )
    if lost > accepted:
        yield (
            f"the report says PASSED, but {name} of {size} MiB moves {rate:g} GB/s, {lost:.0%} less than is expected "
            f"of GPUs that copy {copy:g} to each other"
        )


def _late(step: FirstStep, most: float) -> Iterator[str]:
    """Yield a line if a first compiled step was not measured, or took more than some seconds."""
    if step.seconds is None or step.missing:
        why = one_line(step.missing, 200) or "the report does not say why"
        yield f"the first compiled step was not measured ({why}), and at most {most:g} s are required"
    elif step.seconds > most:
        yield f"the first compiled step took {step.seconds:g} s, and at most {most:g} are required"


def _lost(name: Operation, size: int, rate: float, gpus: int, copy: float, wait: float) -> float:
    """Return which share of the expected bus bandwidth is missing, of an operation on vectors of ``size`` MiB."""
    steps, own = _OPERATIONS[name](gpus)
    part = size * (1 << 20) / gpus / 1e3  # KB, of which GB/s are as many in a microsecond
    expected = steps * part / (wait * (2.5 + steps**2 / 12) + part * (1.05 * steps + own) / copy)
    return 1 - rate / expected


def _other_node(report: GpuReport, profile: str, model: str, most: int) -> Iterator[str]:
    """Yield why the node was none of the profile: its name, its GPUs' model, or their number."""
    if report.profile != profile:
        yield f"they ran on {one_line(report.profile) or 'a node of no stated profile'}, and {profile} is required"
        return
    others = [gpu.name for gpu in report.gpus if not re.search(rf"\b{re.escape(model)}\b", gpu.name)]
    if others:
        yield f"a node of {profile} has {model}, and they ran on {one_line(others[0])}"
    if len(report.gpus) > most:
        yield f"a node of {profile} has {most} GPUs, and they ran on {len(report.gpus)}"
