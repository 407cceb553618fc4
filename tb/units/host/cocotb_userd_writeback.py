"""Writes to USERD (HOST-1, HOST-3): the right word of the right channel, in time, and no other."""

import os
from collections import deque
from itertools import pairwise
from typing import Any

import cocotb

from signalbox.hw.config import CONFIGS
from signalbox.hw.host.records import INDEX_BITS
from signalbox.hw.host.userd_writeback import UserdWriteback
from signalbox.hw.records.memory import MemoryStatus
from signalbox.hw.registers import channel_word
from signalbox.tb.testbench.clocked import Participant, Testbench, component
from signalbox.tb.testbench.contents import Contents, Failing
from signalbox.tb.testbench.masks import mask
from signalbox.tb.testbench.servers import WriteServer
from signalbox.tb.testbench.strobe import Strobe

LIMIT = {"timeout_time": 20, "timeout_unit": "ms"}

CONFIG = CONFIGS[os.environ.get("SIZE", "default")]

CHANNELS = CONFIG.channels

GP_GET, REF = 0x88, 0x48

CHOICE = 4
"""Cycles from the choice of a channel to its request. The value is read two cycles before the
request, so it misses what comes in the last three cycles."""

LONGEST = 30
"""Longest write in a random run, from the choice on, in cycles."""

BOUND = (CHANNELS + 1) * LONGEST
"""Longest wait for a write that is due: one write of each channel, and the one in progress."""


class Channel:
    """Model of a channel.

    Members
    -------
    asid, userd : its settings.
    enabled : CONTROL.ENABLE, of this cycle and of the one before.
    empty : nothing is left to execute.
    gets : GP_GET after each of the last cycles, the present one last.
    moved : cycle in which it was last set.
    owed : GP_GET is to be written.
    ref : the last REF.
    referring, failed : as the outputs of these names.
    closed : cycle in which it was last disabled.
    waits : cycles for which a write has been due at once, and for which GP_GET has been owed.
    """

    def __init__(self) -> None:
        self.asid, self.userd, self.ref = 0, 0, 0
        self.enabled, self.empty = deque([False, False], 2), False
        self.gets: deque[int] = deque([0] * CHOICE, CHOICE)
        self.moved = self.closed = -100
        self.owed = self.referring = self.failed = False
        self.waits = [0, 0]


class Watch(Participant):
    """Checks every write and all outputs but `get` against the models.

    Members
    -------
    requests : (cycle, channel, offset) of all writes.
    """

    def __init__(self, tb: "WritebackTestbench") -> None:
        self._tb = tb
        self.requests: list[tuple[int, int, int]] = []
        self._now: tuple[int, int] | None = None
        self._value = self._chosen = 0
        tb.join(self)

    def sample(self, cycle: int) -> None:
        tb = self._tb
        for number, channel in enumerate(tb.channels):
            shown = (tb.get(f"reference__{name}") >> number & 1 for name in ("referring", "failed"))
            assert tuple(shown) == (channel.referring, channel.failed), f"REF of {number}"
        if tb.get("write__request__valid") and self._now is None:
            self._now = self._request(cycle)
        if tb.get("write__beat__valid"):
            self._beat(tb.get("write__beat__payload"))
        self._writing(tb.get("writes__writing"))
        self._end()
        for number, channel in enumerate(tb.channels):
            self._wait(number, channel)

    def _request(self, cycle: int) -> tuple[int, int]:
        """Channel and offset of the request that is first offered in this cycle."""
        tb, request = self._tb, self._tb.get("write__request__payload")
        page, offset = request["va"] & ~0x1FF, request["va"] & 0x1FF
        mine = [
            number
            for number, one in enumerate(tb.channels)
            if (one.asid, one.userd) == (request["asid"], page)
        ]
        assert len(mine) == 1, f"a write at {request['va']:#x} of ASID {request['asid']}"
        assert not request["beats"] and not request["physical"], request
        (number,), on = mine, tb.channels[mine[0]].enabled[-1]
        channel = tb.channels[number]
        assert on or cycle - channel.closed <= CHOICE, f"channel {number} is disabled"
        assert offset in {GP_GET, REF}, f"offset {offset:#x}"
        if offset == REF:
            assert channel.referring or not on, f"channel {number} has no new REF"
            self._value = channel.ref
        else:
            assert channel.owed or not on, f"channel {number} has no new GP_GET"
            self._value = channel.gets[0]
            channel.owed = channel.owed and channel.moved > cycle - CHOICE + 1
        self.requests.append((cycle, number, offset))
        return number, offset

    def _beat(self, beat: dict[str, Any]) -> None:
        assert self._now is not None, "data without a request"
        number, offset = self._now
        lane = (self._tb.channels[number].userd + offset) % CONFIG.beat_bytes // 4
        assert beat["strobe"] == 0xF << 4 * lane and beat["last"], beat
        value = beat["data"] >> 32 * lane & 0xFFFF_FFFF
        assert value == self._value, f"{value:#x} instead of {self._value:#x}"

    def _writing(self, writing: int) -> None:
        """A channel is writing from its choice to the end of its write, and no other one is."""
        if self._now is not None:
            assert writing == 1 << self._now[0], f"{writing:#x} is not channel {self._now[0]}"
            self._chosen = 0
        else:
            self._chosen = self._chosen + 1 if writing else 0
            assert self._chosen < CHOICE and not writing & (writing - 1), "without a request"

    def _end(self) -> None:
        """Results of a write, in the cycle of memory's response, and REF after this cycle."""
        tb = self._tb
        ends = bool(tb.get("write__done__valid") and tb.get("write__done__ready"))
        number, offset = self._now or (0, 0)
        bad = ends and tb.get("write__done__payload")["status"] is not MemoryStatus.OK
        referenced, failed = tb.get("writes__referenced"), tb.get("writes__failed")
        assert failed["valid"] == (bad and offset == GP_GET), (number, offset)
        assert referenced["valid"] == (ends and not bad and offset == REF), (number, offset)
        assert not failed["valid"] or failed["channel"] == number
        if referenced["valid"]:
            assert (referenced["channel"], referenced["value"]) == (number, self._value)
        if ends and offset == REF:
            tb.channels[number].referring, tb.channels[number].failed = False, bad
        if ends:
            self._now = None
        if tb.referred is not None:
            tb.channels[tb.referred].referring = True
        for channel in tb.channels:
            before, on = channel.enabled
            if before and not on:
                channel.owed = channel.referring = False

    def _wait(self, number: int, channel: Channel) -> None:
        """A write that is due comes in time."""
        on = channel.enabled[-1] and (self._now is None or self._now[0] != number)
        at_once = on and (channel.referring or (channel.owed and channel.empty))
        once, lazy = channel.waits
        channel.waits = [once + 1 if at_once else 0, lazy + 1 if on and channel.owed else 0]
        assert once <= BOUND, f"channel {number}: nothing is written"
        assert lazy <= BOUND + self._tb.period + 2, f"channel {number}: GP_GET is not written"


