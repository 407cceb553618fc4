"""Memory at the read and write ports of a copy engine, cycle by cycle."""

import functools
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from amaranth.lib import data

from signalbox.hw.config import VA_BITS, Config
from signalbox.hw.records.memory import MemoryStatus, memory_request, read_beat, write_beat
from signalbox.tb.testbench.streams import Sink, Source

__all__ = ["BURST_BEATS", "Bad", "Memory", "ReadMemory", "WriteMemory"]

PAGE = 4096

BURST_BEATS = 16
"""Writes are cut at multiples of this; a read may have one more beat."""

OK, BUS, FAULT = (int(status.value) for status in MemoryStatus)

Space = tuple[int, int]
"""ASID, and whether addresses are physical."""


class Memory:
    """Bytes of every address space. Unwritten pages contain noise derived from their number."""

    def __init__(self) -> None:
        self.pages: dict[tuple[Space, int], bytearray] = {}

    @staticmethod
    @functools.lru_cache(maxsize=512)
    def noise(space: Space, page: int) -> bytes:
        return random.Random(f"{space} {page}").randbytes(PAGE)

    def page(self, space: Space, page: int) -> bytes | bytearray:
        return self.pages.get((space, page)) or self.noise(space, page)

    def read(self, space: Space, va: int, size: int) -> bytes:
        """`size` bytes from `va`, which wraps at the end of the space."""
        found = bytearray()
        while len(found) < size:
            page, offset = divmod((va + len(found)) % (1 << VA_BITS), PAGE)
            found += self.page(space, page)[offset : offset + size - len(found)]
        return bytes(found)

    def write(self, space: Space, va: int, content: bytes) -> None:
        for index, byte in enumerate(content):
            page, offset = divmod((va + index) % (1 << VA_BITS), PAGE)
            key = (space, page)
            if key not in self.pages:
                self.pages[key] = bytearray(self.noise(space, page))
            self.pages[key][offset] = byte


@dataclass(frozen=True)
class Bad:
    """Addresses of one space at which accesses fail with `status`."""

    space: Space
    status: int
    addresses: range
    write: bool

    def hits(self, space: Space, low: int, high: int) -> bool:
        mine = space == self.space
        return mine and low < self.addresses.stop and high > self.addresses.start


@dataclass
class Burst:
    """A burst requested by the engine, and its status."""

    space: Space
    va: int
    beats: int
    status: int = OK


class _Port:
    """Common part of both directions: rules for requests, and bad addresses."""

    def __init__(self, dut: Any, config: Config, memory: Memory, name: str, pace) -> None:
        self.bytes = config.beat_bytes
        self.memory = memory
        self.request = Sink(dut, f"{name}__request", memory_request(config), pace)
        self.bad: list[Bad] = []
        self.log: list[Burst] = []

    def admit(self, limit: int) -> Burst | None:
        """The request of this cycle, checked; None if there is none."""
        got = self.request.step()
        if got is None:
            return None
        burst = Burst((got["asid"], got["physical"]), got["va"], got["beats"] + 1)
        low = self.base(burst)
        assert burst.beats <= limit, f"burst of {burst.beats} beats"
        assert low // PAGE == (low + burst.beats * self.bytes - 1) // PAGE, "burst crosses 4 KiB"
        self.log.append(burst)
        return burst

    def base(self, burst: Burst) -> int:
        return burst.va // self.bytes * self.bytes

    def status(self, burst: Burst, low: int, high: int, *, write: bool) -> int:
        hits = [
            bad.status
            for bad in self.bad
            if bad.write == write and bad.hits(burst.space, low, high)
        ]
        return max(hits, default=OK)


