"""Task records: encoding of a launch as QMD V03_00, 256 bytes (HOST-10).

record = TaskRecord(program=0x1000, registers=8, grid=(4, 1, 1), block=(64, 1, 1))
record.pack(config)                                     256 bytes
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod

from signalbox.driver.compute.occupancy import BlockError, SmSizes, occupancy
from signalbox.hw.config import PRIORITIES, VA_BITS
from signalbox.hw.qmd import (
    CONSTANT_BUFFERS,
    QMD,
    QMD_BYTES,
    QMD_VERSION,
    RELEASES,
    DependentAction,
    Placement,
    ReleaseOp,
    SkedCheck,
    Urgency,
)

__all__ = ["Release", "TaskRecord"]

_MOST_BLOCKS = 1 << 32
_MOST_CONSTANTS = 16 * ((1 << QMD["CONSTANT_BUFFER_0_SIZE_SHIFTED4"].width) - 1)
_MOST_LOCAL = (1 << 19) - 16
_FOUR_WORDS, _ONE_WORD = 0, 1


@dataclass(frozen=True)
class Release:
    """Semaphore release on completion of a task.

    Members
    -------
    va : 40-bit virtual byte address.
    payload : value to write, 32 bits; 64 bits if `wide`.
    timestamp : write the four-word structure, including the time, instead of the value alone.
    reduction : combine the payload with the value in memory, as signed numbers if `signed`.
    interrupt : raise an interrupt.
    """

    va: int
    payload: int
    wide: bool = False
    timestamp: bool = False
    reduction: ReleaseOp | None = None
    signed: bool = False
    interrupt: bool = False

    def fields(self, number: int) -> dict[str, int]:
        """Fields of release `number` of a record."""
        values = {
            "ADDRESS_LOWER": self.va & 0xFFFF_FFFF,
            "ADDRESS_UPPER": self.va >> 32,
            "ENABLE": 1,
            "REDUCTION_ENABLE": int(self.reduction is not None),
            "REDUCTION_OP": self.reduction or 0,
            "REDUCTION_FORMAT": int(self.signed),
            "NON_BLOCKING_INTR_TYPE": int(self.interrupt),
            "PAYLOAD64B": int(self.wide),
            "STRUCTURE_SIZE": _FOUR_WORDS if self.timestamp else _ONE_WORD,
            "PAYLOAD_LOWER": self.payload & 0xFFFF_FFFF,
            "PAYLOAD_UPPER": self.payload >> 32,
        }
        return {f"RELEASE{number}_{name}": value for name, value in values.items()}


@dataclass(frozen=True, kw_only=True)
class TaskRecord:
    """A grid of blocks that run one program.

    Members
    -------
    program : virtual address of the first instruction, a multiple of 8.
    registers : registers per thread.
    grid : blocks in x, y, z.
    block : threads in x, y, z.
    arguments : virtual address of constant buffer 0.
    argument_bytes : its size, a multiple of 16 bytes.
    constants : virtual address and size in bytes of constant buffers 1 … 7, by number; the address
        is a multiple of 4, the size of 16.
    shared : bytes of shared memory per block.
    local : bytes of local memory per thread, a multiple of 16.
    barrier : whether the program uses barriers.
    priority : 0 … 63, 63 being the most urgent.
    head : whether to queue it before waiting tasks of its priority.
    placement : placement of its blocks on SMs; CONTEXT for that of the context.
    urgency : what happens to blocks of lower priority while the task lacks room; CONTEXT for that
        of the context.
    disabled_sms : mask of SMs that take none of its blocks, one bit for each of the first 64.
    releases : up to three, executed in this order on completion.
    dependent : virtual address of the record of the task on which `action` is then performed.
    """

    program: int
    registers: int
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    arguments: int = 0
    argument_bytes: int = 0
    constants: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    shared: int = 0
    local: int = 0
    barrier: bool = False
    priority: int = 0
    head: bool = False
    placement: Placement = Placement.CONTEXT
    urgency: Urgency = Urgency.CONTEXT
    disabled_sms: int = 0
    releases: tuple[Release, ...] = ()
    dependent: int | None = None
    action: DependentAction = DependentAction.SCHEDULE

    def pack(self, config: SmSizes) -> bytes:
        """Encode the record for a machine of this configuration.

        Raises `BlockError` if the hardware would refuse it, `ValueError` for a value that does not
        fit the record.
        """
        self._check(config)
        word = 0
        for name, value in self._fields().items():
            field = QMD[name]
            if not 0 <= value < 1 << field.width:
                raise ValueError(f"{name} = {value:#x} does not fit its {field.width} bits")
            word |= value << field.offset
        return word.to_bytes(QMD_BYTES, "little")

    def _check(self, config: SmSizes) -> None:
        occupancy(config, registers=self.registers, block=self.block, shared=self.shared)
        if min(self.grid) < 1:
            raise BlockError(SkedCheck.NONE, f"a grid of {self.grid} blocks is empty")
        if prod(self.grid) >= _MOST_BLOCKS:
            raise ValueError(f"a grid of {self.grid} has 2^32 blocks or more")
        if self.program % 8:
            raise BlockError(SkedCheck.PROGRAM, f"program {self.program:#x}: not a multiple of 8")
        if self.argument_bytes % 16:
            raise ValueError(f"argument_bytes = {self.argument_bytes}: not a multiple of 16")
        if self.local % 16 or not 0 <= self.local <= _MOST_LOCAL:
            raise ValueError(f"local = {self.local}: a multiple of 16, {_MOST_LOCAL} at most")
        self._check_constants()
        if not 0 <= self.priority < PRIORITIES:
            raise ValueError(f"priority = {self.priority}: 0 … {PRIORITIES - 1}")
        if len(self.releases) > len(RELEASES):
            raise ValueError(f"{len(self.releases)} releases: {len(RELEASES)} at most")
        if self.dependent is not None and self.dependent % QMD_BYTES:
            raise ValueError(f"dependent {self.dependent:#x}: not a multiple of {QMD_BYTES}")
        for va in (self.program, self.arguments):
            if not 0 <= va < 1 << VA_BITS:
                raise ValueError(f"address {va:#x} does not fit {VA_BITS} bits")

    def _check_constants(self) -> None:
        for number, (va, size) in self.constants.items():
            name = f"constant buffer {number}"
            if not 1 <= number < CONSTANT_BUFFERS:
                raise ValueError(f"{name}: 1 … {CONSTANT_BUFFERS - 1}; 0 holds the arguments")
            if size % 16 or not 0 <= size <= _MOST_CONSTANTS:
                raise ValueError(
                    f"{name} of {size} bytes: a multiple of 16, {_MOST_CONSTANTS} at most"
                )
            if va % 4 or not 0 <= va < 1 << VA_BITS:
                raise ValueError(f"{name} at {va:#x}: a multiple of 4 of {VA_BITS} bits")

    def _buffers(self) -> dict[str, int]:
        """Fields of the constant buffers."""
        buffers = dict(self.constants)
        if self.argument_bytes:
            buffers[0] = self.arguments, self.argument_bytes
        fields = {}
        for number, (va, size) in buffers.items():
            values = {
                "VALID": 1,
                "ADDR_LOWER": va & 0xFFFF_FFFF,
                "ADDR_UPPER": va >> 32,
                "SIZE_SHIFTED4": size >> 4,
            }
            fields |= {f"CONSTANT_BUFFER_{number}_{name}": one for name, one in values.items()}
        return fields

    def _fields(self) -> dict[str, int]:
        major, minor = QMD_VERSION
        width, height, depth = self.grid
        fields = {
            "QMD_MAJOR_VERSION": major,
            "QMD_VERSION": minor,
            "QMD_GROUP_ID": self.priority,
            "ADD_TO_HEAD_OF_QMD_GROUP_LINKED_LIST": int(self.head),
            "MODEL_PLACEMENT": self.placement,
            "MODEL_URGENCY": self.urgency,
            "CTA_RASTER_WIDTH": width,
            "CTA_RASTER_HEIGHT": height,
            "CTA_RASTER_DEPTH": depth,
            "SHARED_MEMORY_SIZE": self.shared,
            "SHADER_LOCAL_MEMORY_LOW_SIZE": self.local,
            "REGISTER_COUNT_V": self.registers,
            "SM_DISABLE_MASK_LOWER": self.disabled_sms & 0xFFFF_FFFF,
            "SM_DISABLE_MASK_UPPER": self.disabled_sms >> 32,
            "BARRIER_COUNT": int(self.barrier),
            "PROGRAM_ADDRESS_LOWER": self.program & 0xFFFF_FFFF,
            "PROGRAM_ADDRESS_UPPER": self.program >> 32,
            **self._buffers(),
        }
        for axis, threads in enumerate(self.block):
            fields[f"CTA_THREAD_DIMENSION{axis}"] = threads
        for number, release in enumerate(self.releases):
            fields |= release.fields(number)
        if self.dependent is not None:
            fields |= {
                "DEPENDENT_QMD0_POINTER": self.dependent >> 8,
                "DEPENDENT_QMD0_ENABLE": 1,
                "DEPENDENT_QMD0_ACTION": self.action,
            }
        return fields