class WritebackTestbench(Testbench):
    """Other units of the host, and memory.

    Members
    -------
    channels : their models.
    referred : channel of this cycle's SET_REFERENCE, if any.
    period : cycles between ticks.
    memory : server of the memory port.
    watch : checks all outputs.
    """

    def __init__(self, dut: Any) -> None:
        super().__init__(dut, component(UserdWriteback, CONFIG))
        self.channels = [Channel() for _ in range(CHANNELS)]
        self.referred: int | None = None
        self.period = 100
        self.memory = WriteServer(self, Contents())
        self._setting = Strobe(self, "control__setting")
        self._started = Strobe(self, "entries__started")
        self._cleared = Strobe(self, "start__cleared")
        self._write = Strobe(self, "reference__write")
        self.watch = Watch(self)

    async def step(self) -> None:
        """One cycle."""
        on, empty = (
            mask(number for number, one in enumerate(self.channels) if which(one))
            for which in (lambda one: one.enabled[-1], lambda one: one.empty)
        )
        self.drive(control__enabled=on, state__empty=empty, period=self.period)
        await super().step()
        self.referred = None
        for channel in self.channels:
            channel.gets.append(channel.gets[-1])
            channel.enabled.append(channel.enabled[-1])

    async def open(self, number: int, asid: int, userd: int) -> None:
        """Start a disabled channel with these settings, once it is at rest."""
        await self.steps(CHOICE)
        await self.until(lambda: not self.get("writes__writing") >> number & 1, "rest")
        channel = self.channels[number]
        for name, value in {"USERD": userd, "USERD_HI": userd >> 32, "CONFIG": asid}.items():
            value &= 0xFFFF_FFFF
            self._setting.send(channel=number, word=channel_word(name), value=value)
            await self.step()
        channel.asid, channel.userd = asid, userd
        self._cleared.send(channel=number)
        self._move(number, 0)
        await self.step()
        channel.enabled[-1] = True
        others = [other for other, one in enumerate(self.channels) if all(one.enabled)]
        if others:  # its entry comes in the way
            self.begin(self.random.choice(others), self.random.getrandbits(INDEX_BITS))
        await self.steps(2)  # its first entry starts later

    def close(self, number: int) -> None:
        """Disable a channel."""
        self.channels[number].enabled[-1] = False
        self.channels[number].closed = self.cycle

    def begin(self, number: int, get: int) -> None:
        """An entry of the channel starts."""
        self._started.send(channel=number, get=get)
        self._move(number, get)

    def refer(self, number: int, value: int) -> None:
        """SET_REFERENCE of the channel."""
        self._write.send(channel=number, value=value)
        self.channels[number].ref, self.referred = value, number

    async def written(self) -> None:
        """Wait until everything is written, and check what is shown of the channels."""
        limit = 2 * BOUND + self.period
        await self.until(
            lambda: not any(one.owed or one.referring for one in self.channels), "writes", limit
        )
        for number, channel in enumerate(self.channels):
            self.drive(get__channel=number)
            await self.steps(2)
            assert self.get("get__index") == channel.gets[-1], f"GP_GET of {number}"

    def word(self, number: int, offset: int) -> int:
        """A word of the channel's USERD in memory."""
        channel = self.channels[number]
        content = self.memory.contents.read((channel.asid, 0), channel.userd + offset, 4)
        return int.from_bytes(content, "little")

    def _move(self, number: int, get: int) -> None:
        channel = self.channels[number]
        channel.gets[-1], channel.owed, channel.moved = get, True, self.cycle


