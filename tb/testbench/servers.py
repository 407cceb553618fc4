"""Servers of memory ports (`ReadPort`, `WritePort`): memory as seen by one client."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from signalbox.hw.records.memory import MemoryStatus
from signalbox.tb.testbench.clocked import Participant, Testbench
from signalbox.tb.testbench.contents import PAGE, Contents, Space
from signalbox.tb.testbench.ends import Pace, Sink, Source, always

__all__ = ["BURST_BEATS", "Burst", "Latency", "ReadServer", "WriteServer"]

BURST_BEATS = 16
"""Maximum beats of a write burst; a read burst may have one more."""

Latency = Callable[[], int]
"""Gives the cycles from a request to its answer, at least 1."""


@dataclass
class Burst:
    """A requested burst.

    Members
    -------
    cycle : cycle of the request.
    va : first byte's virtual address; physical if the request says so.
    beats : number of beats.
    request : all fields of the request.
    status : of reads, status of the burst; of writes, OK until the response is offered.
    """

    cycle: int
    space: Space
    va: int
    beats: int
    request: dict[str, Any]
    status: MemoryStatus = MemoryStatus.OK


class _Server:
    """Common part of both directions: takes requests, and asserts that no burst crosses 4 KiB or
    has more than `limit` beats.

    Members
    -------
    bursts : all bursts requested so far.
    bytes : bytes per beat.
    latency : may be replaced at any time.
    """

    def __init__(
        self,
        tb: Testbench,
        port: str,
        contents: Contents,
        pace: Pace,
        latency: Latency,
        limit: int,
    ) -> None:
        self.contents, self.latency, self._limit = contents, latency, limit
        self._tb = tb
        self.request = Sink(tb, f"{port}__request", pace, self._admit)
        self.bytes = tb.ports[f"{port}__beat__payload"].record.fields["data"][1].width // 8
        self.bursts: list[Burst] = []

    def base(self, burst: Burst) -> int:
        """Address of the first beat, a multiple of `bytes`."""
        return burst.va // self.bytes * self.bytes

    def _admit(self, request: dict[str, Any]) -> None:
        space = request["asid"], request["physical"]
        va, beats = request["va"], request["beats"] + 1
        burst = Burst(self._tb.cycle, space, va, beats, request)
        low = self.base(burst)
        assert beats <= self._limit, f"burst of {beats} beats"
        assert low // PAGE == (low + beats * self.bytes - 1) // PAGE, "burst crosses 4 KiB"
        self.bursts.append(burst)
        self._begin(burst)

    def _begin(self, burst: Burst) -> None:
        raise NotImplementedError


class ReadServer(_Server):
    """Answers reads in order, `latency()` cycles after the request at the earliest. Beats with an
    error have inverted data. A burst that faults is answered with a single beat. The contents are
    read when a beat is first offered.

    Members
    -------
    beat : source of the beats.
    """

    def __init__(
        self,
        tb: Testbench,
        contents: Contents,
        pace: Pace = always,
        latency: Latency = lambda: 1,
        *,
        port: str = "read",
        limit: int = BURST_BEATS + 1,
    ) -> None:
        """`pace` : of requests and of beats. `port` : name of the port. `limit` : longest burst, in
        beats."""
        super().__init__(tb, port, contents, pace, latency, limit)
        self.beat = Source(tb, f"{port}__beat", pace)

    def _begin(self, burst: Burst) -> None:
        low, delay = self.base(burst), self.latency()
        high = low + burst.beats * self.bytes
        burst.status = self.contents.status(burst.space, low, high, write=False)
        count = 1 if burst.status is MemoryStatus.FAULT else burst.beats
        for index in range(count):
            last = index == count - 1
            self.beat.put(self._beat_of(burst, low + index * self.bytes, last), delay)

    def _beat_of(self, burst: Burst, va: int, last: bool) -> Callable[[], dict[str, Any]]:
        def make() -> dict[str, Any]:
            status = self.contents.status(burst.space, va, va + self.bytes, write=False)
            if burst.status is MemoryStatus.FAULT:
                status = MemoryStatus.FAULT
            content = self.contents.read(burst.space, va, self.bytes)
            if status is not MemoryStatus.OK:
                content = bytes(255 - byte for byte in content)
            return {"data": int.from_bytes(content, "little"), "last": last, "status": status}

        return make


class WriteServer(_Server, Participant):
    """Takes write bursts. Their bytes are written to the contents when the response is first
    offered, `latency()` cycles after the last beat at the earliest. A burst with an error writes
    nothing.

    Asserts that the beats of accepted requests are offered without gaps, from the second cycle
    after a request on, and that `last` marks the last beat of a burst. With `early`, the design may
    offer beats before their request; they are accepted after it.

    Members
    -------
    beat, done : sink of the beats, source of the responses.
    pending : number of bursts without a response.
    """

    def __init__(
        self,
        tb: Testbench,
        contents: Contents,
        pace: Pace = always,
        latency: Latency = lambda: 1,
        *,
        port: str = "write",
        early: bool = False,
        limit: int = BURST_BEATS,
    ) -> None:
        """`pace` : of requests, beats and responses. `port` : name of the port. `limit` : longest
        burst, in beats."""
        self._open: deque[Burst] = deque()
        self._beats: list[dict[str, Any]] = []
        self.pending = 0
        # Beats are sampled before requests: no beat belongs to a request of the same cycle.
        take = (lambda: bool(self._open) and pace()) if early else pace
        self.beat = Sink(tb, f"{port}__beat", take, self._take)
        super().__init__(tb, port, contents, pace, latency, limit)
        self.done = Source(tb, f"{port}__done", pace, self._answered)
        tb.join(self)

    def sample(self, cycle: int) -> None:
        if self._open and self._open[0].cycle < cycle - 1:
            assert self.beat.offered, "accepted write burst without its data at hand"

    def _begin(self, burst: Burst) -> None:
        self._open.append(burst)
        self.pending += 1

    def _take(self, beat: dict[str, Any]) -> None:
        assert self._open, "write beat without an accepted request"
        self._beats.append(beat)
        burst = self._open[0]
        assert beat["last"] == (len(self._beats) == burst.beats), "last on the wrong beat"
        if beat["last"]:
            beats, self._beats = self._beats, []
            self._open.popleft()
            self.done.put(lambda: self._finish(burst, beats), self.latency())

    def _finish(self, burst: Burst, beats: list[dict[str, Any]]) -> dict[str, Any]:
        low = self.base(burst)
        high = low + burst.beats * self.bytes
        burst.status = self.contents.status(burst.space, low, high, write=True)
        if burst.status is MemoryStatus.OK:
            for index, beat in enumerate(beats):
                self.contents.store(burst.space, low + index * self.bytes, beat, self.bytes)
        return {"status": burst.status}

    def _answered(self, _: dict[str, Any]) -> None:
        self.pending -= 1
