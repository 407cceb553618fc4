"""Memory of an SM or a core: the interpreter's memory behind its ports."""

from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any

from signalbox.hw.records.memory import MemoryStatus
from signalbox.tb.models.isa import Memory
from signalbox.tb.testbench.clocked import Testbench
from signalbox.tb.testbench.ends import Sink, Source

__all__ = ["CORE_PORTS", "SM_PORTS", "MemoryEnd"]

_PAGE = 4096

CORE_PORTS = ("read_request", "read_beat", "write_request", "write_beat", "write_done")
SM_PORTS = ("read__request", "read__beat", "write__request", "write__beat", "write__done")
"""Streams of the memory side."""


class MemoryEnd:
    """Memory side of the ports. Not based on the servers of the library, as a read returns the
    contents of its cycle, and request and beat of a write come in either order.

    Members
    -------
    memory : finds the memory accessed by a request.
    latency : range of the cycles from a request to its answer.
    eager : fraction of cycles in which requests are accepted, and answers begin.
    bad : by page, number of the beat with a bus error in each burst, modulo the burst's length.
    read, write : sinks of the requests.
    writing : addresses of the writes that have not been answered, oldest first.
    """

    def __init__(
        self, tb: Testbench, width: int, ports: tuple[str, ...], memory: Callable[[Any], Memory]
    ) -> None:
        """`width` : bytes of a beat."""
        self.memory = memory
        self.latency, self.eager = (4, 30), 1.0
        self.bad: dict[int, int] = {}
        self._width = width
        self._random: Random = tb.random
        read, beat, write, data, done = ports
        self.read = Sink(tb, read, self.pace, self._read)
        self._beats = Source(tb, beat, self.pace)
        self.write = Sink(tb, write, self.pace, self._write)
        Sink(tb, data, self.pace, self._take)
        self.writing: deque[int] = deque()
        self._dones = Source(tb, done, self.pace, lambda _: self.writing.popleft())
        self._writes: deque[tuple[Memory, int, int]] = deque()
        self._given: deque[dict[str, int]] = deque()

    def pace(self) -> bool:
        return self.eager >= 1 or self._random.random() < self.eager

    def _read(self, request: dict[str, int]) -> None:
        width, va, beats = self._width, request["va"], request["beats"] + 1
        memory = self.memory(request)
        low, delay = va // width * width, self._random.randint(*self.latency)
        assert va // _PAGE == (low + beats * width - 1) // _PAGE, "crosses 4 KiB"
        status = MemoryStatus(memory.status(va))
        if status is MemoryStatus.FAULT:
            self._beats.put({"last": 1, "status": status}, delay)
            return
        bad = self.bad.get(va // _PAGE)
        for n in range(beats):
            content = memory.read(low + n * width, width)
            beat = {"data": int.from_bytes(content, "little"), "last": n == beats - 1}
            here = MemoryStatus.BUS if bad is not None and n == bad % beats else status
            self._beats.put({**beat, "status": here}, delay)

    def _write(self, request: dict[str, int]) -> None:
        width, beats = self._width, request["beats"] + 1
        low = request["va"] // width * width
        assert low // _PAGE == (low + beats * width - 1) // _PAGE, "crosses 4 KiB"
        self._writes.append((self.memory(request), low, beats))
        self.writing.append(low)
        self._store()

    def _take(self, beat: dict[str, int]) -> None:
        self._given.append(beat)
        self._store()

    def _store(self) -> None:
        """Perform the next write, if its request and its beats are there."""
        if not (self._writes and len(self._given) >= self._writes[0][2]):
            return
        memory, low, beats = self._writes.popleft()
        status = MemoryStatus(memory.status(low))
        for n in range(beats):
            beat = self._given.popleft()
            assert beat["last"] == (n == beats - 1)
            if status is MemoryStatus.OK:
                self._write_beat(memory, low + n * self._width, beat)
        self._dones.put({"status": status}, self._random.randint(*self.latency))

    def _write_beat(self, memory: Memory, va: int, beat: dict[str, int]) -> None:
        content = beat["data"].to_bytes(self._width, "little")
        for n in range(self._width):
            if beat["strobe"] >> n & 1:
                memory.write(va + n, content[n : n + 1])
