"""The runlist of a machine (HOST-7): its address spaces take turns.

    device = await Device.open(machine, scheduling="runlist")
    await device.runlist.configure(space, slice_ns=500_000, level=Interleave.HIGH)

The open channels of an address space are one time-slice group (TSG). A list is written whenever a
channel is opened or closed, or a group is configured; the machine uses the previous list until the
new one is complete.
"""

from dataclasses import dataclass, field, replace

from signalbox.driver.channel.interleave import (
    GroupSettings,
    Interleave,
    interleaved,
    timeout_and_scale,
    unit_cycles,
)
from signalbox.driver.memory.address_space import AddressSpace
from signalbox.driver.memory.physical import Buffer, Memory
from signalbox.driver.platform.control_port import ControlPort
from signalbox.driver.platform.fair_lock import FairLock
from signalbox.driver.platform.info import DeviceError, DeviceInfo
from signalbox.driver.platform.whole import whole
from signalbox.hw.methods import pack
from signalbox.hw.runlists import ENTRY_BYTES, ChannelEntry, GroupEntry, RunlistError

__all__ = ["Runlist", "RunlistRefused", "switch_off"]

_MOST_PAUSE = 255 << 15
"""Longest pause between polls, in cycles."""

_PAUSE_CYCLES = 8
"""Pause between polls unless it is set: the public reset value."""

_POLL_CYCLES = 8
"""Cycles between two polls while the machine reads a list."""

_PATIENCE_CYCLES = 1_000_000
"""Cycles after which the reading of a list counts as hung."""


class RunlistRefused(Exception):
    """The machine refused a runlist, or did not finish reading it; the message names the cause."""


@dataclass
class _Group:
    """TSG of an address space."""

    number: int
    settings: GroupSettings = field(default_factory=GroupSettings)
    channels: list[int] = field(default_factory=list)

    def entries(self) -> list[int]:
        """Entries of the group in the list."""
        timeout, scale = self.settings.slice_fields
        header = pack(
            GroupEntry,
            kind=1,
            tsgid=self.number,
            length=len(self.channels),
            timeout=timeout,
            scale=scale,
        )
        return [header, *(pack(ChannelEntry, chid=channel) for channel in self.channels)]


async def switch_off(control: ControlPort) -> None:
    """Schedule the channels flat: each has its own slice. For machines with runlists."""
    await control.write("RUNLIST_CONTROL", ENABLE=0)


