"""The two ends of a ready/valid stream, which the testbench steps once per clock cycle."""

from collections import deque
from collections.abc import Callable
from typing import Any

from amaranth.lib import data

__all__ = ["Fields", "Sink", "Source"]


class Fields:
    """Packs and unpacks records, which are integers in the simulator."""

    def __init__(self, layout: data.StructLayout) -> None:
        self.at = {name: (field.offset, field.width) for name, field in layout}

    def unpack(self, word: int) -> dict[str, int]:
        return {name: word >> low & (1 << width) - 1 for name, (low, width) in self.at.items()}

    def pack(self, values: dict[str, int]) -> int:
        word = 0
        for name, value in values.items():
            low, width = self.at[name]
            assert 0 <= value < 1 << width, f"{name} = {value:#x} does not fit {width} bits"
            word |= value << low
        return word


def _handle(dut: Any, stream: str, name: str) -> Any:
    return getattr(dut, f"{stream}__{name}")


class Sink:
    """Accepts payloads from the design; checks that an offer is held until it is taken."""

    def __init__(
        self, dut: Any, stream: str, layout: data.StructLayout, pace: Callable[[], bool]
    ) -> None:
        self.name, self.pace = stream, pace
        self.fields = Fields(layout)
        self.valid, self.payload, self.ready = (
            _handle(dut, stream, name) for name in ("valid", "payload", "ready")
        )
        self.ready.value = 0
        self.open = False
        self.waiting: int | None = None
        self.offered = False

    def step(self) -> dict[str, int] | None:
        """The payload transferred at this clock edge; None if there is none."""
        self.offered = bool(int(self.valid.value))
        word = int(self.payload.value) if self.offered else None
        if self.waiting is not None:
            assert word == self.waiting, f"{self.name}: offer changed before it was taken"
        taken = word if self.open else None
        self.waiting = None if self.open else word
        ready = self.pace()
        if ready != self.open:
            self.ready.value = ready
            self.open = ready
        return None if taken is None else self.fields.unpack(taken)


class Source:
    """Sends payloads to the design in order, each from its cycle on."""

    def __init__(
        self, dut: Any, stream: str, layout: data.StructLayout, pace: Callable[[], bool]
    ) -> None:
        self.pace = pace
        self.fields = Fields(layout)
        self.valid, self.payload, self.ready = (
            _handle(dut, stream, name) for name in ("valid", "payload", "ready")
        )
        self.valid.value = 0
        self.queue: deque[tuple[int, Callable[[], dict[str, int]]]] = deque()
        self.shown = False

    def put(self, due: int, make: Callable[[], dict[str, int]]) -> None:
        """Queue a payload. `make` is called in the cycle of its first offer."""
        self.queue.append((due, make))

    def step(self, cycle: int) -> bool:
        """Advance by a cycle. Returns whether a payload was taken at this clock edge."""
        taken = self.shown and bool(int(self.ready.value))
        if taken or not self.shown:
            show = bool(self.queue) and self.queue[0][0] <= cycle and self.pace()
            if show:
                self.payload.value = self.fields.pack(self.queue.popleft()[1]())
            if show != self.shown:
                self.valid.value = show
            self.shown = show
        return taken
