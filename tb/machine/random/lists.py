"""Runlists that change at random while channels work."""

from random import Random

import cocotb

from signalbox.driver.platform.control_port import ControlPort
from signalbox.hw.config import Config
from signalbox.hw.runlists import RunlistError
from signalbox.tb.models.runlist import BYTES, channel_entry, group_entry, read_list
from signalbox.tb.simulation.machine import SimMachine

__all__ = ["Lists"]

_AT = 0x90_0000
"""Memory of the lists, beyond that of channels and page tables."""

_PATIENCE = 10_000
"""Most polls until a list was read."""


class Lists:
    """Submits random lists, good and bad, and changes between list and flat scheduling, from now
    until `end`. Every list is accepted, or refused with the code of the model. Now and then one
    names all channels, so all make progress.

    Members
    -------
    accepted, refused, flat : number of lists accepted and refused, and of changes to flat.
    """

    def __init__(self, machine: SimMachine, config: Config, numbers: Random) -> None:
        self._machine, self._config, self._numbers = machine, config, numbers
        self._control = ControlPort(machine)
        self._ends = False
        self.accepted = self.refused = self.flat = 0
        self._task = cocotb.start_soon(self._run())

    async def end(self) -> None:
        """Schedule flat again, and stop."""
        self._ends = True
        await self._task

    async def _run(self) -> None:
        numbers, control = self._numbers, self._control
        await control.write("RUNLIST_UNIT", CYCLES=numbers.randint(1, 20))
        pause = {"TIMEOUT": numbers.choice((0, 8, 200)), "TIMESCALE": numbers.choice((0, 2))}
        await control.write("RUNLIST_ACQ_PRETEST", **pause)
        while not self._ends:
            await self._submit()
            uses = numbers.random() < 0.9
            await control.write("RUNLIST_CONTROL", ENABLE=uses)
            self.flat += not uses
            await self._machine.wait_cycles(numbers.choice((1, 20, 400, 3000)))
        await control.write("RUNLIST_CONTROL", ENABLE=0)

    async def _submit(self) -> None:
        """Submit a list, wait until it was read, and compare the result with the model."""
        control, config = self._control, self._config
        content, offset = self._list()
        reading = read_list(content, offset, channels=config.channels, room=config.runlist_entries)
        self._machine.memory_write(_AT, content)
        await control.write("RUNLIST_STATUS", ERROR=1)
        await control.write("RUNLIST_BASE_LO", _AT)
        await control.write("RUNLIST_BASE_HI", 0)
        await control.write("RUNLIST_SUBMIT", LENGTH=len(content) // BYTES, OFFSET=offset)
        polls = 0
        while (await control.read_fields("RUNLIST_INFO"))["READING"]:
            polls += 1
            assert polls < _PATIENCE, "the list is not read to its end"
        status = await control.read_fields("RUNLIST_STATUS")
        assert status["ERROR"] == (reading.error is not RunlistError.NONE), reading
        if status["ERROR"]:
            error = await control.read_fields("RUNLIST_ERROR")
            assert (error["CODE"], error["ENTRY"]) == (reading.error, reading.entry)
        self.accepted += not status["ERROR"]
        self.refused += status["ERROR"]

    def _list(self) -> tuple[bytes, int]:
        """Entries of a list, and OFFSET; in one case of five, probably a bad one."""
        numbers = self._numbers
        entries = [entry for group in self._groups() for entry in group]
        if numbers.random() < 0.2:
            at = numbers.randrange(len(entries))
            entries[at] = numbers.choice((
                group_entry(numbers.choice((0, 1, 129))),
                channel_entry(numbers.randrange(4096), numbers.randrange(2)),
                entries[at],
            ))
            entries = entries[: numbers.choice((at + 1, len(entries)))]
        heads = [at for at, entry in enumerate(entries) if entry[0] & 1] or [0]
        return b"".join(entries), numbers.choice(heads)

    def _groups(self) -> list[list[bytes]]:
        """Entries of some TSGs, in any order: of all channels, or of some."""
        numbers = self._numbers
        left = [*range(self._config.channels)]
        numbers.shuffle(left)
        if numbers.random() < 0.3:
            left = left[: numbers.randint(1, len(left))]
        groups: list[list[bytes]] = []
        while left:
            some = [left.pop() for _ in range(min(len(left), numbers.randint(1, 3)))]
            timeout, scale = numbers.choice((0, 1, 5, 40)), numbers.choice((0, 0, 2))
            header = group_entry(len(some), len(groups), timeout, scale, numbers.getrandbits(128))
            groups.append([header, *map(channel_entry, some)])
        more = numbers.randrange(self._config.runlist_entries - len(groups) + 1)
        groups += numbers.choices(groups, k=more)
        numbers.shuffle(groups)
        return groups
