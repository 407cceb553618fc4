"""Reference model of the host: rings, pushbuffers, methods, semaphores and copies, without timing.

It executes the rings one dword at a time, in the order of channels that the caller chooses. Copies
complete immediately. For programs with results that do not depend on timing, it yields the final
memory and semaphores, the methods executed by each channel, and the report of each error.

Written from spec page 60, with plain integers. It shares only the causes (`hw.errors`) and sizes
with the hardware, and uses `tb.models.semaphores` for semaphore operations.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from signalbox.hw.config import Config
from signalbox.hw.errors import Cause
from signalbox.tb.models.remap import Remap
from signalbox.tb.models.semaphores import ACQUIRES, SemaphoreMemory

__all__ = [
    "Channel",
    "Copied",
    "Executed",
    "Halted",
    "HostModel",
    "Notified",
    "Refusal",
    "Ring",
    "Translate",
]

READ, WRITE, ATOMIC = 0, 1, 2
HOST, SEMAPHORES, ENGINE = 1, 2, 3
PAGE = 4096

Translate = Callable[[int, int, int, int], int | None]
"""Physical address of an access by (ASID, VA, access type, client); None if it faults."""

RELEASE, REDUCTION = 1, 6
COPY_CLASSES = {0xC6B5, 0xC7B5}
SOFTWARE = 0x1F
"""ENGINE of software objects."""

HOST_METHODS = {
    *(0x00, 0x04, 0x08, 0x10, 0x14, 0x18, 0x1C, 0x20, 0x24, 0x28, 0x2C, 0x30, 0x34),
    *(0x50, 0x5C, 0x60, 0x64, 0x68, 0x6C, 0x78, 0x80, 0x84),
}
COPY_METHODS = {
    *(0x100, 0x240, 0x244, 0x248, 0x24C, 0x254, 0x258, 0x25C, 0x260, 0x264),
    *(0x300, 0x400, 0x404, 0x408, 0x40C, 0x410, 0x414, 0x418, 0x41C, 0x700, 0x704, 0x708),
}
FAILED_COPIES = {
    *(Cause.COPY_READ_BUS, Cause.COPY_READ_FAULT, Cause.COPY_WRITE_BUS, Cause.COPY_WRITE_FAULT),
    Cause.COPY_SEMAPHORE,
}
"""Causes of failure of copies that have begun."""

INVALIDATIONS = {0x09, 0x0A}
FIRST_SOFTWARE = 5
"""Subchannels from this one on are for software."""

DEVICE = 1
"""Bit of the only device in sub-device masks."""

MEM_OPS = {0x05, *INVALIDATIONS, 0x0D, 0x0E, 0x0F, 0x10, 0x15, 0x16}
PEER = 3


class Ring(NamedTuple):
    """Addresses of a channel's ring and USERD; the ring has `entries` entries."""

    base: int
    entries: int
    userd: int


class Held(NamedTuple):
    """A decoded method; `address` is a byte offset. With a `cause` other than NONE, a bad header in
    place of a method."""

    address: int
    subchannel: int
    data: int
    cause: Cause = Cause.NONE


class Executed(NamedTuple):
    """`channel` executed a method; `address` is a byte offset."""

    channel: int
    subchannel: int
    address: int
    data: int


class Copied(NamedTuple):
    """A copy of `channel` has ended: `lines` lines of `width` bytes."""

    channel: int
    src: int
    dst: int
    width: int
    lines: int


class Halted(NamedTuple):
    """`channel` was halted."""

    channel: int
    cause: Cause
    method: int | None
    data: int
    va: int


class Notified(NamedTuple):
    """`channel` raised its notification (`copy`: at the end of a copy)."""

    channel: int
    copy: bool


Event = Executed | Copied | Halted | Notified


class Refusal(Exception):
    """A method or ring entry that cannot be executed."""

    def __init__(self, cause: Cause, va: int = 0) -> None:
        super().__init__(cause, va)
        self.cause, self.va = cause, va


@dataclass
class Group:
    """The open method group."""

    form: int = 1
    address: int = 0
    subchannel: int = 0
    count: int = 0


