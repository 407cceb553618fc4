"""The fault recorder alone, with slow memory (ASID-5, HOST-11)."""

import itertools
import os
from random import Random
from typing import Any

import cocotb
from cocotb.triggers import RisingEdge

from signalbox.hw.config import Config
from signalbox.hw.mmu.bursts import fault_report
from signalbox.tb.testbench.reset import reset
from signalbox.tb.units.mmu.clients import BUS, OK

LIMIT = {"timeout_time": 5, "timeout_unit": "ms"}

CONFIG, CLIENTS = Config(data_width=int(os.environ["WIDTH"])), 4
WIDTH, BEAT = CONFIG.data_width, CONFIG.beat_bytes

OLD, NEW = 0x123_4000, 0x56_7000
"""Fault buffers."""

RECORDS = 3
"""Records per buffer."""

OVERFLOW, REFUSED = 2, 4
"""Bits of FAULT_STATUS."""


class Slow:
    """A memory that accepts an offer `delay` cycles after it appeared, and answers with the same
    delay and with `status`. Checks that offers are held, and that `busy` is 1 from the request to
    the answer."""

    def __init__(self, dut: Any) -> None:
        self.dut, self.delay, self.status = dut, 0, OK
        self.content: dict[int, int] = {}
        for stream in ("request", "beat"):
            self._port(stream, "ready").value = 0
        dut.write__done__valid.value = dut.write__done__payload.value = 0

    def _port(self, stream: str, name: str) -> Any:
        return getattr(self.dut, f"write__{stream}__{name}")

    async def run(self) -> None:
        while True:
            at = (await self._take("request") >> CONFIG.asid_bits & (1 << 49) - 1) // BEAT * BEAT
            last = 0
            while not last:
                beat = await self._take("beat")
                last, strobe = beat >> WIDTH + BEAT, beat >> WIDTH & (1 << BEAT) - 1
                for lane in range(BEAT):
                    if strobe >> lane & 1 and self.status == OK:
                        self.content[at + lane] = beat >> 8 * lane & 0xFF
                at += BEAT
            for _ in range(self.delay):
                await RisingEdge(self.dut.clk)
                assert int(self.dut.registers__busy.value)
            self.dut.write__done__payload.value = self.status
            self.dut.write__done__valid.value = 1
            while True:
                await RisingEdge(self.dut.clk)
                assert int(self.dut.registers__busy.value)
                if int(self.dut.write__done__ready.value):
                    break
            self.dut.write__done__valid.value = 0

    async def _take(self, stream: str) -> int:
        """The next offer."""
        valid, ready, payload = (self._port(stream, name) for name in ("valid", "ready", "payload"))
        ready.value = int(not self.delay)
        offered, waited = None, 0
        while True:
            await RisingEdge(self.dut.clk)
            if offered is not None:
                assert int(valid.value) and int(payload.value) == offered, f"{stream} has changed"
            if int(valid.value):
                offered = int(payload.value)
                assert int(self.dut.registers__busy.value)
                if waited == self.delay:
                    ready.value = 0
                    return offered
                waited += 1
                ready.value = int(waited == self.delay)

    def record(self, at: int) -> int | None:
        """The 32 bytes of a record; None unless all of them were written."""
        found = [self.content.get(at + byte) for byte in range(32)]
        return None if None in found else int.from_bytes(bytes(found), "little")  # type: ignore[arg-type]


class Watch:
    """Follows reports: a record is at the place counted by PUT, or it was dropped. `told` has the
    addresses of records, and None for dropped ones."""

    def __init__(self, dut: Any, memory: Slow) -> None:
        self.dut, self.memory = dut, memory
        self.told: list[int | None] = []
        self._put = self._dropped = 0

    async def run(self) -> None:
        while True:
            await RisingEdge(self.dut.clk)
            if int(self.dut.registers__fault.value):
                self._take(int(self.dut.registers__put.value))
            if not int(self.dut.registers__enable.value):
                self._put = 0

    def _take(self, put: int) -> None:
        dropped, before = int(self.dut.registers__dropped.value), self._dropped
        self._dropped = dropped
        if dropped != before:
            assert (put, dropped) == (self._put, before + 1)
            self.told.append(None)
            return
        assert put == (self._put + 1) % RECORDS
        place = (int(self.dut.registers__base.value) << 12) + 32 * self._put
        record = self.memory.record(place)
        assert record is not None and record >> 76 & (1 << 37) - 1 == len(self.told)
        self._put = put
        self.told.append(place)


