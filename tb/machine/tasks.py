"""Tasks on the whole machine, launched by tests with raw channels."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from signalbox.driver.commands.pushbuffer import Pushbuffer
from signalbox.driver.memory.page_tables import PageTables
from signalbox.hw.config import level_bits, list_entry_bytes
from signalbox.hw.registers import CONTEXT, PreemptionLevel, context_address
from signalbox.tb.machine.testbench import CHANNEL_BYTES, CHANNELS_AT, MachineTestbench, RawChannel
from signalbox.tb.models.tasks import record_of
from signalbox.tb.simulation.sizes import COMPUTE
from signalbox.tb.testbench.jobs import JOBS, Job

__all__ = [
    "OBJECT",
    "PCAS_A",
    "SIGNALING2_B",
    "SIGNALING_B",
    "SUBCHANNEL",
    "Computer",
    "Space",
    "Task",
    "launch",
    "mark",
    "spin",
]

CLASSES, SUBCHANNEL = (0xC6C0, 0xC7C0, 0xC9C0), 1
PCAS_A, SIGNALING_B, SIGNALING2_B = 0x2B4, 0x2BC, 0x2C0
OBJECT = Pushbuffer().inc(SUBCHANNEL, 0, CLASSES[0])
"""Binds a compute class."""

PAGE = 4096
RECORDS = 0x50_0000_0000
"""Virtual address of the first task's record; each record has its own page."""

MARKS = 0x3000
"""Offset of semaphores in a channel's memory."""

LOG_SIZE = 5
"""Binary logarithm of the size of a task list."""

INSTANCE_VALID, INSTANCE_BASES = 664, 672
"""Byte offsets in an instance block: valid bits of its address spaces, and their page
directories."""


def launch(task: "Task", method: int = SIGNALING_B, value: int = 2) -> Pushbuffer:
    """Methods of a launch."""
    return Pushbuffer().inc(SUBCHANNEL, PCAS_A, task.record_at >> 8).inc(SUBCHANNEL, method, value)


def mark(channel: RawChannel, number: int = 0) -> int:
    """Address of a semaphore in the channel's own memory, initially 0."""
    return CHANNELS_AT + CHANNEL_BYTES * channel.index + MARKS + 16 * number


def spin(cycles: int, blocks: int = 1, threads: int = 32) -> Job:
    """A job that only takes time."""
    return replace(JOBS[-1], grid=(blocks, 1, 1), block=(threads, 1, 1), values={"CYCLES": cycles})


class Task:
    """A job in an address space, ready for launch."""

    def __init__(self, job: Job, space: "Space", record_at: int) -> None:
        self.job, self.space, self.record_at = job, space, record_at

    def check(self) -> None:
        """Check that the results are in memory."""
        for va, words in self.job.results.items():
            got = np.frombuffer(self.space.read(va, words.nbytes), np.uint32)
            assert np.array_equal(got.reshape(words.shape), words), str(self.job)


class Space:
    """An address space with pages of 4 KiB, mapped on demand."""

    def __init__(self, tb: MachineTestbench, asid: int, tables: PageTables) -> None:
        self.tb, self.asid, self.tables = tb, asid, tables
        self._next = RECORDS

    def _pages(self, va: int, size: int) -> list[int]:
        return list(range(va & -PAGE, va + size, PAGE))

    def write(self, va: int, content: bytes) -> None:
        """Write bytes to memory, mapping pages if necessary."""
        for page in self._pages(va, len(content)):
            if self.tables.find(page) is None:
                self.tables.map(page, self.tb.allocate(PAGE, PAGE), PAGE, page_size=PAGE)
        for page in self._pages(va, len(content)):
            low, high = max(va, page), min(va + len(content), page + PAGE)
            self.tb.machine.memory_write(self.physical(low), content[low - va : high - va])

    def read(self, va: int, size: int) -> bytes:
        """Current bytes in memory."""
        parts = []
        for page in self._pages(va, size):
            low, high = max(va, page), min(va + size, page + PAGE)
            parts.append(self.tb.machine.memory_read(self.physical(low), high - low))
        return b"".join(parts)

    def physical(self, va: int) -> int:
        """Physical address."""
        page = self.tables.find(va & -PAGE)
        assert page is not None, hex(va)
        return page.pa + va - page.va

    def task(self, job: Job, *, memory: bool = True, **fields: int) -> Task:
        """A job with its memory. `fields` : fields of its record, as named in `tb.models.tasks`. If
        `memory` is False, only the record and the program are written."""
        at, self._next = self._next, self._next + PAGE
        info = job.launch()
        program, constants = info["program"], info["constants"]
        # Each task has its own program and arguments, as tasks of one space run concurrently.
        own = {"program": program + at - RECORDS, "constants": constants + at - RECORDS}
        more = fields.pop("more", 0)
        word = record_of(info | own, **fields) | more
        for va, content in job.memory().items():
            if va == constants:
                self.write(own["constants"], content)
            elif va == program:
                self.write(own["program"], content)
            elif memory:
                self.write(va, content)
        self.write(at, word.to_bytes(256, "little"))
        return Task(job, self, at)


