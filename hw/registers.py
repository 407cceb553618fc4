"""The register map, described once: the decoder, the driver, the documents are made from it.

Byte offsets in the 16-bit address space of the control port, which holds four blocks: one set of
global registers, one set for each channel, one for each on-chip semaphore, one for each context.
Readers see integers only; `pack` and `unpack` check that values fit.

    address("DOORBELL")                         0x90
    channel_address(3, "GP_BASE")               0x4308
    CHANNEL["CONTROL"].pack(ENABLE=1)           1
    CHANNEL["STATUS"].unpack(word)["HALTED"]    0 or 1
"""

import enum
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from amaranth.lib import data
from amaranth.lib import enum as amaranth_enum

from signalbox.hw.config import PA_BITS, VA_BITS, WINDOW_BASE, Config
from signalbox.hw.errors import CODE_OF, Cause, Code, CoreCause
from signalbox.hw.methods import AcquireTimer
from signalbox.hw.page_tables import FAULT_RECORD_BYTES
from signalbox.hw.qmd import Placement, SkedCheck

__all__ = [
    "ADDRESS_BITS",
    "CHANNEL",
    "CONTEXT",
    "GLOBAL",
    "ID",
    "PERFORMANCE",
    "REGISTERS",
    "SEMAPHORE",
    "VERSION",
    "WAITS",
    "Access",
    "Block",
    "Field",
    "MmuOperation",
    "Register",
    "Wait",
    "address",
    "channel_address",
    "channel_word",
    "context_address",
    "semaphore_address",
]

ADDRESS_BITS = 16
"""Bits of a byte address at the control port."""

ID = 0x5349_4742
"""`ID` of every Signalbox: "SIGB"."""

VERSION = (2, 2)
"""Major and minor number of this register map; the major number changes when drivers must."""


class Access(enum.StrEnum):
    """What software may do; anything else is answered with SLVERR and changes nothing."""

    RO = "ro"
    """Read only."""
    RW = "rw"
    W1C = "w1c"
    """Read; a 1 that is written clears its bit. A bit set in that very cycle stays set."""
    WO = "wo"
    """Write; reads as 0."""

    @property
    def writable(self) -> bool:
        """Whether a write is accepted."""
        return self is not Access.RO


class Field(NamedTuple):
    """Bits `hi`:`lo` of a register, both inclusive."""

    name: str
    hi: int
    lo: int
    doc: str

    @property
    def width(self) -> int:
        """Number of bits."""
        return self.hi - self.lo + 1

    @property
    def mask(self) -> int:
        """The field's bits in the register."""
        return ((1 << self.width) - 1) << self.lo


@dataclass(frozen=True)
class Register:
    """One 32-bit register.

    Members
    -------
    name : unique in its block.
    offset : bytes from the start of one set of the block.
    access : what software may do.
    doc : what it is; units.
    fields : lowest first; none means one 32-bit number. Bits outside fields read as 0, and what is
        written to them is ignored.
    reset : value after reset; None: not reset, to be written before use.
    constant : value that was fixed when the machine was built, instead of `reset`.
    """

    name: str
    offset: int
    access: Access
    doc: str
    fields: tuple[Field, ...] = ()
    reset: int | None = 0
    constant: Callable[[Config], int] | None = None

    @property
    def mask(self) -> int:
        """Bits that mean something."""
        return sum(field.mask for field in self.fields) if self.fields else 0xFFFF_FFFF

    def initial(self, config: Config) -> int | None:
        """Value after reset of a machine built with `config`; None where reset leaves it open."""
        return self.reset if self.constant is None else self.constant(config)

    def field(self, name: str) -> Field:
        """Field called `name`; KeyError when there is none."""
        for field in self.fields:
            if field.name == name:
                return field
        raise KeyError(f"register {self.name} has no field {name}")

    def pack(self, **values: int) -> int:
        """Register value with these fields; those not named are 0.

        Raises `KeyError` for a field that the register lacks, `ValueError` for a value that does
        not fit its field.
        """
        word = 0
        for name, value in values.items():
            field = self.field(name)
            if not 0 <= value < 1 << field.width:
                raise ValueError(
                    f"{self.name}.{name} = {value:#x} does not fit its {field.width} bits"
                )
            word |= value << field.lo
        return word

    def unpack(self, word: int) -> dict[str, int]:
        """Value of every field; `ValueError` when `word` is not a 32-bit number."""
        if not 0 <= word < 1 << 32:
            raise ValueError(f"{self.name} = {word:#x} is not a 32-bit number")
        return {field.name: (word & field.mask) >> field.lo for field in self.fields}


