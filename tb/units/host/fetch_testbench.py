"""Testbench of the fetch unit: memory, prefetch buffer and method pipeline, all in Python."""

import os
from collections import deque
from typing import Any

from cocotb.triggers import RisingEdge

from signalbox.hw.config import Config
from signalbox.hw.errors import Cause
from signalbox.hw.host.fetch.fetch_unit import FetchUnit
from signalbox.hw.methods import GpEntry, pack
from signalbox.hw.records.memory import MemoryStatus
from signalbox.hw.registers import channel_word
from signalbox.tb.testbench.clocked import Testbench, component
from signalbox.tb.testbench.contents import Contents, Failing
from signalbox.tb.testbench.ends import Source
from signalbox.tb.testbench.masks import mask
from signalbox.tb.testbench.servers import ReadServer
from signalbox.tb.testbench.strobe import Strobe

__all__ = ["CONFIG", "CONFIGS", "FetchTestbench", "Ring"]

CONFIGS = {
    "default": Config(),
    "narrow": Config(channels=3, data_width=64, prefetch_beats=8, semaphores=16, counters=4),
}

CONFIG = CONFIGS[os.environ.get("SIZE", "default")]

SPACE = (0, 0)
"""Address space of all channels: virtual addresses of ASID 0."""


class Ring:
    """Ring, USERD and segments of one channel; dword `n` of its segments is `first` + n."""

    def __init__(self, tb: "FetchTestbench", channel: int) -> None:
        self.tb, self.channel = tb, channel
        self.base, self.userd = 0x1_0000 * (1 + channel), 0x1_0000 * (1 + channel) + 0x2000
        self.arena = self.base + 0x4000
        self.put = 0

    async def open(self, limit2: int = 5) -> None:
        """Write the channel's registers, start it with an empty ring, and enable it."""
        tb = self.tb
        settings = {"GP_BASE": self.base, "GP_BASE_HI": limit2 << 16, "USERD": self.userd}
        for name, value in {**settings, "USERD_HI": 0, "CONFIG": 0}.items():
            tb.setting.send(channel=self.channel, word=channel_word(name), value=value)
            await tb.step()
        tb.restart.put({"channel": self.channel})
        await tb.until(lambda: not tb.restart.pending, "the channel starts")
        tb.enabled.add(self.channel)
        self.put = 0

    def segment(
        self, first: int, length: int, at: int | None = None, more: int = 0, *, sync: bool = False
    ) -> None:
        """Write `length` dwords, from `first` on, to memory, and an entry to the ring.

        Parameters
        ----------
        at : address of the first dword; default: behind the previous segment.
        more : number of further dwords in the entry.
        sync : SYNC is WAIT.
        """
        if at is None:
            at, self.arena = self.arena, self.arena + 4 * length
        self._write(at, *range(first, first + length))
        entry = pack(GpEntry, address=at // 4, length=length + more, sync_wait=sync)
        self._write(self.base + 8 * self.put, entry & 0xFFFF_FFFF, entry >> 32)
        self.put = (self.put + 1) % 32

    def write_put(self) -> None:
        """Write GP_PUT."""
        self._write(self.userd + 0x8C, self.put)

    def kick(self) -> None:
        """Write GP_PUT and ring the doorbell in the next cycle."""
        self.write_put()
        self.tb.doorbell.put({"channel": self.channel})

    def _write(self, at: int, *dwords: int) -> None:
        content = b"".join(dword.to_bytes(4, "little") for dword in dwords)
        self.tb.memory.contents.write(SPACE, at, content)


class FetchTestbench(Testbench):
    """Takes the fetched data like the prefetch buffer and the method pipeline.

    Members
    -------
    memory : server of the memory port; takes requests only occasionally while it `stalls`.
    latency : cycles from a request to its first beat.
    setting, unwritten, restart, doorbell : the unit's inputs.
    enabled : channels that may fetch.
    slow : channels whose beats are currently not taken.
    executing : channels that have not finished the dwords taken last.
    dwords, causes : dwords and causes taken, per channel. A cause adds its channel to `slow`.
    pending : STATUS.PENDING of each channel in the cycle that has ended.
    announced : (channel, put, stamp).
    """

    timeout = 5000

    def __init__(self, dut: Any, latency: int = 10) -> None:
        super().__init__(dut, component(FetchUnit, CONFIG))
        channels = range(CONFIG.channels)
        self.latency, self.stalls = latency, False
        self.memory = ReadServer(self, Contents(), latency=lambda: self.latency)
        self.memory.request.pace = lambda: not self.stalls or self.random.randrange(8) == 0
        self.setting = Strobe(self, "control__setting")
        self.unwritten = Strobe(self, "userd__failed")
        self.restart, self.doorbell = Source(self, "restart"), Source(self, "doorbell")
        self.enabled: set[int] = set()
        self.slow: set[int] = set()
        self.executing: set[int] = set()
        self.dwords: list[list[int]] = [[] for _ in channels]
        self.causes: list[list[Cause]] = [[] for _ in channels]
        self.pending = [False for _ in channels]
        self.announced: list[tuple[int, int, int]] = []
        self._popped = Strobe(self, "beats__popped")
        self._buffers: list[deque[dict[str, Any]]] = [deque() for _ in channels]

    async def again(self, latency: int = 10) -> "FetchTestbench":
        """A new testbench after another reset, within the same test."""
        tb = FetchTestbench(self.dut, latency)
        self.dut.rst.value = 1
        for _ in range(3):
            await RisingEdge(self.dut.clk)
        self.dut.rst.value = 0
        return tb

    async def step(self) -> None:
        """One cycle."""
        drained = mask(
            channel
            for channel, buffer in enumerate(self._buffers)
            if not buffer and channel not in self.executing
        )
        self.drive(control__enabled=mask(self.enabled), state__drained=drained)
        self._pop()
        await super().step()
        self._see(drained)

    async def until_rest(self, *channels: int) -> None:
        """Step until the channels are no longer pending, and check that nothing of them remains."""
        await self.step()
        await self.until(lambda: not any(self.pending[number] for number in channels), "rest")
        assert not any(self._buffers[number] for number in channels)

    @property
    def reads(self) -> int:
        """Number of requested bursts."""
        return len(self.memory.bursts)

    def asked(self, at: int) -> bool:
        """Whether a burst was requested that begins at this address."""
        return any(burst.va == at for burst in self.memory.bursts)

    def fail(self, addresses: range, status: MemoryStatus) -> None:
        """Let reads of these addresses fail."""
        self.memory.contents.failing.append(Failing(SPACE, addresses, status, write=False))

    def held(self, channel: int) -> int:
        """Number of beats in the prefetch buffer."""
        return len(self._buffers[channel])

    def _pop(self) -> None:
        """Take a beat of the first channel that has one and is not slow."""
        for channel, buffer in enumerate(self._buffers):
            if buffer and channel not in self.slow:
                beat = buffer.popleft()
                self._popped.send(channel=channel)
                if beat["cause"] is not Cause.NONE:
                    self.causes[channel].append(beat["cause"])
                    self.slow.add(channel)
                elif not beat["empty"]:
                    words = range(beat["low"], beat["high"] + 1)
                    self.dwords[channel] += [
                        beat["data"] >> 32 * word & 0xFFFF_FFFF for word in words
                    ]
                return

    def _see(self, drained: int) -> None:
        """Process the outputs of the cycle that has just ended."""
        fill, cleared = self.get("beats__fill"), self.get("start__cleared")
        announce = self.get("doorbells__announce")
        if fill["valid"]:
            buffer = self._buffers[fill["channel"]]
            buffer.append(fill["beat"])
            assert len(buffer) <= CONFIG.prefetch_beats, "more beats than fit"
        if cleared["valid"]:
            self._buffers[cleared["channel"]].clear()
        if announce["valid"]:
            self.announced.append((announce["channel"], announce["put"], announce["stamp"]))
        pending = self.get("outstanding__busy") | ~drained
        self.pending = [bool(pending >> number & 1) for number in range(CONFIG.channels)]
