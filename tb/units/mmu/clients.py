"""Memory clients in Python, cycle by cycle, which check their answers."""

import functools
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from signalbox.hw.records.memory import MemoryStatus
from signalbox.tb.testbench.clocked import Participant, Testbench
from signalbox.tb.testbench.ends import Pace, Sink, Source

__all__ = ["BUS", "FAULT", "OK", "Burst", "ReadClient", "WriteClient"]

OK, BUS, FAULT = MemoryStatus


@dataclass
class Burst:
    """A burst and its answer: beats (data, status) of a read, or the status of a write.

    `beats` : (data, strobe) of each beat of a write. `cycles` : cycle in which the offer began,
    then cycles in which answers were taken.
    """

    va: int
    count: int
    beats: list[tuple[int, int]] = field(default_factory=list)
    physical: bool = False
    asid: int = 0
    atomic: bool = False
    answer: list[tuple[int, MemoryStatus]] = field(default_factory=list)
    cycles: list[int] = field(default_factory=list)
    ended: bool = False


class _Client(Participant):
    """A client that offers `todo` one after another, and moves finished bursts to `ended`.

    Members
    -------
    todo : bursts that have not been offered.
    waiting : bursts that were taken and not answered yet.
    answers : sink of the answers.
    """

    answers: Sink

    def __init__(self, tb: Testbench, prefix: str, pace: Pace) -> None:
        self.tb, self.prefix = tb, prefix
        self.todo: deque[Burst] = deque()
        self.waiting: deque[Burst] = deque()
        self.ended: list[Burst] = []
        self._offered: Burst | None = None
        tb.join(self)
        self._request = Source(tb, f"{prefix}__request", pace, self._taken)

    @property
    def busy(self) -> bool:
        """Whether there are bursts without an answer."""
        return bool(self.todo or self._request.pending or self.waiting)

    async def finish(self, timeout: int = 50_000) -> list[Burst]:
        """Wait until everything was answered. Returns the bursts since the last call."""
        await self.tb.until(lambda: not self.busy, f"{self.prefix}: all answers", timeout)
        ended, self.ended = self.ended, []
        return ended

    def drive(self, cycle: int) -> None:
        if self.todo and not self._request.pending:
            self._request.put(functools.partial(self._offer, self.todo.popleft()))

    def _offer(self, burst: Burst) -> dict[str, Any]:
        """Request of a burst, which is offered now."""
        self._offered = burst
        burst.cycles.append(self.tb.cycle)
        return {
            "asid": burst.asid,
            "va": burst.va,
            "beats": burst.count - 1,
            "physical": burst.physical,
            "atomic": burst.atomic,
        }

    def _taken(self, _: dict[str, Any]) -> None:
        assert self._offered is not None
        self.waiting.append(self._offered)
        self._offered = None

    def _answer(self, data: int, status: MemoryStatus, *, last: bool) -> None:
        """Take an answer to the oldest burst."""
        burst = self.waiting[0]
        burst.answer.append((data, status))
        burst.cycles.append(self.tb.cycle + 1)
        if last:
            burst.ended = True
            self.ended.append(self.waiting.popleft())


class ReadClient(_Client):
    """A client of a `ReadPort`."""

    def __init__(self, tb: Testbench, index: int, pace: Pace) -> None:
        super().__init__(tb, f"read__{index}", pace)
        self.answers = Sink(tb, f"{self.prefix}__beat", pace, self._take)

    def _take(self, beat: dict[str, Any]) -> None:
        assert self.waiting, f"{self.prefix}: an unexpected beat"
        data = 0 if beat["status"] is FAULT else beat["data"]  # a fault's data may be undefined
        self._answer(data, beat["status"], last=beat["last"])


class WriteClient(_Client):
    """A client of a `WritePort`. A request is offered when its beats are available."""

    def __init__(self, tb: Testbench, index: int, pace: Pace) -> None:
        super().__init__(tb, f"write__{index}", pace)
        self._beat = Source(tb, f"{self.prefix}__beat")
        self.answers = Sink(tb, f"{self.prefix}__done", pace, self._take)

    def _offer(self, burst: Burst) -> dict[str, Any]:
        for index, (data, strobe) in enumerate(burst.beats):
            self._beat.put({"data": data, "strobe": strobe, "last": index == burst.count - 1})
        return super()._offer(burst)

    def _take(self, done: dict[str, Any]) -> None:
        assert self.waiting, f"{self.prefix}: done, but of what?"
        left = sum(one.count for one in list(self.waiting)[1:])
        assert self._beat.pending <= left + (self._offered.count if self._offered else 0), (
            f"{self.prefix}: done before its beats were taken"
        )
        self._answer(0, done["status"], last=True)
