"""Servers of memory ports, with a small client."""

from typing import Any

import cocotb

from signalbox.hw.config import CONFIGS
from signalbox.hw.records.memory import MemoryStatus
from signalbox.tb.testbench.clocked import Testbench, component
from signalbox.tb.testbench.contents import Contents, Failing
from signalbox.tb.testbench.ends import Sink, Source
from signalbox.tb.testbench.servers import ReadServer, WriteServer
from signalbox.tb.units.testbench.mover import AWAY, Mover

CONFIG = CONFIGS["tiny"]
BEAT = CONFIG.beat_bytes
OK, BUS, FAULT = MemoryStatus
SPACE = (0, 1)


class MoverTestbench(Testbench):
    """A client that copies single beats, and its memory."""

    def __init__(self, dut: Any, share: float = 1.0, latency: tuple[int, int] = (1, 1)) -> None:
        super().__init__(dut, component(Mover, CONFIG))
        self.contents = Contents()
        pace, delay = self.share(share), self.between(*latency)
        self.read = ReadServer(self, self.contents, pace, delay)
        self.write = WriteServer(self, self.contents, pace, delay)
        self.command, self.moved = Source(self, "command"), Sink(self, "moved")

    async def move(self, va: int) -> tuple[MemoryStatus, MemoryStatus]:
        """Copy a beat. Returns both statuses."""
        self.command.put({"va": va, "physical": 1})
        self.moved.taken.clear()
        await self.until(lambda: self.moved.taken, "the end of the copy")
        assert not self.read.beat.pending and not self.write.pending
        ((_, outcome),) = self.moved.taken
        return outcome["read"], outcome["write"]


@cocotb.test()
async def bytes_move(dut: Any) -> None:
    """Beats are copied, from fresh pages and from written ones, with any pace and latency."""
    tb = await MoverTestbench(dut, share=0.5, latency=(0, 9)).start()
    tb.contents.write(SPACE, 0x2000, bytes(range(BEAT)))
    for va in (0x2000, 0x1000 - BEAT, 0x5000, 0x5000):
        wanted = tb.contents.read(SPACE, va, BEAT)
        assert await tb.move(va) == (OK, OK)
        assert tb.contents.read(SPACE, va ^ AWAY, BEAT) == wanted
    assert [burst.va for burst in tb.read.bursts[:2]] == [0x2000, 0x1000 - BEAT]


@cocotb.test()
async def failures(dut: Any) -> None:
    """Accesses to failing addresses have the given status; such a read returns wrong data, and such
    a write changes nothing."""
    tb = await MoverTestbench(dut).start()
    contents, va = tb.contents, 0x3000
    for status in (BUS, FAULT):
        contents.failing = [Failing(SPACE, range(va, va + 1), status, write=False)]
        assert await tb.move(va) == (status, OK)
        assert contents.read(SPACE, va ^ AWAY, BEAT) != contents.read(SPACE, va, BEAT)
        assert await tb.move(va + BEAT) == (OK, OK)
        before = contents.read(SPACE, va ^ AWAY, BEAT)
        contents.failing = [Failing(SPACE, range(va ^ AWAY, va + 1 ^ AWAY), status, write=True)]
        assert await tb.move(va) == (OK, status)
        assert contents.read(SPACE, va ^ AWAY, BEAT) == before


@cocotb.test()
async def latency(dut: Any) -> None:
    """The first beat is offered `latency` cycles after the request, and the response `latency`
    cycles after the last beat."""
    for cycles in (1, 2, 20):
        tb = await MoverTestbench(dut, latency=(cycles, cycles)).start()
        await tb.move(0x1000)
        (asked, _), (given, _) = tb.read.request.taken[0], tb.write.beat.taken[0]
        assert tb.read.beat.sent == [asked + cycles]
        assert tb.write.done.sent == [given + cycles]
