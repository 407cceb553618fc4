"""Memory at the semaphore unit's ports: random latency and back-pressure, random errors."""

from collections import defaultdict
from typing import Any

from signalbox.hw.config import Config
from signalbox.hw.records.memory import MemoryStatus
from signalbox.tb.testbench.clocked import Testbench
from signalbox.tb.testbench.ends import Sink, Source

__all__ = ["Memory"]


class Memory:
    """Serves both memory ports and checks their transfers.

    Does not use the servers of the library, as a write beat may be taken before its request, and
    accesses fail at random, not by address.

    Members
    -------
    content : bytes by (ASID, address).
    latency : maximum number of cycles between request and answer; 0 answers in the next cycle.
    busy : fraction of cycles in which ready is 0.
    failing : fraction of accesses that fail.
    failure : failed access of the current operation, "BUS" or "FAULT"; cleared by the reader.
    writes : completed writes (address of the first byte, bytes); cleared by the reader.
    """

    def __init__(self, tb: Testbench, config: Config) -> None:
        self.content: dict[tuple[int, int], int] = defaultdict(int)
        self.latency, self.busy, self.failing = 0, 0.0, 0.0
        self.failure: str | None = None
        self.writes: list[tuple[int, bytes]] = []
        self._random, self._bytes = tb.random, config.beat_bytes
        self._request: dict[str, Any] | None = None
        self._beat: dict[str, Any] | None = None
        Sink(tb, "memory_read__request", self._ready, self._read)
        Sink(tb, "memory_write__request", self._ready, self._write)
        Sink(tb, "memory_write__beat", self._ready, self._take)
        self._read_beat = Source(tb, "memory_read__beat")
        self._done = Source(tb, "memory_write__done")

    def _ready(self) -> bool:
        return self._random.random() >= self.busy

    def _delay(self) -> int:
        return 1 + self._random.randint(0, self.latency)

    def _check(self, request: dict[str, Any]) -> None:
        assert request["beats"] == 0 and request["physical"] == 0, request
        assert request["va"] % self._bytes == 0, request

    def _status(self) -> MemoryStatus:
        if self._random.random() >= self.failing:
            return MemoryStatus.OK
        status = self._random.choice([MemoryStatus.BUS, MemoryStatus.FAULT])
        self.failure = status.name
        return status

    def _read(self, request: dict[str, Any]) -> None:
        self._check(request)
        self._read_beat.put(lambda: self._answer(request), self._delay())

    def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        status = self._status()
        asid, va = request["asid"], request["va"]
        content = bytes(self.content[asid, va + lane] for lane in range(self._bytes))
        if status is not MemoryStatus.OK:
            content = self._random.randbytes(self._bytes)
        return {"data": int.from_bytes(content, "little"), "last": 1, "status": status}

    def _write(self, request: dict[str, Any]) -> None:
        self._check(request)
        assert self._request is None, "two writes at once"
        self._request = request
        self._queue_done()

    def _take(self, beat: dict[str, Any]) -> None:
        assert self._beat is None and beat["last"], beat
        self._beat = beat
        self._queue_done()

    def _queue_done(self) -> None:
        """Queue the response once both request and beat were taken."""
        if self._request is not None and self._beat is not None:
            request, beat = self._request, self._beat
            self._done.put(lambda: self._finish(request, beat), self._delay())

    def _finish(self, request: dict[str, Any], beat: dict[str, Any]) -> dict[str, Any]:
        status = self._status()
        if status is MemoryStatus.OK:
            self._store(request, beat)
        self._request = self._beat = None
        return {"status": status}

    def _store(self, request: dict[str, Any], beat: dict[str, Any]) -> None:
        content = beat["data"].to_bytes(self._bytes, "little")
        lanes = [lane for lane in range(self._bytes) if beat["strobe"] >> lane & 1]
        assert lanes == list(range(lanes[0], lanes[0] + len(lanes))), "the strobes have a gap"
        for lane in lanes:
            self.content[request["asid"], request["va"] + lane] = content[lane]
        self.writes.append((request["va"] + lanes[0], bytes(content[lane] for lane in lanes)))
