"""Runlists in tests of the whole machine: lists in memory, busy channels, observed turns."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from signalbox.tb.machine.cocotb_order import nops
from signalbox.tb.machine.testbench import MachineTestbench, RawChannel
from signalbox.tb.models.runlist import channel_entry, group_entry
from signalbox.tb.simulation.trace import Method

__all__ = ["UNIT", "Group", "RunlistTestbench", "Turn", "busy", "turns"]

UNIT = 10
"""Cycles that stand for 1,024 ns in these tests."""

BUSY = 4000
"""Methods of a segment."""


@dataclass(frozen=True)
class Group:
    """A time-slice group: `timeout` << `scale` units."""

    tsgid: int
    channels: tuple[int, ...]
    timeout: int = 50
    scale: int = 0

    @property
    def cycles(self) -> int:
        """Cycles of its slice."""
        return (self.timeout << self.scale) * UNIT

    def entries(self) -> list[bytes]:
        """The group in the list."""
        header = group_entry(len(self.channels), self.tsgid, self.timeout, self.scale)
        return [header, *map(channel_entry, self.channels)]


class RunlistTestbench:
    """Submits lists to the machine of `tb`."""

    def __init__(self, tb: MachineTestbench) -> None:
        self.tb = tb
        self._at = tb.allocate(4096, 4096)

    @classmethod
    async def start(cls, dut: Any, *groups: Group) -> "RunlistTestbench":
        """Reset the machine; schedule by a list."""
        tb = await MachineTestbench.start(dut)
        lists = cls(tb)
        await tb.control.write("RUNLIST_UNIT", CYCLES=UNIT)
        await lists.submit(groups)
        await tb.control.write("RUNLIST_CONTROL", ENABLE=1)
        return lists

    async def submit(self, groups: Sequence[Group], *, wait: bool = True, **fields: int) -> None:
        """Submit a list; `wait` until it is active."""
        await self.submit_entries([one for group in groups for one in group.entries()], **fields)
        while wait and (await self.tb.control.read_fields("RUNLIST_INFO"))["PENDING"]:
            await self.tb.wait(8)

    async def submit_entries(self, entries: Sequence[bytes], **fields: int) -> None:
        """Submit raw entries, and wait until they have been read."""
        self.tb.machine.memory_write(self._at, b"".join(entries))
        await self.tb.control.write("RUNLIST_BASE_LO", self._at & 0xFFFF_FFFF)
        await self.tb.control.write("RUNLIST_BASE_HI", self._at >> 32)
        await self.tb.control.write("RUNLIST_SUBMIT", **({"LENGTH": len(entries)} | fields))
        while (await self.tb.control.read_fields("RUNLIST_INFO"))["READING"]:
            await self.tb.wait(8)

    async def status(self) -> dict[str, int]:
        """Fields of RUNLIST_STATUS."""
        return await self.tb.control.read_fields("RUNLIST_STATUS")

    async def turn(self) -> int:
        """Number of the group that has the turn."""
        return (await self.tb.control.read_fields("RUNLIST_STATE"))["TSGID"]


async def busy(tb: MachineTestbench, index: int, segments: int = 31) -> RawChannel:
    """A channel with more NOPs than it can execute during a test."""
    channel = await tb.channel(index)
    at = channel.place(nops(*range(BUSY)).dwords)
    for _ in range(segments):
        channel.segment(nops(*range(BUSY)), at=at)
    await channel.kick()
    return channel


@dataclass(frozen=True)
class Turn:
    """Consecutive methods of one group."""

    group: Group
    methods: list[Method]

    @property
    def cycles(self) -> int:
        """Cycles from the first method to the last."""
        return self.methods[-1].cycle - self.methods[0].cycle + 1


async def turns(
    tb: MachineTestbench, groups: Sequence[Group], since: int = 0, *, whole: bool = True
) -> list[Turn]:
    """Turns so far, from the executed methods; `whole`: without the first and the last one."""
    of = {channel: group for group in groups for channel in group.channels}
    methods = [event for event in await tb.events(Method) if event.cycle >= since]
    found = [
        Turn(group, list(some))
        for group, some in itertools.groupby(methods, lambda event: of[event.channel])
    ]
    return found[1:-1] if whole else found
