"""Fault, repair and resume: pages that a workload maps only after a copy has faulted on them."""

from dataclasses import dataclass, replace

from signalbox.driver.channel.command_channel import CommandChannel
from signalbox.driver.device import Device
from signalbox.driver.faults.channel_error import ChannelError
from signalbox.driver.memory.mapping import Mapping
from signalbox.driver.runtime.stream import Stream

__all__ = ["FaultRecord", "Repairs"]

_LOOK_CYCLES = 200
"""Cycles between two polls of channels that may have faulted."""


@dataclass(frozen=True)
class FaultRecord:
    """A fault of a workload's copy, and its repair.

    Members
    -------
    name, index, stream : the copy and its stream.
    report : the driver's description of the fault.
    faulted : cycle at which the machine recorded the fault, from the start of the run.
    resumed : cycle at which the page was mapped and the channel resumed, from the start of the run.
    """

    name: str
    index: int
    stream: str
    report: str
    faulted: int
    resumed: int


@dataclass
class _Missing:
    """A mapping removed from a copy, to be restored `after` cycles after its fault."""

    copy: tuple[str, int]
    stream: Stream
    mapping: Mapping
    after: int

    def explains(self, error: ChannelError) -> bool:
        """Whether a channel has halted because of the missing mapping."""
        fault, mapping = error.fault, self.mapping
        mine = error.channel == self.stream.channel.index
        return mine and fault is not None and mapping.va <= fault.va < mapping.end


class Repairs:
    """Removes mappings of copies, and restores them after the copies have faulted."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._missing: list[_Missing] = []
        self._looked = 0
        """Machine cycle of the last poll."""
        self._records: list[FaultRecord] = []

    @property
    def pending(self) -> bool:
        """Whether a copy may still fault."""
        return bool(self._missing)

    def records(self, start: int) -> tuple[FaultRecord, ...]:
        """Repairs in order, in cycles from `start`."""
        return tuple(
            replace(each, faulted=each.faulted - start, resumed=each.resumed - start)
            for each in self._records
        )

    async def take_away(self, copy: tuple[str, int], stream: Stream, va: int, after: int) -> None:
        """Remove the mapping at `va` in the space of a copy's stream, until the copy faults on
        it."""
        mapping = stream.space.find(va)
        assert mapping is not None, "a workload maps all its memory at first"
        await stream.space.unmap(mapping)
        self._missing.append(_Missing(copy, stream, mapping, after))

    async def look(self) -> None:
        """Carry out the repairs that are due. Raises the `ChannelError` of a channel that has
        halted for another reason."""
        self._looked = self._device.machine.now()
        for channel in dict.fromkeys(missing.stream.channel for missing in self._missing):
            error = await channel.check()
            if error is not None:
                await self._repair(channel, error)

    async def attend(self, error: ChannelError) -> None:
        """Wait until the cause of an error is repaired. Raises the error if its cause is not a
        removed mapping; and as `look`."""
        self.check(error)
        channel = self._device.channels[error.channel]
        while True:
            await self.look()
            if channel.failure is not error:
                return
            await self._device.machine.wait_cycles(_LOOK_CYCLES)

    async def wait_until(self, cycle: int) -> None:
        """Wait until a machine cycle, and carry out repairs meanwhile. A series of short waits
        carries them out too. Raises as `look`."""
        machine = self._device.machine
        if self.pending and machine.now() - self._looked > _LOOK_CYCLES:
            await self.look()
        while self.pending and cycle - machine.now() > _LOOK_CYCLES:
            await machine.wait_cycles(_LOOK_CYCLES)
            await self.look()
        if (early := cycle - machine.now()) > 0:
            await machine.wait_cycles(early)

    def check(self, error: ChannelError) -> None:
        """Raise `error` if it is not due to a removed mapping."""
        self._find(error)

    def _find(self, error: ChannelError) -> _Missing:
        """The missing mapping that caused an error. Raises the error if there is none."""
        found = next((each for each in self._missing if each.explains(error)), None)
        if found is None:
            raise error
        return found

    async def _repair(self, channel: CommandChannel, error: ChannelError) -> None:
        """Restore the missing mapping and resume the channel, if the repair is due."""
        missing, fault, machine = self._find(error), error.fault, self._device.machine
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
