"""Build-time configuration and constants.

Every unit takes one frozen `Config`. A value outside its limits is refused here, before
elaboration, with a message that names the field, its value and its limits.
"""

from dataclasses import dataclass, fields

__all__ = [
    "CONFIGS",
    "LIMITS",
    "MASK_SMS",
    "PA_BITS",
    "PRIORITIES",
    "REGISTER_UNIT",
    "SHARED_UNIT",
    "SLOT_BYTES",
    "STATE_LINE",
    "TABLE_REACH",
    "VA_BITS",
    "WARP_THREADS",
    "WINDOW_BASE",
    "WINDOW_BYTES",
    "Config",
    "ConfigError",
    "Limits",
    "list_entry_bytes",
]

VA_BITS = 49
"""Bits of a virtual address (public version-2 page tables, spec 6.1)."""

PA_BITS = 40
"""Largest width of a physical address."""

TABLE_REACH = 1 << 37
"""Bytes of video memory that page tables can address: 25 bits >> 12 (spec 6.1)."""

WINDOW_BASE = 0xFF_FFFF_0000
"""First virtual address of the on-chip semaphore window: the last 64 KiB of the 40-bit space that
GPFIFO entries and `SEM_ADDR` can reach. The same in every address space."""

WINDOW_BYTES = 0x1_0000
"""Bytes of the on-chip semaphore window; slots that were not built answer with an error."""

SLOT_BYTES = 16
"""Bytes per semaphore: 8 payload, 8 timestamp (public four-word structure, spec 2.2)."""

PRIORITIES = 64
"""Device priorities, which are the QMD groups (spec page 00); 63 is the highest."""

NESTING = 24
"""Largest nesting depth of kernels (NEST-1)."""

WARP_THREADS = 32
"""Threads per warp."""

REGISTER_UNIT = 128
"""Allocation unit of an SM's registers: 4 per thread of a warp. A warp's demand is rounded up to
it."""

SHARED_UNIT = 1024
"""Allocation unit of an SM's shared memory, in bytes."""

MASK_SMS = 64
"""SMs with a bit in the mask of a QMD."""

STATE_LINE = 4 * WARP_THREADS
"""Unit of a saved block's state, in bytes: one register of a warp."""


class ConfigError(ValueError):
    """A configuration outside the limits; the message names field, value and limits."""


def list_entry_bytes(save_places: int) -> int:
    """Bytes of an entry of the task lists: the task, and with preemption its saved blocks."""
    return 16 if save_places else 8


def level_bits(nested_kernels: int) -> int:
    """Width of a priority level (`Config.levels`)."""
    return _bits(_levels(nested_kernels))


def _levels(nested_kernels: int) -> int:
    return PRIORITIES + (NESTING - 1 if nested_kernels else 0)


def _bits(count: int) -> int:
    """Width of an index into `count` things; at least 1: a zero-width port exports as two bits."""
    return max(1, (count - 1).bit_length())


@dataclass(frozen=True)
class Limits:
    """Limits of a numeric member of `Config`: `low` … `high`; `note` is a further constraint."""

    low: int
    high: int
    power_of_two: bool = False
    note: str = ""

    def __str__(self) -> str:
        if self.power_of_two:
            powers = range(self.low.bit_length() - 1, self.high.bit_length())
            return ", ".join(str(1 << power) for power in powers)
        return f"{self.low} … {self.high}" + (f", {self.note}" if self.note else "")


