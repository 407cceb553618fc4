"""Semaphore operations in memory, from the contract of `MemorySemaphores` and rule 8 of
`hw/README.md`.

The model is cycle-accurate, with one exception: an operation that was queued behind another may be
offered at any time up to 5 cycles (`OFFERED`) after the end of the other.
"""

from collections import Counter
from dataclasses import dataclass

__all__ = ["OFFERED", "Begin", "Inputs", "Outputs", "QueueModel", "Result"]

OFFERED = 5
"""Cycles from `begin` to the offer of an operation, if no other comes first."""


@dataclass(frozen=True)
class Begin:
    """An operation of a channel. `request` : bits of the request. `changes` : true unless it is an
    acquire."""

    channel: int
    request: int
    changes: bool


@dataclass(frozen=True)
class Result:
    """Result of an operation. `error` : number of the error, 0 for none."""

    passed: bool
    error: int


@dataclass(frozen=True)
class Inputs:
    """Inputs of one cycle.

    Members
    -------
    begin : operation that joins the queue.
    collect, clear : channel of which the result is collected, or dropped.
    peek : channel for which `result` is shown.
    ready : the semaphore unit accepts a request.
    response : response of the semaphore unit.
    """

    begin: Begin | None = None
    collect: int | None = None
    clear: int | None = None
    peek: int = 0
    ready: bool = False
    response: Result | None = None


@dataclass(frozen=True)
class Outputs:
    """Outputs of one cycle; sets of channels where the hardware has one bit per channel.

    Members
    -------
    busy : channels with an operation in the queue.
    changing : those of them with an operation other than an acquire.
    ended : channels with a result.
    result : result of the channel in `peek`; None, no meaning, if that channel has no result.
    request : bits of the request offered, or None.
    awaits : a response is accepted; None, no meaning, if no request is outstanding.
    """

    busy: frozenset[int]
    changing: frozenset[int]
    ended: frozenset[int]
    result: Result | None
    request: int | None
    awaits: bool | None


class QueueModel:
    """Queue of the operations of all channels.

    Members
    -------
    now : number of cycles so far.
    queue : operations that have not ended, in order.
    asked : the semaphore unit has accepted the request of the first operation.
    results : results that their channels have not collected.
    met : number of cycles with each situation.
    """

    def __init__(self) -> None:
        self.now = 0
        self.queue: list[Begin] = []
        self.asked = False
        self.results: dict[int, Result] = {}
        self.met: Counter[str] = Counter()
        # First cycles in which the first operation may, and must, be offered.
        self._early, self._late = 0, 0
        self._offered = False

    def show(self, now: Inputs, *, offered: bool) -> Outputs:
        """Outputs of the cycle. `offered` : whether the hardware offers a request. The model
        follows it in cycles in which an offer is allowed but not required."""
        waits = bool(self.queue) and not self.asked
        must = waits and (self._offered or self.now >= self._late)
        may = waits and self.now >= self._early
        offers = must or (may and offered)
        return Outputs(
            busy=frozenset(one.channel for one in self.queue),
            changing=frozenset(one.channel for one in self.queue if one.changes),
            ended=frozenset(self.results),
            result=self.results.get(now.peek),
            request=self.queue[0].request if offers else None,
            awaits=True if self.asked else None,
        )

    def step(self, now: Inputs, shown: Outputs) -> None:
        """Advance to the next cycle."""
        self._meet(now)
        for channel in {now.collect, now.clear} - {None}:
            self.results.pop(channel or 0, None)
        self._offered = shown.request is not None and not now.ready
        if shown.request is not None and now.ready:
            self.asked = True
        if now.response is not None:
            self.results[self.queue.pop(0).channel] = now.response
            self.asked = False
            self._early, self._late = self.now + 1, self.now + OFFERED
        if now.begin is not None:
            if not self.queue:
                self._early = self._late = self.now + OFFERED
            self.queue.append(now.begin)
        self.now += 1

    def _meet(self, now: Inputs) -> None:
        begin, response = now.begin, now.response
        if begin is not None:
            self.met["begins alone"] += not self.queue
            self.met["begins behind others"] += len(self.queue) > 1
            self.met["begins as the last ends"] += response is not None and len(self.queue) == 1
            self.met["begins as another is asked"] += self.asked
            self.met["changes" if begin.changes else "acquires"] += 1
        if response is not None:
            self.met["passed" if response.passed else "failed"] += 1
            self.met[f"error {response.error}"] += 1
            self.met["collected as another ends"] += now.collect is not None
        self.met["cleared"] += now.clear in self.results
        self.met["collected"] += now.collect in self.results
        self.met["peeked"] += now.peek in self.results
