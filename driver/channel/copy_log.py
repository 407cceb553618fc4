"""The copies that a channel was given, so that one that failed can be told apart and repeated.

The machine remembers of a copy that failed its LAUNCH_DMA and the address, no more.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from signalbox.driver.commands.disassembler import Method, decode
from signalbox.hw.config import VA_BITS
from signalbox.hw.methods import CeMethod, CopyLaunch, HostMethod, LaunchTransfer, ObjectClass

__all__ = ["CopyLog", "LaunchedCopy"]

_MOST_RUNNING = 16
"""More copies of a channel than can be under way."""

_PAGE = 4096

_ADDRESSES = 1 << VA_BITS


@dataclass(frozen=True)
class LaunchedCopy:
    """One LAUNCH_DMA: the channel's method `number` since its start, in its ring entry `entry`,
    with the copy class's methods as they then were."""

    number: int
    entry: int
    word: int
    methods: dict[int, int]

    def field(self, name: str) -> int:
        """A field of LAUNCH_DMA."""
        field = CopyLaunch.as_shape()[name]
        width = field.width if isinstance(field.width, int) else 0
        return self.word >> field.offset & (1 << width) - 1

    def _number(self, low: CeMethod, high: CeMethod | None = None) -> int:
        upper = 0 if high is None else self.methods.get(high, 0)
        return upper << 32 | self.methods.get(low, 0)

    def _address(self, low: CeMethod, high: CeMethod) -> int:
        return self._number(low, high) % _ADDRESSES

    @property
    def sources(self) -> list[tuple[int, int]]:
        """(address, bytes) of every line that it reads."""
        return self._lines(*self._source)

    @property
    def destinations(self) -> list[tuple[int, int]]:
        """(address, bytes) of every line that it writes."""
        return self._lines(*self._destination)

    @property
    def _source(self) -> tuple[int, int]:
        """Address and pitch."""
        start = self._address(CeMethod.OFFSET_IN_LOWER, CeMethod.OFFSET_IN_UPPER)
        return start, self._number(CeMethod.PITCH_IN)

    @property
    def _destination(self) -> tuple[int, int]:
        """Address and pitch."""
        start = self._address(CeMethod.OFFSET_OUT_LOWER, CeMethod.OFFSET_OUT_UPPER)
        return start, self._number(CeMethod.PITCH_OUT)

    @property
    def _shape(self) -> tuple[int, int]:
        """Bytes of a line, and lines; of what copies nothing, none."""
        if self.field("transfer") == LaunchTransfer.NONE:
            return 0, 0
        lines = self._number(CeMethod.LINE_COUNT) if self.field("multi_line") else 1
        return self._number(CeMethod.LINE_LENGTH_IN), lines

    def _lines(self, start: int, pitch: int) -> list[tuple[int, int]]:
        width, lines = self._shape
        return [((start + line * pitch) % _ADDRESSES, width) for line in range(lines)]

    @property
    def semaphore(self) -> int:
        """Address of the semaphore that it releases at its end, if it does."""
        return self._address(CeMethod.SET_SEMAPHORE_B, CeMethod.SET_SEMAPHORE_A)

    @property
    def payload(self) -> int:
        """What it releases that with."""
        high = CeMethod.SET_SEMAPHORE_PAYLOAD_UPPER if self.field("wide") else None
        return self._number(CeMethod.SET_SEMAPHORE_PAYLOAD, high)

    def touches(self, va: int) -> bool:
        """Whether the page of a virtual address is one of those from its first to its last byte,
        or its semaphore's."""
        width, lines = self._shape
        ends = [
            (start, (lines - 1) * pitch + width)
            for start, pitch in (self._source, self._destination)
        ]
        if self.field("semaphore"):
            ends.append((self.semaphore, 1))
        last = va // _PAGE * _PAGE + _PAGE - 1
        return any(
            0 < size and (last - start) % _ADDRESSES < size + _PAGE - 1 for start, size in ends
        )


class CopyLog:
    """Copies of one channel since its start, as far as they may still fail.

    A copy is known when the pushbuffer that launches it was submitted through the channel, and no
    method group that matters for it spans two submissions.
    """

    def __init__(self) -> None:
        self._methods = 0
        self._state: dict[int, int] = {}
        self._objects: dict[int, int] = {}
        self._copies: deque[LaunchedCopy] = deque()
        self._over = -1

    def submitted(self, entry: int, dwords: Sequence[int]) -> None:
        """Ring entry number `entry` brings these dwords."""
        for item in decode(dwords, objects=self._objects):
            if not isinstance(item, Method):
                continue
            copies = item.object_class == ObjectClass.COPY
            if item.address == HostMethod.SET_OBJECT:
                self._objects[item.subchannel] = item.object_class
            elif copies and item.address == CeMethod.LAUNCH_DMA:
                copy = LaunchedCopy(self._methods, entry, item.data, dict(self._state))
                self._copies.append(copy)
            elif copies and item.address > CeMethod.NOP:
                self._state[item.address] = item.data
            self._methods += 1

    def left(self, entry: int) -> None:
        """All ring entries below `entry` were executed: their copies have been launched."""
        copies = self._copies
        while len(copies) > _MOST_RUNNING and copies[_MOST_RUNNING].entry < entry:
            copies.popleft()

    def replaced(self, executed: int) -> None:
        """The method behind the first `executed` ones is not executed, but another."""
        self._copies = deque(each for each in self._copies if each.number != executed)

    def failed(self, executed: int, word: int, va: int) -> LaunchedCopy | None:
        """The copy with LAUNCH_DMA `word` that failed at `va`, when `executed` methods have been;
        None for one that is not known.

        It is the last one, or one of those that the last ones were pipelined behind.
        """
        launched = [each for each in self._copies if self._over < each.number < executed]
        running: list[LaunchedCopy] = []
        for copy in reversed(launched):
            running.append(copy)
            if copy.field("transfer") != LaunchTransfer.PIPELINED:
                break
        return next((x for x in reversed(running) if x.word == word and x.touches(va)), None)

    def over(self, copy: LaunchedCopy | None) -> None:
        """The channel goes on behind a copy that failed."""
        if copy is not None:
            self._over = copy.number
