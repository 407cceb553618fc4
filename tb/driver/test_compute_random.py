"""Random launches, copies and errors in several address spaces and contexts, compared with
numpy."""

import asyncio
from random import Random

import numpy as np
import pytest

from signalbox.driver.channel.priority_policy import PriorityPolicy
from signalbox.driver.compute.engine import ComputeSettings
from signalbox.driver.device import Device
from signalbox.driver.faults.channel_error import ChannelError
from signalbox.driver.kernels.library import VECTOR_ADD
from signalbox.driver.memory.physical import Buffer
from signalbox.driver.runtime.stream import Stream
from signalbox.hw.config import Config
from signalbox.hw.errors import Cause
from signalbox.tb.driver.fakes.machine import SPACE, FakeMachine
from signalbox.tb.driver.hangs import HANGS
from signalbox.tb.simulation.runner import choose_seed

HOLE = 0x6000_0000
NAMES = "ABC"


class Worker:
    """A stream with three vectors and their expected contents."""

    def __init__(self, device: Device, stream: Stream, numbers: Random) -> None:
        self.device, self.stream, self.numbers = device, stream, numbers
        self.buffers: dict[str, Buffer] = {}
        self.words: dict[str, np.ndarray] = {}
        self.failed = 0

    async def start(self) -> None:
        source = np.random.default_rng(self.numbers.randrange(1 << 32))
        self.count = self.numbers.randrange(1, 90)
        for name in NAMES:
            words = source.integers(0, 1 << 32, self.count, np.uint32)
            self.words[name] = words
            self.buffers[name] = await self.device.upload(words, space=self.stream.space)

    async def work(self, steps: int) -> None:
        """Do random steps, then compare the results."""
        for _ in range(steps):
            kind = self.numbers.choices((self.add, self.copy, self.wait, self.fault), (6, 3, 2, 1))
            await kind[0]()
        await self.settle()
        for name in NAMES:
            assert np.array_equal(self.buffers[name].read(np.uint32), self.words[name])

    async def add(self) -> None:
        names = [self.numbers.choice(NAMES) for _ in NAMES]
        block = self.numbers.randrange(1, 65)
        args = {name: self.buffers[one] for name, one in zip(NAMES, names, strict=True)}
        await self.stream.launch(
            VECTOR_ADD,
            -(-self.count // block),
            block,
            args | {"N": self.count},
            priority=self.numbers.choice((None, 0, 5, 63)),
            policy=self.numbers.choice(("auto", "wide", "deep", "affinity")),
        )
        self.words[names[2]] = self.words[names[0]] + self.words[names[1]]

    async def copy(self) -> None:
        to, of = self.numbers.choice(NAMES), self.numbers.choice(NAMES)
        await self.stream.memcpy_async(self.buffers[to], self.buffers[of], 4 * self.count)
        self.words[to] = self.words[of].copy()

    async def fault(self) -> None:
        """Launch a task that fails at its first word."""
        args = {name: HOLE for name in NAMES}
        await self.stream.launch(VECTOR_ADD, 2, 32, args | {"N": 64})
        self.failed += 1

    async def wait(self) -> None:
        await self.device.machine.wait_cycles(self.numbers.randrange(1, 400))
        if self.numbers.randrange(4) == 0:
            await self.settle()

    async def settle(self) -> None:
        """Wait until all work has ended, resuming channels that halted."""
        while True:
            try:
                return await self.stream.synchronize()
            except ChannelError as error:
                assert error.cause is Cause.TASK_KERNEL, str(error)
                await self.device.channels[error.channel].resume()


@pytest.mark.parametrize("run", range(4))
def test_random(run: int):
    seed = choose_seed() + run
    print(f"seed {seed}")
    numbers = Random(seed)
    machine = FakeMachine(Config(memory_bytes=SPACE, asids=numbers.choice((5, 64)), contexts=3))

    async def main():
        settings = ComputeSettings(spaces_each=numbers.choice((1, 2, 64)))
        device = await Device.open(machine, PriorityPolicy(2), compute=settings)
        free = None
        for _ in range(2):
            spaces = [device.create_space() for _ in range(3)]
            workers = []
            for number in range(3):
                stream = await device.stream(-numbers.randrange(2), space=spaces[number])
                workers.append(Worker(device, stream, Random(numbers.randrange(1 << 32))))
            for worker in workers:
                await worker.start()
            await asyncio.wait_for(asyncio.gather(*(one.work(25) for one in workers)), HANGS)
            for worker in workers:
                await device.close_space(worker.stream.space)
                for buffer in worker.buffers.values():
                    buffer.free()
            assert sum(task.failed for task in machine.engine.over) == sum(
                worker.failed for worker in workers
            )
            machine.engine.over.clear()
            free = free or device.memory.free_bytes
            assert free == device.memory.free_bytes and not list(device.engine.contexts)
        await device.close()

    asyncio.run(main())