@dataclass(frozen=True)
class Block:
    """Sets of equal registers, `stride` bytes apart from byte `base` on.

    Members
    -------
    name, base, stride : see above.
    count : sets that the address space has room for.
    built : sets that a configuration has; the rest answers SLVERR.
    registers : of one set, in order of their offsets.
    """

    name: str
    base: int
    stride: int
    count: int
    built: Callable[[Config], int]
    registers: tuple[Register, ...]

    def __iter__(self) -> Iterator[Register]:
        return iter(self.registers)

    def __getitem__(self, name: str) -> Register:
        for register in self.registers:
            if register.name == name:
                return register
        raise KeyError(f"block {self.name} has no register {name}")

    def address(self, name: str, index: int = 0) -> int:
        """Byte address of register `name` in set `index`.

        Raises `KeyError` for an unknown register, `ValueError` for a set that no Signalbox has.
        """
        if not 0 <= index < self.count:
            raise ValueError(f"{self.name.lower()} {index} is outside 0 … {self.count - 1}")
        return self.base + index * self.stride + self[name].offset


def _mirror(layout: type[data.Struct], **docs: str) -> tuple[Field, ...]:
    """The fields of a public layout; `docs` has one entry for each."""
    return tuple(
        Field(name.upper(), field.offset + field.width - 1, field.offset, docs[name])
        for name, field in data.Layout.cast(layout)
    )


def _codes(base: int) -> tuple[Field, ...]:
    """One bit for each public interrupt of one INTR register."""
    return tuple(
        Field(code.name, code - base, code - base, _causes(code))
        for code in Code
        if base <= code < base + 32
    )


def _causes(code: Code) -> str:
    causes = [cause.name for cause, of in CODE_OF.items() if of == code]
    return f"Causes: {', '.join(causes)}." if causes else "Never raised."


def _halves(name: str, offset: int, access: Access, doc: str) -> tuple[Register, Register]:
    """A 64-bit mask of channels in two registers."""
    return (
        Register(f"{name}_LO", offset, access, f"{doc} Channels 0-31, one bit each."),
        Register(f"{name}_HI", offset + 4, access, f"{doc} Channels 32-63, one bit each."),
    )


def _constants(
    name: str, offset: int, doc: str, value: Callable[[Config], int]
) -> tuple[Register, Register]:
    """A 64-bit constant in two registers."""
    low = Register(
        f"{name}_LO",
        offset,
        Access.RO,
        f"{doc} Bits 31:0.",
        constant=lambda config: value(config) & 0xFFFF_FFFF,
    )
    high = Register(
        f"{name}_HI",
        offset + 4,
        Access.RO,
        f"{doc} Bits 63:32.",
        constant=lambda config: value(config) >> 32,
    )
    return low, high


def _size(name: str, offset: int, doc: str) -> Register:
    """A constant that is the member of `Config` of the same name."""
    return Register(
        name, offset, Access.RO, doc, constant=lambda config: getattr(config, name.lower())
    )


PERFORMANCE = {
    "METHODS": "Methods executed.",
    "SEMAPHORE_OPS": "Semaphore operations completed, of methods (an acquire when it passes) and "
    "of copies, on chip and in memory; not accesses by registers.",
    "ACQUIRE_FAILS": "Times that an acquire was decided and did not hold, also one that was looked "
    "at again or timed out.",
    "WAKES": "Times that on-chip semaphores made a parked channel ready again, not a timer or an "
    "engine.",
    "SWITCHES": "Times that another channel than before got the method pipeline.",
    "COPIES": "Copies that ended, also by an error or because their channel was switched off.",
    "READ_BEATS": "Memory beats read by copy engines.",
    "WRITE_BEATS": "Memory beats written by copy engines.",
    "ERRORS": "Errors of methods and copies, each of which halts its channel.",
    "DOORBELLS": "Doorbells with a valid handle.",
    "L1_HITS": "Bursts that a first-level TLB translated at once.",
    "L1_MISSES": "Bursts that it did not; those that join a miss that waits are counted too.",
    "L2_HITS": "Misses that the second-level TLB translated.",
    "PAGE_WALKS": "Walks of page tables that began, some of them anew after an invalidation.",
    "FAULTS": "Bursts that were not translated.",
    "INVALIDATIONS": "Binds and invalidations of translations, by registers, methods and contexts.",
    "LAUNCHES": "Tasks launched, by channels and by tasks at their end.",
    "TASKS": "Tasks that are over, complete or failed; launches that were refused are not counted.",
    "BLOCKS": "Blocks sent to SMs.",
    "WARPS": "Warps started.",
    "WARP_FAULTS": "Warps that could not go on.",
    "NO_REGISTERS": "Decisions that placed no block, while no SM had the registers of one left.",
    "NO_WARPS": "The same: while no SM had the hardware warps of one left.",
    "NO_SHARED": "The same: while no SM had the shared memory of one left.",
    "NO_SLOTS": "The same: while no SM had a block slot left.",
    "NO_LOWER": "The same: while all SMs ran blocks of the same or of a higher priority.",
    "IGNORED": "Compute methods that set what this machine does not have.",
}
"""Performance counters and what each counts; 32 bits, wrap, never cleared."""


