"""Copies of a channel that are counted in counting semaphores (COPY-20), known from its commands.

A channel that is closed between the count of a copy and its end would hold back all lower levels
for ever, so its counts must be taken back.
"""

from collections import Counter, deque
from collections.abc import Collection, Sequence
from typing import NamedTuple

from signalbox.driver.commands.disassembler import Method
from signalbox.hw.methods import HostMethod, Reduction, SemaphoreExecute, SemOp, unpack

__all__ = ["CopyCounts"]

_ADDRESS_HI_MASK = 0xFF

_PARAMETERS = {HostMethod.SEM_ADDR_LO, HostMethod.SEM_ADDR_HI, HostMethod.SEM_PAYLOAD_LO}


class _Addition(NamedTuple):
    """Method number `number` since the channel's start, in ring entry number `entry`: SEM_EXECUTE
    `word` adds `amount` to the semaphore at `address`."""

    number: int
    entry: int
    word: int
    address: int
    amount: int


class CopyCounts:
    """Counts of one channel's copies.

    Parameters
    ----------
    semaphores : addresses of the counting semaphores.
    """

    def __init__(self, semaphores: Collection[int]) -> None:
        self._semaphores = semaphores
        self._executed: Counter[int] = Counter()
        self._additions: deque[_Addition] = deque()
        self._words: dict[int, int] = {}
        self._methods = 0

    def submitted(self, entry: int, methods: Sequence[Method]) -> None:
        """Record the additions among the methods of ring entry number `entry`."""
        for number, method in enumerate(methods, self._methods):
            if method.address in _PARAMETERS:
                self._words[method.address] = method.data
            elif method.address == HostMethod.SEM_EXECUTE:
                self._operation(number, entry, method.data)
        self._methods += len(methods)

    def _operation(self, number: int, entry: int, word: int) -> None:
        upper = self._words.get(HostMethod.SEM_ADDR_HI, 0) & _ADDRESS_HI_MASK
        address = upper << 32 | self._words.get(HostMethod.SEM_ADDR_LO, 0)
        if address not in self._semaphores:
            return
        execute = unpack(SemaphoreExecute, word)
        if (execute["operation"], execute["reduction"]) == (SemOp.REDUCTION, Reduction.IADD):
            payload = self._words.get(HostMethod.SEM_PAYLOAD_LO, 0)
            amount = payload - (payload >> 31 << 32)
            self._additions.append(_Addition(number, entry, word, address, amount))

    def left(self, entry: int) -> None:
        """Note that all ring entries below `entry` have executed."""
        while self._additions and self._additions[0].entry < entry:
            done = self._additions.popleft()
            self._executed[done.address] += done.amount

    def resumed(self, executed: int, method: int, data: int) -> None:
        """Note that the channel resumes with `method` as number `executed`. If it replaces an
        addition, that addition is dropped."""
        again = data if method == HostMethod.SEM_EXECUTE else None
        self._additions = deque(
            one for one in self._additions if one.number != executed or one.word == again
        )

    def outstanding(self, executed: int) -> dict[int, int]:
        """Counts that have been added and not subtracted after `executed` methods, by address of
        their semaphore; only positive ones."""
        counts = Counter(self._executed)
        for one in self._additions:
            counts[one.address] += one.amount if one.number < executed else 0
        return {address: count for address, count in counts.items() if count > 0}

    def restarted(self, executed: int) -> dict[int, int]:
        """Number the methods from 0 again; call it before the disabled channel is restarted.
        Returns the counts outstanding after the `executed` methods so far. They stay outstanding
        until commands that take them back are `submitted` and executed.
        """
        counts = self.outstanding(executed)
        self._executed = Counter(counts)
        self._additions.clear()
        self._words.clear()
        self._methods = 0
        return counts

    def forget(self, address: int) -> None:
        """Forget the counts of one semaphore, so that they are not taken back."""
        self._executed.pop(address, None)
        self._additions = deque(one for one in self._additions if one.address != address)
