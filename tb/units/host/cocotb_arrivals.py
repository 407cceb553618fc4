"""Order of arrival: each doorbell has its place, and none is lost or mistaken for a new one
(COPY-5)."""

import os
from collections import deque
from itertools import product
from typing import Any

import cocotb

from signalbox.hw.config import CONFIGS
from signalbox.hw.host.fetch.aging import ERA
from signalbox.hw.host.fetch.arrivals import RECORDS, Arrivals
from signalbox.tb.testbench.clocked import Testbench, component
from signalbox.tb.testbench.strobe import Strobe

LIMIT = {"timeout_time": 20, "timeout_unit": "ms"}

CONFIG = CONFIGS[os.environ.get("SIZE", "default")]
RANGE = 8 * ERA
"""Number of doorbells after which stamps repeat."""

SETTLED = 3
"""Cycles after which all inputs have taken effect."""


class ArrivalsTestbench(Testbench):
    """Drives the unit and keeps the records with stamps that never wrap.

    Members
    -------
    now : number of doorbells so far.
    records : (put, stamp) of each channel, oldest first.
    last : stamp of the record removed last, per channel.
    """

    def __init__(self, dut: Any) -> None:
        super().__init__(dut, component(Arrivals, CONFIG))
        ports = {
            "announce": "doorbells__announce",
            "finish": "entries__finished",
            "clear": "start__cleared",
        }
        self._strobes = {name: Strobe(self, port) for name, port in ports.items()}
        self.now = 0
        self.records: list[deque[tuple[int, int]]] = [deque() for _ in range(CONFIG.channels)]
        self.last = [0] * CONFIG.channels

    async def step(self, doorbell: bool = False, **events: dict[str, int]) -> None:
        """One cycle with the given strobes, and optionally one more doorbell."""
        for name, fields in events.items():
            self._strobes[name].send(**fields)
        self.drive(doorbells__now=self.now % RANGE)
        await super().step()
        self.now += doorbell

    async def announce(self, channel: int, put: int, stamp: int) -> None:
        """Entries up to `put` were announced by doorbell `stamp`."""
        records = self.records[channel]
        if len(records) == RECORDS:
            records[-1] = (put, records[-1][1])
        else:
            records.append((put, stamp))
        await self.step(announce={"channel": channel, "put": put, "stamp": stamp % RANGE})

    async def finish(self, channel: int, get: int) -> None:
        """The entry before `get` was executed."""
        records = self.records[channel]
        if records and records[0][0] == get:
            self.last[channel] = records.popleft()[1]
        await self.step(finish={"channel": channel, "get": get})

    async def fill(self, count: int) -> None:
        """Announce entries of channel 0 with new doorbells: `put` is 1 … `count`."""
        for put in range(1, count + 1):
            self.now += 1
            await self.announce(0, put, self.now - 1)
            await self.step()

    async def drain(self) -> None:
        """All entries of the full channel 0 are executed in turn; check before and after each."""
        for put in range(1, RECORDS + 1):
            await self.settle()
            self.check()
            await self.finish(0, put)
        await self.settle()
        self.check()

    async def settle(self) -> None:
        await self.steps(SETTLED)

    def stamp(self, channel: int) -> int:
        """The stamp of the channel's head, modulo `RANGE`."""
        return self.get("order__stamps")[channel]

    def check(self) -> None:
        """Check the stamp of each channel's head; a stamp older than two eras need only show an age
        of two to four eras."""
        stamps = self.get("order__stamps")
        for channel, records in enumerate(self.records):
            known = records[0][1] if records else self.last[channel]
            age, limited = (self.now - stamps[channel]) % RANGE, self.now - known
            if limited <= 2 * ERA:
                assert age == limited, f"channel {channel}: age {age}, not {limited}"
            else:
                assert 2 * ERA <= age < 4 * ERA, f"channel {channel}: age {age}, is {limited}"


