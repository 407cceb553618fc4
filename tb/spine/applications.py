"""Two applications: copies in, kernels on them, copies out, and what numpy says of the results.

Each has an address space of its own; all buffers lie at the same virtual addresses in both.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from driver.addressspace import AddressSpace
from driver.device import Device
from driver.kernels import MATMUL, REDUCE, SAXPY, SCAN, SPIN, VECTOR_ADD, Kernel
from driver.memory import Buffer
from driver.stream import Stream
from driver.tasks import Task

__all__ = ["URGENT", "Application", "Work", "applications", "urgent"]

URGENT = 63
"""Priority of the kernel that comes late."""

Words = np.ndarray
Shape = int | tuple[int, int, int]


@dataclass
class Work:
    """One kernel with its data: `inputs` are copied in before, `output` out after it.

    Members
    -------
    expected : what `output` must hold in the end. others : arguments that are plain numbers.
    """

    kernel: Kernel
    grid: Shape
    block: Shape
    inputs: dict[str, Words] = field(default_factory=dict)
    output: str = ""
    expected: Words | None = None
    others: dict[str, int] = field(default_factory=dict)
    priority: int = 0


@dataclass(eq=False)
class Launched:
    """A task under way, and where its results will be."""

    work: Work
    task: Task
    result: Buffer | None

    def check(self) -> None:
        """Raises `AssertionError` unless the results are those of numpy."""
        if self.result is None or self.work.expected is None:
            return
        found = self.result.read(np.uint32)
        expected = self.work.expected.reshape(-1)
        assert np.array_equal(found, expected), f"{self.work.kernel.name}: wrong results"


class Application:
    """A process: an address space, a stream, and what it has launched."""

    def __init__(self, name: str, device: Device, space: AddressSpace, stream: Stream) -> None:
        self.name, self.device, self.space, self.stream = name, device, space, stream
        self.launched: list[Launched] = []

    @classmethod
    async def start(cls, name: str, device: Device, *, priority: int = 0) -> "Application":
        """With an address space of its own."""
        space = device.create_space(name)
        return cls(name, device, space, await device.stream(priority, space=space))

    async def run(self, work: Work) -> None:
        """Submit copies and launch."""
        device, space, stream = self.device, self.space, self.stream
        args: dict[str, Any] = dict(work.others)
        for name, words in work.inputs.items():
            host = await device.upload(words, space=space)
            args[name] = await device.allocate(words.nbytes, space=space)
            await stream.memcpy_async(args[name], host, words.nbytes)
        size = 0 if work.expected is None else work.expected.nbytes
        if work.output and work.output not in args:
            args[work.output] = await device.allocate(size, space=space)
        task = await stream.launch(work.kernel, work.grid, work.block, args, priority=work.priority)
        result = None
        if work.output:
            result = await device.allocate(size, space=space)
            await stream.memcpy_async(result, args[work.output], size)
        self.launched.append(Launched(work, task, result))

    async def finish(self) -> None:
        """Until all is over; checks the results."""
        await self.stream.synchronize()
        for one in self.launched:
            await one.task.synchronize()
            one.check()


def applications(seed: int) -> dict[str, list[Work]]:
    """What the two do, by their names."""
    numbers = np.random.default_rng(seed)
    return {"solver": [_spin(), _matmul(numbers), _reduce(numbers)], "filter": _vectors(numbers)}


def urgent(seed: int) -> Work:
    """What comes while all SMs are busy."""
    numbers = np.random.default_rng(seed + 1)
    a, b = _words(numbers, 200), _words(numbers, 200)
    inputs, others = {"A": a, "B": b}, {"N": 200}
    return Work(VECTOR_ADD, 4, 50, inputs, "C", a + b, others, priority=URGENT)


def _words(numbers: np.random.Generator, *shape: int) -> Words:
    return numbers.integers(0, 1 << 32, shape, np.uint32)


def _spin() -> Work:
    return Work(SPIN, 40, 64, others={"CYCLES": 1500})


def _matmul(numbers: np.random.Generator) -> Work:
    n = 12
    a, b = _words(numbers, n, n), _words(numbers, n, n)
    return Work(MATMUL, (3, 3, 1), (4, 4, 1), {"A": a, "B": b}, "C", a @ b, {"N": n})


def _reduce(numbers: np.random.Generator) -> Work:
    x = _words(numbers, 320)
    sums = x.reshape(-1, 64).sum(axis=1, dtype=np.uint32)
    return Work(REDUCE, len(sums), 64, {"X": x}, "SUMS", sums, {"N": len(x)})


def _vectors(numbers: np.random.Generator) -> list[Work]:
    x, y, grid = _words(numbers, 512), _words(numbers, 512), _words(numbers, 4, 64)
    alpha = 1_000_003
    saxpy = Work(
        SAXPY,
        8,
        64,
        {"X": x, "Y": y},
        "Y",
        np.uint32(alpha) * x + y,
        {"N": 512, "ALPHA": alpha},
        priority=1,
    )
    scan = np.cumsum(grid, axis=1, dtype=np.uint32)
    return [saxpy, Work(SCAN, 4, 64, {"X": grid}, "Y", scan, priority=1)]
