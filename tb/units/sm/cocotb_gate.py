"""Every request of a core gets the ASID of its kernel row, and nothing else changes (ASID-1)."""

import os
from random import Random
from typing import Any

import cocotb
from cocotb.triggers import ReadOnly, RisingEdge

from signalbox.hw.config import CONFIGS
from signalbox.hw.sm.memory_gate import MemoryGate
from signalbox.tb.testbench.goals import Rounds
from signalbox.tb.testbench.reset import reset

LIMIT = {"timeout_time": 2, "timeout_unit": "ms"}

CONFIG = CONFIGS[os.environ.get("CONFIG", "default")]
REQUESTS = {"core__read_request": "read__request", "core__write_request": "write__request"}
PASSED = {
    "read__beat": "core__read_beat",
    "core__write_beat": "write__beat",
    "write__done": "core__write_done",
}


class Streams:
    """Offers random words on some streams and accepts them on others."""

    def __init__(self, dut: Any) -> None:
        self.dut, self.numbers = dut, Random(int(os.environ["COCOTB_RANDOM_SEED"]))
        members = MemoryGate(CONFIG).signature.members
        core = members["core"].signature.members
        self.given = core["read_request"].signature.members["payload"].shape
        read = members["read"].signature.members["request"].signature
        self.taken = read.members["payload"].shape
        self.word = members["kernel"].shape
        self.spaces: dict[int, int] = {}
        self.inside = {name: [] for name in (*REQUESTS, *PASSED)}
        self.offers: dict[str, int | None] = dict.fromkeys(self.inside)
        self.counts = dict.fromkeys(self.inside, 0)

    async def begin(self) -> None:
        for name, other in (REQUESTS | PASSED).items():
            for signal in (f"{name}__valid", f"{name}__payload", f"{other}__ready"):
                getattr(self.dut, signal).value = 0
        self.dut.kernel.value = 0
        await reset(self.dut)
        for row in range(CONFIG.rows):
            await self.describe(row)

    async def describe(self, row: int) -> None:
        """Send words of a row, which are random except for the ASID."""
        self.spaces[row] = self.numbers.randrange(CONFIG.asids)
        for word in range(10):
            value = self.numbers.getrandbits(32)
            if word == 1:
                value = value & ~(0x3FF << 19) | self.spaces[row] << 19
            fields = {"valid": 1, "row": row, "word": word, "data": value}
            self.dut.kernel.value = self.word.const(fields).as_bits()
            await RisingEdge(self.dut.clk)
        self.dut.kernel.value = 0

    def word_of(self, name: str) -> int:
        """A random payload."""
        if name not in REQUESTS:
            width = len(getattr(self.dut, f"{name}__payload"))
            return self.numbers.getrandbits(width)
        row = self.numbers.randrange(CONFIG.rows)
        beats, va = self.numbers.getrandbits(8), self.numbers.getrandbits(49)
        return self.given.const({"row": row, "va": va, "beats": beats}).as_bits()

    async def rest(self) -> None:
        """Step until all offers have been accepted."""
        for _ in range(10):
            await self.step(1.0, more=False)
        assert not any(self.inside.values()) and set(self.offers.values()) == {None}

    async def step(self, share: float, more: bool = True) -> None:
        streams = REQUESTS | PASSED
        for name, other in streams.items():
            if more and self.offers[name] is None and self.numbers.random() < share:
                self.offers[name] = self.word_of(name)
                getattr(self.dut, f"{name}__payload").value = self.offers[name]
            getattr(self.dut, f"{name}__valid").value = int(self.offers[name] is not None)
            getattr(self.dut, f"{other}__ready").value = int(self.numbers.random() < share)
        await ReadOnly()
        for name, other in streams.items():
            if self.offers[name] is not None and getattr(self.dut, f"{name}__ready").value == 1:
                self.inside[name].append(self.offers[name])
                self.offers[name] = None
            parts = ("valid", "ready", "payload")
            valid, ready, payload = (getattr(self.dut, f"{other}__{one}").value for one in parts)
            if valid == 1 and ready == 1:
                self.check(name, self.inside[name].pop(0), int(payload))
        await RisingEdge(self.dut.clk)

    def check(self, name: str, given: int, taken: int) -> None:
        self.counts[name] += 1
        if name not in REQUESTS:
            assert taken == given, name
            return
        core, request = self.given.from_bits(given), self.taken.from_bits(taken)
        assert (request.va, request.beats) == (core.va, core.beats)
        assert request.asid == self.spaces[core.row]
        assert not request.physical and not request.atomic


@cocotb.test(**LIMIT)
async def rows_name_spaces(dut):
    """Requests get their row's ASID, in order and without loss, at any pace, also after new
    words."""
    streams = Streams(dut)
    await streams.begin()
    counts, rounds = streams.counts, Rounds(6)
    while rounds.more(all(counts[name] > 100 for name in REQUESTS | PASSED), counts):
        share = streams.numbers.choice([0.2, 0.5, 0.9])
        for _ in range(200):
            await streams.step(share)
        await streams.rest()
        await streams.describe(streams.numbers.randrange(CONFIG.rows))


@cocotb.test(**LIMIT)
async def rate(dut):
    """One request of each kind passes per cycle, one cycle later."""
    streams = Streams(dut)
    await streams.begin()
    for _ in range(200):
        await streams.step(1.0)
    assert all(streams.counts[name] == 199 for name in REQUESTS)
    assert all(streams.counts[name] == 200 for name in PASSED)
