"""Testbench of the fetch unit: memory, prefetch buffer and method pipeline, all in Python."""

import os
import random
from collections import deque
from typing import Any

from cocotb.clock import Clock
from cocotb.triggers import RisingEdge

from signalbox.hw import export
from signalbox.hw.config import Config
from signalbox.hw.errors import Cause
from signalbox.hw.host.fetch.fetch_unit import FetchUnit
from signalbox.hw.host.records import prefetch_beat
from signalbox.hw.lib.amaranth_private import PortDirection
from signalbox.hw.methods import GpEntry, pack
from signalbox.hw.records.memory import MemoryStatus, memory_request, read_beat
from signalbox.hw.registers import channel_word

__all__ = ["CONFIG", "CONFIGS", "Fetching", "Ring"]

CONFIGS = {
    "default": Config(),
    "narrow": Config(channels=3, data_width=64, prefetch_beats=8, semaphores=16, counters=4),
}

CONFIG = CONFIGS[os.environ.get("SIZE", "default")]

LIMIT = 5000
"""Limit of a wait, in cycles."""


class Ring:
    """Ring, USERD and segments of one channel; dword `n` of its segments is `first` + n."""

    def __init__(self, bench: "Fetching", channel: int) -> None:
        self.bench, self.channel = bench, channel
        self.base, self.userd = 0x1_0000 * (1 + channel), 0x1_0000 * (1 + channel) + 0x2000
        self.arena = self.base + 0x4000
        self.put = 0

    async def open(self, limit2: int = 5) -> None:
        """Write the channel's registers, let it start from an empty ring, and enable it."""
        bench = self.bench
        settings = {"GP_BASE": self.base, "GP_BASE_HI": limit2 << 16, "USERD": self.userd}
        for name, value in {**settings, "USERD_HI": 0, "CONFIG": 0}.items():
            bench.drive("setting", channel=self.channel, word=channel_word(name), value=value)
            await bench.step()
        bench.dut.setting.value = 0
        bench.dut.restart__payload.value = self.channel
        bench.dut.restart__valid.value = 1
        while not await bench.step("restart__ready"):
            pass
        bench.dut.restart__valid.value = 0
        bench.enabled |= 1 << self.channel
        self.put = 0

    def segment(self, first: int, length: int, at: int | None = None) -> None:
        """Write `length` dwords, from `first` on, to memory, and an entry to the ring."""
        if at is None:
            at, self.arena = self.arena, self.arena + 4 * length
        for number in range(length):
            self.bench.memory[at + 4 * number] = first + number
        self.entry(pack(GpEntry, address=at // 4, length=length))

    def entry(self, word: int) -> None:
        """Write a ring entry."""
        at = self.base + 8 * self.put
        self.bench.memory[at], self.bench.memory[at + 4] = word & 0xFFFF_FFFF, word >> 32
        self.put = (self.put + 1) % 32

    def kick(self) -> None:
        """Write GP_PUT and ring the doorbell in the next cycle."""
        self.bench.memory[self.userd + 0x8C] = self.put
        self.bench.doorbells.append(self.channel)


class Fetching:
    """Testbench that runs the fetch unit cycle by cycle.

    Members
    -------
    memory : dwords by address.
    bad, unmapped : address ranges whose reads the bus refuses, and those without a translation.
    enabled : mask of channels.
    doorbells : doorbells to be rung, one per cycle.
    slow : channels whose beats are currently not taken.
    stalls : whether memory takes requests only occasionally.
    dwords, causes : executed dwords and causes, per channel; a cause makes its channel slow.
    pending : STATUS.PENDING of each channel in this cycle.
    announced : (channel, put, stamp).
    reads : number of requested bursts.
    """

    def __init__(self, dut: Any, latency: int = 10) -> None:
        self.dut, self.latency = dut, latency
        channels = range(CONFIG.channels)
        self.memory: dict[int, int] = {}
        self.bad: list[range] = []
        self.unmapped: list[range] = []
        self.enabled, self.cycle, self.reads = 0, 0, 0
        self.doorbells: deque[int] = deque()
        self.slow: set[int] = set()
        self.stalls = False
        self.dwords: list[list[int]] = [[] for _ in channels]
        self.causes: list[list[Cause]] = [[] for _ in channels]
        self.pending = [False for _ in channels]
        self.announced: list[tuple[int, int, int]] = []
        self._beats: deque[tuple[int, int]] = deque()
        self._buffers: list[deque] = [deque() for _ in channels]
        self._numbers = random.Random(int(os.environ["COCOTB_RANDOM_SEED"]))
        self._layouts = {name: FetchUnit(CONFIG).signature.members[name].shape for name in (
            "setting", "popped", "fill", "announce", "unwritten", "cleared")}  # fmt: skip

    @classmethod
    async def start(cls, dut: Any, latency: int = 10) -> "Fetching":
        """Start the clock and reset."""
        Clock(dut.clk, 10, unit="ns").start(start_high=False)
        return await cls(dut, latency).reset()

    async def reset(self, latency: int | None = None) -> "Fetching":
        """A new testbench after a reset."""
        dut = self.dut
        bench = Fetching(dut, self.latency if latency is None else latency)
        for name, (_, way) in export.ports(FetchUnit(CONFIG)).items():
            if way is PortDirection.Input:
                getattr(dut, name).value = 0
        dut.rst.value = 1
        for _ in range(3):
            await RisingEdge(dut.clk)
        dut.rst.value = 0
        return bench

    def drive(self, name: str, **fields: int) -> None:
        """Drive a strobe as valid."""
        layout = self._layouts[name]
        getattr(self.dut, name).value = layout.const({"valid": 1, **fields}).as_bits()

    async def step(self, watch: str = "") -> int:
        """One clock cycle. Returns the value of `watch` in it."""
        dut = self.dut
        dut.enabled.value = self.enabled
        dut.doorbell__valid.value = int(bool(self.doorbells))
        if self.doorbells:
            dut.doorbell__payload.value = self.doorbells.popleft()
        dut.drained.value = sum(
            (not buffer) << number for number, buffer in enumerate(self._buffers)
        )
        self._pop()
        due = bool(self._beats) and self._beats[0][0] <= self.cycle
        dut.read__beat__valid.value = int(due)
        dut.read__beat__payload.value = self._beats[0][1] if due else 0
        takes = not self.stalls or self._numbers.randrange(8) == 0
        dut.read__request__ready.value = int(takes)
        await RisingEdge(dut.clk)
        self.cycle += 1
        self._see(due, takes)
        return int(getattr(dut, watch).value) if watch else 0

    async def until(self, done: Any, what: str) -> None:
        """Step until `done()`."""
        for _ in range(LIMIT):
            if done():
                return
            await self.step()
        raise AssertionError(f"{what}: not within {LIMIT} cycles")

    async def until_rest(self, *channels: int) -> None:
        """Step until the channels are no longer pending; then nothing of them must remain."""
        await self.step()
        await self.until(lambda: not any(self.pending[number] for number in channels), "rest")
        assert not any(self._buffers[number] for number in channels)

    def held(self, channel: int) -> int:
        """Number of beats in the prefetch buffer."""
        return len(self._buffers[channel])

    def _pop(self) -> None:
        """Take a beat, of the first channel that has one and is not slow."""
        self.dut.popped.value = 0
        for channel, buffer in enumerate(self._buffers):
            if buffer and channel not in self.slow:
                beat = buffer.popleft()
                self.drive("popped", channel=channel)
                if beat.cause != Cause.NONE:
                    self.causes[channel].append(Cause(beat.cause))
                    self.slow.add(channel)
                elif not beat.empty:
                    words = range(beat.low, beat.high + 1)
                    self.dwords[channel] += [beat.data >> 32 * word & 0xFFFF_FFFF for word in words]
                return

    def _see(self, due: bool, takes: bool) -> None:
        """Process the outputs of the cycle that has just ended."""
        dut = self.dut
        if due and int(dut.read__beat__ready.value):
            self._beats.popleft()
        if takes and int(dut.read__request__valid.value):
            request = memory_request(CONFIG).from_bits(int(dut.read__request__payload.value))
            self._read(request)
        if dut.fill.value[0] == 1:
            fill = self._layouts["fill"].from_bits(int(dut.fill.value))
            buffer = self._buffers[fill.channel]
            buffer.append(prefetch_beat(CONFIG).from_bits(fill.beat.as_bits()))
            assert len(buffer) <= CONFIG.prefetch_beats, "more beats than fit"
        if dut.cleared.value[0] == 1:
            cleared = self._layouts["cleared"].from_bits(int(dut.cleared.value))
            self._buffers[cleared.channel].clear()
        if dut.announce.value[0] == 1:
            announce = self._layouts["announce"].from_bits(int(dut.announce.value))
            self.announced.append((announce.channel, announce.put, announce.stamp))
        busy, drained = int(dut.busy.value), int(dut.drained.value)
        self.pending = [bool((busy | ~drained) >> number & 1) for number in range(CONFIG.channels)]

    def _read(self, request: Any) -> None:
        self.reads += 1
        ready = max([self.cycle + self.latency, *(beat[0] + 1 for beat in list(self._beats)[-1:])])
        size, layout = CONFIG.beat_bytes, read_beat(CONFIG)
        start = request.va - request.va % size
        assert start // 4096 == (start + size * request.beats) // 4096, "across 4 KiB"
        if any(request.va in part for part in self.unmapped):
            beat = {"data": 0, "last": 1, "status": MemoryStatus.FAULT}
            self._beats.append((ready, layout.const(beat).as_bits()))
            return
        for number in range(request.beats + 1):
            at = start + size * number
            data = sum(
                self.memory.get(at + 4 * word, 0xDEAD_0000) << 32 * word
                for word in range(CONFIG.beat_dwords)
            )
            bad = any(at in part for part in self.bad)
            status = MemoryStatus.BUS if bad else MemoryStatus.OK
            beat = {"data": data, "last": int(number == request.beats), "status": status}
            self._beats.append((ready + number, layout.const(beat).as_bits()))
