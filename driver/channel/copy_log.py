"""Log of the copies launched by a channel, to identify and repeat a failed one.

The machine keeps only the LAUNCH_DMA data and the address of a failed copy.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from signalbox.driver.channel.element_map import ElementMap
from signalbox.driver.commands.disassembler import Method
from signalbox.hw.config import VA_BITS
from signalbox.hw.errors import Cause
from signalbox.hw.methods import COPY_CLASSES, CeMethod, CopyLaunch, LaunchTransfer

__all__ = ["CopyLog", "LaunchedCopy"]

_MOST_RUNNING = 16
"""Upper bound of the copies of one channel that can be in flight."""

_PAGE = 4096

_SETTINGS = {*CeMethod} - {CeMethod.NOP, CeMethod.LAUNCH_DMA}
"""Methods of the copy class that a launch may depend on."""

_ADDRESSES = 1 << VA_BITS

_ACCESSES = Cause.COPY_READ_FAULT, Cause.COPY_WRITE_FAULT, Cause.COPY_SEMAPHORE
"""A cause of each kind of access."""


@dataclass(frozen=True)
class _Side:
    """`count` lines of `width` bytes, `pitch` bytes apart."""

    start: int
    pitch: int
    width: int
    count: int

    @property
    def lines(self) -> list[tuple[int, int]]:
        """(address, bytes) of every line."""
        starts = (self.start + line * self.pitch for line in range(self.count))
        return [(start % _ADDRESSES, self.width) for start in starts]

    @property
    def reach(self) -> int:
        """Bytes from the first to the last byte of the lines, gaps included."""
        return (self.count - 1) * self.pitch + self.width if self.count else 0


@dataclass(frozen=True)
class LaunchedCopy:
    """One LAUNCH_DMA.

    Members
    -------
    number : number of the method since the channel's start.
    entry : number of its ring entry since the channel's start.
    word : LAUNCH_DMA data.
    methods : data of the copy class's other methods at that time, by byte offset.
    """

    number: int
    entry: int
    word: int
    methods: dict[int, int]

    def field(self, name: str) -> int:
        """Value of a field of LAUNCH_DMA."""
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
        """(address, bytes) of every line read."""
        return self._source.lines

    @property
    def destinations(self) -> list[tuple[int, int]]:
        """(address, bytes) of every line written."""
        return self._destination.lines

    @property
    def size(self) -> int:
        """Bytes read or written, whichever are more."""
        sides = self._source, self._destination
        return max(side.width * side.count for side in sides)

    @property
    def lines(self) -> int:
        """Number of lines."""
        return max(self._source.count, self._destination.count)

    @property
    def map(self) -> ElementMap | None:
        """Elements of a remapped copy; None for other copies."""
        if not self.field("remap"):
            return None
        return ElementMap(
            self._number(CeMethod.SET_REMAP_COMPONENTS),
            self._number(CeMethod.SET_REMAP_CONST_A),
            self._number(CeMethod.SET_REMAP_CONST_B),
        )

    @property
    def _source(self) -> "_Side":
        start = self._address(CeMethod.OFFSET_IN_LOWER, CeMethod.OFFSET_IN_UPPER)
        unit = self.map.source_bytes if self.map else 1
        return self._side(start, self._number(CeMethod.PITCH_IN), unit)

    @property
    def _destination(self) -> "_Side":
        start = self._address(CeMethod.OFFSET_OUT_LOWER, CeMethod.OFFSET_OUT_UPPER)
        unit = self.map.target_bytes if self.map else 1
        return self._side(start, self._number(CeMethod.PITCH_OUT), unit)

    def _side(self, start: int, pitch: int, unit: int) -> "_Side":
        """Lines of LINE_LENGTH_IN times `unit` bytes; none if nothing is copied there."""
        width = self._number(CeMethod.LINE_LENGTH_IN) * unit
        count = self._number(CeMethod.LINE_COUNT) if self.field("multi_line") else 1
        if self.field("transfer") == LaunchTransfer.NONE or not width:
            count = 0
        return _Side(start, pitch, width, count)

    @property
    def semaphore(self) -> int:
        """Address of the semaphore released at the end; meaningful only if LAUNCH_DMA has one."""
        return self._address(CeMethod.SET_SEMAPHORE_B, CeMethod.SET_SEMAPHORE_A)

    @property
    def payload(self) -> int:
        """Payload of that release."""
        high = CeMethod.SET_SEMAPHORE_PAYLOAD_UPPER if self.field("wide") else None
        return self._number(CeMethod.SET_SEMAPHORE_PAYLOAD, high)

    def touches(self, va: int) -> bool:
        """Whether the copy accesses the page of a virtual address; see `reaches`."""
        return any(self.reaches(va, cause) for cause in _ACCESSES)

    def reaches(self, va: int, cause: Cause) -> bool:
        """Whether the access named by the cause of a failure reaches the page of a virtual address.
        Reads and writes reach all pages from their first to their last byte."""
        match cause:
            case Cause.COPY_READ_FAULT | Cause.COPY_READ_BUS:
                start, size = self._source.start, self._source.reach
            case Cause.COPY_WRITE_FAULT | Cause.COPY_WRITE_BUS:
                start, size = self._destination.start, self._destination.reach
            case _:
                start, size = self.semaphore, int(self.field("semaphore") != 0)
        last = va // _PAGE * _PAGE + _PAGE - 1
        return 0 < size and (last - start) % _ADDRESSES < size + _PAGE - 1


class CopyLog:
    """Copies of one channel that may still fail.

    A copy is known if its pushbuffer was submitted through the channel, and none of its method
    groups spans two submissions.
    """

    def __init__(self) -> None:
        self._methods = 0
        self._state: dict[int, int] = {}  # shared with copies: replaced, never changed
        self._copies: deque[LaunchedCopy] = deque()
        self._over = -1

    def submitted(self, entry: int, methods: Sequence[Method]) -> None:
        """Record the copies among the methods of ring entry number `entry`."""
        for number, method in enumerate(methods, self._methods):
            if method.object_class not in COPY_CLASSES:
                continue
            if method.address == CeMethod.LAUNCH_DMA:
                self._copies.append(LaunchedCopy(number, entry, method.data, self._state))
            elif method.address in _SETTINGS:
                self._state = {**self._state, method.address: method.data}
        self._methods += len(methods)

    def left(self, entry: int) -> None:
        """Drop copies that can no longer fail, as all ring entries below `entry` have executed."""
        copies = self._copies
        while len(copies) > _MOST_RUNNING and copies[_MOST_RUNNING].entry < entry:
            copies.popleft()

    def resumed(self, executed: int, method: int, data: int) -> None:
        """Note that the channel resumes with `method` as number `executed`. If it replaces a
        LAUNCH_DMA, the copy is dropped."""
        again = data if method == CeMethod.LAUNCH_DMA else None
        self._copies = deque(
            one for one in self._copies if one.number != executed or one.word == again
        )

    def failed(self, executed: int, word: int, va: int, cause: Cause) -> LaunchedCopy | None:
        """The copy with LAUNCH_DMA data `word` that failed with `cause` at `va`, after `executed`
        methods; None if unknown.

        Candidates are the last copy and the copies that it is pipelined behind.
        """
        launched = [each for each in self._copies if self._over < each.number < executed]
        running: list[LaunchedCopy] = []
        for copy in reversed(launched):
            running.append(copy)
            if copy.field("transfer") != LaunchTransfer.PIPELINED:
                break
        fitting = (x for x in reversed(running) if x.word == word and x.reaches(va, cause))
        return next(fitting, None)

    def over(self, copy: LaunchedCopy | None) -> None:
        """Note that the channel continues after a failed copy: neither it nor an earlier one is
        looked for again."""
        if copy is not None:
            self._over = copy.number
