"""Testbench of the copy engine: host, semaphore unit and memory, all in Python."""

import os
import random
from collections import deque
from collections.abc import Callable
from typing import Any

import cocotb
from cocotb.triggers import RisingEdge

from signalbox.hw.config import Config
from signalbox.hw.records.copy import copy_command, copy_done
from signalbox.hw.records.semaphore import semaphore_request, semaphore_response
from signalbox.tb.testbench.memory import (
    BURST_BEATS,
    BUS,
    FAULT,
    OK,
    Memory,
    ReadMemory,
    WriteMemory,
)
from signalbox.tb.testbench.reset import reset
from signalbox.tb.testbench.streams import Sink, Source
from signalbox.tb.units.copy.model import Copy

__all__ = ["CONFIG", "Bench", "config"]

NONE, READ_BUS, READ_FAULT, WRITE_BUS, WRITE_FAULT, SEMAPHORE = range(6)


def config(width: int) -> Config:
    """The tested configuration with a data width of `width` bits."""
    return Config(data_width=width)


CONFIG = config(int(os.environ.get("COPY_DATA_WIDTH", "128")))

CHUNK_BYTES = BURST_BEATS * CONFIG.beat_bytes
"""Bytes of a whole write burst."""


class Bench:
    """Runs copies. Each copy has its own ASID, so that each access can be assigned to its copy.

    `share`: fraction of cycles in which each stream may transfer. Latencies are inclusive ranges in
    cycles.
    """

    def __init__(
        self,
        dut: Any,
        *,
        share: float = 1.0,
        latency: tuple[int, int] = (1, 20),
        host_share: float | None = None,
    ) -> None:
        self.dut = dut
        self.rng = rng = random.Random(cocotb.RANDOM_SEED)
        self.memory, self.reference = Memory(), Memory()

        def pace_of(part: float) -> Callable[[], bool]:
            return (lambda: True) if part >= 1 else (lambda: rng.random() < part)

        def delay() -> int:
            return rng.randint(*latency)

        pace = pace_of(share)
        host = pace_of(share if host_share is None else host_share)
        self.read = ReadMemory(dut, CONFIG, self.memory, pace, delay)
        self.write = WriteMemory(dut, CONFIG, self.memory, pace, delay)
        self.command = Source(dut, "port__command", copy_command(CONFIG), host)
        self.done = Sink(dut, "port__done", copy_done(CONFIG), host)
        self.request = Sink(dut, "semaphore__request", semaphore_request(CONFIG), pace)
        self.response = Source(dut, "semaphore__response", semaphore_response(), pace)
        self.delay = delay
        self.accepted: deque[Copy] = deque()
        self.queued: deque[Copy] = deque()
        self.released: list[dict[str, int]] = []
        self.ended: list[Copy] = []
        self.cycle = 0

    async def start(self) -> None:
        self.dut.port__stop.value = 0
        await reset(self.dut)
        await RisingEdge(self.dut.clk)

    def submit(self, copy: Copy, *, after: int = 0) -> Copy:
        self.queued.append(copy)
        self.command.put(self.cycle + after, copy.command)
        return copy

    async def finish(self, limit: int = 20000) -> None:
        """Run until all submitted copies have ended, and check that the engine is idle."""
        for _ in range(limit):
            if not self.queued and not self.accepted:
                break
            await self.step()
        assert not self.queued and not self.accepted, f"not finished in {limit} cycles"
        for _ in range(4):
            await self.step()
        assert not self.read.pending, "read data was not taken"
        assert not self.write.pending, "writes outstanding after the last copy"
        assert int(self.dut.port__idle.value)

    async def step(self) -> None:
        await RisingEdge(self.dut.clk)
        self.cycle += 1
        assert int(self.dut.port__idle.value) == (not self.accepted), "idle is wrong"
        beats = len(self.read.moved), len(self.write.moved)
        strobes = int(self.dut.read_strobe.value), int(self.dut.write_strobe.value)
        self.read.step(self.cycle)
        self.write.step(self.cycle)
        assert strobes[0] == len(self.read.moved) - beats[0], "read strobe"
        assert strobes[1] == len(self.write.moved) - beats[1], "write strobe"
        self._release()
        done = self.done.step()
        if done is not None:
            self._end(done)
        if self.command.step(self.cycle):
            self.accepted.append(self.queued.popleft())

    def _release(self) -> None:
        """Serve the semaphore unit's port: the request must be for the oldest copy, after all its
        bytes."""
        self.response.step(self.cycle)
        request = self.request.step()
        if request is None:
            return
        copy = self.accepted[0]
        assert request == expected_release(copy), f"{request} for {copy}"
        if copy.transfer:
            self._check_bytes(copy)
        self.released.append(request)
        self.response.put(self.cycle + self.delay(), lambda: {"passed": 1, "error": copy.refuse})

    def _end(self, done: dict[str, int]) -> None:
        copy = self.accepted.popleft()
        copy.error, copy.va = done["error"], done["va"]
        for name in ("channel", "subchannel", "data"):
            assert done[name] == getattr(copy, name), f"{name} of {copy}"
        self.ended.append(copy)
        if copy.error in {NONE, SEMAPHORE}:
            copy.apply(self.reference)
            self._check_bytes(copy)

    def _check_bytes(self, copy: Copy) -> None:
        """Check that every byte of the destination equals the source."""
        for source, target in copy.spans():
            wanted = self.memory.read(copy.source_space, source, copy.length)
            found = self.memory.read(copy.target_space, target, copy.length)
            assert found == wanted, f"{first_difference(found, wanted)} of {copy}"

    def check_memory(self) -> None:
        """Check that only the destinations have changed, in all pages."""
        for key in self.memory.pages.keys() | self.reference.pages.keys():
            found, wanted = (bytes(one.page(*key)) for one in (self.memory, self.reference))
            assert found == wanted, f"page {key}: {first_difference(found, wanted)}"

    def check_failed(self, copy: Copy) -> None:
        """Check a failed linear copy: error and address are correct, and no byte is wrong.

        Copies the result into the reference's memory, so that `check_memory` remains exact
        elsewhere.
        """
        error, va = self.expected_error(copy)
        assert (copy.error, copy.va) == (error, va), f"expected {error} at {va:#x}: {copy}"
        wanted = self.memory.read(copy.source_space, copy.src, copy.length)
        found = self.memory.read(copy.target_space, copy.dst, copy.length)
        old = self.reference.read(copy.target_space, copy.dst, copy.length)
        for index in range(copy.length):
            assert found[index] in {wanted[index], old[index]}, f"byte {index} of {copy}"
        if error in {READ_BUS, READ_FAULT}:
            bad = self.first_bad_byte(copy, va)
            assert found[bad:] == old[bad:], f"written after the failed read of {copy}"
            whole = self.chunk(copy.dst + va - copy.src) * CHUNK_BYTES - copy.dst
            if whole > 0:
                assert found[:whole] == wanted[:whole], f"not written before {va:#x} of {copy}"
        self.reference.write(copy.target_space, copy.dst, found)

    def first_bad_byte(self, copy: Copy, va: int) -> int:
        """Offset in the copy of the first byte that could not be read in the burst at `va`."""
        low = va // CONFIG.beat_bytes * CONFIG.beat_bytes
        bads = [bad for bad in self.read.bad if bad.space == copy.source_space]
        if any(bad.status == FAULT for bad in bads):
            return max(0, low - copy.src)
        start = max(low, min(bad.addresses.start for bad in bads))
        return max(0, start // CONFIG.beat_bytes * CONFIG.beat_bytes - copy.src)

    @staticmethod
    def chunk(target: int) -> int:
        return target // CHUNK_BYTES

    def expected_error(self, copy: Copy) -> tuple[int, int]:
        """First failure in byte order; within a write burst, reads come first."""
        failures = []
        sides = [
            (self.read, copy.source_space, copy.src, (READ_BUS, READ_FAULT)),
            (self.write, copy.target_space, copy.dst, (WRITE_BUS, WRITE_FAULT)),
        ]
        for port, space, start, codes in sides:
            for burst in port.log:
                if burst.space == space and burst.status != OK:
                    chunk = self.chunk(copy.dst + burst.va - start)
                    code = codes[burst.status != BUS]
                    failures.append((chunk, port is self.write, burst.va, code))
        _, _, va, code = min(failures)
        return code, va


def expected_release(copy: Copy) -> dict[str, int]:
    """The semaphore operation requested by a copy."""
    command = {"wide": 0, "payload": 0, "reduction": 0, **copy.semaphore}
    reduces = command.get("reduction_enable", 0)
    return {
        "asid": copy.asid,
        "va": command["semaphore_va"],
        "operation": 6 if reduces else 1,
        "reduction": command["reduction"],
        "unsigned": command.get("reduction_unsigned", 0),
        "wide": command["wide"],
        "timestamp": int(command["semaphore"] == 2),
        "payload": command["payload"],
    }


def first_difference(found: bytes, wanted: bytes) -> str:
    index = next(i for i, pair in enumerate(zip(found, wanted, strict=True)) if pair[0] != pair[1])
    return f"byte {index} is {found[index]:#x}, not {wanted[index]:#x},"