class MmuOperation(amaranth_enum.Enum, shape=3):
    """Values of `MMU_COMMAND.OPERATION`."""

    INVALIDATE_ALL = 0
    """Translations of every ASID."""
    INVALIDATE_ASID = 1
    """Translations of one ASID."""
    INVALIDATE_PAGE = 2
    """The page of one ASID, of whatever size, in which MMU_VA lies."""
    BIND = 3
    """The ASID has its page directory at MMU_PDB, and no address past MMU_LIMIT."""
    UNBIND = 4
    """Nothing is bound to the ASID."""


class Wait(amaranth_enum.Enum, shape=4):
    """Values of `STATUS.WAIT`: what the held method of a channel waits for."""

    NONE = 0
    COPIES = 1
    ENGINE = 2
    ONCHIP = 3
    RETRY = 4
    FENCE = 5
    ENGINE_ONLY = 6
    QUEUE = 7
    ALL_IDLE = 8
    WRITEBACK = 9
    TURN = 10
    ENGINE_TIMED = 11
    TRANSLATION = 12
    TASKS = 13
    COMPUTE = 14


WAITS = {
    Wait.NONE.value: "nothing; the channel needs dwords",
    Wait.COPIES.value: "its own copies to end",
    Wait.ENGINE.value: "an idle copy engine, and all semaphores of its acquire group to be 0",
    Wait.ONCHIP.value: "an update of an on-chip semaphore",
    Wait.RETRY.value: "the retry timer of an acquire in memory",
    Wait.FENCE.value: "its semaphore operation in memory to end",
    Wait.ENGINE_ONLY.value: "an idle copy engine, for an acquire that is in no group",
    Wait.QUEUE.value: "room behind its running copy for a pipelined one",
    Wait.ALL_IDLE.value: "what was under way in engines and fences to end (WFI of scope ALL)",
    Wait.WRITEBACK.value: "its REF to be written to USERD (SET_REFERENCE)",
    Wait.TURN.value: "its next turn only",
    Wait.ENGINE_TIMED.value: "as 2, or one of its group not to be 0, from when its time-out runs",
    Wait.TRANSLATION.value: "its invalidation of translations to be acknowledged (MEM_OP)",
    Wait.TASKS.value: "its own tasks to end",
    Wait.COMPUTE.value: "the compute engine to take its method, or to have done it",
}
"""The same in words."""

_WAIT_DOC = ", ".join(f"{value} {text}" for value, text in WAITS.items())

_INTERRUPTS = (
    Field("ERROR", 0, 0, "A channel is halted by an error (INTR_ERROR)."),
    Field("NOTIFY", 1, 1, "A channel executed NON_STALL_INTERRUPT (INTR_NOTIFY)."),
    Field("COPY", 2, 2, "A copy with an interrupt has completed, without an error (INTR_COPY)."),
    Field("FAULT", 3, 3, "An access could not be translated, or a fault was lost (FAULT_STATUS)."),
    Field("TASK", 4, 4, "A context cannot run, or a task was lost (CONTEXT_BROKEN, TASK_STATUS)."),
)

_MMU_OPERATIONS = ", ".join(f"{one.value} {one.name}" for one in MmuOperation)


