"""Use of the SMs: the share of their cycles in which they have blocks, of any application."""

from signalbox.driver.platform.control_port import ControlPort
from signalbox.driver.text_table import counted

__all__ = ["SmUse"]

_WRAPS = 1 << 32
"""The counter counts modulo this number."""


class SmUse:
    """Use of the SMs of a machine, from its counter SM_CYCLES. `str` is a sentence about it, as of
    the last call of `look`; empty on a machine without SMs.

    Calls do not overlap.
    """

    def __init__(self, control: ControlPort, sms: int) -> None:
        self._control, self._sms = control, sms
        self._busy = self._cycle = self._recent = self._cycles = 0
        """SM cycles with blocks since the machine's start, and the cycle in which they were read;
        the same between the last two calls of `look`."""
        self._seen = 0, 0
        """SM cycles, and cycle, of the last call of `look`."""

    @property
    def due(self) -> bool:
        """Whether the counter must be read before it wraps again."""
        if not self._sms:
            return False
        return self._sms * (self._control.machine.now() - self._cycle) >= _WRAPS // 2

    async def read(self) -> None:
        """Read the counter."""
        if self._sms:
            word = await self._control.read("SM_CYCLES")
            self._busy += (word - self._busy) % _WRAPS
            self._cycle = self._control.machine.now()

    async def look(self) -> None:
        """Read the counter, and begin another interval."""
        await self.read()
        busy, cycle = self._seen
        self._recent, self._cycles = self._busy - busy, self._cycle - cycle
        self._seen = self._busy, self._cycle

    def __str__(self) -> str:
        if not self._sms:
            return ""
        recent, all_ = self._part(self._recent, self._cycles), self._part(*self._seen)
        return f"{counted(self._sms, 'SM')}: {recent} busy since the last status, {all_} so far"

    def _part(self, busy: int, cycles: int) -> str:
        """Busy SM cycles as a part of all, in `cycles`."""
        return f"{busy / (self._sms * cycles) if cycles else 0:.1%}"
