"""The only description of the register map: decoder, driver and documents are generated from it.

Byte offsets in the 16-bit address space of the control port, which has four blocks: global
registers, and one set of registers per channel, per on-chip semaphore and per context. Reads and
writes use plain integers; `pack` and `unpack` check ranges.

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
from signalbox.hw.errors import CODE_OF, Cause, Code, CoreCause, Refusal
from signalbox.hw.methods import ENGINE_SUBCHANNELS, OBJECT_BITS, AcquireTimer
from signalbox.hw.page_tables import FAULT_RECORD_BYTES
from signalbox.hw.qmd import Placement, SkedCheck
from signalbox.hw.runlists import RunlistError

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
    "KillScope",
    "MmuOperation",
    "PreemptionLevel",
    "Register",
    "Wait",
    "address",
    "channel_address",
    "channel_word",
    "context_address",
    "semaphore_address",
]

ADDRESS_BITS = 16
"""Width of a byte address at the control port."""

ID = 0x5349_4742
"""`ID` of every Signalbox: "SIGB"."""

VERSION = (2, 16)
"""Major and minor version of the register map; the major number grows with incompatible changes."""


class Access(enum.StrEnum):
    """Access rights of software; any other access is answered with SLVERR and has no effect."""

    RO = "ro"
    """Read only."""
    RW = "rw"
    W1C = "w1c"
    """Read; writing a 1 clears the bit. A bit set in the same cycle stays set."""
    WO = "wo"
    """Write only; reads as 0."""

    @property
    def writable(self) -> bool:
        """Whether writes are accepted."""
        return self is not Access.RO


class Field(NamedTuple):
    """Bits `hi`:`lo` of a register, both inclusive."""

    name: str
    hi: int
    lo: int
    doc: str

    @property
    def width(self) -> int:
        """Width of the field."""
        return self.hi - self.lo + 1

    @property
    def mask(self) -> int:
        """Bit mask of the field in its register."""
        return ((1 << self.width) - 1) << self.lo


@dataclass(frozen=True)
class Register:
    """One 32-bit register.

    Members
    -------
    name : name, unique in its block.
    offset : bytes from the start of the set.
    access : access rights of software.
    doc : meaning and units.
    fields : lowest first; without any, the register is one 32-bit number. Bits outside fields read
        as 0 and ignore writes.
    reset : value after reset; None: not reset, to be written before use.
    constant : value of a register that is constant, from the configuration; replaces `reset`.
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
        """Bits with a meaning."""
        return sum(field.mask for field in self.fields) if self.fields else 0xFFFF_FFFF

    def stored(self, config: Config) -> int:
        """Bits of `mask` that a machine with `config` stores: all except those of ASIDs that it
        does not have. They read as 0, so a wrong ASID can be noticed."""
        numbers = (1 << config.asid_bits) - 1
        spaces = [field for field in self.fields if field.name == "ASID"]
        return self.mask & ~sum(one.mask & ~(numbers << one.lo) for one in spaces)

    def initial(self, config: Config) -> int | None:
        """Value after reset of a machine with `config`; None if not reset."""
        return self.reset if self.constant is None else self.constant(config)

    def field(self, name: str) -> Field:
        """Field of this name. Raises `KeyError`."""
        for field in self.fields:
            if field.name == name:
                return field
        raise KeyError(f"register {self.name} has no field {name}")

    def pack(self, **values: int) -> int:
        """Register value with these fields; those not named are 0.

        Raises `KeyError` for an unknown field, `ValueError` for a value that does not fit its
        field.
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
    """Sets of equal registers, `stride` bytes apart, from byte `base` on.

    Members
    -------
    name : name of the block.
    base : byte address of the first set.
    stride : bytes between sets.
    count : sets in the address space.
    built : number of sets in a machine with a configuration; the others answer SLVERR.
    registers : registers of a set, by ascending offset.
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

        Raises `KeyError` for an unknown register, `ValueError` for an index past `count`.
        """
        if not 0 <= index < self.count:
            raise ValueError(f"{self.name.lower()} {index} is outside 0 … {self.count - 1}")
        return self.base + index * self.stride + self[name].offset


def _mirror(layout: type[data.Struct], **docs: str) -> tuple[Field, ...]:
    """Fields of a register with a public layout; `docs`: description by field name."""
    return tuple(
        Field(name.upper(), field.offset + field.width - 1, field.offset, docs[name])
        for name, field in data.Layout.cast(layout)
    )


def _codes(base: int) -> tuple[Field, ...]:
    """One bit per public interrupt, for one of the INTR registers."""
    return tuple(
        Field(code.name, code - base, code - base, _causes(code))
        for code in Code
        if base <= code < base + 32
    )


def _causes(code: Code) -> str:
    causes = [cause.name for cause, of in CODE_OF.items() if of == code]
    return f"Causes: {', '.join(causes)}." if causes else "Never raised."


def _halves(name: str, offset: int, access: Access, doc: str) -> tuple[Register, Register]:
    """64-bit channel mask in two registers."""
    return (
        Register(f"{name}_LO", offset, access, f"{doc} Channels 0-31, one bit each."),
        Register(f"{name}_HI", offset + 4, access, f"{doc} Channels 32-63, one bit each."),
    )


def _constants(
    name: str, offset: int, doc: str, value: Callable[[Config], int]
) -> tuple[Register, Register]:
    """64-bit constant in two registers."""
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
    """Constant register for the member of `Config` of the same name."""
    return Register(
        name, offset, Access.RO, doc, constant=lambda config: getattr(config, name.lower())
    )


PERFORMANCE = {
    "METHODS": "Methods executed.",
    "SEMAPHORE_OPS": "Completed semaphore operations of methods (an acquire when it passes) and "
    "of copies, on chip and in memory; accesses by registers are not counted.",
    "ACQUIRE_FAILS": "Failed evaluations of an acquire, including retries and time-outs.",
    "WAKES": "Parked channels made ready by an on-chip semaphore, not by a timer or an engine.",
    "SWITCHES": "Times that the method pipeline went to a channel other than the previous one.",
    "COPIES": "Copies that ended, including failed ones and those of a channel switched off.",
    "READ_BEATS": "Memory beats read by copy engines.",
    "WRITE_BEATS": "Memory beats written by copy engines.",
    "ERRORS": "Errors of methods and copies; each halts its channel.",
    "DOORBELLS": "Doorbells with a valid handle.",
    "L1_HITS": "Bursts that hit in a first-level TLB.",
    "L1_MISSES": "Bursts that missed; those coalesced with an outstanding miss are counted, too.",
    "L2_HITS": "Misses that hit in the second-level TLB.",
    "PAGE_WALKS": "Page walks started, including restarts after an invalidation.",
    "FAULTS": "Bursts that faulted.",
    "INVALIDATIONS": "Binds and invalidations of translations, by registers, methods and contexts.",
    "LAUNCHES": "Tasks launched, by channels and by tasks at their end.",
    "TASKS": "Tasks completed or failed; refused launches are not counted.",
    "BLOCKS": "Blocks sent to SMs.",
    "WARPS": "Warps started.",
    "WARP_FAULTS": "Warps that faulted.",
    "NO_REGISTERS": "Placement decisions without a block, as no SM had enough free registers.",
    "NO_WARPS": "Likewise, as no SM had enough free hardware warps.",
    "NO_SHARED": "Likewise, as no SM had enough free shared memory.",
    "NO_SLOTS": "Likewise, as no SM had a free block slot.",
    "NO_LOWER": "Likewise, as all SMs ran blocks of the same or a higher priority.",
    "IGNORED": "Compute methods ignored, as they set state that this machine does not have, or "
    "are data of a dropped inline transfer.",
    "CONTEXT_STARTS": "Times that a context began to run.",
    "CONTEXT_SWITCH": "Cycles in which a context leaves, or one with waiting tasks is being bound.",
    "BLOCKS_SAVED": "Blocks that were stopped, and whose state is saved.",
    "BLOCKS_RESTORED": "Blocks with saved state that were sent to SMs again.",
    "SM_CYCLES": "Cycles of SMs to which blocks were sent that are not over; up to SMS per cycle.",
}
"""Performance counters and their events; 32 bits, wrap, never cleared."""


class MmuOperation(amaranth_enum.Enum, shape=3):
    """Values of `MMU_COMMAND.OPERATION`."""

    INVALIDATE_ALL = 0
    """Translations of every ASID."""
    INVALIDATE_ASID = 1
    """Translations of one ASID."""
    INVALIDATE_PAGE = 2
    """The page of any size that contains MMU_VA, of one ASID."""
    BIND = 3
    """Binds the page directory at MMU_PDB to the ASID, up to MMU_LIMIT."""
    UNBIND = 4
    """Removes the bind of the ASID."""


class Wait(amaranth_enum.Enum, shape=4):
    """Values of `STATUS.WAIT`: reason why the held method of a channel waits."""

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
    Wait.ALL_IDLE.value: "all operations in engines and fences to end (WFI of scope ALL)",
    Wait.WRITEBACK.value: "its REF to be written to USERD (SET_REFERENCE)",
    Wait.TURN.value: "its next turn only",
    Wait.ENGINE_TIMED.value: "as 2, or a semaphore of its group not to be 0, to start its time-out",
    Wait.TRANSLATION.value: "its invalidation of translations to be acknowledged (MEM_OP)",
    Wait.TASKS.value: "its own tasks to end",
    Wait.COMPUTE.value: "the compute engine to accept its method, or to complete it",
}
"""Texts of `Wait`, to follow "waits for"."""

_WAIT_DOC = ", ".join(f"{value} {text}" for value, text in WAITS.items())

_INTERRUPTS = (
    Field("ERROR", 0, 0, "A channel is halted by an error (INTR_ERROR)."),
    Field("NOTIFY", 1, 1, "A channel executed NON_STALL_INTERRUPT (INTR_NOTIFY)."),
    Field("COPY", 2, 2, "A copy with an interrupt has completed, without an error (INTR_COPY)."),
    Field("FAULT", 3, 3, "An access faulted, or a fault was lost (FAULT_STATUS)."),
    Field("TASK", 4, 4, "A context cannot run, or a task was lost (CONTEXT_BROKEN, TASK_STATUS)."),
    Field("RUNLIST", 5, 5, "A runlist was refused, or all of its TSGs wait (RUNLIST_STATUS)."),
)

_MMU_OPERATIONS = ", ".join(f"{one.value} {one.name}" for one in MmuOperation)


class PreemptionLevel(amaranth_enum.IntEnum, shape=2):
    """How tasks leave their slots, by a switch of the context or an eviction (PREEMPT-1)."""

    CTA = 0
    """At block boundaries: no block is placed any more, those on SMs end."""
    WFI = 1
    """Wait for idle: they end."""
    CILP = 2
    """At instruction boundaries: blocks on SMs are stopped and saved. CTA without preemption."""


class KillScope(amaranth_enum.IntEnum, shape=2):
    """Tasks named by TASK_KILL."""

    TASK = 0
    """The task of a record, in one address space."""
    SPACE = 1
    """All tasks of an address space."""
    CONTEXT = 2
    """All tasks of a context."""


def _page_address(name: str, offset: int, doc: str, bits: int) -> tuple[Register, Register]:
    """Page address in two registers, `bits` wide."""
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
    """Read-only virtual address in two registers."""
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
    "0 automatic: DEEP if the context has several address spaces, else WIDE; "
    + ", ".join(f"{one.value} {one.name}" for one in Placement if one != Placement.CONTEXT)
    + "."
)

_LEVELS = (
    "How tasks leave when the context is switched or they are evicted: "
    "0 CTA, no block is placed any more, those on SMs end; 1 WFI, they end; "
    "2 CILP, blocks on SMs are stopped and their state is saved (CTA without a save area). "
    "3 acts as 0."
)

_CHECKS = ", ".join(f"{check.value} {check.name}" for check in SkedCheck)

_RUNLIST_ERRORS = ", ".join(f"{error.value} {error.name}" for error in RunlistError if error)

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
                Field("MAJOR", 31, 16, "Grows with incompatible changes."),
            ),
            constant=lambda config: VERSION[0] << 16 | VERSION[1],
        ),
        _size("CHANNELS", 0x008, "Channels built."),
        _size("COPY_ENGINES", 0x00C, "Copy engines built."),
        _size("SEMAPHORES", 0x010, "On-chip semaphores built."),
        _size("COUNTERS", 0x014, "Number of these that can be counting semaphores."),
        _size("DATA_WIDTH", 0x018, "Bits of the memory port's data."),
        _size("ADDRESS_WIDTH", 0x01C, "Bits of a physical address."),
        *_constants(
            "MEMORY_BYTES", 0x020, "Bytes of physical memory.", lambda config: config.memory_bytes
        ),
        _size("ASIDS", 0x028, "Address spaces."),
        _size("CYCLE_NS", 0x02C, "Nanoseconds per clock cycle."),
        *_constants(
            "SEM_WINDOW",
            0x030,
            "First virtual address of the on-chip semaphores.",
            lambda config: WINDOW_BASE,
        ),
        _size("PREFETCH_BEATS", 0x038, "Memory beats of pushbuffer prefetched per channel."),
        _size("L1_ENTRIES", 0x03C, "Entries of each memory client's first-level TLB."),
        _size("L2_ENTRIES", 0x040, "Entries of the second-level TLB."),
        _size("L2_WAYS", 0x044, "Ways of the second-level TLB."),
        _size("WALKS", 0x048, "Concurrent page walks."),
        _size("CONTEXTS", 0x04C, "Contexts."),
        _size("SLOTS", 0x050, "Slots of the task table."),
        _size("SMS", 0x054, "Streaming multiprocessors; 0: no compute engine."),
        _size("SM_WARPS", 0x058, "Hardware warps of each SM."),
        _size("SM_BLOCKS", 0x05C, "Block slots of each SM."),
        _size("SM_REGISTERS", 0x060, "32-bit registers of each SM."),
        _size("SM_SHARED", 0x064, "Bytes of shared memory of each SM."),
        _size("LANES", 0x068, "Threads of a warp that an SM executes per cycle."),
        _size("QUEUES", 0x06C, "Open queue tasks, at most."),
        _size("SPARE_ROWS", 0x070, "Evicted tasks with running blocks, at most."),
        _size(
            "SAVE_PLACES",
            0x074,
            "Stopped blocks whose state is in memory, at most; 0: no block is stopped.",
        ),
        Register(
            "SAVE_PLACE_BYTES",
            0x078,
            Access.RO,
            "Bytes of memory for each of these; a multiple of 4096.",
            constant=lambda config: config.place_bytes,
        ),
        _size(
            "NESTED_KERNELS",
            0x07C,
            "Kernels that have launched others or were launched by others, at most; 0: kernels "
            "cannot launch.",
        ),
        Register(
            "TIME_0",
            0x080,
            Access.RO,
            "PTIMER in ns, bits 31:0 (public offset). Read TIME_1 before and after it, and repeat "
            "if the two differ.",
        ),
        Register("TIME_1", 0x084, Access.RO, "PTIMER in ns, bits 63:32 (public offset)."),
        Register(
            "DOORBELL",
            0x090,
            Access.WO,
            "Work submit token: the channel has work, so its GP_PUT is read again (public offset). "
            "A write with a channel that was not built, or another runlist, is ignored silently.",
            (
                Field("CHID", 11, 0, "Channel."),
                Field("RUNLIST_ID", 22, 16, "0, the one runlist."),
            ),
        ),
        Register("INTR", 0x100, Access.RO, "Pending interrupts.", _INTERRUPTS),
        Register(
            "INTR_ENABLE",
            0x104,
            Access.RW,
            "The interrupt line is 1 while a bit of INTR that is enabled here is 1.",
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
            "Argument: the last 4 KiB page of an address space; a larger page that extends past "
            "it is past the limit as a whole",
            VA_BITS,
        ),
        Register(
            "MMU_COMMAND",
            0x218,
            Access.WO,
            "A write starts a bind or an invalidation, and does not wait for its completion. Write "
            "only while MMU_STATUS.BUSY is 0.",
            (
                Field("OPERATION", 2, 0, f"{_MMU_OPERATIONS}."),
                Field("ASID", 25, 16, "Address space; ignored by INVALIDATE_ALL."),
            ),
        ),
        Register(
            "MMU_STATUS",
            0x21C,
            Access.RO,
            "Status of the last MMU_COMMAND.",
            (
                Field(
                    "BUSY",
                    0,
                    0,
                    "In progress. 0: complete: no earlier translation that it covers is used any "
                    "more, and no access that used one is outstanding.",
                ),
                Field(
                    "REFUSED",
                    1,
                    1,
                    "It was refused, without effect: written while another was in progress, "
                    "unknown operation, ASID that was not built, or page directory past the end "
                    "of memory.",
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
                Field("RECORDS", 19, 0, "Records in the ring, at least 2."),
                Field(
                    "ENABLE",
                    31,
                    31,
                    "Faults are recorded in the buffer. 0: FAULT_PUT is 0, and faults are counted "
                    "in FAULT_DROPPED. After 0 was written it reads as 1 until a record in flight "
                    "has completed; change the buffer or reuse its memory only while it reads as "
                    "0.",
                ),
            ),
        ),
        Register(
            "FAULT_GET",
            0x24C,
            Access.RW,
            "Next record to be read by software.",
            (Field("RECORD", 19, 0, "Index; equal to FAULT_PUT while the buffer is empty."),),
        ),
        Register(
            "FAULT_PUT",
            0x250,
            Access.RO,
            "Next record to be written. The buffer is full when this is one before FAULT_GET.",
            (Field("RECORD", 19, 0, "Index; the records before it are in memory."),),
        ),
        Register(
            "FAULT_STATUS",
            0x254,
            Access.W1C,
            "Sources of the interrupt FAULT.",
            (
                Field("FAULT", 0, 0, "An access faulted; FAULT_RECORD holds the first."),
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
        Register("FAULT_DROPPED", 0x258, Access.RO, "Faults without a record. Wraps at 32 bits."),
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
            "Size and address space of the task lists. Change TASK_LISTS and this register only "
            "while TASK_STATE.IDLE is 1.",
            (
                Field(
                    "LOG_SIZE",
                    4,
                    0,
                    "Each list has 2^LOG_SIZE entries, at most 2^20, of 8 bytes, or 16 if "
                    "SAVE_PLACES is not 0. SLOTS + SPARE_ROWS "
                    "are reserved for tasks that return. There are 64 lists per "
                    "context, one per priority, ordered by context, then by priority.",
                ),
                Field(
                    "ASID",
                    25,
                    16,
                    "Address space; must not be accessible to applications. Bits that no ASID of "
                    "the machine needs read as 0.",
                ),
            ),
        ),
        Register(
            "CONTEXT_SLICE",
            0x28C,
            Access.RW,
            "Cycles that a context runs while others wait, from its first block on; 0 counts as 1. "
            "Cycles in which its blocks are restored do not count.",
            reset=20_000,
        ),
        Register(
            "CONTEXT_BROKEN",
            0x290,
            Access.W1C,
            "Contexts whose instance block cannot be read, or has an entry that cannot be bound; "
            "one bit each. Their tasks wait; clearing the bit retries the context.",
            (Field("CONTEXT", 15, 0, "Context 0 … 15."),),
        ),
        Register(
            "TASK_STATUS",
            0x294,
            Access.W1C,
            "Errors of tasks.",
            (
                Field("WARP_FAULT", 0, 0, "A warp faulted; WARP_FAULT holds the first."),
                Field("LOST", 1, 1, "A task could not be read from its list, and is lost."),
                Field(
                    "CHILD",
                    2,
                    2,
                    "A kernel's launch of another was refused; CHILD_REFUSED holds the first.",
                ),
            ),
        ),
        Register(
            "TASK_STATE",
            0x298,
            Access.RO,
            "State of the compute engine.",
            (
                Field("IDLE", 0, 0, "It holds no task, and none is on its way to it."),
                Field("ACTIVE", 1, 1, "A context runs: its address spaces are bound."),
                Field(
                    "STARTING",
                    2,
                    2,
                    "A context is being bound: its instance block is read, and its address spaces "
                    "are bound. Also with IDLE, if its tasks have been killed meanwhile.",
                ),
                Field("CONTEXT", 7, 4, "The running context, or the last one."),
                Field("KILLING", 8, 8, "Tasks named by TASK_KILL have not all ended."),
            ),
            reset=1,
        ),
        Register(
            "WARP_FAULT",
            0x29C,
            Access.RO,
            "First warp that faulted since TASK_STATUS.WARP_FAULT was cleared.",
            (
                Field("CAUSE", 3, 0, _CORE_CAUSES),
                Field("SM", 15, 8, "SM of the warp."),
                Field("ASID", 25, 16, "Address space of the warp."),
                Field("WARP", 31, 26, "Number of the warp in its block."),
            ),
        ),
        *_halves_of("WARP_FAULT_AT", 0x2A0, "Virtual address of its instruction."),
        *_halves_of("WARP_FAULT_VA", 0x2A8, "Virtual address of its access, if it was one."),
        Register(
            "TASK_KILL_RECORD",
            0x2B0,
            Access.RW,
            "Record of the task to be killed: its virtual address >> 8.",
        ),
        Register(
            "TASK_KILL",
            0x2B4,
            Access.WO,
            "Kills tasks: their warps end as soon as possible, nothing more of them begins, and "
            "each halts its channel (TASK_KILLED). Their releases and dependent tasks are dropped. "
            "New tasks that it names are refused until TASK_STATE.KILLING is 0; a write before "
            "that has no effect.",
            (
                Field(
                    "SCOPE",
                    1,
                    0,
                    ", ".join(f"{one.value} {one.name}" for one in KillScope)
                    + ": TASK_KILL_RECORD in ASID, all tasks of ASID, all tasks of CONTEXT. 3: "
                    "none.",
                ),
                Field("CONTEXT", 7, 4, "Context of the tasks. From CONTEXTS on: none."),
                Field("ASID", 25, 16, "Address space of the tasks."),
            ),
        ),
        Register(
            "CONTEXT_TIMEOUT",
            0x2B8,
            Access.RW,
            "Cycles in which a context that has to leave ends its blocks. Tasks with blocks on SMs "
            "after that are killed, and halt their channels (TASK_TIMEOUT). 0: no limit.",
        ),
        Register(
            "CHILD_LIMIT",
            0x2BC,
            Access.RW,
            "Most kernels at a time that kernels have launched and that are not complete; further "
            "launches are refused (ROOM). NESTED_KERNELS limits them, too.",
            (Field("COUNT", 11, 0, "0: no limit."),),
        ),
        Register(
            "CHILD_REFUSED",
            0x2C0,
            Access.RO,
            "First launch of a kernel by a kernel that was refused since TASK_STATUS.CHILD was "
            "cleared; the rest of the engine was not affected.",
            (
                Field(
                    "REASON",
                    3,
                    0,
                    ", ".join(f"{one.value} {one.name}" for one in Refusal if one.value) + ".",
                ),
                Field("CHECK", 9, 4, "Number of the failed check if REASON is CHECK, otherwise 0."),
                Field("ASID", 25, 16, "Address space of the kernels."),
                Field("DEPTH", 30, 26, "Depth that the child would have had."),
            ),
        ),
        Register(
            "CHILD_REFUSED_RECORD",
            0x2C4,
            Access.RO,
            "Record of that child: its virtual address >> 8.",
        ),
        Register(
            "CHILD_REFUSALS",
            0x2C8,
            Access.RO,
            "Refused launches of kernels by kernels.",
            (
                Field(
                    "COUNT",
                    15,
                    0,
                    "Number since TASK_STATUS.CHILD was cleared, at most 65,535.",
                ),
                Field("CHANNEL", 21, 16, "Channel of the first one."),
            ),
        ),
        Register(
            "CHILD_REFUSED_PARENT",
            0x2CC,
            Access.RO,
            "Record of the kernel that launched the child of CHILD_REFUSED: its virtual address >> "
            "8.",
        ),
        Register(
            "WARP_FAULT_BLOCK_X",
            0x2D0,
            Access.RO,
            "Position in the grid of the block of the warp of WARP_FAULT.",
        ),
        Register(
            "WARP_FAULT_BLOCK_YZ",
            0x2D4,
            Access.RO,
            "The same in the other two dimensions.",
            (Field("Y", 15, 0, "Position in y."), Field("Z", 31, 16, "Position in z.")),
        ),
        *_page_address("RUNLIST_BASE", 0x300, "Physical address of the runlist", PA_BITS),
        Register(
            "RUNLIST_SUBMIT",
            0x308,
            Access.RW,
            "A write submits the list at RUNLIST_BASE. It is read and checked, and replaces the "
            "active list as a whole when the round is over. Its memory is free when "
            "RUNLIST_INFO.READING is 0; a list submitted before that is refused, one submitted "
            "later replaces the one that waits.",
            (
                Field("LENGTH", 15, 0, "Entries of 16 bytes; 0: no channel has a turn."),
                Field("OFFSET", 31, 16, "Entry of the TSG that has the first turn."),
            ),
        ),
        Register(
            "RUNLIST_INFO",
            0x30C,
            Access.RO,
            "State of the runlist.",
            (
                Field("READING", 14, 14, "The submitted list is being read."),
                Field("PENDING", 15, 15, "The submitted list is neither active nor refused yet."),
                Field("GROUPS", 31, 16, "TSGs of the active list, each as often as it is listed."),
            ),
        ),
        Register(
            "RUNLIST_STATE",
            0x310,
            Access.RO,
            "TSG that has the turn.",
            (
                Field("TSGID", 11, 0, "Its number, or that of the last one."),
                Field("RUNNING", 31, 31, "A TSG has the turn."),
            ),
        ),
        Register(
            "RUNLIST_CONTROL",
            0x314,
            Access.RW,
            "Way of scheduling.",
            (
                Field(
                    "ENABLE",
                    0,
                    0,
                    "1: the channels of one TSG at a time can be served, in the order of the "
                    "runlist; SLICE divides the TSG's slice among them. 0: flat: each channel has "
                    "its own SLICE.",
                ),
            ),
        ),
        Register(
            "RUNLIST_UNIT",
            0x318,
            Access.RW,
            "Cycles that stand for 1,024 ns in the slices of TSGs.",
            (Field("CYCLES", 15, 0, "0 counts as 1."),),
            reset=103,
        ),
        Register(
            "RUNLIST_STATUS",
            0x31C,
            Access.W1C,
            "Sources of the interrupt RUNLIST.",
            (
                Field("ERROR", 0, 0, "A list was refused; RUNLIST_ERROR holds the first."),
                Field(
                    "ACQUIRE",
                    6,
                    6,
                    "All TSGs with work waited for failed acquires with ACQUIRE_SWITCH_TSG "
                    "(public bit).",
                ),
                Field(
                    "ACQUIRE_AND_ENG_IDLE",
                    7,
                    7,
                    "Likewise, and all engines were idle (public bit).",
                ),
            ),
        ),
        Register(
            "RUNLIST_ERROR",
            0x320,
            Access.RO,
            "First list refused since RUNLIST_STATUS.ERROR was cleared. The active list stays.",
            (
                Field("CODE", 3, 0, f"{_RUNLIST_ERRORS}; public up to 6."),
                Field(
                    "ENTRY",
                    31,
                    16,
                    "Number of the bad entry; with OVERFLOW the length of the list, with PENDING "
                    "and ROOM of a machine without runlists 0.",
                ),
            ),
        ),
        _size(
            "RUNLIST_ENTRIES",
            0x324,
            "TSGs in a runlist, each as often as it is listed, at most; 0: no runlists.",
        ),
        _size(
            "MASKED_SMS",
            0x328,
            "SMs that the QMD of a task can disable, the first ones; 0: SM_DISABLE_MASK must be 0.",
        ),
        Register(
            "RUNLIST_ACQ_PRETEST",
            0x32C,
            Access.RW,
            "Cycles without work, TIMEOUT << TIMESCALE, before a channel in the runlist repeats a "
            "failed acquire in memory that has ACQUIRE_SWITCH_TSG, if its ACQUIRE.RETRY is not "
            "longer. Public fields; the unit is ours.",
            (
                Field("TIMEOUT", 7, 0, "Number; 0: only ACQUIRE.RETRY counts."),
                Field("TIMESCALE", 15, 12, "Exponent."),
            ),
            reset=8,
        ),
    ),
)

OBJECTS = tuple(f"OBJECT{number}" for number in range(ENGINE_SUBCHANNELS))
"""Registers of the bound objects, by subchannel."""

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
                    "a part of their bytes, without release and without error, unless an "
                    "outstanding access fails. Wait for STATUS.ACTIVE = 0 before writing 1 again: "
                    "the write is answered only then and blocks all other accesses, including "
                    "doorbells. Writing 1 drops errors recorded until then, but not those of "
                    "copies and tasks that it waits for.",
                ),
            ),
        ),
        Register(
            "STATUS",
            0x04,
            Access.RO,
            "State of the channel.",
            (
                Field("ENABLED", 0, 0, "It is switched on."),
                Field("HALTED", 1, 1, "It is halted by an error."),
                Field("FLOOR", 2, 2, "It has the current time slice."),
                Field("SERVED", 3, 3, "It has the method pipeline."),
                Field("PENDING", 4, 4, "It has work, fetched or not."),
                Field(
                    "ACTIVE",
                    5,
                    5,
                    "It has a copy, a task, a read, a write-back or a semaphore operation in "
                    "memory in flight: its memory is in use, even after it was switched off.",
                ),
                Field("WAIT", 11, 8, f"What its held method waits for: {_WAIT_DOC}."),
                Field("ACQUIRE_FAIL", 12, 12, "Its acquire has failed at least once."),
                Field("COPIES", 19, 16, "Copies launched and not completed."),
                Field(
                    "TASKS",
                    31,
                    20,
                    "Tasks launched and not over, and tasks launched by these; 4095: so many or "
                    "more.",
                ),
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
            "Address space, rights and priority.",
            (
                Field(
                    "ASID",
                    9,
                    0,
                    "Address space of the channel. Bits that no ASID of the machine needs read "
                    "as 0.",
                ),
                Field("AUTH_LEVEL", 16, 16, "1: privileged methods are allowed."),
                Field("CONTEXT", 23, 20, "Context of its tasks."),
                Field(
                    "EARLY_WAITS",
                    17,
                    17,
                    "1: an acquire other than `== 0` of a counting semaphore needs no copy engine; "
                    "for waits between streams, which do not express priority. 0: every acquire "
                    "of a channel with a copy object is decided with an engine.",
                ),
                Field(
                    "PRIORITY",
                    29,
                    24,
                    "Priority of its compute methods, 63 the highest: the order in which channels "
                    "launch. The tasks have their own.",
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
                timeout_enable="Enables the time-out, which raises an ACQUIRE error.",
            ),
            reset=None,
        ),
        Register("GP_PUT", 0x24, Access.RO, "Ring index after the last entry, as last read."),
        Register("GP_GET", 0x28, Access.RO, "Ring index of the next entry to be started."),
        Register(
            "INTR_0",
            0x2C,
            Access.W1C,
            "Cause of the halt, public bits. Clearing the bit resumes the channel, unless another "
            "copy or task of it has failed: then it stays halted with that error.",
            _codes(0),
        ),
        Register(
            "INTR_1",
            0x30,
            Access.W1C,
            "Cause of the halt, errors of the copy class. See INTR_0.",
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
                    "Another copy or task of the channel has failed since. This record remains "
                    "that of the first error; once it is cleared, the second halts the channel. "
                    "Further failures while two are recorded only set MORE of the second. Final "
                    "once STATUS.COPIES and STATUS.TASKS are 0.",
                ),
                Field(
                    "SKEDCHECK",
                    21,
                    16,
                    f"With TASK_CHECK, the public number of the failed check: {_CHECKS}.",
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
                Field("ADDRESS", 13, 2, "Method number in dwords; bits 13:0 are the byte offset."),
                Field("SUBCHANNEL", 18, 16, "Subchannel."),
                Field("VALID", 31, 31, "A method is held; writing 0 drops it."),
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
        *(
            Register(
                name,
                0x58 + 4 * number,
                Access.RO,
                f"Object bound to subchannel {number} since its start; 0: none.",
                (
                    Field("NVCLASS", 15, 0, "Class, as given to SET_OBJECT."),
                    Field("ENGINE", OBJECT_BITS - 1, 16, "0x1f: a software object."),
                ),
            )
            for number, name in enumerate(OBJECTS)
        ),
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
            "Physical address of the instance block, low part. It lists the page directories "
            "and limits of the context's address spaces, and is read whenever the context starts "
            "to run.",
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
            "Distribution of blocks over SMs, for tasks that do not set it; nesting depth.",
            (
                Field("POLICY", 1, 0, _PLACEMENTS),
                Field(
                    "DEPTH",
                    12,
                    8,
                    "Depth of the deepest kernels, 1 for those of the host: these cannot launch "
                    "others, nor can any at 0 and 1. Above 1, the context counts as one with SAVE "
                    "and LEVEL CILP; without a save area it counts as 0. Read when the context "
                    "starts to run; no effect if NESTED_KERNELS is 0.",
                ),
            ),
        ),
        Register(
            "SAVE_AREA",
            0xC,
            Access.RW,
            "Preemption. The fields are read when the context starts to run; PAGE and SAVE have no "
            "effect if SAVE_PLACES is 0.",
            (
                Field(
                    "PAGE",
                    PA_BITS - 13,
                    0,
                    "Physical address >> 12 of SAVE_PLACES × SAVE_PLACE_BYTES bytes, which no "
                    "address space of applications may map. Contexts may share them, as each place "
                    "is used by one block at a time. 0: none, no block is stopped.",
                ),
                Field("LEVEL", 29, 28, _LEVELS),
                Field(
                    "SAVE",
                    31,
                    31,
                    "While a task lacks room, blocks of lower priority are stopped and their state "
                    "is saved there; otherwise it waits until they end. The QMD may say otherwise "
                    "(MODEL_URGENCY).",
                ),
            ),
        ),
    ),
)

REGISTERS = (GLOBAL, CHANNEL, SEMAPHORE, CONTEXT)
"""All blocks."""


def address(name: str) -> int:
    """Byte address of a global register. Raises `KeyError`."""
    return GLOBAL.address(name)


def channel_address(channel: int, name: str) -> int:
    """Byte address of a register of `channel`; errors as `Block.address`."""
    return CHANNEL.address(name, channel)


def channel_word(name: str) -> int:
    """Word offset of a channel register within its set."""
    return CHANNEL[name].offset // 4


def semaphore_address(slot: int, name: str) -> int:
    """Byte address of a register of on-chip semaphore `slot`; errors as `Block.address`."""
    return SEMAPHORE.address(name, slot)


def context_address(context: int, name: str) -> int:
    """Byte address of a register of `context`; errors as `Block.address`."""
    return CONTEXT.address(name, context)
