"""Steps, streams and their checks, with a FIFO."""

import os
from typing import Any

import cocotb

from signalbox.hw.lib.stream import StreamFIFO
from signalbox.tb.testbench.clocked import Testbench
from signalbox.tb.testbench.ends import Sink, Source

DEPTH = int(os.environ["DEPTH"])


class FifoTestbench(Testbench):
    """A FIFO between two ends. `given` has the payloads that were sent."""

    def __init__(self, dut: Any, sends: float = 1.0, takes: float = 1.0) -> None:
        super().__init__(dut, StreamFIFO(16, DEPTH))
        self.given: list[int] = []
        self.source = Source(self, "i", self.share(sends), self.given.append)
        self.sink = Sink(self, "o", self.share(takes))


@cocotb.test()
@cocotb.parametrize(paces=[(1.0, 1.0), (0.3, 0.7), (0.7, 0.3)])
async def in_order(dut: Any, paces: tuple[float, float]) -> None:
    """All payloads arrive in order. At full pace one moves in each cycle."""
    bench = await FifoTestbench(dut, *paces).start()
    words = [bench.random.getrandbits(16) for _ in range(100)]
    for word in words:
        bench.source.put(word)
    await bench.until(lambda: len(bench.sink.taken) == len(words), "all words arrive")
    assert bench.given == words == [word for _, word in bench.sink.taken]
    assert not bench.source.pending and bench.cycle == bench.sink.taken[-1][0] + 1
    if paces == (1.0, 1.0):
        assert bench.source.sent == [*range(100)]


@cocotb.test()
async def held_and_due(dut: Any) -> None:
    """An offer begins in its cycle with the value of that time, and is held until it is taken."""
    bench = await FifoTestbench(dut).start()
    bench.sink.pace = lambda: False
    bench.source.put(lambda: bench.cycle, delay=7)
    await bench.steps(20)
    assert bench.source.sent == [7] and bench.given == [7]
    assert bench.sink.offered and not bench.sink.open and bench.get("o__payload") == 7
    bench.sink.pace = lambda: True
    await bench.step()
    assert bench.sink.taken == [(20, 7)]


@cocotb.test()
async def not_held(dut: Any) -> None:
    """A withdrawn offer is an error."""
    bench = await FifoTestbench(dut).start()
    bench.sink.pace = lambda: False
    bench.source.put(5)
    await bench.until(lambda: bench.sink.offered, "an offer")
    dut.rst.value = 1
    try:
        await bench.steps(3)
    except AssertionError as error:
        assert "o: changed before it was taken" in str(error)
    else:
        raise AssertionError("the offer was withdrawn unnoticed")


@cocotb.test()
async def not_in_time(dut: Any) -> None:
    """A condition that stays false fails with its description after the limit."""
    bench = await FifoTestbench(dut).start()
    await bench.until(lambda: True, "nothing")
    assert bench.cycle == 0
    try:
        await bench.until(lambda: bench.sink.taken, "a payload arrives", timeout=30)
    except AssertionError as error:
        assert "not within 30 cycles: a payload arrives" in str(error) and bench.cycle == 30
    else:
        raise AssertionError("nothing was sent, but something arrived")


@cocotb.test()
async def in_the_background(dut: Any) -> None:
    """While cycles pass in the background, several tasks wait, and each drives the next cycle."""
    bench = await FifoTestbench(dut).start()
    bench.run()

    async def send(first: int, gap: int) -> list[int]:
        cycles = []
        for number in range(10):
            cycles.append(bench.cycle)
            bench.source.put(first + number)
            await bench.steps(gap)
        return cycles

    both = [cocotb.start_soon(send(100, 2)), cocotb.start_soon(send(200, 3))]
    await bench.until(lambda: len(bench.sink.taken) == 20, "all words arrive")
    cycles = [*await both[0], *await both[1]]
    assert cycles == [*range(cycles[0], cycles[0] + 20, 2), *range(cycles[0], cycles[0] + 30, 3)]
    assert {word for _, word in bench.sink.taken} == {*range(100, 110), *range(200, 210)}
    assert bench.source.sent[:5] == [*range(cycles[0], cycles[0] + 5)], "each in its own cycle"
