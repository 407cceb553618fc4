"""Driver of an input with a `valid` field: events of one cycle each."""

from typing import Any

from signalbox.tb.testbench.clocked import Participant, Testbench

__all__ = ["Strobe"]


class Strobe(Participant):
    """Sends events to the design. In cycles without an event all fields but `valid` are random."""

    def __init__(self, tb: Testbench, name: str) -> None:
        """`name` : name of an input of the design with the field `valid`."""
        self._port, self._random = tb.ports[name], tb.random
        offset, _ = self._port.record.fields["valid"]
        self._mask = (1 << self._port.record.width) - 1 & ~(1 << offset)
        self._event: dict[str, Any] | None = None
        tb.join(self)

    def send(self, **fields: Any) -> None:
        """Send an event in the cycle that begins. Fields that are not named are 0. Raises
        `AssertionError` for a second event in a cycle."""
        assert self._event is None, "two events in one cycle"
        self._event = {**fields, "valid": 1}

    def drive(self, cycle: int) -> None:
        noise = self._random.getrandbits(self._port.record.width) & self._mask
        self._port.set(noise if self._event is None else self._event)
        self._event = None