def _page_address(name: str, offset: int, doc: str, bits: int) -> tuple[Register, Register]:
    """The address of a page in two registers, `bits` wide."""
    high = bits - 33
    return (
        Register(
            f"{name}_LO",
            offset,
            Access.RW,
            f"{doc}, low part.",
            (Field("ADDRESS", 31, 12, "Bits 31:12."),),
        ),
        Register(
            f"{name}_HI",
            offset + 4,
            Access.RW,
            f"{doc}, high part.",
            (Field("ADDRESS", high, 0, f"Bits {bits - 1}:32."),),
        ),
    )


def _halves_of(name: str, offset: int, doc: str) -> tuple[Register, Register]:
    """A virtual address in two registers that can only be read."""
    return (
        Register(f"{name}_LO", offset, Access.RO, f"{doc} Bits 31:0."),
        Register(
            f"{name}_HI",
            offset + 4,
            Access.RO,
            f"{doc} High part.",
            (Field("ADDRESS", VA_BITS - 33, 0, f"Bits {VA_BITS - 1}:32."),),
        ),
    )


_RECORD_WORDS = FAULT_RECORD_BYTES // 4

_PLACEMENTS = (
    "0 by the machine: DEEP if the context has several address spaces, else WIDE; "
    + ", ".join(f"{one.value} {one.name}" for one in Placement if one != Placement.CONTEXT)
    + "."
)

_CHECKS = ", ".join(f"{check.value} {check.name}" for check in SkedCheck)

_CORE_CAUSES = ", ".join(f"{cause.value} {cause.name}" for cause in CoreCause)