def place(tb: Testbench, number: int) -> tuple[int, int]:
    """ASID and USERD of a channel: unlike those of all others, within 40 bits."""
    page = tb.random.getrandbits(40) & ~0x1FF & ~(0x3F << 9)
    return tb.random.randrange(CONFIG.asids), page | number << 9


@cocotb.test(**LIMIT)
async def at_once(dut):
    """GP_GET of a channel that has run empty, and REF, are written at once, to the word."""
    tb = await WritebackTestbench(dut).start()
    tb.period = 1 << 20
    for number in range(CHANNELS):
        await tb.open(number, *place(tb, number))
        tb.channels[number].empty = True
        for get, ref in ((1, 0xDEAD_BEEF), ((1 << INDEX_BITS) - 1, 0)):
            tb.begin(number, get)
            await tb.step()
            tb.refer(number, ref)
            await tb.steps(25)
            assert tb.word(number, GP_GET) == get and tb.word(number, REF) == ref
            tb.drive(get__channel=number)
            await tb.steps(2)
            assert tb.get("get__index") == get
    assert len(tb.watch.requests) <= 5 * CHANNELS


@cocotb.test(**LIMIT)
async def once_per_period(dut):
    """GP_GET of a working channel is written once per period, however often it moves."""
    tb = await WritebackTestbench(dut).start()
    await tb.open(CHANNELS - 1, *place(tb, CHANNELS - 1))
    for tb.period in (40, 200):
        await tb.steps(300)
        tb.watch.requests.clear()
        for get in range(5 * tb.period):
            tb.begin(CHANNELS - 1, get)
            await tb.steps(2)
        cycles = [cycle for cycle, _, _ in tb.watch.requests]
        steps = {later - one for one, later in pairwise(cycles)}
        assert len(cycles) >= 9 and len(steps) == 1 and steps <= {*range(tb.period, tb.period + 3)}
    await tb.steps(2 * tb.period)
    assert tb.word(CHANNELS - 1, GP_GET) == 5 * tb.period - 1


@cocotb.test(**LIMIT)
async def as_the_model(dut):
    """Any events of all channels, with slow and failing memory; no channel waits too long."""
    tb = await WritebackTestbench(dut).start()
    for number in range(CHANNELS):
        await tb.open(number, *place(tb, number))
    last = -2
    for _ in range(60):
        tb.period = tb.random.choice((0, 5, 60, 400))
        tb.memory.latency = tb.between(1, tb.random.choice((1, LONGEST - 15)))
        pages = (((one.asid, 0), range(one.userd, one.userd + 512)) for one in tb.channels)
        tb.memory.contents.failing = [
            Failing(*page, MemoryStatus.FAULT, write=True)
            for page in pages
            if tb.random.random() < 0.2
        ]
        rate = tb.random.choice((0.02, 0.3))
        for _ in range(150):
            number = tb.random.randrange(CHANNELS)
            channel = tb.channels[number]
            if channel.enabled[-1] and tb.random.random() < rate and tb.cycle > last + 1:
                tb.begin(number, tb.random.getrandbits(INDEX_BITS))
                last = tb.cycle
            number = tb.random.randrange(CHANNELS)
            channel = tb.channels[number]
            if all(channel.enabled) and not channel.referring and tb.random.random() < rate:
                tb.refer(number, tb.random.getrandbits(32))
            if tb.random.random() < 0.05:
                channel.empty = not channel.empty
            if channel.enabled[-1] and tb.random.random() < 0.005:
                tb.close(number)
            await tb.step()
        await tb.written()
        for number, channel in enumerate(tb.channels):
            if not channel.enabled[-1]:
                await tb.open(number, *place(tb, number))
    assert {offset for _, _, offset in tb.watch.requests} == {GP_GET, REF}
    assert {number for _, number, _ in tb.watch.requests} == {*range(CHANNELS)}
