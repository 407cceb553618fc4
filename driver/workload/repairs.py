"""Pages that a workload maps only once a copy has missed them: fault, repair, resume."""

from dataclasses import dataclass, replace

from signalbox.driver.channel.channel import Channel
from signalbox.driver.device import Device
from signalbox.driver.faults.channel_error import ChannelError
from signalbox.driver.memory.mapping import Mapping
from signalbox.driver.runtime.stream import Stream

__all__ = ["FaultRecord", "Repairs"]

_LOOK_CYCLES = 200
"""Cycles between looks at channels that may have faulted."""


@dataclass(frozen=True)
class FaultRecord:
    """A fault of a workload's copy, and its repair.

    `report` is the access in the driver's words; it was `faulted` when the machine recorded it,
    and `resumed` when its pages were mapped and its channel went on: cycles from the start.
    """

    name: str
    index: int
    stream: str
    report: str
    faulted: int
    resumed: int


@dataclass
class _Missing:
    """A mapping that was taken away from a copy, to come back `after` cycles after its fault."""

    copy: tuple[str, int]
    stream: Stream
    mapping: Mapping
    after: int

    def explains(self, error: ChannelError) -> bool:
        """Whether a channel halted because this is not mapped."""
        fault, mapping = error.fault, self.mapping
        mine = error.channel == self.stream.channel.index
        return mine and fault is not None and mapping.va <= fault.va < mapping.end


class Repairs:
    """Takes mappings away from copies, and gives them back once they were missed."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._missing: list[_Missing] = []
        self._records: list[FaultRecord] = []

    @property
    def pending(self) -> bool:
        """Whether a copy may still fault."""
        return bool(self._missing)

    def records(self, start: int) -> tuple[FaultRecord, ...]:
        """What was repaired, in cycles from `start`, in its order."""
        return tuple(
            replace(each, faulted=each.faulted - start, resumed=each.resumed - start)
            for each in self._records
        )

    async def take_away(self, copy: tuple[str, int], stream: Stream, va: int, after: int) -> None:
        """Unmap what lies at `va` in the space of a copy's stream until the copy has missed it."""
        mapping = stream.space.find(va)
        assert mapping is not None, "a workload maps all its memory at first"
        await stream.space.unmap(mapping)
        self._missing.append(_Missing(copy, stream, mapping, after))

    async def look(self) -> None:
        """Repair what has faulted and is due. Raises the `ChannelError` of a channel that halted
        for anything else."""
        for channel in dict.fromkeys(missing.stream.channel for missing in self._missing):
            error = await channel.check()
            if error is not None:
                await self._repair(channel, error)

    async def attend(self, error: ChannelError) -> None:
        """Wait until what an error is about was repaired; raises it when that is nothing of
        these."""
        self._missed(error)
        channel = self._device.channels[error.channel]
        while True:
            await self.look()
            if channel.failure is not error:
                return
            await self._device.machine.wait_cycles(_LOOK_CYCLES)

    async def wait_until(self, cycle: int) -> None:
        """Repair what faults until a cycle of the machine."""
        machine = self._device.machine
        while self.pending and cycle - machine.now() > _LOOK_CYCLES:
            await machine.wait_cycles(_LOOK_CYCLES)
            await self.look()
        if (early := cycle - machine.now()) > 0:
            await machine.wait_cycles(early)

    def _missed(self, error: ChannelError) -> _Missing:
        """What a channel halted for; raises its error when that is nothing of these."""
        found = next((each for each in self._missing if each.explains(error)), None)
        if found is None:
            raise error
        return found

    async def _repair(self, channel: Channel, error: ChannelError) -> None:
        """Map what is missing and resume the channel, if it is time to."""
        missing, fault, machine = self._missed(error), error.fault, self._device.machine
        assert fault is not None, "without its record nothing explains an error"
        faulted = self._device.cycle_of(fault.time_ns)
        if machine.now() < faulted + missing.after:
            return
        lost = missing.mapping
        memory = lost.pa if lost.buffer is None else lost.buffer
        await missing.stream.space.map(memory, lost.size, va=lost.va, read_only=lost.read_only)
        self._missing.remove(missing)
        await channel.resume()
        name, index = missing.copy
        record = FaultRecord(name, index, missing.stream.name, str(fault), faulted, machine.now())
        self._records.append(record)