GLOBAL = Block(
    name="GLOBAL",
    base=0x0000,
    stride=0x1000,
    count=1,
    built=lambda config: 1,
    registers=(
        Register("ID", 0x000, Access.RO, 'Always "SIGB".', constant=lambda config: ID),
        Register(
            "VERSION",
            0x004,
            Access.RO,
            "Version of this register map.",
            (
                Field("MINOR", 15, 0, "Grows with additions."),
                Field("MAJOR", 31, 16, "Grows with changes that a driver must know of."),
            ),
            constant=lambda config: VERSION[0] << 16 | VERSION[1],
        ),
        _size("CHANNELS", 0x008, "Channels built."),
        _size("COPY_ENGINES", 0x00C, "Copy engines built."),
        _size("SEMAPHORES", 0x010, "On-chip semaphores built."),
        _size("COUNTERS", 0x014, "How many of them can be counting semaphores."),
        _size("DATA_WIDTH", 0x018, "Bits of the memory port's data."),
        _size("ADDRESS_WIDTH", 0x01C, "Bits of a physical address."),
        *_constants(
            "MEMORY_BYTES", 0x020, "Bytes of physical memory.", lambda config: config.memory_bytes
        ),
        _size("ASIDS", 0x028, "Address spaces."),
        _size("CYCLE_NS", 0x02C, "Nanoseconds that one clock stands for."),
        *_constants(
            "SEM_WINDOW",
            0x030,
            "First virtual address of the on-chip semaphores.",
            lambda config: WINDOW_BASE,
        ),
        _size("PREFETCH_BEATS", 0x038, "Memory beats of pushbuffer prefetched per channel."),
        _size("L1_ENTRIES", 0x03C, "Pages in the first-level TLB of each memory client."),
        _size("L2_ENTRIES", 0x040, "Pages in the second-level TLB."),
        _size("L2_WAYS", 0x044, "Its ways."),
        _size("WALKS", 0x048, "Page walks that may be under way."),
        _size("CONTEXTS", 0x04C, "Contexts."),
        _size("SLOTS", 0x050, "Slots of the task table."),
        _size("SMS", 0x054, "Streaming multiprocessors; 0: no compute engine."),
        _size("SM_WARPS", 0x058, "Hardware warps of each SM."),
        _size("SM_BLOCKS", 0x05C, "Block slots of each SM."),
        _size("SM_REGISTERS", 0x060, "32-bit registers of each SM."),
        _size("SM_SHARED", 0x064, "Bytes of shared memory of each SM."),
        _size("LANES", 0x068, "Threads of a warp that an SM executes per cycle."),
        _size("QUEUES", 0x06C, "Queue tasks that may be open."),
        Register(
            "TIME_0",
            0x080,
            Access.RO,
            "PTIMER in ns, bits 31:0 (public offset). Read TIME_1 before and after; "
            "they belong together when both are equal.",
        ),
        Register("TIME_1", 0x084, Access.RO, "PTIMER in ns, bits 63:32 (public offset)."),
        Register(
            "DOORBELL",
            0x090,
            Access.WO,
            "Work submit token: the channel has work, its GP_PUT is read again (public offset). "
            "A channel that was not built or another runlist is ignored silently.",
            (
                Field("CHID", 11, 0, "Channel."),
                Field("RUNLIST_ID", 22, 16, "0, the one runlist."),
            ),
        ),
        Register("INTR", 0x100, Access.RO, "What asks for the interrupt line.", _INTERRUPTS),
        Register(
            "INTR_ENABLE",
            0x104,
            Access.RW,
            "The interrupt line is 1 while a bit of INTR is 1 that is enabled here.",
            _INTERRUPTS,
        ),
        *_halves(
            "INTR_ERROR",
            0x108,
            Access.RO,
            "Halted by an error, until INTR_0 and INTR_1 of the channel are cleared.",
        ),
        *_halves("INTR_NOTIFY", 0x110, Access.W1C, "Executed NON_STALL_INTERRUPT."),
        *_halves("INTR_COPY", 0x118, Access.W1C, "Completed a copy that asks for an interrupt."),
        Register(
            "SEM_COUNTING",
            0x140,
            Access.RW,
            "Semaphores below COUNT are counting semaphores: underflow and overflow are errors.",
            (Field("COUNT", 6, 0, "More than COUNTERS counts as COUNTERS."),),
        ),
        Register(
            "WRITEBACK",
            0x144,
            Access.RW,
            "Cycles between lazy write-backs of GP_GET to USERD.",
            reset=1024,
        ),
        *(
            Register(name, 0x180 + 4 * number, Access.RO, f"{doc} Wraps at 32 bits.")
            for number, (name, doc) in enumerate(PERFORMANCE.items())
        ),
        *_page_address("MMU_VA", 0x200, "Argument: a virtual address", VA_BITS),
        *_page_address("MMU_PDB", 0x208, "Argument: a page directory base, physical", PA_BITS),
        *_page_address(
            "MMU_LIMIT",
            0x210,
            "Argument: the last 4 KiB page of an address space; all of a larger page that reaches "
            "past it is past the limit",
            VA_BITS,
        ),
        Register(
            "MMU_COMMAND",
            0x218,
            Access.WO,
            "A write begins a bind or an invalidation. Not before MMU_STATUS.BUSY is 0. It does "
            "not wait for the end.",
            (
                Field("OPERATION", 2, 0, f"{_MMU_OPERATIONS}."),
                Field("ASID", 25, 16, "Address space; counts for all but INVALIDATE_ALL."),
            ),
        ),
        Register(
            "MMU_STATUS",
            0x21C,
            Access.RO,
            "The last MMU_COMMAND.",
            (
                Field(
                    "BUSY",
                    0,
                    0,
                    "It is under way. 0: from now on no translation that was made before it is "
                    "used for what it names, and no access that was translated so is under way.",
                ),
                Field(
                    "REFUSED",
                    1,
                    1,
                    "It came while another was under way, or named an unknown operation, an "
                    "ASID that was not built, or a page directory past the end of memory: it did "
                    "nothing.",
                ),
            ),
        ),
        *_page_address("FAULT_BUFFER", 0x240, "Physical address of the fault buffer", PA_BITS),
        Register(
            "FAULT_SIZE",
            0x248,
            Access.RW,
            "Size of the fault buffer.",
            (
                Field("RECORDS", 19, 0, "It is a ring of so many records, at least 2."),
                Field(
                    "ENABLE",
                    31,
                    31,
                    "Faults are recorded in it. 0: FAULT_PUT is 0, and faults are counted in "
                    "FAULT_DROPPED. Reads as 1 until a record that was under way when 0 was "
                    "written is over; change the buffer, or use its memory otherwise, only while "
                    "it reads as 0.",
                ),
            ),
        ),
        Register(
            "FAULT_GET",
            0x24C,
            Access.RW,
            "The record that software reads next.",
            (Field("RECORD", 19, 0, "The buffer is empty while it is FAULT_PUT's."),),
        ),
        Register(
            "FAULT_PUT",
            0x250,
            Access.RO,
            "The record that is written next. One before FAULT_GET, the buffer is full.",
            (Field("RECORD", 19, 0, "Those before it are in memory."),),
        ),
        Register(
            "FAULT_STATUS",
            0x254,
            Access.W1C,
            "What the interrupt FAULT is for.",
            (
                Field("FAULT", 0, 0, "An access could not be translated; FAULT_RECORD holds it."),
                Field(
                    "OVERFLOW",
                    1,
                    1,
                    "The buffer was full, or was switched off while a record was written to it. "
                    "While it is 1 no faults are recorded; they are counted in FAULT_DROPPED.",
                ),
                Field(
                    "BUS",
                    2,
                    2,
                    "A record could not be written: a bus error, or no memory there. Counted in "
                    "FAULT_DROPPED.",
                ),
            ),
        ),
        Register(
            "FAULT_DROPPED", 0x258, Access.RO, "Faults that no record tells of. Wraps at 32 bits."
        ),
        *(
            Register(
                f"FAULT_RECORD_{word}",
                0x260 + 4 * word,
                Access.RO,
                "The first fault since FAULT_STATUS.FAULT was cleared, as in the fault buffer "
                f"(`FAULT_RECORD` in the C header), bits {32 * word + 31}:{32 * word}.",
            )
            for word in range(_RECORD_WORDS)
        ),
        *_page_address("TASK_LISTS", 0x280, "Virtual address of the task lists", VA_BITS),
        Register(
            "TASK_LISTS_SIZE",
            0x288,
            Access.RW,
            "Their size and address space. All three may change only while TASK_STATE.IDLE is 1.",
            (
                Field(
                    "LOG_SIZE",
                    4,
                    0,
                    "Each list has 2^LOG_SIZE places of 8 bytes, at most 2^20, of which a few (a "
                    "quarter more than SLOTS) are kept for tasks that come back. There are 64 for "
                    "each context, by priority, and then by context.",
                ),
                Field("ASID", 25, 16, "Address space; applications must not reach the lists."),
            ),
        ),
        Register(
            "CONTEXT_SLICE",
            0x28C,
            Access.RW,
            "Cycles that a context runs while others wait.",
            reset=20_000,
        ),
        Register(
            "CONTEXT_BROKEN",
            0x290,
            Access.W1C,
            "Contexts whose instance block cannot be read, or names what cannot be bound; one bit "
            "each. Their tasks wait; clearing the bit lets the context be tried again.",
            (Field("CONTEXT", 15, 0, "Context 0 … 15."),),
        ),
        Register(
            "TASK_STATUS",
            0x294,
            Access.W1C,
            "What happened to tasks.",
            (
                Field("WARP_FAULT", 0, 0, "A warp could not go on; WARP_FAULT holds the first."),
                Field("LOST", 1, 1, "A task could not be read from its list, and is lost."),
            ),
        ),
        Register(
            "TASK_STATE",
            0x298,
            Access.RO,
            "What the compute engine does now.",
            (
                Field("IDLE", 0, 0, "It holds no task anywhere, and none is on its way."),
                Field("ACTIVE", 1, 1, "A context runs: its address spaces are bound."),
                Field("CONTEXT", 7, 4, "Which one, or the last one."),
            ),
            reset=1,
        ),
        Register(
            "WARP_FAULT",
            0x29C,
            Access.RO,
            "The first warp that could not go on since TASK_STATUS.WARP_FAULT was cleared.",
            (
                Field("CAUSE", 3, 0, _CORE_CAUSES),
                Field("SM", 15, 8, "On this SM."),
                Field("ASID", 25, 16, "Of this address space."),
            ),
        ),
        *_halves_of("WARP_FAULT_AT", 0x2A0, "Virtual address of its instruction."),
        *_halves_of("WARP_FAULT_VA", 0x2A8, "Virtual address that it accessed, where it did."),
    ),
)