LIMITS = {
    "channels": Limits(1, 64),
    "copy_engines": Limits(1, 4),
    "semaphores": Limits(8, 1024),
    "counters": Limits(1, 64, note="at most as many as semaphores"),
    "data_width": Limits(64, 512, power_of_two=True),
    "address_width": Limits(32, PA_BITS),
    "memory_bytes": Limits(4096, TABLE_REACH, note="a multiple of 4096, at most 2^address_width"),
    "asids": Limits(1, 1024),
    "l1_entries": Limits(2, 64, power_of_two=True),
    "l1_misses": Limits(2, 16, power_of_two=True),
    "l2_entries": Limits(64, 8192, power_of_two=True),
    "l2_ways": Limits(2, 16, power_of_two=True),
    "walks": Limits(2, 64),
    "walk_cache": Limits(2, 64, power_of_two=True),
    "prefetch_beats": Limits(8, 256, power_of_two=True),
    "cycle_ns": Limits(1, 1000),
    "contexts": Limits(1, 16),
    "slots": Limits(4, 64),
    "spare_rows": Limits(1, 64),
    "queues": Limits(1, 64),
    "queue_window": Limits(2, 4096, power_of_two=True),
    "sms": Limits(0, 132, note="0: no compute engine"),
    "sm_warps": Limits(1, 64),
    "sm_blocks": Limits(1, 32),
    "sm_registers": Limits(256, 65536, note=f"a multiple of {REGISTER_UNIT}"),
    "sm_shared": Limits(1024, 228 * 1024, note=f"a multiple of {SHARED_UNIT}"),
    "lanes": Limits(1, 32, power_of_two=True),
    "save_places": Limits(0, 8192, note="0: no preemption at instruction level"),
    "runlist_entries": Limits(0, 4096, note="0: no runlists"),
    "nested_kernels": Limits(0, 2048, note="not 1; 0: no nested launches"),
}
"""Limits by name of the `Config` member. Some members also constrain each other."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """Sizes of one Signalbox, within `LIMITS`.

    Members
    -------
    channels : hardware channels, each with a GPFIFO ring.
    copy_engines : engines of class C7B5.
    semaphores : on-chip semaphores, 16 bytes each in the window.
    counters : number of semaphores, the first ones, that can be counting semaphores (checked
        against underflow and overflow; COPY-12, COPY-20).
    data_width : width of the AXI4 memory port.
    address_width : width of a physical address.
    memory_bytes : bytes of physical memory from address 0; an access past its end faults.
    asids : address spaces.
    l1_entries : entries of each memory client's first-level TLB; fully associative.
    l1_misses : outstanding misses of each first-level TLB.
    l2_entries : entries of the shared second-level TLB.
    l2_ways : ways of the second-level TLB.
    walks : concurrent page walks.
    walk_cache : entries of the walk cache; each covers the 512 MiB region of one PD0 table or page.
    prefetch_beats : pushbuffer prefetch per channel, in bus beats.
    cycle_ns : nanoseconds per clock cycle, for PTIMER, timestamps and time-outs.
    contexts : contexts that can have tasks; one of them runs at a time.
    slots : slots of the task table. Blocks are placed only from tasks with a slot.
    spare_rows : rows of the kernel status register table beyond the slots, for evicted tasks with
        running blocks. While one is free, a waiting task gets the slot of a task of lower priority
        at once. With as many as there are block slots in all SMs, it always does.
    queues : open queue tasks; at least `contexts`, as one is reserved per context.
    queue_window : unfinished blocks of one queue that may be placed, from the oldest one on.
    sms : streaming multiprocessors; 0: no compute engine and no compute class.
    sm_warps : hardware warps per SM.
    sm_blocks : block slots per SM.
    sm_registers : 32-bit registers per SM, shared by its warps.
    sm_shared : bytes of shared memory per SM.
    lanes : threads of a warp that an SM core executes per cycle.
    runlist_entries : time-slice groups in the runlist; one that is listed n times counts n times.
        0: no runlists; each channel has only its own slice.
    save_places : maximum number of stopped blocks with their state in memory (PREEMPT-4); 0: blocks
        are never stopped.
    nested_kernels : places in the kernel tree: maximum number of kernels that have launched kernels
        or were launched by kernels, and of blocks that have launched kernels, at any time. 0:
        kernels cannot launch kernels. Needs save places.
    sm_masks : the QMD of a task can disable any of the first 64 SMs (SM_DISABLE_MASK); otherwise
        its mask must be 0.
    timing_core : SMs have the timing core, which takes time but computes nothing.
    trace : the top level has the `trace` port, for recording by simulations.
    """

    channels: int = 8
    copy_engines: int = 1
    semaphores: int = 64
    counters: int = 16
    data_width: int = 128
    address_width: int = 40
    memory_bytes: int = 1 << 32
    asids: int = 64
    l1_entries: int = 16
    l1_misses: int = 4
    l2_entries: int = 512
    l2_ways: int = 4
    walks: int = 32
    walk_cache: int = 16
    prefetch_beats: int = 32
    cycle_ns: int = 10
    contexts: int = 4
    slots: int = 16
    spare_rows: int = 16
    queues: int = 16
    queue_window: int = 128
    sms: int = 8
    sm_warps: int = 16
    sm_blocks: int = 8
    sm_registers: int = 4096
    sm_shared: int = 48 * 1024
    lanes: int = 4
    runlist_entries: int = 0
    save_places: int = 0
    nested_kernels: int = 0
    sm_masks: bool = False
    timing_core: bool = False
    trace: bool = False

    def __post_init__(self) -> None:
        self._check_type()
        for name, limits in LIMITS.items():
            self._check_range(name, limits)
        if self.memory_bytes % 4096:
            raise ConfigError(
                f"memory_bytes = {self.memory_bytes} is not a multiple of the 4096-byte page"
            )
        for name, unit in (("sm_registers", REGISTER_UNIT), ("sm_shared", SHARED_UNIT)):
            if getattr(self, name) % unit:
                raise ConfigError(f"{name} = {getattr(self, name)} is not a multiple of {unit}")
        if self.queues < self.contexts:
            raise ConfigError(
                f"queues = {self.queues} is less than contexts = {self.contexts}: "
                "one is reserved per context"
            )

        if self.nested_kernels == 1:
            raise ConfigError("nested_kernels = 1 has no room for a kernel and a child")
        if self.nested and not self.preemption:
            raise ConfigError(
                f"nested_kernels = {self.nested_kernels} needs save_places: blocks that wait for "
                "their children must be able to make room for them"
            )

    def _check_type(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if type(value) is not field.type:
                kind = "a bool" if field.type is bool else "an integer"
                raise ConfigError(f"{field.name} = {value!r} is not {kind}")

    def _check_range(self, name: str, limits: Limits) -> None:
        value, low, high = getattr(self, name), limits.low, limits.high
        if name == "counters":
            high = min(high, self.semaphores)
        if name == "memory_bytes":
            high = min(high, 1 << self.address_width)
        if not low <= value <= high:
            raise ConfigError(f"{name} = {value} is outside its limits {low} … {high}")
        if limits.power_of_two and value & (value - 1):
            raise ConfigError(f"{name} = {value} is not a power of two")

    @property
    def beat_bytes(self) -> int:
        """Bytes of one bus beat."""
        return self.data_width // 8

    @property
    def beat_dwords(self) -> int:
        """32-bit words of one bus beat."""
        return self.data_width // 32

    @property
    def offset_bits(self) -> int:
        """Address bits inside one bus beat."""
        return _bits(self.beat_bytes)

    @property
    def memory_clients(self) -> int:
        """Memory clients with virtual addresses: host, semaphore unit, copy engines; with a compute
        engine also the task unit and the SMs."""
        return 2 + self.copy_engines + (1 + self.sms if self.compute else 0)

    @property
    def compute(self) -> bool:
        """Whether there is a compute engine."""
        return self.sms > 0

    @property
    def channel_bits(self) -> int:
        """Width of a channel number."""
        return _bits(self.channels)

    @property
    def engine_bits(self) -> int:
        """Width of a copy-engine number."""
        return _bits(self.copy_engines)

    @property
    def semaphore_bits(self) -> int:
        """Width of an on-chip semaphore's index."""
        return _bits(self.semaphores)

    @property
    def asid_bits(self) -> int:
        """Width of an ASID."""
        return _bits(self.asids)

    @property
    def context_bits(self) -> int:
        """Width of a context number."""
        return _bits(self.contexts)

    @property
    def queue_bits(self) -> int:
        """Width of an open queue's number."""
        return _bits(self.queues)

    @property
    def number_bits(self) -> int:
        """Width of a block's number modulo twice `queue_window`, which suffices to order the
        unfinished blocks of a queue."""
        return _bits(2 * self.queue_window)

    @property
    def rows(self) -> int:
        """Rows of the kernel status register table."""
        return self.slots + self.spare_rows

    @property
    def row_bits(self) -> int:
        """Width of a row number."""
        return _bits(self.rows)

    @property
    def sm_bits(self) -> int:
        """Width of an SM number."""
        return _bits(self.sms)

    @property
    def masked_sms(self) -> int:
        """Number of SMs that a task can disable, beginning with SM 0."""
        return min(self.sms, MASK_SMS) if self.sm_masks else 0

    @property
    def register_units(self) -> int:
        """Registers of an SM, in allocation units."""
        return self.sm_registers // REGISTER_UNIT

    @property
    def shared_units(self) -> int:
        """Shared memory of an SM, in allocation units."""
        return self.sm_shared // SHARED_UNIT

    @property
    def block_bits(self) -> int:
        """Width of a block slot's number."""
        return _bits(self.sm_blocks)

    @property
    def warp_bits(self) -> int:
        """Width of a hardware warp's number."""
        return _bits(self.sm_warps)

    @property
    def runlists(self) -> bool:
        """Whether the machine has runlists."""
        return self.runlist_entries > 0

    @property
    def runlist_bits(self) -> int:
        """Width of a place in the runlist."""
        return _bits(self.runlist_entries)

    @property
    def preemption(self) -> bool:
        """Whether blocks can be stopped and their state saved."""
        return self.save_places > 0

    @property
    def place_bytes(self) -> int:
        """Bytes of a save place, in whole 4 KiB pages, for the largest block: its shared memory,
        its registers, a line with the fates of its warps, and a line per warp with the warp's
        state."""
        memory = self.sm_shared + 4 * self.sm_registers
        return -(-(memory + STATE_LINE * (1 + self.sm_warps)) // 4096) * 4096

    @property
    def nested(self) -> bool:
        """Whether kernels can launch kernels."""
        return self.nested_kernels > 0

    @property
    def nested_bits(self) -> int:
        """Width of the number of a kernel, or a family, in the kernel tree."""
        return _bits(self.nested_kernels)

    @property
    def levels(self) -> int:
        """Number of priority levels of tasks: the device priorities and, with nested kernels,
        further levels above them for the descendants of kernels of high priority."""
        return _levels(self.nested_kernels)

    @property
    def level_bits(self) -> int:
        """Width of a priority level."""
        return level_bits(self.nested_kernels)

    @property
    def list_entry_bytes(self) -> int:
        """See `list_entry_bytes`."""
        return list_entry_bytes(self.save_places)

    @property
    def place_bits(self) -> int:
        """Width of a save place's number."""
        return _bits(self.save_places)


CONFIGS = {
    "tiny": Config(
        channels=1,
        semaphores=8,
        counters=1,
        data_width=64,
        asids=1,
        l1_entries=2,
        l1_misses=2,
        l2_entries=64,
        l2_ways=2,
        walks=2,
        walk_cache=2,
        prefetch_beats=8,
        contexts=1,
        slots=4,
        spare_rows=2,
        queues=2,
        queue_window=4,
        sms=1,
        sm_warps=2,
        sm_blocks=2,
        sm_registers=512,
        sm_shared=2048,
        lanes=1,
    ),
    "default": Config(),
    "two-engines": Config(copy_engines=2),
    "copies": Config(sms=0),
    "large": Config(
        channels=64,
        copy_engines=4,
        semaphores=1024,
        counters=64,
        data_width=512,
        asids=1024,
        l1_entries=64,
        l1_misses=16,
        l2_entries=8192,
        l2_ways=16,
        walks=64,
        walk_cache=64,
        contexts=16,
        slots=64,
        queues=64,
        queue_window=1024,
        sms=132,
        sm_warps=64,
        sm_blocks=32,
        sm_registers=65536,
        sm_shared=228 * 1024,
        lanes=32,
    ),
}
"""Named configurations; the tests elaborate every one."""