@dataclass
class Channel:
    """State of one channel.

    Members
    -------
    asid : address space of the channel.
    put, get : ring indices.
    pending : decoded method that has not been executed.
    halted, va, blamed : cause of the halt, address, and method that caused it.
    holds : whether that method is held, to be executed again.
    blocked : whether the channel waits for a semaphore.
    received : number of the doorbell that announced the present work.
    mask, stored_mask : sub-device masks.
    objects : data of SET_OBJECT, by subchannel.
    """

    ring: Ring | None = None
    privileged: bool = False
    asid: int = 0
    put: int = 0
    get: int = 0
    segment: tuple[int, int] = (0, 0)
    group: Group = field(default_factory=Group)
    pending: Held | None = None
    registers: dict[int, int] = field(default_factory=dict)
    copy_registers: dict[int, int] = field(default_factory=dict)
    objects: dict[int, int] = field(default_factory=dict)
    reference: int = 0
    executed: int = 0
    copies: int = 0
    halted: Cause = Cause.NONE
    va: int = 0
    blamed: Held | None = None
    holds: bool = False
    blocked: bool = False
    received: int = 0
    mask: int = DEVICE
    stored_mask: int = DEVICE


class _Semaphores(SemaphoreMemory):
    """Semaphores on chip, and those outside the window, which are in the model's memory. Addresses
    of the latter are physical."""

    def __init__(self, slots: int, storage: bytearray) -> None:
        super().__init__(slots)
        self.storage = storage

    def read(self, va: int, bits: int, asid: int = 0) -> int:
        if self.on_chip(va):
            return super().read(va, bits)
        return int.from_bytes(self.storage[va : va + bits // 8], "little")

    def write(self, va: int, value: int, bits: int, asid: int = 0) -> None:
        if self.on_chip(va):
            super().write(va, value, bits)
        else:
            self.storage[va : va + bits // 8] = value.to_bytes(bits // 8, "little")


class HostModel:
    """All channels of a machine.

    Members
    -------
    memory : physical memory.
    channels, semaphores : current state.
    events : events so far, in order.
    now : function that returns PTIMER in ns, for timestamps.
    translate : translates virtual addresses; by default they are physical addresses.
    """

    def __init__(
        self,
        config: Config,
        memory: bytearray,
        now: Callable[[], int] = lambda: 0,
        translate: Translate | None = None,
    ) -> None:
        self.config = config
        self.memory = memory
        self.now = now
        self.translate = translate or self._physical
        self.channels = [Channel() for _ in range(config.channels)]
        self.semaphores = _Semaphores(config.semaphores, memory)
        self.events: list[Event] = []
        self._doorbells = 0

    # Called from outside

    def enable(self, index: int, ring: Ring, *, privileged: bool = False, asid: int = 0) -> None:
        """Enable a channel with an empty ring."""
        self.channels[index] = Channel(ring, privileged, asid)

    def disable(self, index: int) -> None:
        """Disable a channel."""
        self.channels[index].ring = None

    def doorbell(self, index: int) -> None:
        """Ring the doorbell of a channel: GP_PUT is read from USERD."""
        channel = self.channels[index]
        if channel.ring is None or channel.halted:
            return
        self._doorbells += 1
        if channel.get == channel.put:
            channel.received = self._doorbells
        try:
            put = int.from_bytes(self._bytes(channel, channel.ring.userd + 0x8C, 4), "little")
            if put >= channel.ring.entries:
                raise Refusal(Cause.RING_POINTER)
            channel.put = put
        except Refusal as refusal:
            self._halt(index, refusal)

    def clear(self, index: int, replacement: Held | None = None) -> None:
        """End the halt of a channel. `replacement` : method to execute instead of the held one."""
        channel = self.channels[index]
        channel.halted, channel.va = Cause.NONE, 0
        if replacement is not None:
            channel.pending = replacement

    def ready(self) -> list[int]:
        """Channels that can proceed, the one that has waited longest first. Excludes channels that
        are disabled, halted, blocked or empty."""
        able = [index for index in range(len(self.channels)) if self._able(index)]
        return sorted(able, key=lambda index: self.channels[index].received)

    def run(self, choose: Callable[[Sequence[int]], int] = lambda ready: ready[0]) -> None:
        """Execute until no channel can proceed. `choose` : gets the channels in `ready`, and
        returns the channel of the next step."""
        while ready := self.ready():
            self.step(choose(ready))

    def busy(self, index: int) -> bool:
        """Whether a channel has anything left to execute."""
        channel = self.channels[index]
        return channel.pending is not None or channel.segment[1] > 0 or channel.get != channel.put

    # One step

    def step(self, index: int) -> None:
        """Execute one ring entry, header or method of a channel in `ready`."""
        channel = self.channels[index]
        try:
            if channel.pending is None:
                self._next(channel)
            if channel.pending is not None:
                self._execute(index, channel.pending)
        except Refusal as refusal:
            self._halt(index, refusal)

    def _able(self, index: int) -> bool:
        channel = self.channels[index]
        usable = channel.ring is not None and not channel.halted and not channel.blocked
        return usable and self.busy(index)

    def _halt(self, index: int, refusal: Refusal) -> None:
        """Halt a channel, and record the error. A method is held, to be executed again, unless it
        has launched a copy that failed. After a bad header or ring entry there is no method to
        hold."""
        channel, held = self.channels[index], self.channels[index].pending
        channel.halted, channel.va = refusal.cause, refusal.va
        channel.blamed, channel.holds = held, held is not None and held.cause is Cause.NONE
        if refusal.cause in FAILED_COPIES:
            assert held is not None
            channel.copies += 1
            self._executed(index, channel, held)
            channel.holds = False
        if not channel.holds:
            channel.pending = None
        method = held.address if held and held.cause is Cause.NONE else None
        data = held.data if held else 0
        self.events.append(Halted(index, refusal.cause, method, data, refusal.va))

    def _physical(self, asid: int, va: int, access: int, client: int) -> int | None:
        return va if va < self.config.memory_bytes else None

    @staticmethod
    def _pieces(
        translate: Translate,
        asid: int,
        span: tuple[int, int],
        access: int,
        client: int,
        cause: Cause,
    ) -> list[tuple[int, int]]:
        """Physical pieces of a span (VA, bytes), page by page. Raises `Refusal` with `cause` at a
        fault."""
        found, (va, left) = [], span
        while left:
            size = min(left, PAGE - va % PAGE)
            pa = translate(asid, va, access, client)
            if pa is None:
                raise Refusal(cause, va)
            found.append((pa, size))
            va, left = va + size, left - size
        return found

    def _bytes(self, channel: Channel, va: int, size: int) -> bytes:
        """Bytes read by the host for a channel. Raises `Refusal` at a fault."""
        cause = Cause.FETCH_FAULT
        pieces = self._pieces(self.translate, channel.asid, (va, size), READ, HOST, cause)
        return b"".join(self.memory[pa : pa + part] for pa, part in pieces)

    def _next(self, channel: Channel) -> None:
        """Take the next ring entry, or the next dword of the current segment."""
        address, left = channel.segment
        if not left:
            self._entry(channel)
            return
        channel.segment = 0, 0  # after a fault, the rest of the segment is dropped
        dword = int.from_bytes(self._bytes(channel, address, 4), "little")
        channel.segment = address + 4, left - 1
        if channel.group.count:
            self._data(channel, dword)
        elif dword:
            self._header(channel, dword)

    def _entry(self, channel: Channel) -> None:
        assert channel.ring is not None
        word = int.from_bytes(
            self._bytes(channel, channel.ring.base + 8 * channel.get, 8), "little"
        )
        channel.get = (channel.get + 1) % channel.ring.entries
        length, address = word >> 42 & 0x1F_FFFF, word & 0xFF_FFFF_FFFC
        if length == 0 and word >> 32 & 0xFF:
            raise Refusal(Cause.ENTRY_OPCODE)
        if address + 4 * length > 1 << 40:
            raise Refusal(Cause.ENTRY_RANGE)
        channel.segment = address, length

    def _data(self, channel: Channel, dword: int) -> None:
        group = channel.group
        if channel.mask & DEVICE:
            channel.pending = Held(group.address, group.subchannel, dword)
        group.count -= 1
        if group.form in {1, 5}:
            group.address += 4
        if group.form == 5:
            group.form = 3

    def _header(self, channel: Channel, dword: int) -> None:
        form, count = dword >> 29, dword >> 16 & 0x1FFF
        subchannel, address = dword >> 13 & 7, (dword & 0xFFF) * 4
        cause = self._header_cause(dword)
        if cause is not Cause.NONE:
            channel.pending = Held(address, subchannel, dword, cause)
        elif form == 0:
            self._mask(channel, dword)
        elif form == 4:
            if channel.mask & DEVICE:
                channel.pending = Held(address, subchannel, count)
        elif form == 7:
            channel.segment = 0, 0
        else:
            channel.group = Group(form, address, subchannel, count)

    @staticmethod
    def _mask(channel: Channel, dword: int) -> None:
        """Execute a control entry, which sets, stores or uses a sub-device mask."""
        mask = dword >> 4 & 0xFFF
        match dword >> 16 & 3:
            case 1:
                channel.mask = mask
            case 2:
                channel.stored_mask = mask
            case 3:
                channel.mask = channel.stored_mask

    @staticmethod
    def _header_cause(dword: int) -> Cause:
        form, count, address = dword >> 29, dword >> 16 & 0x1FFF, dword & 0xFFF
        if form == 2 or (form == 0 and dword >> 16 & 3 == 0):
            return Cause.HEADER_OBSOLETE
        if form == 0:
            return Cause.NONE
        if form == 6 or (form != 7 and dword >> 12 & 1):
            return Cause.HEADER_RESERVED
        if form == 1 and address + count > 0x1000:
            return Cause.HEADER_RANGE
        if form == 5 and count > 1 and address == 0xFFF:
            return Cause.HEADER_RANGE
        return Cause.NONE

    # Methods

    def _execute(self, index: int, method: Held) -> None:
        channel = self.channels[index]
        if method.cause is not Cause.NONE:
            raise Refusal(method.cause)
        run = self._host_method if method.address < 0x100 else self._engine_method
        if not run(index, channel, method):
            channel.blocked = True
            return
        channel.pending = None
        self._executed(index, channel, method)

    def _executed(self, index: int, channel: Channel, method: Held) -> None:
        channel.executed += 1
        self.events.append(Executed(index, method.subchannel, method.address, method.data))

    def _host_method(self, index: int, channel: Channel, method: Held) -> bool:
        """Execute a host method. Returns False if the channel is blocked."""
        address, value = method.address, method.data
        if address not in HOST_METHODS:
            raise Refusal(Cause.METHOD_UNDEFINED)
        channel.registers[{0x10: 0x60, 0x14: 0x5C, 0x18: 0x64}.get(address, address)] = value
        match address:
            case 0x00:
                self._set_object(channel, method)
            case 0x04:
                raise Refusal(Cause.METHOD_ILLEGAL)
            case 0x1C:
                return self._legacy_semaphore(channel, value)
            case 0x20:
                self.events.append(Notified(index, False))
            case 0x34 | 0x84 if not channel.privileged:
                raise Refusal(Cause.METHOD_PRIVILEGED)
            case 0x34:
                self._mem_op(channel, value)
            case 0x84 if value & 0xFFF < len(self.channels):
                if self.channels[value & 0xFFF].halted:
                    self.clear(value & 0xFFF)
            case 0x50:
                channel.reference = value
            case 0x6C:
                return self._semaphore_execute(channel, value)
        return True

    @staticmethod
    def _mem_op(channel: Channel, value: int) -> None:
        """Check a MEM_OP for errors; without TLBs it has no other effect. A page directory must be
        in this machine's memory (aperture 0)."""
        operation, directory = value >> 27, channel.registers.get(0x30, 0)
        foreign = not directory & 1 and directory >> 10 & 3
        if operation not in MEM_OPS or (operation in INVALIDATIONS and foreign):
            raise Refusal(Cause.METHOD_UNDEFINED)

    @staticmethod
    def _set_object(channel: Channel, method: Held) -> None:
        if method.subchannel >= FIRST_SOFTWARE:
            raise Refusal(Cause.OBJECT_SOFTWARE)
        software = method.data >> 16 & 0x1F == SOFTWARE
        if not software and method.data & 0xFFFF not in COPY_CLASSES:
            raise Refusal(Cause.OBJECT_CLASS)
        channel.objects[method.subchannel] = method.data & 0x1F_FFFF

    def _semaphore_execute(self, channel: Channel, value: int) -> bool:
        registers = channel.registers
        va = (registers.get(0x60, 0) & 0xFF) << 32 | registers.get(0x5C, 0) & ~3
        wide = value >> 24 & 1
        payload = registers.get(0x64, 0) | (registers.get(0x68, 0) << 32 if wide else 0)
        return self._semaphore(
            channel.asid,
            va,
            value & 7,
            reduction=value >> 27 & 0xF,
            unsigned=bool(value >> 31),
            wide=bool(wide),
            timestamp=bool(value >> 25 & 1),
            payload=payload,
        )

    def _legacy_semaphore(self, channel: Channel, value: int) -> bool:
        registers = channel.registers
        operation = {1: 0, 2: RELEASE, 4: 3, 8: 4, 16: REDUCTION}.get(value & 0x1F)
        if operation is None:
            raise Refusal(Cause.SEM_UNSUPPORTED)
        va = (registers.get(0x60, 0) & 0xFF) << 32 | registers.get(0x5C, 0) & ~3
        return self._semaphore(
            channel.asid,
            va,
            operation,
            reduction=value >> 27 & 0xF,
            unsigned=bool(value >> 31),
            timestamp=operation in {RELEASE, REDUCTION} and not value >> 24 & 1,
            payload=registers.get(0x64, 0),
        )

    def _semaphore(
        self,
        asid: int,
        va: int,
        operation: int,
        *,
        reduction: int,
        unsigned: bool,
        timestamp: bool,
        payload: int,
        wide: bool = False,
    ) -> bool:
        """Execute a semaphore operation. Returns whether it passed. A release or reduction unblocks
        all channels. Raises `Refusal` for an error."""
        refusal = self.semaphores.refusal(va, operation, reduction, unsigned, wide, timestamp)
        if refusal != "NONE":
            raise Refusal(Cause[f"SEM_{refusal}"], va)
        place: int | None = va
        if not self.semaphores.on_chip(va):
            access = READ if operation in ACQUIRES else WRITE if operation == RELEASE else ATOMIC
            place = self.translate(asid, va, access, SEMAPHORES)
        if place is None:
            raise Refusal(Cause.SEM_FAULT, va)
        passed, error = self.semaphores.execute(
            place,
            operation,
            reduction=reduction,
            unsigned=unsigned,
            wide=wide,
            timestamp=timestamp,
            payload=payload,
            now=self.now(),
        )
        if error != "NONE":
            raise Refusal(Cause[f"SEM_{error}"], va)
        if operation not in ACQUIRES:
            self.wake()
        return passed

    def wake(self) -> None:
        """Unblock all channels after a semaphore was written."""
        for channel in self.channels:
            channel.blocked = False

    # Copies

    def _engine_method(self, index: int, channel: Channel, method: Held) -> bool:
        bound = channel.objects.get(method.subchannel)
        if (bound or 0) >> 16 == SOFTWARE or method.subchannel >= FIRST_SOFTWARE:
            raise Refusal(Cause.OBJECT_SOFTWARE)
        if bound is None:
            raise Refusal(Cause.OBJECT_UNBOUND)
        if method.address not in COPY_METHODS:
            raise Refusal(Cause.COPY_METHOD)
        if method.address == 0x25C and method.data & 7 != 1:
            raise Refusal(Cause.COPY_MODE)
        if method.address == 0x300:
            self._launch(index, channel, method.data)
        else:
            channel.copy_registers[method.address] = method.data
        return True

    def _launch(self, index: int, channel: Channel, launch: int) -> None:
        registers = channel.copy_registers
        transfer, kind = launch & 3, launch >> 3 & 3
        modes = [registers.get(register, 0) for register in (0x260, 0x264)]
        refused = [mode & 3 == PEER or mode >> 2 & 15 != 0 for mode in modes]
        bad = [
            transfer == 3,
            transfer and launch >> 7 & 3 != 3,
            kind == 3,
            launch >> 5 & 3 == 3,
            launch >> 19 & 1 and launch >> 17 & 1,
            launch >> 22 & 3,
            launch >> 28,
            launch >> 12 & 1 and refused[0],
            launch >> 13 & 1 and refused[1],
        ]
        if any(bad):
            raise Refusal(Cause.COPY_MODE)
        if launch >> 12 & 3 and not channel.privileged:
            raise Refusal(Cause.METHOD_PRIVILEGED)
        if transfer:
            self._copy(index, registers, launch)
        if kind:
            self._copy_release(channel.asid, registers, launch, kind)
        channel.copies += 1
        if launch >> 5 & 3:
            self.events.append(Notified(index, True))

    def _copy(self, index: int, registers: dict[int, int], launch: int) -> None:
        multi_line = launch >> 9 & 1
        width = registers.get(0x418, 0)
        lines = registers.get(0x41C, 0) if multi_line else 1
        remap = None
        if launch >> 10 & 1:
            remap = Remap.of(*(registers.get(number, 0) for number in (0x708, 0x700, 0x704)))
            if remap.refused:
                raise Refusal(Cause.COPY_REMAP)
        if not width or not lines:
            raise Refusal(Cause.COPY_ZERO)
        read_bytes = width * (remap.source_bytes if remap else 1)
        written_bytes = width * (remap.target_bytes if remap else 1)
        src = (registers.get(0x400, 0) & 0x1FFFF) << 32 | registers.get(0x404, 0)
        dst = (registers.get(0x408, 0) & 0x1FFFF) << 32 | registers.get(0x40C, 0)
        for line in range(lines):
            source = (src + line * registers.get(0x410, 0)) % (1 << 49)
            target = (dst + line * registers.get(0x414, 0)) % (1 << 49)
            reads = self._engine(index, launch >> 12 & 1, (source, read_bytes), READ)
            writes = self._engine(index, launch >> 13 & 1, (target, written_bytes), WRITE)
            data, at = b"".join(self.memory[pa : pa + size] for pa, size in reads), 0
            if remap:
                old = b"".join(self.memory[pa : pa + size] for pa, size in writes)
                data = remap.line(data, old)
            for pa, size in writes:
                self.memory[pa : pa + size] = data[at : at + size]
                at += size
        self.wake()
        self.events.append(Copied(index, src, dst, width, lines))

    def _engine(
        self, index: int, physical: int, span: tuple[int, int], access: int
    ) -> list[tuple[int, int]]:
        """Physical pieces of a span (VA, bytes) of a copy. Raises `Refusal` at a fault."""
        cause = Cause.COPY_WRITE_FAULT if access else Cause.COPY_READ_FAULT
        translate = self._physical if physical else self.translate
        return self._pieces(translate, self.channels[index].asid, span, access, ENGINE, cause)

    def _copy_release(self, asid: int, registers: dict[int, int], launch: int, kind: int) -> None:
        va = (registers.get(0x240, 0) & 0x1FFFF) << 32 | registers.get(0x244, 0)
        wide = bool(launch >> 27 & 1)
        payload = registers.get(0x248, 0) | (registers.get(0x24C, 0) << 32 if wide else 0)
        try:
            self._semaphore(
                asid,
                va,
                REDUCTION if launch >> 19 & 1 else RELEASE,
                reduction=launch >> 14 & 0xF,
                unsigned=bool(launch >> 18 & 1),
                wide=wide,
                timestamp=kind == 2,
                payload=payload,
            )
        except Refusal as refusal:
            raise Refusal(Cause.COPY_SEMAPHORE, refusal.va) from None
