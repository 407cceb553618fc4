"""Copies of a channel that are counted in counting semaphores (COPY-20), known from its commands.

A channel that is closed between the count of a copy and its end would hold back all lower levels
for ever: its counts have to be taken back.
"""

from collections import Counter, deque
from collections.abc import Collection, Sequence
from typing import NamedTuple

from signalbox.driver.commands.disassembler import Method, SubDevices, decode
from signalbox.hw.methods import HostMethod, Reduction, SemaphoreExecute, SemOp, unpack

__all__ = ["CopyCounts"]

_ADDRESS_HI_MASK = 0xFF


class _Addition(NamedTuple):
    """Method number `number` since the channel's start, in ring entry number `entry`: adds `amount`
    to the semaphore at `address`."""

    number: int
    entry: int
    address: int
    amount: int


class CopyCounts:
    """Counts of one channel's copies. Parameters of a semaphore operation are in its submission.

    Parameters
    ----------
    semaphores : addresses of the counting semaphores.
    """

    def __init__(self, semaphores: Collection[int]) -> None:
        self._semaphores = semaphores
        self._executed: Counter[int] = Counter()
        self._additions: deque[_Addition] = deque()
        self._masks = SubDevices()
        self._methods = 0

    def submitted(self, entry: int, dwords: Sequence[int]) -> None:
        """Record the additions in the dwords of ring entry number `entry`."""
        if not self._semaphores:
            return
        words: dict[int, int] = {}
        for item in decode(dwords, masks=self._masks):
            if not isinstance(item, Method):
                continue
            words[item.address] = item.data
            if item.address == HostMethod.SEM_EXECUTE:
                self._operation(entry, words)
            self._methods += 1

    def _operation(self, entry: int, words: dict[int, int]) -> None:
        execute = unpack(SemaphoreExecute, words[HostMethod.SEM_EXECUTE])
        kind = execute["operation"], execute["reduction"]
        upper = words.get(HostMethod.SEM_ADDR_HI, 0) & _ADDRESS_HI_MASK
        address = upper << 32 | words.get(HostMethod.SEM_ADDR_LO, 0)
        if kind == (SemOp.REDUCTION, Reduction.IADD) and address in self._semaphores:
            payload = words.get(HostMethod.SEM_PAYLOAD_LO, 0)
            amount = payload - (payload >> 31 << 32)
            self._additions.append(_Addition(self._methods, entry, address, amount))

    def left(self, entry: int) -> None:
        """Note that all ring entries below `entry` have executed."""
        while self._additions and self._additions[0].entry < entry:
            done = self._additions.popleft()
            self._executed[done.address] += done.amount

    def replaced(self, executed: int) -> None:
        """Drop method number `executed`, which was replaced by another one."""
        self._additions = deque(one for one in self._additions if one.number != executed)

    def outstanding(self, executed: int) -> dict[int, int]:
        """Copies counted and not taken back after `executed` methods, by address."""
        counts = Counter(self._executed)
        if executed <= self._methods:  # otherwise it is that before `restarted`
            for one in self._additions:
                counts[one.address] += one.amount if one.number < executed else 0
        return {address: count for address, count in counts.items() if count > 0}

    def restarted(self, executed: int) -> None:
        """Note that the disabled channel, which has executed so many methods, is started again."""
        self._executed = Counter(self.outstanding(executed))
        self._additions.clear()
        self._masks = SubDevices()
        self._methods = 0
