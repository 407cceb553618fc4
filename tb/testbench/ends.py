"""Sink and source: the testbench's side of ready/valid streams."""

from collections import deque
from collections.abc import Callable
from typing import Any

from signalbox.tb.testbench.clocked import Participant, Testbench

__all__ = ["Pace", "Sink", "Source", "always"]

Pace = Callable[[], bool]
"""Decides in each cycle whether a stream may proceed."""


def always() -> bool:
    """A pace: in every cycle."""
    return True


class Sink(Participant):
    """Takes payloads from the design. With `held`, asserts that `valid` and the payload do not
    change until the payload is taken.

    Members
    -------
    pace : gives `ready` in each cycle; may be replaced at any time.
    taken : (cycle, payload) of all transfers; a test may remove entries.
    offered : whether `valid` was 1 in the cycle that has ended.
    open : whether `ready` was 1 in that cycle.
    """

    def __init__(
        self,
        tb: Testbench,
        stream: str,
        pace: Pace = always,
        then: Callable[[Any], None] | None = None,
        *,
        held: bool = True,
    ) -> None:
        """`stream` : name of an output stream of the design. `then` : called with each payload at
        its transfer. `held` : false if the design may withdraw or change an offer."""
        self.pace, self._then, self._name, self._held = pace, then, stream, held
        self._valid, self._ready, self._payload = (
            tb.ports[f"{stream}__{part}"] for part in ("valid", "ready", "payload")
        )
        self.taken: list[tuple[int, Any]] = []
        self.offered = self.open = False
        self._waiting: int | str | None = None
        tb.join(self)

    def drive(self, cycle: int) -> None:
        self.open = self.pace()
        self._ready.set(self.open)

    def sample(self, cycle: int) -> None:
        self.offered = self._valid.bits() == 1
        bits = self._payload.bits() if self.offered else None
        waiting = self._waiting
        assert waiting is None or bits == waiting, f"{self._name}: changed before it was taken"
        self._waiting = bits if self._held and not self.open else None
        if self.offered and self.open:
            payload = self._payload.get()
            self.taken.append((cycle, payload))
            if self._then is not None:
                self._then(payload)


class Source(Participant):
    """Offers payloads to the design in order, and holds each until it is taken.

    Members
    -------
    pace : decides in each cycle whether a new offer may begin; may be replaced at any time.
    sent : cycles of all transfers.
    pending : number of payloads that have not been taken.
    """

    def __init__(
        self,
        tb: Testbench,
        stream: str,
        pace: Pace = always,
        then: Callable[[Any], None] | None = None,
    ) -> None:
        """`stream` : name of an input stream of the design. `then` : called with each payload at
        its transfer."""
        self.pace, self._then, self._tb = pace, then, tb
        self._valid, self._ready, self._payload = (
            tb.ports[f"{stream}__{part}"] for part in ("valid", "ready", "payload")
        )
        self.sent: list[int] = []
        self._queue: deque[tuple[int, Any]] = deque()
        self._shown: Any = None
        tb.join(self)

    @property
    def pending(self) -> int:
        return len(self._queue) + (self._shown is not None)

    def put(self, payload: Any, delay: int = 0) -> None:
        """Queue a payload. A function in its place is called when the offer begins, and returns the
        payload. `delay` : minimum number of cycles from the current cycle to the offer."""
        self._queue.append((self._tb.cycle + delay, payload))

    def drive(self, cycle: int) -> None:
        if self._shown is None and self._queue and self._queue[0][0] <= cycle and self.pace():
            _, payload = self._queue.popleft()
            self._shown = payload() if callable(payload) else payload
            self._payload.set(self._shown)
        self._valid.set(self._shown is not None)

    def sample(self, cycle: int) -> None:
        if self._shown is not None and self._ready.bits() == 1:
            payload, self._shown = self._shown, None
            self.sent.append(cycle)
            if self._then is not None:
                self._then(payload)