class Computer:
    """The compute engine of a testbench: its lists, contexts and address spaces. `area`: bytes of
    memory for saved blocks, shared by all contexts; 0 for a machine that cannot stop blocks."""

    def __init__(self, tb: MachineTestbench, contexts: int, area: int = 0) -> None:
        self.tb = tb
        self._area = tb.allocate(area, PAGE) if area else 0
        self.instances = [tb.allocate(PAGE, PAGE) for _ in range(contexts)]

    @classmethod
    async def start(
        cls,
        tb: MachineTestbench,
        contexts: int = COMPUTE.contexts,
        log_size: int = LOG_SIZE,
        area: int = 0,
    ) -> "Computer":
        """Set up empty contexts, and lists of 2^log_size tasks."""
        computer = cls(tb, contexts, area)
        size = ((contexts << level_bits(0)) * list_entry_bytes(area)) << log_size
        lists = tb.allocate(size, PAGE)
        await tb.control.write("TASK_LISTS_LO", lists)
        await tb.control.write("TASK_LISTS_HI", ADDRESS=0)
        await tb.control.write("TASK_LISTS_SIZE", LOG_SIZE=log_size, ASID=0)
        for number, instance in enumerate(computer.instances):
            await computer.write_context(number, "INSTANCE_LO", instance)
        return computer

    async def write_context(self, number: int, name: str, value: int) -> None:
        """Write a register of a context."""
        await self.tb.machine.write32(context_address(number, name), value)

    async def preempt(
        self, context: int, *, saves: bool = False, level: PreemptionLevel = PreemptionLevel.CTA
    ) -> None:
        """Set how blocks of a context make room: for urgent blocks of the same context (`saves`),
        and for other contexts."""
        fields = {"SAVE": saves, "LEVEL": level, "PAGE": self._area // PAGE}
        await self.write_context(context, "SAVE_AREA", CONTEXT["SAVE_AREA"].pack(**fields))

    async def space(self, asid: int, *channels: int, context: int = 0) -> Space:
        """Bind a new address space and add it to a context."""
        space = Space(self.tb, asid, await self.tb.space(asid, *channels))
        self.know(context, asid, space.tables.root)
        return space

    def know(self, context: int, asid: int, root: int) -> None:
        """Add an address space to a context."""
        instance = self.instances[context]
        valid = self.tb.word(instance + INSTANCE_VALID, 8) | 1 << asid
        self.tb.set_word(instance + INSTANCE_VALID, valid, 8)
        self.tb.set_word(instance + INSTANCE_BASES + 16 * asid, root | 1 << 10, 8)

    async def channel(self, index: int, asid: int, context: int = 0, **settings: Any) -> RawChannel:
        """A channel with a random compute class bound; all of these classes are alike (HOST-13)."""
        self.tb.machine.memory_write(CHANNELS_AT + CHANNEL_BYTES * index + MARKS, bytes(256))
        channel = await self.tb.channel(index, asid=asid, context=context, **settings)
        number = self.tb.random.choice(CLASSES)
        await channel.submit(Pushbuffer().inc(SUBCHANNEL, 0, number))
        await self.tb.until_idle(channel)
        assert await channel.read("OBJECT1") == number
        return channel

    async def finish(self, *channels: RawChannel, limit: int = 50_000) -> None:
        """Wait until the channels are idle, and their tasks are over."""
        end = self.tb.now() + limit
        for channel in channels:
            await self.tb.until_idle(channel, timeout=limit)
            while (status := await channel.status())["TASKS"] or status["HALTED"]:
                assert not status["HALTED"], await channel.halt()
                assert self.tb.now() < end, f"tasks are still running: {status}"

    def check(self, tasks: Sequence[Task]) -> None:
        """Check that the results of all tasks are in memory."""
        for task in tasks:
            task.check()
