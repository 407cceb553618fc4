"""Turns of contexts."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from signalbox.tb.testbench.clocked import Participant, Testbench
from signalbox.tb.testbench.servers import ReadServer, WriteServer

__all__ = ["Turn", "TurnWatch"]


@dataclass
class Turn:
    """A period in which a context was active.

    Members
    -------
    begun, over : cycles; `over` is None while it is active.
    bound : address spaces bound since the previous turn.
    reached : address spaces of the memory accessed by SMs.
    """

    context: int
    begun: int
    bound: set[int]
    over: int | None = None
    reached: set[int] = field(default_factory=set)


class TurnWatch(Participant):
    """Records turns of contexts. Checks that no SM accesses memory outside a turn (ASID-21).

    It must join after the servers of the SMs.

    Members
    -------
    turns : all turns, in order.
    """

    def __init__(self, tb: Testbench, servers: Sequence[ReadServer | WriteServer]) -> None:
        """`servers` : memory of the SMs."""
        self.turns: list[Turn] = []
        self._tb, self._servers = tb, servers
        self._seen = [0] * len(servers)  # number of accesses recorded in `turns`
        self._bound: set[int] = set()
        tb.join(self)

    def bind(self, asid: int) -> None:
        """An address space is bound."""
        self._bound.add(asid)

    def sample(self, cycle: int) -> None:
        runs = bool(self.turns) and self.turns[-1].over is None
        if self._tb.get("control__active"):
            if not runs:
                self.turns.append(Turn(self._tb.get("control__context"), cycle, self._bound))
                self._bound = set()
        elif runs:
            self.turns[-1].over = cycle
        for number, server in enumerate(self._servers):
            if accesses := server.bursts[self._seen[number] :]:
                assert self.turns and self.turns[-1].over is None, "an SM runs outside any turn"
                self.turns[-1].reached |= {burst.request["asid"] for burst in accesses}
                self._seen[number] += len(accesses)
