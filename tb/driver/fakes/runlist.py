"""The registers of the runlist, and its turns, in plain Python."""

from collections.abc import Sequence

from signalbox.hw.config import Config
from signalbox.hw.registers import GLOBAL
from signalbox.hw.runlists import RunlistError
from signalbox.tb.models.runlist import BYTES, Reading, Word, read_list

__all__ = ["FakeRunlist"]

_TURN = 20
"""Steps of a turn, whatever the slice."""


class FakeRunlist:
    """A list is read `latency` cycles after it is submitted, and is then active at once.

    Members
    -------
    words : readable registers.
    groups : TSGs of the active list.
    lists : lists that became active.
    stuck : True keeps lists from being read.
    """

    def __init__(self, config: Config, memory: Sequence[int]) -> None:
        self._config, self._memory = config, memory
        self.words = {
            one.name: one.initial(config) or 0 for one in GLOBAL if one.name.startswith("RUNLIST_")
        }
        self.groups: list[Word] = []
        self.lists: list[list[Word]] = []
        self.latency = 20
        self.stuck = False
        self._left = self._place = self._used = 0

    @property
    def pending(self) -> bool:
        """Level of the interrupt RUNLIST."""
        return bool(self.words["RUNLIST_STATUS"])

    def write(self, name: str, value: int) -> None:
        """Write a register."""
        if name == "RUNLIST_STATUS":
            self.words[name] &= ~value
            return
        self.words[name] = value & GLOBAL[name].mask
        if name == "RUNLIST_SUBMIT":
            assert not self._left, "a list is submitted while another is being read"
            self._left = self.latency
            self._show()

    def step(self) -> None:
        """Advance by a cycle."""
        if self._left and not self.stuck:
            self._left -= 1
            if not self._left:
                self._take()

    def able(self, ready: list[int]) -> list[int]:
        """Channels of `ready` that may be served; selects the TSG with the turn."""
        if not self.words["RUNLIST_CONTROL"]:
            return ready
        for _ in range(len(self.groups) + 1):
            group = self.groups[self._place] if self.groups else None
            found = [one for one in ready if group is not None and group.channels >> one & 1]
            if found and self._used < _TURN:
                self._used += 1
                self._show()
                return found
            self._place = (self._place + 1) % max(1, len(self.groups))
            self._used = 0
        return []

    def _take(self) -> None:
        at = self.words["RUNLIST_BASE_HI"] << 32 | self.words["RUNLIST_BASE_LO"]
        fields = GLOBAL["RUNLIST_SUBMIT"].unpack(self.words["RUNLIST_SUBMIT"])
        config = self._config
        reading: Reading = read_list(
            bytes(self._memory[at : at + BYTES * fields["LENGTH"]]),
            fields["OFFSET"],
            channels=config.channels,
            room=config.runlist_entries,
        )
        if reading.error is RunlistError.NONE:
            self.groups, self._place, self._used = reading.words, reading.start, 0
            self.lists.append(reading.words)
        elif not self.words["RUNLIST_STATUS"] & 1:
            self.words["RUNLIST_STATUS"] |= 1
            refusal = {"CODE": reading.error.value, "ENTRY": reading.entry}
            self.words["RUNLIST_ERROR"] = GLOBAL["RUNLIST_ERROR"].pack(**refusal)
        self._show()

    def _show(self) -> None:
        reading = int(self._left > 0)
        info = {"READING": reading, "PENDING": reading, "GROUPS": len(self.groups)}
        self.words["RUNLIST_INFO"] = GLOBAL["RUNLIST_INFO"].pack(**info)
        if self.groups:
            turn = {"TSGID": self.groups[self._place].tsgid, "RUNNING": 1}
            self.words["RUNLIST_STATE"] = GLOBAL["RUNLIST_STATE"].pack(**turn)