CHANNEL = Block(
    name="CHANNEL",
    base=0x4000,
    stride=0x100,
    count=64,
    built=lambda config: config.channels,
    registers=(
        Register(
            "CONTROL",
            0x00,
            Access.RW,
            "Switches the channel on.",
            (
                Field(
                    "ENABLE",
                    0,
                    0,
                    "The channel fetches and executes. 0 stops its running copies: they end with "
                    "a part of their bytes, without release and without error, unless an access "
                    "that was under way fails. Wait for STATUS.ACTIVE = 0 before 1 is written "
                    "again: the write is answered only then and holds up all other accesses, "
                    "doorbells too. A start drops the errors that are there when it is written; "
                    "not those of copies that it waits for.",
                ),
            ),
        ),
        Register(
            "STATUS",
            0x04,
            Access.RO,
            "What the channel does now.",
            (
                Field("ENABLED", 0, 0, "It is switched on."),
                Field("HALTED", 1, 1, "An error halted it."),
                Field("FLOOR", 2, 2, "Its time slice runs."),
                Field("SERVED", 3, 3, "It has the method pipeline."),
                Field("PENDING", 4, 4, "It has work, fetched or not."),
                Field(
                    "ACTIVE",
                    5,
                    5,
                    "A copy, a task, a read, a write-back or a semaphore operation in memory of it "
                    "is under way: its memory is in use, also after it was switched off.",
                ),
                Field("WAIT", 11, 8, f"What its held method waits for: {_WAIT_DOC}."),
                Field("ACQUIRE_FAIL", 12, 12, "Its acquire has failed at least once."),
                Field("COPIES", 19, 16, "Copies launched and not completed."),
                Field("TASKS", 31, 20, "Tasks launched and not over; those they launched, too."),
            ),
        ),
        Register(
            "GP_BASE",
            0x08,
            Access.RW,
            "Virtual address of the ring, low part.",
            (Field("OFFSET", 31, 3, "Bits 31:3."),),
            reset=None,
        ),
        Register(
            "GP_BASE_HI",
            0x0C,
            Access.RW,
            "Virtual address of the ring, high part, and its size.",
            (
                Field("OFFSET", 7, 0, "Bits 39:32."),
                Field("LIMIT2", 20, 16, "The ring has 2^LIMIT2 entries of 8 bytes."),
            ),
            reset=None,
        ),
        Register(
            "USERD",
            0x10,
            Access.RW,
            "Virtual address of USERD, low part.",
            (Field("ADDRESS", 31, 9, "Bits 31:9."),),
            reset=None,
        ),
        Register(
            "USERD_HI",
            0x14,
            Access.RW,
            "Virtual address of USERD, high part.",
            (Field("ADDRESS", 7, 0, "Bits 39:32."),),
            reset=None,
        ),
        Register(
            "CONFIG",
            0x18,
            Access.RW,
            "Address space and rights.",
            (
                Field("ASID", 9, 0, "Address space of everything that the channel does."),
                Field("AUTH_LEVEL", 16, 16, "1: privileged methods are allowed."),
                Field("CONTEXT", 23, 20, "Context of its tasks."),
                Field(
                    "EARLY_WAITS",
                    17,
                    17,
                    "1: an acquire that is not `== 0` of a counting semaphore needs no copy "
                    "engine: for waits between streams, which say nothing of priority. 0: every "
                    "acquire of a channel with a copy object is decided with an engine.",
                ),
            ),
            reset=None,
        ),
        Register(
            "SLICE", 0x1C, Access.RW, "Cycles of a time slice, 1 … 2^31; 0 counts as 1.", reset=None
        ),
        Register(
            "ACQUIRE",
            0x20,
            Access.RW,
            "Retry period and time-out of acquires in memory.",
            _mirror(
                AcquireTimer,
                retry_man="Retry period: RETRY_MAN × 2^RETRY_EXP cycles.",
                retry_exp="See RETRY_MAN.",
                timeout_exp="See TIMEOUT_MAN.",
                timeout_man="Time-out: TIMEOUT_MAN × 2^TIMEOUT_EXP × 1,024 ns.",
                timeout_enable="A time-out is an ACQUIRE error.",
            ),
            reset=None,
        ),
        Register("GP_PUT", 0x24, Access.RO, "Ring index behind the last entry, as last read."),
        Register("GP_GET", 0x28, Access.RO, "Ring index of the next entry to be started."),
        Register(
            "INTR_0",
            0x2C,
            Access.W1C,
            "Why the channel is halted, public bits. Clearing the bit resumes the channel, unless "
            "another of its copies has failed: then it stays halted, for that.",
            _codes(0),
        ),
        Register(
            "INTR_1",
            0x30,
            Access.W1C,
            "Why the channel is halted, errors of the copy class. See INTR_0.",
            _codes(32),
        ),
        Register(
            "CAUSE",
            0x34,
            Access.RO,
            "The error in detail.",
            (
                Field("CAUSE", 5, 0, ", ".join(f"{cause.value} {cause.name}" for cause in Cause)),
                Field(
                    "MORE",
                    8,
                    8,
                    "Another copy or task of the channel has failed since; this record stays that "
                    "of the first error. Once that is cleared the channel is halted by the second; "
                    "of those that fail while two are recorded only MORE of the second tells. "
                    "Final once STATUS.COPIES and STATUS.TASKS are 0.",
                ),
                Field(
                    "SKEDCHECK",
                    21,
                    16,
                    f"With TASK_CHECK, the public number of the check that failed: {_CHECKS}.",
                ),
            ),
        ),
        Register("ERROR_VA", 0x38, Access.RO, "Virtual address of the error, bits 31:0."),
        Register(
            "ERROR_VA_HI",
            0x3C,
            Access.RO,
            "Virtual address of the error, high part.",
            (Field("ADDRESS", 16, 0, "Bits 48:32."),),
        ),
        Register(
            "METHOD0",
            0x40,
            Access.RW,
            "The held method. Writes count only while the channel is halted.",
            (
                Field("ADDRESS", 13, 2, "Method number in dwords, so in place in bytes."),
                Field("SUBCHANNEL", 18, 16, "Subchannel."),
                Field("VALID", 31, 31, "There is one; 0 drops it."),
            ),
        ),
        Register("DATA0", 0x44, Access.RW, "Its data. Writes count only while halted."),
        Register(
            "REFERENCE",
            0x48,
            Access.RO,
            "Data of the last SET_REFERENCE since the channel's start.",
        ),
        Register("METHODS", 0x4C, Access.RO, "Methods executed since its start. Wraps at 32 bits."),
        Register("COPIES", 0x50, Access.RO, "Copies completed since its start. Wraps at 32 bits."),
        Register("TASKS", 0x54, Access.RO, "Tasks over since its start. Wraps at 32 bits."),
    ),
)

