"""The fault recorder alone, with slow memory (ASID-5, HOST-11)."""

import itertools
import os
from typing import Any, Self

import cocotb

from signalbox.hw.config import Config
from signalbox.hw.mmu.fault_recorder import FaultRecorder
from signalbox.hw.page_tables import FAULT_RECORD_BYTES, FaultRecord
from signalbox.hw.records.memory import MemoryStatus
from signalbox.tb.testbench.clocked import Testbench, component
from signalbox.tb.testbench.contents import Contents, Failing, Space
from signalbox.tb.testbench.ends import Pace, Sink, Source
from signalbox.tb.testbench.record import Record
from signalbox.tb.testbench.servers import WriteServer

LIMIT = {"timeout_time": 5, "timeout_unit": "ms"}

CONFIG, CLIENTS = Config(data_width=int(os.environ["WIDTH"])), 4

OLD, NEW = 0x123_4000, 0x56_7000
"""Fault buffers."""

RECORDS = 3
"""Records per buffer."""

RECORD = Record(FaultRecord)
PHYSICAL = 0, 1
"""Address space of fault buffers: ASID 0, physical."""

FAILING = Failing(PHYSICAL, range(1 << 32), MemoryStatus.BUS, write=True)
ERRORS = {"overflow": 1, "bus": 1}
"""Bits of FAULT_STATUS."""


class Marked(Contents):
    """Contents that note all addresses that were written."""

    def __init__(self) -> None:
        super().__init__()
        self.written: set[int] = set()

    def write(self, space: Space, address: int, content: bytes) -> None:
        super().write(space, address, content)
        self.written.update(range(address, address + len(content)))


class RecorderTestbench(Testbench):
    """Reports faults, at first with buffer `OLD`; no buffer is ever full. Checks that `busy` is 1
    from the request of a write to its answer, and that a record is at the place counted by PUT or
    was dropped.

    Members
    -------
    contents : memory.
    told : addresses of records, and None for dropped ones.
    """

    def __init__(self, dut: Any, delay: int) -> None:
        """`delay` : cycles after which memory accepts an offer, and answers."""
        super().__init__(dut, component(FaultRecorder, CONFIG, CLIENTS))
        self.contents, self._delay = Marked(), delay
        self._report = Source(self, "report")
        self._write = WriteServer(self, self.contents, latency=lambda: delay + 1)
        for sink in (self._write.request, self._write.beat):
            sink.pace = self._delayed(sink)
        self.told: list[int | None] = []
        self._put = self._dropped = 0
        self.drive(registers__records=RECORDS, registers__get=RECORDS)
        self.set_buffer(OLD, on=False)

    def _delayed(self, sink: Sink) -> Pace:
        """A pace: true once an offer has waited for the delay."""
        waited = 0

        def pace() -> bool:
            nonlocal waited
            waited = waited + 1 if sink.offered and not sink.open else 0
            return waited == self._delay

        return pace

    def set_buffer(self, base: int, *, on: bool) -> None:
        self.drive(registers__base=base >> 12, registers__enable=on)

    async def start(self) -> Self:
        await super().start()
        await self.steps(2 * CONFIG.asids)
        self.run()
        return self

    async def step(self) -> None:
        """One cycle."""
        writes = self._write.pending > 0
        await super().step()
        if writes or self._write.request.offered or self._write.beat.offered:
            assert self.get("registers__busy")
        if self.get("registers__fault"):
            self._follow(self.get("registers__put"), self.get("registers__dropped"))
        if not self.get("registers__enable"):
            self._put = 0

    def _follow(self, put: int, dropped: int) -> None:
        """Check a report that has ended."""
        before, self._dropped = self._dropped, dropped
        if dropped != before:
            assert (put, dropped) == (self._put, before + 1)
            self.told.append(None)
            return
        assert put == (self._put + 1) % RECORDS
        place = (self.get("registers__base") << 12) + FAULT_RECORD_BYTES * self._put
        assert self.contents.written.issuperset(range(place, place + FAULT_RECORD_BYTES))
        content = self.contents.read(PHYSICAL, place, FAULT_RECORD_BYTES)
        assert RECORD.unpack(int.from_bytes(content, "little"))["address"] == len(self.told)
        self._put = put
        self.told.append(place)

    async def report(self, wait: int = 0) -> int | None:
        """Report a fault at the page with its number. Returns the address of its record; None if
        dropped."""
        await self.steps(wait)
        number = len(self.told)
        self._report.put({"va": number << 12, "client": self.random.randrange(CLIENTS)})
        await self.until(lambda: not self._report.pending, "the report is accepted")
        await self.steps()
        assert len(self.told) == number + 1
        return self.told[-1]

    async def clear(self) -> None:
        """Clear the errors in FAULT_STATUS."""
        self.drive(registers__clear=ERRORS)
        await self.steps()
        self.drive(registers__clear=0)

    async def again(self) -> None:
        """Disable and enable the old buffer, and write one record."""
        self.set_buffer(OLD, on=False)
        await self.clear()
        self.set_buffer(OLD, on=True)
        self.contents.written.clear()
        self.contents.failing = []
        assert await self.report() == OLD


@cocotb.test(**LIMIT)
@cocotb.parametrize(delay=[0, 3], status=[0, 1])
async def switched_in_any_cycle(dut: Any, delay: int, status: int) -> None:
    """The buffer may be disabled, and enabled at the same place or elsewhere, in any cycle while a
    record is written: offers to memory are held, and the record is at the place counted by PUT, or
    counted as dropped. The next record is in the new buffer."""
    tb = await RecorderTestbench(dut, delay).start()
    ways = {"before": 0, "lost": 0, "after": 0}
    offsets = range(tb.random.randrange(2), 50, 2)  # the others with other seeds
    for new, pause, offset in itertools.product((OLD, NEW), (1, 2, 4, 9), offsets):
        await tb.again()
        tb.contents.failing = [FAILING] if status else []
        reporting = cocotb.start_soon(tb.report(wait=12))
        await tb.steps(offset)
        tb.drive(registers__enable=0)
        await tb.steps()
        tb.set_buffer(new, on=pause == 1)
        await tb.steps(pause - 1)
        tb.drive(registers__enable=1)
        place = await reporting
        assert place in {new, OLD + FAULT_RECORD_BYTES, None}, "before, after, or lost"
        ways["lost" if place is None else "before" if place == new else "after"] += 1
        flags = tb.get("registers__status")
        assert place is None or not any(flags[name] for name in ERRORS)
        tb.contents.failing = []
        await tb.clear()
        assert await tb.report() == new + FAULT_RECORD_BYTES * (place == new)
    assert all(ways.values()) == (not status), ways
