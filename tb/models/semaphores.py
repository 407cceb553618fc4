"""Reference model of semaphores, on chip and in memory (HOST-4, COPY-12; spec page 60, 2.1, 2.2).

Written from the specification with unbounded integers. It shares only the public encodings of
operations and addresses with the hardware.
"""

from collections import defaultdict
from dataclasses import dataclass, field

from signalbox.hw.config import SLOT_BYTES, WINDOW_BASE, WINDOW_BYTES
from signalbox.hw.methods import Reduction, SemOp

__all__ = ["ACQUIRES", "Refused", "SemaphoreMemory", "acquire", "reduce"]

ACQUIRES = frozenset({
    SemOp.ACQUIRE,
    SemOp.ACQ_STRICT_GEQ,
    SemOp.ACQ_CIRC_GEQ,
    SemOp.ACQ_AND,
    SemOp.ACQ_NOR,
})


class Refused(Exception):
    """An operation is refused, and has no effect. The argument is the name of a
    `SemaphoreError`."""


def acquire(operation: int, value: int, payload: int, bits: int) -> bool:
    """Whether an acquire of `bits` bits passes on `value`. Raises `Refused` for an operation that
    is no acquire."""
    size = 1 << bits
    value, payload = value % size, payload % size
    match operation:
        case SemOp.ACQUIRE:
            return value == payload
        case SemOp.ACQ_STRICT_GEQ:
            return value >= payload
        case SemOp.ACQ_CIRC_GEQ:
            return (value - payload) % size < size // 2
        case SemOp.ACQ_AND:
            return value & payload != 0
        case SemOp.ACQ_NOR:
            return value | payload != size - 1
    raise Refused("UNSUPPORTED")