class Bench:
    """Testbench with buffer `OLD`, which is never full."""

    def __init__(self, dut: Any) -> None:
        self.dut, self.numbers = dut, Random(int(os.environ["COCOTB_RANDOM_SEED"]))
        self.memory = Slow(dut)
        self.watch = Watch(dut, self.memory)
        dut.report__valid.value = dut.report__payload.value = 0
        dut.binds.value = dut.time.value = dut.registers__clear.value = 0
        dut.registers__records.value, dut.registers__get.value = RECORDS, RECORDS
        self.set_buffer(OLD, 0)

    def set_buffer(self, base: int, on: int) -> None:
        self.dut.registers__base.value = base >> 12
        self.dut.registers__enable.value = on

    async def start(self) -> None:
        await reset(self.dut)
        await self.wait(2 * CONFIG.asids)
        cocotb.start_soon(self.memory.run())
        cocotb.start_soon(self.watch.run())

    async def wait(self, cycles: int) -> None:
        for _ in range(cycles):
            await RisingEdge(self.dut.clk)

    async def report(self, wait: int = 0) -> int | None:
        """Report a fault at the page with its number. Returns the address of its record; None if
        dropped."""
        await self.wait(wait)
        dut, number = self.dut, len(self.watch.told)
        layout = fault_report(CONFIG, CLIENTS)
        word = layout.const({"va": number << 12, "client": self.numbers.randrange(CLIENTS)})
        dut.report__payload.value = word.as_bits()
        dut.report__valid.value = 1
        await RisingEdge(dut.clk)
        while not int(dut.report__ready.value):
            await RisingEdge(dut.clk)
        dut.report__valid.value = 0
        await self.wait(1)
        assert len(self.watch.told) == number + 1
        return self.watch.told[-1]

    async def again(self) -> None:
        """Disable and enable the old buffer, and write one record."""
        self.set_buffer(OLD, 0)
        self.dut.registers__clear.value = OVERFLOW | REFUSED
        await self.wait(1)
        self.dut.registers__clear.value = 0
        self.set_buffer(OLD, 1)
        self.memory.content.clear()
        self.memory.status = OK
        assert await self.report() == OLD


@cocotb.test(**LIMIT)
@cocotb.parametrize(delay=[0, 3], status=[OK, BUS])
async def switched_in_any_cycle(dut, delay, status):
    """The buffer may be disabled, and enabled in the same place or elsewhere, in any cycle while a
    record is written: offers to memory are held, and the record is at the place counted by PUT, or
    counted as dropped. The next one is in the new buffer."""
    bench = Bench(dut)
    bench.memory.delay = delay
    await bench.start()
    ways = {"before": 0, "lost": 0, "after": 0}
    for new, pause, offset in itertools.product((OLD, NEW), (1, 2, 4, 9), range(50)):
        await bench.again()
        bench.memory.status = status
        reporting = cocotb.start_soon(bench.report(wait=12))
        await bench.wait(offset)
        dut.registers__enable.value = 0
        await bench.wait(1)
        bench.set_buffer(new, int(pause == 1))
        await bench.wait(pause - 1)
        dut.registers__enable.value = 1
        place = await reporting
        assert place in {new, OLD + 32, None}, "before, after, or lost"
        ways["lost" if place is None else "before" if place == new else "after"] += 1
        flags = int(dut.registers__status.value)
        assert place is None or not flags & (OVERFLOW | REFUSED)
        dut.registers__clear.value, bench.memory.status = OVERFLOW | REFUSED, OK
        await bench.wait(1)
        dut.registers__clear.value = 0
        assert await bench.report() == new + 32 * (place == new)
    assert all(ways.values()) == (status == OK), ways
