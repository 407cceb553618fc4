"""Encoder for pushbuffers: method headers, host methods, methods of the copy and compute classes.

Encodings follow spec 1.2, 2, 4 and 5.1, through `hw.methods`. All values are checked: a value that
does not fit its field raises a `ValueError` that names the field, a number that is not whole a
`TypeError`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from amaranth.lib import data

from signalbox.driver.platform.whole import whole
from signalbox.hw.config import VA_BITS
from signalbox.hw.methods import (
    CeMethod,
    ComputeMethod,
    CopyLaunch,
    Header,
    HostMethod,
    InlineCompletion,
    InlineLaunch,
    LaunchSemaphore,
    LaunchTransfer,
    MemOp,
    MemOpA,
    MemOpC,
    MemOpD,
    ObjectClass,
    PcasAction,
    Reduction,
    RemapComponents,
    RemapSource,
    ReportOp,
    ReportSemaphore,
    SecOp,
    SemaphoreExecute,
    SemOp,
    SubDeviceMask,
    TertOp,
    YieldOp,
    pack,
    unpack,
)
from signalbox.hw.qmd import QMD_BYTES, ReleaseOp

__all__ = [
    "COMPUTE_SUBCHANNEL",
    "COPY_SUBCHANNEL",
    "HOST_SUBCHANNEL",
    "CopyFence",
    "InlineFence",
    "Pushbuffer",
]

HOST_SUBCHANNEL = 0
"""Subchannel of host methods, which ignore it (spec 1.2)."""

COMPUTE_SUBCHANNEL = 1
"""Subchannel of the compute class by convention (spec 1.2)."""

COPY_SUBCHANNEL = 4
"""Subchannel of the copy class by convention (spec 1.2)."""

IMMEDIATE_LIMIT = 1 << 13
"""Exclusive upper bound of the data of an IMMD_DATA_METHOD."""

_MOST_DATA = (1 << 13) - 1
"""Maximum number of data dwords of a group."""

_LAST_METHOD = 0x3FFC
"""Last method address."""

ACK_GLOBALLY = 1
"""ACK_TYPE of MEM_OP_C: later methods wait until every TLB has acknowledged. The machine always
does so."""

_LINEAR = {"transfer": int(LaunchTransfer.NON_PIPELINED), "src_pitch": 1, "dst_pitch": 1}
"""LAUNCH_DMA fields of a linear virtual copy."""


def _dword(value: int, what: str) -> int:
    """`value` as an int of 32 bits. Raises as `_halves`."""
    return _halves(value, 32, what)[1]


def _halves(value: int, bits: int, what: str) -> tuple[int, int]:
    """(upper, lower) dword of `value`. Raises `TypeError` unless it is a whole number, `ValueError`
    if it does not fit `bits` bits."""
    number = whole(value, what)
    if not 0 <= number < 1 << bits:
        raise ValueError(f"{what} = {number:#x} does not fit its {bits} bits")
    return number >> 32, number & 0xFFFF_FFFF


def _fields(layout: type[data.Struct], **values: int) -> int:
    """A record as a number; fields not named are 0. Raises `ValueError` for values that do not fit,
    `TypeError` for fractions and for names that the record does not have."""
    names = unpack(layout, 0)
    if unknown := [name for name in values if name not in names]:
        raise TypeError(
            f"{layout.__name__} has no field {', '.join(unknown)}; its fields are "
            f"{', '.join(names)}"
        )
    name = layout.__name__
    return pack(layout, **{field: whole(one, f"{name}.{field}") for field, one in values.items()})


def _page(address: int, bits: int, what: str) -> tuple[int, int]:
    """Bits 32 and up, and bits 31:12, of a page address. Raises `ValueError`."""
    upper, lower = _halves(address, bits, what)
    if lower % 4096:
        raise ValueError(f"{what} = {address:#x} is not a multiple of 4096")
    return upper, lower >> 12


def _shifted(record: int) -> int:
    """Address of a task record as encoded in SEND_PCAS_A: 40 bits, shifted right by 8. Raises
    `ValueError`."""
    if record % QMD_BYTES:
        raise ValueError(f"record {record:#x} is not a multiple of {QMD_BYTES}")
    if not 0 <= record < 1 << 40:
        raise ValueError(f"record {record:#x} does not fit 40 bits")
    return record >> 8


@dataclass(frozen=True)
class CopyFence:
    """Semaphore released by the copy engine once the last byte of a copy is visible (spec 4).

    Members
    -------
    address : virtual byte address; a multiple of 16 with `timestamp`.
    payload : 32 bits.
    timestamp : whether to write the four-word structure, including the time.
    reduction : operation that combines the payload with the 32-bit unsigned word there; None: write
        the payload.
    """

    address: int
    payload: int
    timestamp: bool = True
    reduction: Reduction | None = None


@dataclass(frozen=True)
class InlineFence:
    """Semaphore released once the last byte of an inline transfer is visible (HOST-14).

    Members
    -------
    address : 40-bit virtual byte address; a multiple of 16 with `timestamp`.
    payload : 32 bits.
    timestamp : whether to write the four-word structure, including the time.
    """

    address: int
    payload: int
    timestamp: bool = True


class Pushbuffer:
    """Dwords of one pushbuffer segment, appended method by method.

    Every method appends and returns the pushbuffer, so calls can be chained. `dwords` holds the
    result, `to_bytes()` returns it as stored in memory.
    """

    def __init__(self) -> None:
        self.dwords: list[int] = []

    def __len__(self) -> int:
        return len(self.dwords)

    def to_bytes(self) -> bytes:
        """The segment as stored in memory, little endian."""
        return b"".join(dword.to_bytes(4, "little") for dword in self.dwords)

    # Headers (spec 1.2)

    def _header(self, sec_op: SecOp, subchannel: int, method: int, count: int) -> None:
        if method % 4:
            raise ValueError(f"method {method:#x} is not a multiple of 4")
        self.dwords.append(
            _fields(Header, address=method // 4, subchannel=subchannel, count=count, sec_op=sec_op)
        )

    def _group(self, sec_op: SecOp, subchannel: int, method: int, values: Sequence[int]) -> None:
        checked = [_dword(value, f"data of method {method:#x}") for value in values]
        further = {SecOp.INC_METHOD: len(checked) - 1, SecOp.ONE_INC: min(len(checked) - 1, 1)}
        if method <= _LAST_METHOD < method + 4 * further.get(sec_op, 0):
            raise ValueError(
                f"{len(checked)} values from method {method:#x} on run past the last method "
                f"address, {_LAST_METHOD:#x}"
            )
        self._header(sec_op, subchannel, method, len(checked))
        self.dwords.extend(checked)

    def inc(self, subchannel: int, method: int, *values: int) -> "Pushbuffer":
        """INC_METHOD: `values` go to `method`, `method` + 4, … Raises `ValueError` if they run
        past the last method address, 0x3FFC."""
        self._group(SecOp.INC_METHOD, subchannel, method, values)
        return self

    def non_inc(self, subchannel: int, method: int, *values: int) -> "Pushbuffer":
        """NON_INC_METHOD: all `values` go to `method`."""
        self._group(SecOp.NON_INC_METHOD, subchannel, method, values)
        return self

    def one_inc(self, subchannel: int, method: int, *values: int) -> "Pushbuffer":
        """ONE_INC: the first value goes to `method`, all others to `method` + 4. Raises as
        `inc`."""
        self._group(SecOp.ONE_INC, subchannel, method, values)
        return self

    def immediate(self, subchannel: int, method: int, value: int) -> "Pushbuffer":
        """IMMD_DATA_METHOD: one method with its `value`, below 2¹³, in the header."""
        self._header(SecOp.IMMD_DATA_METHOD, subchannel, method, value)
        return self

    def end_segment(self) -> "Pushbuffer":
        """END_PB_SEGMENT: the rest of the segment is skipped."""
        self._header(SecOp.END_PB_SEGMENT, 0, 0, 0)
        return self

    def sub_devices(self, operation: TertOp, mask: int = 0) -> "Pushbuffer":
        """Set, store or use a sub-device mask, of 12 bits. While the mask leaves out device 0,
        methods are ignored."""
        return self.raw(_fields(SubDeviceMask, operation=operation, mask=mask))

    def raw(self, *dwords: int) -> "Pushbuffer":
        """Append dwords unchanged. Zero is a NOP between groups."""
        self.dwords.extend(_dword(dword, "dword") for dword in dwords)
        return self

    def method(self, subchannel: int, method: int, value: int) -> "Pushbuffer":
        """One method, in its shortest encoding."""
        if 0 <= value < IMMEDIATE_LIMIT:
            return self.immediate(subchannel, method, value)
        return self.inc(subchannel, method, value)

    # Host methods (spec 2)

    def host(self, method: HostMethod, value: int = 0) -> "Pushbuffer":
        """One host method with plain data: NOP, ILLEGAL, SET_REFERENCE, …"""
        return self.method(HOST_SUBCHANNEL, method, value)

    def set_object(
        self, subchannel: int = COPY_SUBCHANNEL, object_class: int = ObjectClass.COPY
    ) -> "Pushbuffer":
        """Bind a class to a subchannel."""
        return self.inc(subchannel, HostMethod.SET_OBJECT, object_class)

    def semaphore(
        self,
        operation: SemOp,
        address: int,
        payload: int,
        *,
        wide: bool = False,
        timestamp: bool = False,
        wfi: bool = False,
        switch: bool = False,
        reduction: Reduction = Reduction.IMIN,
        unsigned: bool = False,
    ) -> "Pushbuffer":
        """SEM_ADDR, SEM_PAYLOAD and SEM_EXECUTE in one group (spec 2.1), 6 dwords.

        `address` is a 40-bit virtual byte address, a multiple of 4.
        """
        upper, lower = _halves(address, 40, "semaphore address")
        if lower % 4:
            raise ValueError(f"semaphore address = {address:#x} is not a multiple of 4")
        payload_hi, payload_lo = _halves(payload, 64 if wide else 32, "semaphore payload")
        execute = _fields(
            SemaphoreExecute,
            operation=operation,
            acquire_switch=switch,
            release_wfi=wfi,
            wide=wide,
            release_timestamp=timestamp,
            reduction=reduction,
            unsigned=unsigned,
        )
        values = (lower, upper, payload_lo, payload_hi, execute)
        return self.inc(HOST_SUBCHANNEL, HostMethod.SEM_ADDR_LO, *values)

    def acquire(
        self,
        address: int,
        payload: int,
        operation: SemOp = SemOp.ACQUIRE,
        *,
        wide: bool = False,
        switch: bool = True,
    ) -> "Pushbuffer":
        """Block the channel until the semaphore meets the condition of `operation` (spec 2.2). With
        `switch` and a runlist, other groups may run meanwhile."""
        return self.semaphore(operation, address, payload, wide=wide, switch=switch)

    def release(
        self,
        address: int,
        payload: int,
        *,
        wide: bool = False,
        timestamp: bool = False,
        wfi: bool = True,
    ) -> "Pushbuffer":
        """Write `payload`; with `wfi`, only after the channel's earlier work has completed.
        `timestamp` also writes the time, at `address` + 8."""
        return self.semaphore(
            SemOp.RELEASE, address, payload, wide=wide, timestamp=timestamp, wfi=wfi
        )

    def reduce(
        self,
        address: int,
        payload: int,
        reduction: Reduction = Reduction.IADD,
        *,
        unsigned: bool = True,
        wide: bool = False,
        timestamp: bool = False,
        wfi: bool = False,
    ) -> "Pushbuffer":
        """Combine `payload` with the semaphore's value (spec 2.2)."""
        return self.semaphore(
            SemOp.REDUCTION,
            address,
            payload,
            wide=wide,
            timestamp=timestamp,
            wfi=wfi,
            reduction=reduction,
            unsigned=unsigned,
        )

    def add(self, address: int, amount: int) -> "Pushbuffer":
        """REDUCTION IADD: add `amount`, which may be negative, to a 32-bit unsigned semaphore."""
        amount = whole(amount, "amount")
        return self.reduce(address, amount + (1 << 32) if amount < 0 else amount)

    def non_stall_interrupt(self, handle: int = 0) -> "Pushbuffer":
        """Raise the channel's notification interrupt, without stopping the channel."""
        return self.host(HostMethod.NON_STALL_INTERRUPT, handle)

    def wait_idle(self) -> "Pushbuffer":
        """WFI of scope ALL: wait for the work of all channels."""
        return self.host(HostMethod.WFI, 1)

    def wait_own(self) -> "Pushbuffer":
        """WFI: wait for the channel's own work only."""
        return self.host(HostMethod.WFI, 0)

    def yield_slice(self, operation: YieldOp = YieldOp.RUNLIST_TIMESLICE) -> "Pushbuffer":
        """YIELD: give up the rest of the time slice."""
        return self.host(HostMethod.YIELD, operation)

    def mem_op(
        self, operation: MemOp, a: int = 0, b: int = 0, c: int = 0, **trigger: int
    ) -> "Pushbuffer":
        """MEM_OP_A … D as one group (spec 2.5). Privileged channels only. `trigger` sets further
        fields of `hw.methods.MemOpD`. Raises `TypeError` for other names."""
        d = _fields(MemOpD, operation=operation, **trigger)
        return self.inc(HOST_SUBCHANNEL, HostMethod.MEM_OP_A, a, b, c, d)

    def invalidate(self, pdb: int | None = None, address: int | None = None) -> "Pushbuffer":
        """Invalidate translations after the channel's earlier work (spec 2.5).

        Privileged channels only. Later methods wait until no old translation is in use.

        Parameters
        ----------
        pdb : page directory base (physical byte address, multiple of 4096) of the address spaces to
            invalidate; None for all spaces.
        address : virtual address in the page to invalidate, of any size; None for all pages.

        Raises `ValueError` for an `address` without `pdb`, or a `pdb` that is not a multiple of
        4096.
        """
        if pdb is None:
            if address is not None:
                raise ValueError(f"address = {address:#x} without an address space: give pdb too")
            c = _fields(MemOpC, pdb_all=1, ack_type=ACK_GLOBALLY)
            return self.mem_op(MemOp.MMU_TLB_INVALIDATE, c=c)
        pdb_hi, pdb_lo = _page(pdb, 59, "page directory")
        c = _fields(MemOpC, ack_type=ACK_GLOBALLY, pdb_addr_lo=pdb_lo)
        if address is None:
            return self.mem_op(MemOp.MMU_TLB_INVALIDATE, c=c, pdb_addr_hi=pdb_hi)
        upper, lower = _page(whole(address, "address") & ~0xFFF, 49, "address")
        a = _fields(MemOpA, target_addr_lo=lower)
        return self.mem_op(MemOp.MMU_TLB_INVALIDATE_TARGETED, a, upper, c, pdb_addr_hi=pdb_hi)

    # Copy class (spec 4)

    def _copy_fence(self, fence: CopyFence | None) -> dict[str, int]:
        """Set the semaphore of a copy. Returns the LAUNCH_DMA fields that release it."""
        if fence is None:
            return {}
        upper, lower = _halves(fence.address, 49, "copy semaphore address")
        kind = LaunchSemaphore.FOUR_WORDS if fence.timestamp else LaunchSemaphore.ONE_WORD
        payload = _dword(fence.payload, "copy semaphore payload")
        self.inc(COPY_SUBCHANNEL, CeMethod.SET_SEMAPHORE_A, upper, lower, payload)
        launch = {"semaphore": int(kind), "flush": 1}
        if fence.reduction is not None:
            launch |= {"reduction": int(fence.reduction), "reduction_unsigned": 1}
            launch |= {"reduction_enable": 1}
        return launch

    def _copy_addresses(self, dst: int, src: int) -> tuple[int, int, int, int]:
        return *_halves(src, 49, "source address"), *_halves(dst, 49, "destination address")

    def launch(self, **launch: int) -> "Pushbuffer":
        """LAUNCH_DMA with the named fields of `hw.methods.CopyLaunch`. Raises `TypeError` for
        other names."""
        return self.method(COPY_SUBCHANNEL, CeMethod.LAUNCH_DMA, _fields(CopyLaunch, **launch))

    def copy(
        self, dst: int, src: int, size: int, fence: CopyFence | None = None, **launch: int
    ) -> "Pushbuffer":
        """Linear virtual copy of `size` bytes (LAUNCH_DMA 0x182). `launch` adds or replaces fields
        of `CopyLaunch`. Raises as `launch`."""
        _fields(CopyLaunch, **launch)  # checked before anything is appended
        length, addresses = _dword(size, "copy size"), self._copy_addresses(dst, src)
        fence_fields = self._copy_fence(fence)
        self.inc(COPY_SUBCHANNEL, CeMethod.OFFSET_IN_UPPER, *addresses)
        self.inc(COPY_SUBCHANNEL, CeMethod.LINE_LENGTH_IN, length)
        return self.launch(**(_LINEAR | fence_fields | launch))

    def copy_2d(
        self,
        dst: int,
        dst_pitch: int,
        src: int,
        src_pitch: int,
        width: int,
        height: int,
        fence: CopyFence | None = None,
        **launch: int,
    ) -> "Pushbuffer":
        """Copy `height` lines of `width` bytes; the pitches are bytes from line to line. `launch`
        as in `copy`."""
        _fields(CopyLaunch, **launch)
        fence_fields = self._copy_fence(fence)
        self.inc(
            COPY_SUBCHANNEL,
            CeMethod.OFFSET_IN_UPPER,
            *self._copy_addresses(dst, src),
            _dword(src_pitch, "source pitch"),
            _dword(dst_pitch, "destination pitch"),
            _dword(width, "copy width"),
            _dword(height, "copy height"),
        )
        return self.launch(**(_LINEAR | {"multi_line": 1} | fence_fields | launch))

    def remap(
        self,
        *targets: RemapSource,
        size: int,
        sources: int = 1,
        const_a: int = 0,
        const_b: int = 0,
    ) -> "Pushbuffer":
        """Set the contents of the destination elements of later copies with `remap=1` (HOST-16).

        Parameters
        ----------
        targets : contents of each destination component, 1 … 4 of them.
        size : bytes per component, 1 … 4.
        sources : components of a source element, 1 … 4.
        const_a, const_b : constants; a component takes the low bytes.

        Raises `ValueError` for numbers out of range.
        """
        for name, number in (("targets", len(targets)), ("size", size), ("sources", sources)):
            if not 1 <= number <= 4:
                raise ValueError(f"{name} = {number}: 1 … 4")
        names = ("dst_x", "dst_y", "dst_z", "dst_w")
        components = _fields(
            RemapComponents,
            component_size=size - 1,
            num_src=sources - 1,
            num_dst=len(targets) - 1,
            **dict(zip(names, targets, strict=False)),
        )
        first = CeMethod.SET_REMAP_CONST_A
        return self.inc(COPY_SUBCHANNEL, first, const_a, const_b, components)

    def fill(
        self,
        dst: int,
        pattern: int,
        unit: int,
        count: int,
        fence: CopyFence | None = None,
        **launch: int,
    ) -> "Pushbuffer":
        """Write `count` times a `pattern` of `unit` (1, 2, 4 or 8) bytes, little endian: a copy
        without a source. `launch` as in `copy`."""
        _fields(CopyLaunch, **launch)
        unit, pattern = whole(unit, "unit"), whole(pattern, "pattern")
        if unit not in (1, 2, 4, 8):
            raise ValueError(f"unit = {unit}: 1, 2, 4 or 8 bytes")
        if not 0 <= pattern < 1 << 8 * unit:
            raise ValueError(f"pattern = {pattern:#x} does not fit its {unit} bytes")
        high, low = _halves(pattern, 64, "pattern")
        length, address = _dword(count, "count"), _halves(dst, 49, "destination address")
        targets = (RemapSource.CONST_A, RemapSource.CONST_B)[: 1 + (unit == 8)]
        fence_fields = self._copy_fence(fence)
        self.remap(*targets, size=min(unit, 4), const_a=low, const_b=high)
        self.inc(COPY_SUBCHANNEL, CeMethod.OFFSET_OUT_UPPER, *address)
        self.inc(COPY_SUBCHANNEL, CeMethod.LINE_LENGTH_IN, length)
        return self.launch(**(_LINEAR | {"remap": 1} | fence_fields | launch))

    def copy_release(self, fence: CopyFence) -> "Pushbuffer":
        """Release a semaphore from the copy engine, without a copy (LAUNCH_DMA 0x14)."""
        return self.launch(**self._copy_fence(fence))

    # Compute class (spec 5.1)

    def launch_task(self, record: int) -> "Pushbuffer":
        """Launch the task with its record at virtual address `record`: 40 bits, a multiple of 256.

        Of the later methods, only copies, `wait_own`, `wait_idle`, `wait_tasks`, `report`, and
        semaphore operations with `wfi` wait for the end of the task.
        """
        self.inc(COMPUTE_SUBCHANNEL, ComputeMethod.SEND_PCAS_A, _shifted(record))
        return self.method(
            COMPUTE_SUBCHANNEL, ComputeMethod.SEND_SIGNALING_PCAS2_B, PcasAction.SCHEDULE
        )

    def set_local_memory(self, va: int, size: int, sms: int) -> "Pushbuffer":
        """Set the area of local memory of the channel's tasks: `size` bytes for each of `sms` SMs,
        from virtual address `va` on; `size` and `va` are multiples of 4096. The area must not
        shrink while tasks use it. Raises `ValueError` for other values."""
        va, size = whole(va, "va"), whole(size, "size")
        if va % 4096 or not 0 <= va < 1 << VA_BITS:
            raise ValueError(f"local memory at {va:#x}: a multiple of 4096 of {VA_BITS} bits")
        if size % 4096 or not 0 <= size < 1 << 40:
            raise ValueError(f"local memory of {size} bytes: a multiple of 4096 of 40 bits")
        address = ComputeMethod.SET_SHADER_LOCAL_MEMORY_A
        self.inc(COMPUTE_SUBCHANNEL, address, va >> 32, va & 0xFFFF_FFFF)
        sizes = ComputeMethod.SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_A
        return self.inc(COMPUTE_SUBCHANNEL, sizes, size >> 32, size & 0xFFFF_FFFF, sms)

    def launch_inline(self, record: int, content: bytes) -> "Pushbuffer":
        """Write the 256 bytes of a record to address `record`, then launch it as `launch_task`.
        Raises `ValueError` for another number of bytes."""
        if len(content) != QMD_BYTES:
            raise ValueError(f"a record has {QMD_BYTES} bytes, not {len(content)}")
        words = [int.from_bytes(content[at : at + 4], "little") for at in range(0, QMD_BYTES, 4)]
        first = ComputeMethod.SET_INLINE_QMD_ADDRESS_A
        self.inc(COMPUTE_SUBCHANNEL, first, 0, _shifted(record), *words)
        return self.launch_task(record)

    def write_inline(
        self, dst: int, content: bytes, fence: InlineFence | None = None
    ) -> "Pushbuffer":
        """Write at least one byte to virtual address `dst`, of 49 bits and any alignment. The
        content is part of the pushbuffer. Later methods wait until all bytes are visible."""
        return self.write_inline_2d(dst, 0, [content], fence)

    def write_inline_2d(
        self, dst: int, dst_pitch: int, lines: Sequence[bytes], fence: InlineFence | None = None
    ) -> "Pushbuffer":
        """Write lines, `dst_pitch` bytes from line to line; otherwise as `write_inline`. Raises
        `ValueError` unless all lines have the same length, at least 1."""
        sizes = {len(line) for line in lines}
        if len(sizes) != 1 or 0 in sizes:
            raise ValueError(f"lines of {sorted(sizes)} bytes: they need one length, not 0")
        upper, lower = _halves(dst, 49, "destination address")
        pitch = _dword(dst_pitch, "destination pitch")
        launch = _fields(InlineLaunch, pitch=1, **self._inline_fence(fence))
        self.inc(
            COMPUTE_SUBCHANNEL,
            ComputeMethod.LINE_LENGTH_IN,
            *(sizes.pop(), len(lines), upper, lower, pitch),
        )
        self.method(COMPUTE_SUBCHANNEL, ComputeMethod.LAUNCH_DMA, launch)
        dwords = [
            int.from_bytes(line[at : at + 4], "little")
            for line in lines
            for at in range(0, len(line), 4)
        ]
        for at in range(0, len(dwords), _MOST_DATA):
            part = dwords[at : at + _MOST_DATA]
            self.non_inc(COMPUTE_SUBCHANNEL, ComputeMethod.LOAD_INLINE_DATA, *part)
        return self

    def _inline_fence(self, fence: InlineFence | None) -> dict[str, int]:
        """Set the semaphore of an inline transfer. Returns the LAUNCH_DMA fields that release
        it."""
        if fence is None:
            return {"completion": int(InlineCompletion.FLUSH_ONLY)}
        upper, lower = _halves(fence.address, 40, "inline semaphore address")
        payload = _dword(fence.payload, "inline semaphore payload")
        self.inc(COMPUTE_SUBCHANNEL, ComputeMethod.SET_I2M_SEMAPHORE_A, upper, lower, payload)
        completion = int(InlineCompletion.RELEASE_SEMAPHORE)
        return {"completion": completion, "one_word": not fence.timestamp}

    def append(self, record: int, start: int, count: int) -> "Pushbuffer":
        """Append `count` (1 … 255) entries, starting at entry number `start`, to the open queue
        task of `record`. They must directly follow the earlier entries."""
        count = whole(count, "count")
        if not 1 <= count < 1 << 8:
            raise ValueError(f"count = {count}: 1 … 255")
        return self._increment_put(record, start, count)

    def close_queue(self, record: int, start: int) -> "Pushbuffer":
        """Close the queue task of `record` after `start` entries; it ends when all are done.

        Encoded as an INCREMENT_PUT of no entries: the public class does not define how a queue
        ends.
        """
        return self._increment_put(record, start, 0)

    def _increment_put(self, record: int, start: int, count: int) -> "Pushbuffer":
        span = whole(start, "start") % (1 << 24) | count << 24
        self.inc(COMPUTE_SUBCHANNEL, ComputeMethod.SEND_PCAS_A, _shifted(record), span)
        return self.method(
            COMPUTE_SUBCHANNEL, ComputeMethod.SEND_SIGNALING_PCAS2_B, PcasAction.INCREMENT_PUT
        )

    def decrement_dependence(self, record: int) -> "Pushbuffer":
        """Decrement a record's dependence counter; at 0 its task is launched."""
        self.inc(COMPUTE_SUBCHANNEL, ComputeMethod.SEND_PCAS_A, _shifted(record))
        return self.method(
            COMPUTE_SUBCHANNEL,
            ComputeMethod.SEND_SIGNALING_PCAS2_B,
            PcasAction.DECREMENT_DEPENDENCE,
        )

    def limit_slots(self, count: int) -> "Pushbuffer":
        """Limit the slots held by tasks of the channel's context to `count`; 0 lifts the limit."""
        if not 0 <= count < 1 << 8:
            raise ValueError(f"count = {count}: 0 … 255")
        return self.method(COMPUTE_SUBCHANNEL, ComputeMethod.SET_CWD_SLOT_COUNT, count)

    def wait_tasks(self) -> "Pushbuffer":
        """WAIT_FOR_IDLE of the compute class: wait until the channel's tasks have ended."""
        return self.method(COMPUTE_SUBCHANNEL, ComputeMethod.WAIT_FOR_IDLE, 0)

    def report(
        self,
        address: int,
        payload: int,
        *,
        timestamp: bool = True,
        reduction: ReleaseOp | None = None,
        signed: bool = False,
    ) -> "Pushbuffer":
        """Write `payload` once the channel's tasks have ended; with `reduction`, combine it with
        the value there. `timestamp` also writes the time, at `address` + 8.

        `address` is a 40-bit virtual byte address.
        """
        upper, lower = _halves(address, 40, "report semaphore address")
        operation = _fields(
            ReportSemaphore,
            operation=ReportOp.RELEASE,
            reduction_enable=reduction is not None,
            reduction=reduction or 0,
            format=signed,
            one_word=not timestamp,
        )
        first = ComputeMethod.SET_REPORT_SEMAPHORE_A
        return self.inc(COMPUTE_SUBCHANNEL, first, upper, lower, payload, operation)