SEMAPHORE = Block(
    name="SEMAPHORE",
    base=0x8000,
    stride=16,
    count=1024,
    built=lambda config: config.semaphores,
    registers=(
        Register("PAYLOAD_LO", 0x0, Access.RW, "Payload, bits 31:0.", reset=None),
        Register("PAYLOAD_HI", 0x4, Access.RW, "Payload, bits 63:32.", reset=None),
        Register("TIMESTAMP_LO", 0x8, Access.RW, "Time of a release in ns, 31:0.", reset=None),
        Register("TIMESTAMP_HI", 0xC, Access.RW, "Time of a release in ns, 63:32.", reset=None),
    ),
)

CONTEXT = Block(
    name="CONTEXT",
    base=0xC000,
    stride=16,
    count=16,
    built=lambda config: config.contexts if config.compute else 0,
    registers=(
        Register(
            "INSTANCE_LO",
            0x0,
            Access.RW,
            "Physical address of the instance block, low part: which address spaces the context "
            "has, and their page directories. It is read whenever the context begins to run.",
            (Field("ADDRESS", 31, 12, "Bits 31:12."),),
        ),
        Register(
            "INSTANCE_HI",
            0x4,
            Access.RW,
            "Physical address of the instance block, high part.",
            (Field("ADDRESS", PA_BITS - 33, 0, f"Bits {PA_BITS - 1}:32."),),
        ),
        Register(
            "PLACEMENT",
            0x8,
            Access.RW,
            "How blocks of tasks that leave it open are spread over SMs.",
            (Field("POLICY", 1, 0, _PLACEMENTS),),
        ),
    ),
)

REGISTERS = (GLOBAL, CHANNEL, SEMAPHORE, CONTEXT)
"""The whole map."""


def address(name: str) -> int:
    """Byte address of a global register; KeyError when there is none of that name."""
    return GLOBAL.address(name)


def channel_address(channel: int, name: str) -> int:
    """Byte address of a register of `channel`; errors as `Block.address`."""
    return CHANNEL.address(name, channel)


def channel_word(name: str) -> int:
    """Number of a channel register in 32-bit words from the start of its channel's set."""
    return CHANNEL[name].offset // 4


def semaphore_address(slot: int, name: str) -> int:
    """Byte address of a register of on-chip semaphore `slot`; errors as `Block.address`."""
    return SEMAPHORE.address(name, slot)


def context_address(context: int, name: str) -> int:
    """Byte address of a register of `context`; errors as `Block.address`."""
    return CONTEXT.address(name, context)
