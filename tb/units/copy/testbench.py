"""Testbench of the copy engine: host, semaphore unit and memory, all in Python."""

import os
from collections import deque
from typing import Any

from signalbox.hw.config import Config
from signalbox.hw.copy.engine import CopyEngine
from signalbox.hw.records.copy import CopyError
from signalbox.hw.records.memory import MemoryStatus
from signalbox.tb.testbench.clocked import Testbench, component
from signalbox.tb.testbench.contents import Contents
from signalbox.tb.testbench.ends import Sink, Source
from signalbox.tb.testbench.servers import BURST_BEATS, ReadServer, WriteServer
from signalbox.tb.units.copy.model import Copy

__all__ = ["CHUNK_BYTES", "CONFIG", "CopyTestbench", "config"]

NONE, READ_BUS, READ_FAULT, WRITE_BUS, WRITE_FAULT, SEMAPHORE = CopyError
OK, BUS, FAULT = MemoryStatus


def config(width: int) -> Config:
    """The tested configuration with a data width of `width` bits."""
    return Config(data_width=width)


CONFIG = config(int(os.environ.get("COPY_DATA_WIDTH", "128")))

CHUNK_BYTES = BURST_BEATS * CONFIG.beat_bytes
"""Bytes of a whole write burst."""


class CopyTestbench(Testbench):
    """Runs copies. Each copy has its own ASID, so that each access can be assigned to its copy.

    Members
    -------
    memory, reference : contents of memory, and their expected state.
    read, write : servers of both directions.
    queued, accepted, ended : copies before their command is taken, in the engine, and complete.
    released : semaphore operations so far.
    """

    def __init__(
        self,
        dut: Any,
        *,
        share: float = 1.0,
        latency: tuple[int, int] = (1, 20),
        host_share: float | None = None,
    ) -> None:
        """`share` : fraction of cycles in which each stream may transfer; `host_share` : the same
        for commands and completions. `latency` : minimum and maximum cycles of an answer."""
        super().__init__(dut, component(CopyEngine, CONFIG))
        self.memory, self.reference = Contents(), Contents()
        self.accepted: deque[Copy] = deque()
        self.queued: deque[Copy] = deque()
        self.released: list[dict[str, Any]] = []
        self.ended: list[Copy] = []
        pace, self._delay = self.share(share), self.between(*latency)
        host = self.share(share if host_share is None else host_share)
        self.read = ReadServer(self, self.memory, pace, self._delay)
        self.write = WriteServer(self, self.memory, pace, self._delay)
        self._response = Source(self, "semaphore__response", pace)
        Sink(self, "semaphore__request", pace, self._release)
        Sink(self, "port__done", host, self._end)
        self._command = Source(self, "port__command", host, self._accept)

    def submit(self, copy: Copy) -> Copy:
        """Queue a copy. Returns it."""
        self.queued.append(copy)
        self._command.put(copy.command())
        return copy

    async def finish(self, limit: int = 20000) -> None:
        """Run until all submitted copies have ended, and check that the engine is idle."""
        await self.until(lambda: not self.queued and not self.accepted, "all copies end", limit)
        await self.steps(4)
        assert not self.read.beat.pending, "read data was not taken"
        assert not self.write.pending, "writes outstanding after the last copy"
        assert self.get("port__idle")

    @property
    def read_cycles(self) -> list[int]:
        """Cycle of each read beat."""
        return self.read.beat.sent

    @property
    def write_cycles(self) -> list[int]:
        """Cycle of each write beat."""
        return [cycle for cycle, _ in self.write.beat.taken]

    async def step(self) -> None:
        """One cycle. Checks idle and the strobes of transfers."""
        idle = not self.accepted
        read, written = len(self.read.beat.sent), len(self.write.beat.taken)
        await super().step()
        assert self.get("port__idle") == idle, "idle is wrong"
        assert self.get("read_strobe") == len(self.read.beat.sent) - read, "read strobe"
        assert self.get("write_strobe") == len(self.write.beat.taken) - written, "write strobe"

    def _accept(self, _: dict[str, Any]) -> None:
        self.accepted.append(self.queued.popleft())

    def _release(self, request: dict[str, Any]) -> None:
        """Answer as the semaphore unit: the request must be for the oldest copy, after all its
        bytes."""
        copy = self.accepted[0]
        assert request == expected_release(copy), f"{request} for {copy}"
        if copy.transfer:
            self._check_bytes(copy)
        self.released.append(request)
        self._response.put({"passed": 1, "error": copy.refuse}, self._delay())

    def _end(self, done: dict[str, Any]) -> None:
        copy = self.accepted.popleft()
        copy.error, copy.va = done["error"], done["va"]
        for name in ("channel", "subchannel", "data"):
            assert done[name] == getattr(copy, name), f"{name} of {copy}"
        self.ended.append(copy)
        if copy.error in {NONE, SEMAPHORE}:
            copy.apply(self.reference)
            self._check_bytes(copy)

    def _check_bytes(self, copy: Copy) -> None:
        """Check that every byte of the destination is that of the source, as remapped."""
        for source, target in copy.spans():
            content = self.memory.read(copy.source_space, source, copy.source_bytes)
            found = self.memory.read(copy.target_space, target, copy.target_bytes)
            wanted = copy.line(content, found)
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
        failing = [
            one for one in self.memory.failing if not one.write and one.space == copy.source_space
        ]
        if any(one.status is FAULT for one in failing):
            return max(0, low - copy.src)
        start = max(low, min(one.addresses.start for one in failing))
        return max(0, start // CONFIG.beat_bytes * CONFIG.beat_bytes - copy.src)

    @staticmethod
    def chunk(target: int) -> int:
        return target // CHUNK_BYTES

    def expected_error(self, copy: Copy) -> tuple[CopyError, int]:
        """First failure in byte order; within the bytes of a write burst, reads come first."""
        failures = []
        sides = [
            (self.read, copy.source_space, copy.src, (READ_BUS, READ_FAULT)),
            (self.write, copy.target_space, copy.dst, (WRITE_BUS, WRITE_FAULT)),
        ]
        for server, space, start, codes in sides:
            for burst in server.bursts:
                if burst.space == space and burst.status is not OK:
                    chunk = self.chunk(copy.dst + burst.va - start)
                    code = codes[burst.status is not BUS]
                    failures.append((chunk, server is self.write, burst.va, code))
        _, _, va, code = min(failures, key=lambda failure: failure[:3])
        return code, va


def expected_release(copy: Copy) -> dict[str, Any]:
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
