"""Steps, streams and their checks, with a FIFO."""

import os
from itertools import pairwise
from typing import Any

import cocotb
from cocotb.triggers import RisingEdge
from cocotb.utils import get_sim_time

from signalbox.hw.lib.stream import StreamFIFO
from signalbox.tb.testbench.clocked import Testbench, component
from signalbox.tb.testbench.ends import Sink, Source

DEPTH = int(os.environ["DEPTH"])


class FifoTestbench(Testbench):
    """A FIFO between two ends. `given` has the payloads that were sent."""

    def __init__(
        self, dut: Any, sends: float = 1.0, takes: float = 1.0, *, held: bool = True
    ) -> None:
        super().__init__(dut, component(StreamFIFO, 16, DEPTH))
        self.given: list[int] = []
        self.source = Source(self, "i", self.share(sends), self.given.append)
        self.sink = Sink(self, "o", self.share(takes), held=held)


@cocotb.test()
@cocotb.parametrize(paces=[(1.0, 1.0), (0.3, 0.7), (0.7, 0.3)])
async def in_order(dut: Any, paces: tuple[float, float]) -> None:
    """All payloads arrive in order; at full pace, one per cycle."""
    tb = await FifoTestbench(dut, *paces).start()
    words = [tb.random.getrandbits(16) for _ in range(100)]
    for word in words:
        tb.source.put(word)
    await tb.until(lambda: len(tb.sink.taken) == len(words), "all words arrive")
    assert tb.given == words == [word for _, word in tb.sink.taken]
    assert not tb.source.pending and tb.cycle == tb.sink.taken[-1][0] + 1
    if paces == (1.0, 1.0):
        assert tb.source.sent == [*range(100)]


@cocotb.test()
async def held_and_due(dut: Any) -> None:
    """A delayed offer begins in its cycle, with the value at that time, and is held until it is
    taken."""
    tb = await FifoTestbench(dut).start()
    tb.sink.pace = lambda: False
    tb.source.put(lambda: tb.cycle, delay=7)
    await tb.steps(20)
    assert tb.source.sent == [7] and tb.given == [7]
    assert tb.sink.offered and not tb.sink.open and tb.get("o__payload") == 7
    tb.sink.pace = lambda: True
    await tb.step()
    assert tb.sink.taken == [(20, 7)]


@cocotb.test()
async def not_held(dut: Any) -> None:
    """A withdrawn offer is an error."""
    tb = await FifoTestbench(dut).start()
    tb.sink.pace = lambda: False
    tb.source.put(5)
    await tb.until(lambda: tb.sink.offered, "an offer")
    dut.rst.value = 1
    try:
        await tb.steps(3)
    except AssertionError as error:
        assert "o: changed before it was taken" in str(error)
    else:
        raise AssertionError("the offer was withdrawn unnoticed")


@cocotb.test()
async def may_be_withdrawn(dut: Any) -> None:
    """A sink for offers that need not be held accepts the withdrawal of an offer."""
    tb = await FifoTestbench(dut, held=False).start()
    tb.sink.pace = lambda: False
    tb.source.put(5)
    await tb.until(lambda: tb.sink.offered, "an offer")
    dut.rst.value = 1
    await tb.until(lambda: not tb.sink.offered, "the offer is withdrawn", timeout=3)
    assert not tb.sink.taken


@cocotb.test()
async def not_in_time(dut: Any) -> None:
    """A condition that stays false fails with its description after the limit."""
    tb = await FifoTestbench(dut).start()
    await tb.until(lambda: True, "nothing")
    assert tb.cycle == 0
    try:
        await tb.until(lambda: tb.sink.taken, "a payload arrives", timeout=30)
    except AssertionError as error:
        assert "not within 30 cycles: a payload arrives" in str(error) and tb.cycle == 30
    else:
        raise AssertionError("nothing was sent, but something arrived")


@cocotb.test()
async def started_again(dut: Any) -> None:
    """A second testbench in a test resets the design, and uses the running clock."""
    first = await FifoTestbench(dut, takes=0.0).start()
    rises: list[float] = []
    cocotb.start_soon(_watch(dut.clk, rises))
    first.source.put(5)
    await first.until(lambda: first.sink.offered, "an offer")
    second = await FifoTestbench(dut).start()
    await second.steps(10)
    assert not second.sink.taken
    assert len({after - before for before, after in pairwise(rises)}) == 1, rises


async def _watch(clock: Any, rises: list[float]) -> None:
    """Append the times of rising edges."""
    while True:
        await RisingEdge(clock)
        rises.append(get_sim_time("step"))


@cocotb.test()
async def in_the_background(dut: Any) -> None:
    """While cycles pass in the background, several tasks wait, and each drives the next cycle."""
    tb = await FifoTestbench(dut).start()
    tb.run()

    async def send(first: int, gap: int) -> list[int]:
        cycles = []
        for number in range(10):
            cycles.append(tb.cycle)
            tb.source.put(first + number)
            await tb.steps(gap)
        return cycles

    both = [cocotb.start_soon(send(100, 2)), cocotb.start_soon(send(200, 3))]
    await tb.until(lambda: len(tb.sink.taken) == 20, "all words arrive")
    cycles = [*await both[0], *await both[1]]
    assert cycles == [*range(cycles[0], cycles[0] + 20, 2), *range(cycles[0], cycles[0] + 30, 3)]
    assert {word for _, word in tb.sink.taken} == {*range(100, 110), *range(200, 210)}
    assert tb.source.sent[:5] == [*range(cycles[0], cycles[0] + 5)], "each in its own cycle"