@cocotb.test(**LIMIT)
async def every_record_in_order(dut):
    """Stamps are correct with random doorbells, ends of entries and restarts, one event per
    cycle."""
    tb = await ArrivalsTestbench(dut).start()
    numbers = tb.random
    puts, gets = [0] * CONFIG.channels, [0] * CONFIG.channels
    joined = False
    for _ in range(3000):
        channel = numbers.randrange(CONFIG.channels)
        action = numbers.random()
        if action < 0.45:
            puts[channel] = (puts[channel] + 1) % (1 << 20)
            joined |= len(tb.records[channel]) == RECORDS
            tb.now += 1
            await tb.announce(channel, puts[channel], tb.now - 1)
        elif action < 0.95 and gets[channel] != puts[channel]:
            gets[channel] = (gets[channel] + 1) % (1 << 20)
            await tb.finish(channel, gets[channel])
        elif action > 0.99:
            puts[channel] = gets[channel] = 0
            if tb.records[channel]:
                tb.last[channel] = tb.records[channel][0][1]
            tb.records[channel].clear()
            await tb.settle()
            await tb.step(clear={"channel": channel})
        await tb.step()
        if numbers.random() < 0.5:
            await tb.settle()
            tb.check()
    assert joined, "no record was widened"


@cocotb.test(**LIMIT)
async def end_and_doorbell_together(dut):
    """A record may end while the next one arrives, at every distance and fill level."""
    tb = await ArrivalsTestbench(dut).start()
    for filling in range(1, RECORDS + 1):
        for distance in range(-3, 4):
            await tb.step(clear={"channel": 0})
            tb.records[0].clear()
            await tb.fill(filling)
            tb.now += 1
            record = {"channel": 0, "put": filling + 1, "stamp": (tb.now - 1) % RANGE}
            ends = {"channel": 0, "get": 1}
            for cycle in range(-3, 4):
                events = {"finish": ends} if cycle == 0 else {}
                if cycle == distance:
                    events["announce"] = record
                await tb.step(**events)
            await tb.settle()
            stamps = [tb.records[0].popleft()[1] for _ in range(filling)]
            # A fifth doorbell may or may not merge with the fourth if the first record ends in
            # about that cycle.
            known = [*stamps[1:], tb.now - 1]
            for number, stamp in enumerate(known):
                shown = tb.stamp(0)
                full = filling == RECORDS and number == RECORDS - 1
                if not (full and shown == stamps[-1] % RANGE):
                    assert shown == stamp % RANGE, f"{filling}, {distance}: record {number}"
                await tb.step(finish={"channel": 0, "get": number + 2})
                await tb.settle()
            # All records are gone: the next one becomes the head at once.
            tb.now += 1
            await tb.announce(0, 99, tb.now - 1)
            await tb.settle()
            assert tb.stamp(0) == (tb.now - 1) % RANGE


@cocotb.test(**LIMIT)
async def cleared_with_a_doorbell(dut):
    """A restart drops the doorbell of its own cycle like earlier ones; the next one becomes the
    head."""
    tb = await ArrivalsTestbench(dut).start()
    for together in (False, True):
        tb.now += 1
        record = {"channel": 0, "put": 7, "stamp": (tb.now - 1) % RANGE}
        if together:
            await tb.step(announce=record, clear={"channel": 0})
        else:
            await tb.step(announce=record)
            await tb.step(clear={"channel": 0})
        await tb.settle()
        tb.now += 1
        await tb.announce(0, 8, tb.now - 1)
        await tb.settle()
        assert tb.stamp(0) == (tb.now - 1) % RANGE
        await tb.step(clear={"channel": 0})
        tb.records[0].clear()


@cocotb.test(**LIMIT)
async def end_and_restart_together(dut):
    """A restart in any cycle around the end of a record drops all records: the next doorbells have
    their own places."""
    tb = await ArrivalsTestbench(dut).start()
    for filling, distance in product(range(1, RECORDS + 1), range(4)):
        await tb.fill(filling)
        await tb.settle()
        for cycle in range(4):
            events = {"finish": {"channel": 0, "get": 1}} if cycle == 0 else {}
            if cycle == distance:
                events["clear"] = {"channel": 0}
            await tb.step(**events)
        tb.records[0].clear()
        await tb.fill(RECORDS)
        await tb.drain()


@cocotb.test(**LIMIT)
async def old_records_stay_old(dut):
    """Waiting records, at the head and behind, remain old while other doorbells pass the range
    twice."""
    tb = await ArrivalsTestbench(dut).start()
    await tb.fill(RECORDS)
    other = CONFIG.channels - 1
    for number in range(2 * RANGE + ERA + 1):
        await tb.step(doorbell=True)
        if number % (ERA // 2) == 0:
            await tb.settle()
            tb.check()
        if other and number % 100 == 0 and len(tb.records[other]) < RECORDS:
            await tb.announce(other, number, tb.now)
    await tb.drain()
