"""Memory clients in Python, cycle by cycle, which check their answers.

Formats are those of `hw/records/memory.py`, packed here by hand.
"""

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from cocotb.triggers import RisingEdge
from cocotb.types import LogicArray

__all__ = [
    "BUS",
    "FAULT",
    "OK",
    "Burst",
    "FaultSink",
    "ReadClient",
    "WriteClient",
    "always",
    "sometimes",
]

OK, BUS, FAULT = 0, 1, 2

Pace = Callable[[], bool]
"""Decides in each cycle whether to proceed."""


def always() -> bool:
    return True


def sometimes(rng: random.Random, share: float) -> Pace:
    """True in a fraction `share` of cycles."""
    return lambda: rng.random() < share


@dataclass
class Burst:
    """A burst and its answer: beats (data, status) of a read, or the status of a write.

    `beats` are (data, strobe) of a write; `cycles` are the cycles of the offer and of every answer.
    """

    va: int
    count: int
    beats: list[tuple[int, int]] = field(default_factory=list)
    physical: bool = False
    asid: int = 0
    atomic: bool = False
    answer: list[tuple[int, int]] = field(default_factory=list)
    cycles: list[int] = field(default_factory=list)
    ended: bool = False


class _Client:
    """A client that offers `todo` one after another, and moves finished bursts to `ended`."""

    def __init__(self, dut: Any, prefix: str, asid_bits: int, pace: Pace) -> None:
        self.dut, self.prefix, self.pace = dut, prefix, pace
        self.asid_bits = asid_bits
        self.todo: deque[Burst] = deque()
        self.waiting: deque[Burst] = deque()
        self.ended: list[Burst] = []
        self.offered: Burst | None = None
        self.cycle = 0
        self._request = self.stream("request")
        for stream in ("request", *self.SOURCES):
            self.stream(stream)[0].value = 0
            self.stream(stream)[2].value = 0
        for stream in self.SINKS:
            self.stream(stream)[1].value = 0

    SOURCES: tuple[str, ...] = ()
    SINKS: tuple[str, ...] = ()

    def stream(self, name: str) -> tuple[Any, Any, Any]:
        """Handles of valid, ready and payload."""
        return tuple(
            getattr(self.dut, f"{self.prefix}__{name}__{part}")
            for part in ("valid", "ready", "payload")
        )

    async def run(self) -> None:
        while True:
            await RisingEdge(self.dut.clk)
            self.cycle += 1
            self.sample()
            self.drive()

    async def finish(self, timeout: int = 50_000) -> list[Burst]:
        """Wait until everything was answered. Returns the bursts since the last call."""
        for _ in range(timeout):
            if not (self.todo or self.waiting or self.offered):
                ended, self.ended = self.ended, []
                return ended
            await RisingEdge(self.dut.clk)
        raise AssertionError(f"{self.prefix}: no answer in {timeout} cycles: {self.waiting}")

    def sample(self) -> None:
        if self.offered and int(self._request[1].value):
            self.waiting.append(self.offered)
            self.offered = None

    def drive(self) -> None:
        if self.offered is None:
            if self.todo and self.pace():
                self.offered = burst = self.todo.popleft()
                burst.cycles.append(self.cycle)
                flags = burst.physical | burst.atomic << 1
                word = burst.va | (burst.count - 1) << 49 | flags << 57
                self._request[2].value = burst.asid | word << self.asid_bits
            self._request[0].value = int(self.offered is not None)

    def end(self) -> None:
        burst = self.waiting.popleft()
        burst.ended = True
        self.ended.append(burst)


class ReadClient(_Client):
    """A client of a `ReadPort`. `keen` decides on `beat.ready`."""

    SINKS = ("beat",)

    def __init__(self, dut: Any, index: int, *, asid_bits: int, width: int, pace: Pace, keen: Pace):
        super().__init__(dut, f"read__{index}", asid_bits, pace)
        self.width, self.keen = width, keen
        self._beat = self.stream("beat")
        self._ready = False

    def sample(self) -> None:
        super().sample()
        if self._ready and int(self._beat[0].value):
            self._take(self._beat[2].value)

    def _take(self, word: LogicArray) -> None:
        assert self.waiting, f"{self.prefix}: an unexpected beat"
        last = int(word[self.width])
        status = int(word[self.width + 2 : self.width + 1])
        data = 0 if status == FAULT else int(word[self.width - 1 : 0])  # else may be undefined
        self.waiting[0].answer.append((data, status))
        self.waiting[0].cycles.append(self.cycle)
        if last:
            self.end()

    def drive(self) -> None:
        super().drive()
        self._ready = self.keen()
        self._beat[1].value = int(self._ready)


class WriteClient(_Client):
    """A client of a `WritePort`. A request is offered when its beats are available."""

    SOURCES = ("beat",)
    SINKS = ("done",)

    def __init__(self, dut: Any, index: int, *, asid_bits: int, width: int, pace: Pace, keen: Pace):
        super().__init__(dut, f"write__{index}", asid_bits, pace)
        self.width, self.keen = width, keen
        self._beat, self._done = self.stream("beat"), self.stream("done")
        self._beats: deque[int] = deque()
        self._sent: deque[int] = deque()
        self._shown = self._ready = False

    def sample(self) -> None:
        super().sample()
        if self._shown and int(self._beat[1].value):
            self._beats.popleft()
            self._shown = False
        if self._ready and int(self._done[0].value):
            assert self.waiting, f"{self.prefix}: done, but of what?"
            burst = self.waiting[0]
            left = sum(one.count for one in list(self.waiting)[1:])
            assert len(self._beats) <= left + (self.offered.count if self.offered else 0), (
                f"{self.prefix}: done before its beats were taken"
            )
            burst.answer.append((0, int(self._done[2].value)))
            burst.cycles.append(self.cycle)
            self.end()

    def drive(self) -> None:
        fresh = self.offered is None
        super().drive()
        if fresh and self.offered:
            for index, (data, strobe) in enumerate(self.offered.beats):
                last = index == self.offered.count - 1
                self._beats.append(
                    data | strobe << self.width | last << (self.width + self.width // 8)
                )
        if not self._shown and self._beats:
            self._shown = True
            self._beat[2].value = self._beats[0]
        self._beat[0].value = int(self._shown)
        self._ready = self.keen()
        self._done[1].value = int(self._ready)


class FaultSink:
    """Accepts reports of faults. `taken`: client, virtual address, access and cause of each."""

    def __init__(self, dut: Any, *, client_bits: int, asid_bits: int, keen: Pace) -> None:
        self.dut, self.keen, self._bits = dut, keen, (client_bits, asid_bits)
        self.taken: list[tuple[int, int, int, int]] = []
        dut.fault__ready.value = 0

    async def run(self) -> None:
        dut = self.dut
        while True:
            await RisingEdge(dut.clk)
            if int(dut.fault__valid.value) and int(dut.fault__ready.value):
                word = int(dut.fault__payload.value)
                client, word = word & (1 << self._bits[0]) - 1, word >> sum(self._bits)
                va, access, fault = word & (1 << 49) - 1, word >> 50 & 3, word >> 52
                self.taken.append((client, va, access, fault))
            dut.fault__ready.value = int(self.keen())
