"""Algorithms of `tb.benchmarks.flat`."""

from abc import ABC, abstractmethod
from typing import Any

import cocotb
import numpy as np

from signalbox.driver.channel.priority_policy import PriorityPolicy
from signalbox.driver.device import Device
from signalbox.driver.memory.physical import Buffer
from signalbox.driver.nested.breadth_first import BreadthFirst
from signalbox.driver.nested.breadth_first_flat import FlatBreadthFirst
from signalbox.driver.nested.merge_sort import MergeSort
from signalbox.driver.nested.merge_sort_flat import FlatMergeSort
from signalbox.driver.nested.refinement import Refinement
from signalbox.driver.nested.refinement_flat import FlatRefinement
from signalbox.driver.runtime.limits import Limit
from signalbox.driver.runtime.stream import Stream
from signalbox.driver.workload.nested_jobs import distances, graph, refined, rough_field
from signalbox.hw.errors import Refusal
from signalbox.tb.benchmarks.flat import CASES, REACTIONS, key, waits_key
from signalbox.tb.benchmarks.scenes import report
from signalbox.tb.simulation.machine import SimMachine
from signalbox.tb.simulation.trace import Doorbell, TaskOver
from signalbox.tb.simulation.trace_file import TraceFile

LIMIT = {"timeout_time": 20, "timeout_unit": "ms"}

SEED = 7


class Host(SimMachine):
    """A machine whose host notices each interrupt `reaction` cycles late. `waits`: number of
    interrupts so far."""

    reaction = waits = 0

    async def interrupt(self) -> None:
        await super().interrupt()
        self.waits += 1
        if self.reaction:
            await self.wait_cycles(self.reaction)


class Job(ABC):
    """Input of both versions of an algorithm.

    Members
    -------
    depth : nesting depth of the nested version.
    """

    depth: int

    @abstractmethod
    async def prepare(self, device: Device, stream: Stream, *, flat: bool) -> None:
        """Prepare one of the versions."""

    @abstractmethod
    async def run(self) -> None:
        """Run the prepared version, and check its result."""


class Sort(Job):
    def __init__(self, rng: np.random.Generator, size: int) -> None:
        self._words = rng.integers(0, 1 << 32, size, dtype=np.uint32)
        self.depth = MergeSort.depth(size)

    async def prepare(self, device: Device, stream: Stream, *, flat: bool) -> None:
        self._data: Buffer = await device.upload(self._words)
        kind = FlatMergeSort if flat else MergeSort
        self._sort = await kind.prepare(device, stream, self._data, len(self._words))

    async def run(self) -> None:
        self._data.write(self._words)
        await self._sort.run()
        found = self._data.read(np.uint32, len(self._words))
        assert np.array_equal(found, np.sort(self._words))


class Refine(Job):
    depth, _tolerance = 4, 20

    def __init__(self, rng: np.random.Generator, size: int) -> None:
        self._field = rough_field(rng, size)

    async def prepare(self, device: Device, stream: Stream, *, flat: bool) -> None:
        kind = FlatRefinement if flat else Refinement
        self._job = await kind.prepare(device, stream, self._field, self._tolerance, self.depth)

    async def run(self) -> None:
        await self._job.run()
        found = self._job.levels.read(np.uint32, self._field.size).reshape(self._field.shape)
        assert np.array_equal(found, refined(self._field, self._tolerance, self.depth))


class Search(Job):
    depth = 3

    def __init__(self, rng: np.random.Generator, size: int) -> None:
        self._rows, self._columns = graph(rng, size, 40)
        self._source = int(np.argmax(np.diff(self._rows)))

    async def prepare(self, device: Device, stream: Stream, *, flat: bool) -> None:
        kind = FlatBreadthFirst if flat else BreadthFirst
        self._search = await kind.prepare(device, stream, self._rows, self._columns)

    async def run(self) -> None:
        await self._search.run(self._source)
        found = self._search.distances.read(np.uint32, len(self._rows) - 1)
        assert np.array_equal(found, distances(self._rows, self._columns, self._source))


JOBS = {"merge sort": Sort, "refinement": Refine, "breadth-first search": Search}


async def measured(host: Host, trace: TraceFile, job: Job) -> tuple[int, int]:
    """Run a job. Returns the cycles from the first doorbell to the end of the last kernel, and the
    number of times that the host waited."""
    begun, before = host.now(), host.waits
    await job.run()
    events = [event for event in await trace.events() if event.cycle >= begun]
    first = next(event for event in events if isinstance(event, Doorbell))
    ends = [event for event in events if isinstance(event, TaskOver)]
    assert all(end.refusal is Refusal.NONE for end in ends)
    return ends[-1].cycle - first.cycle, host.waits - before


@cocotb.test(**LIMIT)
@cocotb.parametrize((("name", "size", "latency"), CASES))
async def versions(dut: Any, name: str, size: int, latency: int) -> None:
    """Both versions of an algorithm. The second run of each is measured; the first one fills the
    caches."""
    job = JOBS[name](np.random.default_rng(SEED), size)
    host = await Host.start(dut)
    dut.memory.read_latency.value = dut.memory.write_latency.value = latency
    device = await Device.open(host, PriorityPolicy(1))
    device.set_limit(Limit.NESTING_DEPTH, job.depth)
    stream, trace = await device.stream(), await TraceFile.open(host)
    await job.prepare(device, stream, flat=False)
    await job.run()
    cycles, waits = await measured(host, trace, job)
    assert waits == 1
    report(**{key("nested", name, size, latency): cycles})
    await job.prepare(device, stream, flat=True)
    await job.run()
    for host.reaction in REACTIONS:
        cycles, waits = await measured(host, trace, job)
        report(**{key(f"flat {host.reaction}", name, size, latency): cycles})
        report(**{waits_key(name, size): waits})
    await device.close()