class ReadMemory(_Port):
    """Answers reads in order after `latency()` cycles; a faulting burst with a single beat."""

    def __init__(
        self,
        dut: Any,
        config: Config,
        memory: Memory,
        pace,
        latency,
        limit: int = BURST_BEATS + 1,
        name: str = "read",
    ) -> None:
        super().__init__(dut, config, memory, name, pace)
        self.limit = limit
        self.beat = Source(dut, f"{name}__beat", read_beat(config), pace)
        self.latency: Callable[[], int] = latency
        self.moved: list[int] = []
        self.pending = 0
        """Beats that have not been taken yet."""

    def step(self, cycle: int) -> None:
        if self.beat.step(cycle):
            self.moved.append(cycle)
            self.pending -= 1
        burst = self.admit(self.limit)
        if burst is None:
            return
        low = self.base(burst)
        due = cycle + self.latency()
        size = burst.beats * self.bytes
        burst.status = self.status(burst, low, low + size, write=False)
        count = 1 if burst.status == FAULT else burst.beats
        self.pending += count
        for index in range(count):
            self.beat.put(due, self._answer(burst, low + index * self.bytes, index == count - 1))

    def _answer(self, burst: Burst, va: int, last: bool) -> Callable[[], dict[str, int]]:
        def make() -> dict[str, int]:
            status = self.status(burst, va, va + self.bytes, write=False)
            if burst.status == FAULT:
                status = FAULT
            content = self.memory.read(burst.space, va, self.bytes)
            if status != OK:
                content = bytes(255 - byte for byte in content)
            return {"data": int.from_bytes(content, "little"), "last": last, "status": status}

        return make


class WriteMemory(_Port):
    """Accepts write bursts. Bytes become visible with the response, `latency()` cycles after the
    last beat.

    Checks that the data of an accepted request comes without gaps. With `early`, data may be
    offered before its request, but is not accepted earlier.
    """

    def __init__(
        self,
        dut: Any,
        config: Config,
        memory: Memory,
        pace,
        latency,
        name: str = "write",
        early: bool = False,
    ) -> None:
        super().__init__(dut, config, memory, name, pace)

        def wanted() -> bool:
            owed = sum(burst.beats for _, burst in self.open) - len(self.content)
            return pace() and owed > self.beat.open  # one beat may be taken in this cycle

        take = wanted if early else pace
        self.beat = Sink(dut, f"{name}__beat", write_beat(config), take)
        done = data.StructLayout({"status": MemoryStatus})
        self.done = Source(dut, f"{name}__done", done, pace)
        self.latency: Callable[[], int] = latency
        self.moved: list[int] = []
        self.open: deque[tuple[int, Burst]] = deque()
        self.content: list[tuple[int, int]] = []
        self.pending = 0
        """Bursts without a response."""

    def step(self, cycle: int) -> None:
        self.pending -= self.done.step(cycle)
        beat = self.beat.step()
        if beat is not None:
            self._take(cycle, beat)
        elif self.open and self.open[0][0] < cycle - 1:
            assert self.beat.offered, "accepted write burst without its data at hand"
        burst = self.admit(BURST_BEATS)
        if burst is not None:
            self.open.append((cycle, burst))
            self.pending += 1

    def _take(self, cycle: int, beat: dict[str, int]) -> None:
        assert self.open, "write beat without an accepted request"
        self.moved.append(cycle)
        self.content.append((beat["data"], beat["strobe"]))
        burst = self.open[0][1]
        assert beat["last"] == (len(self.content) == burst.beats), "last on the wrong beat"
        if beat["last"]:
            self.open.popleft()
            self.done.put(cycle + self.latency(), self._finish(burst, self.content))
            self.content = []

    def _finish(self, burst: Burst, content: list[tuple[int, int]]) -> Callable[[], dict[str, int]]:
        def make() -> dict[str, int]:
            low = self.base(burst)
            burst.status = self.status(burst, low, low + burst.beats * self.bytes, write=True)
            if burst.status == OK:
                for index, (word, strobe) in enumerate(content):
                    self._store(burst.space, low + index * self.bytes, word, strobe)
            return {"status": burst.status}

        return make

    def _store(self, space: Space, va: int, word: int, strobe: int) -> None:
        lanes = word.to_bytes(self.bytes, "little")
        if strobe == (1 << self.bytes) - 1:
            self.memory.write(space, va, lanes)
            return
        for lane in range(self.bytes):
            if strobe >> lane & 1:
                self.memory.write(space, va + lane, lanes[lane : lane + 1])
