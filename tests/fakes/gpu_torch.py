"""A stand-in of torch on a machine with GPUs, of which everything takes as long as a :class:`Machine` says.

It computes nothing: results are right but for those of one operation, if the machine says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import count
from types import ModuleType, SimpleNamespace
from typing import Any


@dataclass(frozen=True)
class Machine:
    """What is measured on a machine, in seconds: of each GPU, of each two of them, and of NCCL's operations by MiB.

    ``own`` is a copy of 256 MiB within a GPU's memory and ``pairs`` one to another GPU; ``products`` is a product of
    two matrices of 2048, ``wait`` a copy of one number, ``exchange`` a GiB to all others at once, and ``ring`` one to
    the next at once, by default the same.
    """

    own: tuple[float, ...]
    products: tuple[float, ...]
    pairs: tuple[tuple[float, ...], ...]
    wait: float
    exchange: float
    operations: dict[str, dict[int, float]]
    ring: float = 0
    names: tuple[str, ...] = ()
    memory: int = 80 << 30
    wrong: str = ""
    """The operation of NCCL whose results are not as expected."""
    late: int = 0
    """How many batches the host queues too late."""
    hiccup: int = 0
    """How many of the first broadcasts of 1 GiB take ten times as long."""


class _Tensor:
    def __init__(self, torch: _Torch, length: int, gpu: int = -1, *, wrong: bool = False, of: int = 0) -> None:
        self.torch, self.length, self.gpu, self.wrong, self.of = torch, length, gpu, wrong, of or length

    def __getitem__(self, part: slice) -> _Tensor:
        return _Tensor(self.torch, len(range(*part.indices(self.length))), self.gpu, of=self.length)

    def numel(self) -> int:
        return self.length

    def on(self, gpu: Any = -1, *_: Any) -> _Tensor:
        return _Tensor(self.torch, self.length, getattr(gpu, "index", gpu), wrong=self.wrong)

    to = cuda = cpu = on

    def copy_(self, source: _Tensor) -> None:
        self.torch.copy(source.gpu, self.gpu, 4 * source.length, whole=source.length == source.of)

    def repeat(self, times: int) -> _Tensor:
        return _Tensor(self.torch, self.length * times, self.gpu)

    def item(self) -> float:
        return 7

    def itself(self, *_: Any) -> _Tensor:
        return self

    double = abs = max = remainder_ = __mul__ = __rmul__ = __sub__ = __matmul__ = itself


class _Torch:
    """The clocks of the GPUs, and what makes them go on."""

    def __init__(self, machine: Machine) -> None:
        self.machine, self.gpus = machine, len(machine.own)
        self.clocks = [0.0] * self.gpus
        self.at_once = False
        self.queries, self.runs = count(), count()

    def copy(self, source: int, target: int, size: int, *, whole: bool) -> None:
        machine = self.machine
        if self.at_once:
            self.clocks[source] += ((whole and machine.ring) or machine.exchange) * size / (1 << 30)
        elif source == target:
            self.clocks[source] += machine.own[source] * size / (1 << 28)
        else:
            self.clocks[source] += max(machine.wait, machine.pairs[source][target] * size / (1 << 28))

    def multiply(self, one: _Tensor, _: _Tensor) -> None:
        self.clocks[one.gpu] += self.machine.products[one.gpu]

    def operation(self, name: str, whole: int, output: int) -> Callable[..., None]:
        def run(*tensors: list[_Tensor]) -> None:
            size = -(-4 * tensors[whole][0].length >> 20)
            by_size = self.machine.operations[name]
            took = by_size[max(known for known in by_size if known <= max(size, 1))]
            if (name, size) == ("broadcast", 1024) and next(self.runs) < self.machine.hiccup:
                took *= 10
            if name == "all-gather" and tensors[0][0].length % 4:  # no whole 16 bytes
                took *= 1.6
            for gpu, tensor in enumerate(tensors[output]):
                self.clocks[gpu] += took
                tensor.wrong = self.machine.wrong == name

        return run

    @contextmanager
    def stream(self, _: object) -> Iterator[None]:
        self.at_once = True
        yield
        self.at_once = False


class _Event:
    def __init__(self, torch: _Torch) -> None:
        self.torch, self.time = torch, 0.0

    def record(self, stream: SimpleNamespace) -> None:
        self.time = self.torch.clocks[stream.gpu]

    def query(self) -> bool:
        return next(self.torch.queries) < self.torch.machine.late

    def elapsed_time(self, other: _Event) -> float:
        return 1000 * (other.time - self.time)


def modules(machine: Machine) -> dict[str, ModuleType]:
    """Return the modules of torch on a machine, by name."""
    torch = _Torch(machine)
    names = machine.names or ("NVIDIA H100 80GB HBM3",) * torch.gpus
    tensor = partial(_Tensor, torch)

    def vector(length: int, *_: int, device: str) -> _Tensor:
        return tensor(length, int(device.removeprefix("cuda:")))

    def stream(gpu: int) -> SimpleNamespace:
        return SimpleNamespace(gpu=gpu, wait_stream=lambda _: None)

    nccl = SimpleNamespace(
        version=lambda: (2, 28, 9),
        all_reduce=torch.operation("all-reduce", 0, 0),
        broadcast=torch.operation("broadcast", 0, 0),
        all_gather=torch.operation("all-gather", 1, 1),
        reduce_scatter=torch.operation("reduce-scatter", 0, 1),
    )
    cuda = SimpleNamespace(
        nccl=nccl,
        is_available=lambda: True,
        device_count=lambda: torch.gpus,
        device=lambda _: nullcontext(),
        _sleep=lambda _: None,
        Event=lambda **_: _Event(torch),
        Stream=stream,
        stream=torch.stream,
        current_stream=stream,
        synchronize=lambda _: None,
        empty_cache=lambda: None,
        mem_get_info=lambda _: (machine.memory, machine.memory),
        get_device_name=lambda gpu: names[gpu],
        get_device_capability=lambda _: (9, 0),
        get_device_properties=lambda _: SimpleNamespace(total_memory=machine.memory),
        can_device_access_peer=lambda *_: True,
    )
    top = SimpleNamespace(
        __version__="2.11.0+cu130",
        version=SimpleNamespace(cuda="13.0"),
        backends=SimpleNamespace(
            cudnn=SimpleNamespace(version=lambda: 91900), cuda=SimpleNamespace(matmul=SimpleNamespace())
        ),
        float32="float32",
        float64="float64",
        bfloat16="bfloat16",
        cuda=cuda,
        device=lambda _, gpu: SimpleNamespace(index=gpu),
        Generator=lambda: SimpleNamespace(manual_seed=lambda _: None),
        randint=lambda *_, **__: tensor(1),
        randn=lambda *_, **__: tensor(1),
        arange=lambda length, **_: tensor(length),
        zeros=vector,
        ones=vector,
        cat=lambda tensors: tensor(sum(each.length for each in tensors)),
        mm=torch.multiply,
        equal=lambda one, _: not one.wrong,
        allclose=lambda *_, **__: True,
    )
    contents = {
        "torch": top,
        "torch.cuda": cuda,
        "torch.cuda.nccl": nccl,
        "torch.nn": SimpleNamespace(),
        "torch.nn.functional": SimpleNamespace(conv2d=lambda *_: tensor(1)),
    }
    result = {name: ModuleType(name) for name in contents}
    for name, module in result.items():
        vars(module).update(vars(contents[name]))
    return result