class Runlist:
    """Time-slice groups of the open channels, one per address space. Other coroutines run while a
    call waits for the machine; calls are executed in order.

    Parameters
    ----------
    control : control port.
    memory : physical memory, for lists while they are read.
    info : build parameters. Raises `DeviceError` if the machine has no runlists.
    """

    def __init__(self, control: ControlPort, memory: Memory, info: DeviceInfo) -> None:
        if not info.runlist_entries:
            raise DeviceError("the machine has no runlists: its scheduling is flat")
        self._control, self._memory, self._info = control, memory, info
        self._groups: dict[AddressSpace, _Group] = {}
        self._lock = FairLock(control.machine)
        self._entries: list[int] | None = None
        self._reading: Buffer | None = None
        self._round = 0
        self._closed = False

    async def open(self) -> None:
        """Schedule by runlist, with an empty list. Raises `RunlistRefused`."""
        await switch_off(self._control)
        await self._control.write("RUNLIST_UNIT", CYCLES=unit_cycles(self._info.cycle_ns))
        await self.pause_polls(_PAUSE_CYCLES)
        async with self._lock:
            await self._submit([])
        await self._control.write("RUNLIST_STATUS", ERROR=1, ACQUIRE=1, ACQUIRE_AND_ENG_IDLE=1)
        await self._control.write("RUNLIST_CONTROL", ENABLE=1)

    async def close(self) -> None:
        """Schedule flat again; no list is written any more. Raises `RunlistRefused` if a list is
        still being read; its memory is not freed then."""
        await switch_off(self._control)
        self._closed = True
        async with self._lock:  # a list may be about to be submitted
            await self._read()

    @property
    def round_cycles(self) -> int:
        """Sum of all slices of the list, in cycles: within two rounds each channel has had a
        turn."""
        return self._round

    def settings(self, space: AddressSpace) -> GroupSettings:
        """Settings of the group of an address space."""
        group = self._groups.get(space)
        return group.settings if group else GroupSettings()

    async def configure(
        self,
        space: AddressSpace,
        *,
        slice_ns: int | None = None,
        level: Interleave | None = None,
    ) -> None:
        """Change the slice, in ns, or the level of the group of an address space; None: no change.
        The settings last until the space is closed. Raises `ValueError` for values out of range,
        `DeviceError` if the list does not fit, `RunlistRefused`."""
        async with self._lock:
            group = self._group(space)
            before = group.settings
            changes = {"slice_ns": slice_ns, "level": level}
            given = {name: value for name, value in changes.items() if value is not None}
            group.settings = replace(before, **given)
            try:
                await self._update()
            except BaseException:
                group.settings = before
                raise

    async def pause_polls(self, cycles: int) -> None:
        """Set the pause, in cycles, before a failed acquire in memory is repeated while all groups
        wait for such acquires (HOST-5). A channel's own retry period applies instead if it is
        longer. The pause is rounded up, by less than 1 in 128. Raises `ValueError` for a pause out
        of range."""
        cycles = whole(cycles, "cycles")
        if not 0 <= cycles <= _MOST_PAUSE:
            raise ValueError(f"cycles = {cycles} is outside 0 … {_MOST_PAUSE}")
        timeout, scale = timeout_and_scale(cycles)
        await self._control.write("RUNLIST_ACQ_PRETEST", TIMEOUT=timeout, TIMESCALE=scale)

    async def add(self, channel: int, space: AddressSpace) -> None:
        """Add an open channel. Raises `DeviceError` if the list does not fit, `RunlistRefused`."""
        async with self._lock:
            channels = self._group(space).channels
            channels.append(channel)
            try:
                await self._update()
            except BaseException:
                channels.remove(channel)
                raise

    async def remove(self, channel: int, space: AddressSpace) -> None:
        """Remove a channel that was closed, if it is there. An interrupted call can be repeated.
        Raises `RunlistRefused`."""
        async with self._lock:
            channels = self._group(space).channels
            if channel in channels:
                channels.remove(channel)
            await self._update()

    def forget(self, space: AddressSpace) -> None:
        """Remove a closed address space. Its channels are closed already."""
        self._groups.pop(space, None)

    async def starved(self) -> bool:
        """Whether, at some time since the last call, all groups with work were waiting for failed
        acquires that let other groups run (ACQUIRE_SWITCH_TSG)."""
        status = await self._control.read_fields("RUNLIST_STATUS")
        # Not more: a bit that has been set since belongs to the next call.
        seen = {name: status[name] for name in ("ACQUIRE", "ACQUIRE_AND_ENG_IDLE")}
        await self._control.write("RUNLIST_STATUS", **seen)
        return bool(seen["ACQUIRE"])

    async def turn(self) -> AddressSpace | None:
        """Address space with the turn; None if no group has it."""
        state = await self._control.read_fields("RUNLIST_STATE")
        found = (space for space, one in self._groups.items() if one.number == state["TSGID"])
        return next(found, None) if state["RUNNING"] else None

    # The list

    def _group(self, space: AddressSpace) -> _Group:
        used = {group.number for group in self._groups.values()}
        if space not in self._groups:
            number = next(n for n in range(len(used) + 1) if n not in used)
            self._groups[space] = _Group(number)
        return self._groups[space]

    async def _update(self) -> None:
        used = {space: one for space, one in self._groups.items() if one.channels}
        order = interleaved({space: one.settings for space, one in used.items()})
        most = self._info.runlist_entries
        if len(order) > most:
            raise DeviceError(
                f"the runlist has {len(order)} turns of {len(used)} groups, the machine has room "
                f"for {most}: use fewer address spaces, or lower interleave levels"
            )
        entries = [entry for space in order for entry in used[space].entries()]
        if entries != self._entries and not self._closed:
            await self._submit(entries)
            cycle_ns = self._info.cycle_ns
            self._round = sum(used[space].settings.cycles(cycle_ns) for space in order)

    async def _submit(self, entries: list[int]) -> None:
        """Have the machine read a list, and wait until it has. Raises `RunlistRefused`."""
        # A cancelled call, or an earlier owner, may have left a list that is still being read.
        await self._read()
        data = b"".join(entry.to_bytes(ENTRY_BYTES, "little") for entry in entries)
        buffer = self._memory.allocate(max(1, len(data)), align=4096, name="runlist")
        self._entries, self._reading = None, buffer
        buffer.write(data)
        await self._control.write("RUNLIST_STATUS", ERROR=1)
        await self._control.write("RUNLIST_BASE_LO", buffer.address & 0xFFFF_FFFF)
        await self._control.write("RUNLIST_BASE_HI", buffer.address >> 32)
        await self._control.write("RUNLIST_SUBMIT", LENGTH=len(entries))
        await self._read()
        if (await self._control.read_fields("RUNLIST_STATUS"))["ERROR"]:
            refused = await self._control.read_fields("RUNLIST_ERROR")
            reason = RunlistError(refused["CODE"]).name
            raise RunlistRefused(f"entry {refused['ENTRY']} of the runlist: {reason}")
        self._entries = entries

    async def _read(self) -> None:
        """Wait until the machine reads no list, and free the memory of the last one. Raises
        `RunlistRefused`."""
        waited = 0
        while (await self._control.read_fields("RUNLIST_INFO"))["READING"]:
            if waited >= _PATIENCE_CYCLES:
                raise RunlistRefused(f"a runlist has not been read for {waited} cycles")
            await self._control.machine.wait_cycles(_POLL_CYCLES)
            waited += _POLL_CYCLES
        if self._reading is not None:
            self._reading.free()
            self._reading = None