def reduce(
    reduction: int, value: int, payload: int, bits: int, unsigned: bool, counting: bool = False
) -> int:
    """New value of `bits` bits after a reduction. Raises `Refused` for an unsupported
    reduction and, with `counting`, for underflow and overflow."""
    size = 1 << bits
    value, payload = value % size, payload % size

    def number(word: int) -> int:
        return word if unsigned or word < size // 2 else word - size

    match reduction:
        case Reduction.IMIN:
            return min(value, payload, key=number)
        case Reduction.IMAX:
            return max(value, payload, key=number)
        case Reduction.IXOR:
            return value ^ payload
        case Reduction.IAND:
            return value & payload
        case Reduction.IOR:
            return value | payload
        case Reduction.IADD if bits == 32 or unsigned:
            total = value + (payload if payload < size // 2 else payload - size)
            if counting and total < 0:
                raise Refused("UNDERFLOW")
            if counting and total >= size:
                raise Refused("OVERFLOW")
            return total % size
        case Reduction.INC if bits == 32 and unsigned:
            if counting and value >= payload:
                raise Refused("OVERFLOW")
            return 0 if value >= payload else value + 1
        case Reduction.DEC if bits == 32 and unsigned:
            if counting and value == 0:
                raise Refused("UNDERFLOW")
            return payload if value == 0 or value > payload else value - 1
    raise Refused("UNSUPPORTED")


@dataclass
class SemaphoreMemory:
    """All semaphores: `slots` on chip, and those in memory.

    Members
    -------
    slots : number of on-chip semaphores.
    counting : number of counting semaphores, the first slots: they refuse underflow and overflow.
    values, stamps : 64-bit payload and timestamp of each slot.
    memory : bytes outside the window, by (ASID, address); missing ones are 0.
    """

    slots: int
    counting: int = 0
    values: list[int] = field(init=False)
    stamps: list[int] = field(init=False)
    memory: dict[tuple[int, int], int] = field(default_factory=lambda: defaultdict(int))

    def __post_init__(self) -> None:
        self.values = [0] * self.slots
        self.stamps = [0] * self.slots

    def zero(self, count: int) -> int:
        """Zero flags of the first `count` semaphores: bit i is 1 if the low 32 bits of semaphore i
        are 0."""
        return sum((value % (1 << 32) == 0) << i for i, value in enumerate(self.values[:count]))

    def execute(
        self,
        va: int,
        operation: int,
        *,
        reduction: int = 0,
        unsigned: bool = True,
        wide: bool = False,
        timestamp: bool = False,
        payload: int = 0,
        asid: int = 0,
        now: int = 0,
    ) -> tuple[bool, str]:
        """Execute an operation. `wide` : on 64 bits, otherwise on 32. `now` : value of a timestamp.

        Returns whether the operation passed (took effect), and the name of a `SemaphoreError`.
        """
        bits = 64 if wide else 32
        stamped = timestamp and operation not in ACQUIRES
        refusal = self.refusal(va, operation, reduction, unsigned, wide, timestamp)
        if refusal != "NONE":
            return False, refusal
        value = self.read(va, bits, asid)
        if operation in ACQUIRES:
            return acquire(operation, value, payload, bits), "NONE"
        if operation == SemOp.RELEASE:
            value = payload % (1 << bits)
        else:
            counting = self.on_chip(va) and self._slot(va) < self.counting
            try:
                value = reduce(reduction, value, payload, bits, unsigned, counting)
            except Refused as refused:
                return False, str(refused)
        if stamped:
            self.write_stamp(va, now, asid)
        self.write(va, value, 64 if stamped else bits, asid)
        return True, "NONE"

    def refusal(
        self,
        va: int,
        operation: int,
        reduction: int = 0,
        unsigned: bool = True,
        wide: bool = False,
        timestamp: bool = False,
    ) -> str:
        """Name of the `SemaphoreError` for which an operation is refused whatever the semaphore's
        value; "NONE" if there is no such error."""
        bits = 64 if wide else 32
        try:
            if operation == SemOp.REDUCTION:
                reduce(reduction, 0, 0, bits, unsigned)
            elif operation != SemOp.RELEASE:
                acquire(operation, 0, 0, bits)
            if self.on_chip(va):
                self._slot(va)
            elif va % (16 if timestamp and operation not in ACQUIRES else bits // 8):
                raise Refused("ALIGNMENT")
        except Refused as refused:
            return str(refused)
        return "NONE"

    @staticmethod
    def on_chip(va: int) -> bool:
        """Whether `va` lies in the window."""
        return WINDOW_BASE <= va < WINDOW_BASE + WINDOW_BYTES

    def read(self, va: int, bits: int, asid: int = 0) -> int:
        """`bits` bits of the payload at `va`."""
        if self.on_chip(va):
            return self.values[self._slot(va)] % (1 << bits)
        return sum(self.memory[asid, va + i] << 8 * i for i in range(bits // 8))

    def write(self, va: int, value: int, bits: int, asid: int = 0) -> None:
        """Set `bits` bits of the payload at `va`; the others do not change."""
        if self.on_chip(va):
            slot = self._slot(va)
            self.values[slot] += value - self.values[slot] % (1 << bits)
            return
        for i in range(bits // 8):
            self.memory[asid, va + i] = value >> 8 * i & 0xFF

    def window_read(self, address: int) -> int:
        """Word `address` (slot * 4 + word) of the control port's window."""
        slot, word = divmod(address, 4)
        if slot >= self.slots:
            return 0
        return (self.stamps if word & 2 else self.values)[slot] >> 32 * (word & 1) & 0xFFFF_FFFF

    def window_write(self, address: int, data: int) -> None:
        """Write word `address` of the control port's window."""
        slot, word = divmod(address, 4)
        if slot < self.slots:
            bank = self.stamps if word & 2 else self.values
            kept = bank[slot] & (0xFFFF_FFFF if word & 1 else 0xFFFF_FFFF << 32)
            bank[slot] = kept | data << 32 * (word & 1)

    def write_stamp(self, va: int, now: int, asid: int = 0) -> None:
        """Set the timestamp of the semaphore at `va`."""
        if self.on_chip(va):
            self.stamps[self._slot(va)] = now
        else:
            self.write(va + 8, now, 64, asid)

    def _slot(self, va: int) -> int:
        slot, offset = divmod(va - WINDOW_BASE, SLOT_BYTES)
        if offset or slot >= self.slots:
            raise Refused("UNKNOWN")
        return slot
