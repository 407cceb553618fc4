"""The trace of a running simulation."""

from pathlib import Path

from signalbox.tb.simulation.machine import SimMachine
from signalbox.tb.simulation.top import TRACE
from signalbox.tb.simulation.trace import Event, parse

__all__ = ["TraceFile"]


class TraceFile:
    """Events since the trace file was opened. Created by `open`."""

    def __init__(self, machine: SimMachine) -> None:
        self._machine, self._path = machine, Path(TRACE)
        self._position = self._path.stat().st_size
        self._events: list[Event] = []

    @classmethod
    async def open(cls, machine: SimMachine) -> "TraceFile":
        """Open the trace of `machine`. Earlier events are left out. Takes three cycles."""
        await _flush(machine)
        return cls(machine)

    async def events(self) -> list[Event]:
        """All events since `open`, oldest first. Takes three cycles. Raises `ValueError` for a line
        that is not an event."""
        await _flush(self._machine)
        with self._path.open() as lines:
            lines.seek(self._position)
            text = lines.read()
        self._position += len(text)
        self._events += parse(text.splitlines())
        return self._events


async def _flush(machine: SimMachine) -> None:
    """Write the events in the simulator's buffer to the file. Takes three cycles."""
    machine.dut.monitor.flush.value = 1
    await machine.wait_cycles(3)
    machine.dut.monitor.flush.value = 0
