"""Disassembler for pushbuffers, for errors, traces and reports."""

import enum
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from amaranth.lib import data

from signalbox.driver.commands.ignored_methods import IGNORED_COMPUTE
from signalbox.hw.methods import (
    COMPUTE_CLASSES,
    COPY_CLASSES,
    CeMethod,
    ComputeMethod,
    CopyLaunch,
    HostMethod,
    InlineCompletion,
    InlineLaunch,
    Interrupt,
    LaunchSemaphore,
    LaunchTransfer,
    LegacySemaphore,
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
    SignalingPcas,
    TertOp,
    unpack,
)
from signalbox.hw.qmd import QMD_BYTES, ReleaseOp

__all__ = [
    "Directive",
    "Ignored",
    "Malformed",
    "Method",
    "MethodReader",
    "SubDevices",
    "decode",
    "disassemble",
    "fields",
    "folded",
    "method_detail",
    "method_name",
]

ENGINE_METHODS = 0x100
"""First method sent to the object of the subchannel; lower methods are host methods (spec 1.2)."""


@dataclass(frozen=True)
class Method:
    """One method of a decoded pushbuffer.

    Members
    -------
    position : index of the dword that completes the method.
    address : byte offset of the method.
    object_class : class bound to the subchannel; 0 if unknown.
    """

    position: int
    subchannel: int
    address: int
    data: int
    object_class: int = 0

    @property
    def text(self) -> str:
        """The method as text."""
        name = method_name(self.address, self.object_class)
        text = f"subchannel {self.subchannel} {name} = {self.data:#010x}"
        detail = method_detail(self.address, self.data, self.object_class)
        return f"{text}  ({detail})" if detail else text

    @property
    def without_effect(self) -> bool:
        """Whether the compute class accepts the method, but the machine lacks the state that it
        sets."""
        if self.object_class not in COMPUTE_CLASSES or self.address < ENGINE_METHODS:
            return False
        return self.address not in {*ComputeMethod} and self.address not in _INLINE


@dataclass(frozen=True)
class Ignored:
    """A method that is not executed, because the sub-device mask leaves out device 0."""

    method: Method

    @property
    def position(self) -> int:
        """Index of the dword that completes the method."""
        return self.method.position

    @property
    def text(self) -> str:
        """The method as text."""
        return f"{self.method.text}, ignored: the sub-device mask leaves out device 0"


@dataclass
class SubDevices:
    """Sub-device masks of a channel. `active` tells whether the mask in use includes device 0,
    `stored` whether the stored mask does."""

    active: bool = True
    stored: bool = True

    def apply(self, operation: TertOp, mask: int) -> None:
        """Apply a header with operation `operation` and mask `mask`."""
        match operation:
            case TertOp.SET_SUB_DEV_MASK:
                self.active = bool(mask & 1)
            case TertOp.STORE_SUB_DEV_MASK:
                self.stored = bool(mask & 1)
            case TertOp.USE_SUB_DEV_MASK:
                self.active = self.stored


@dataclass(frozen=True)
class Directive:
    """A header without a method: END_PB_SEGMENT, a group of no dwords, …"""

    position: int
    dword: int
    meaning: str

    @property
    def text(self) -> str:
        """The header as text."""
        return f"{self.dword:#010x}: {self.meaning}"


@dataclass(frozen=True)
class Malformed:
    """An invalid method header, or a group that is cut off by the end of the segment and lacks
    `missing` dwords."""

    position: int
    dword: int
    reason: str
    missing: int = 0

    @property
    def text(self) -> str:
        """The header and the reason why it is invalid."""
        return f"{self.dword:#010x}: {self.reason}"


_HOST_FIELDS: dict[int, type[data.Struct]] = {
    HostMethod.MEM_OP_A: MemOpA,
    HostMethod.MEM_OP_C: MemOpC,
    HostMethod.MEM_OP_D: MemOpD,
    HostMethod.SEM_EXECUTE: SemaphoreExecute,
    HostMethod.SEMAPHORED: LegacySemaphore,
}

_COPY_FIELDS: dict[int, type[data.Struct]] = {
    CeMethod.LAUNCH_DMA: CopyLaunch,
    CeMethod.SET_REMAP_COMPONENTS: RemapComponents,
}
_COMPUTE_FIELDS: dict[int, type[data.Struct]] = {
    ComputeMethod.LAUNCH_DMA: InlineLaunch,
    ComputeMethod.SEND_SIGNALING_PCAS_B: SignalingPcas,
    ComputeMethod.SET_REPORT_SEMAPHORE_D: ReportSemaphore,
}
_FIELDS: dict[int, dict[int, type[data.Struct]]] = {
    **{one: _COPY_FIELDS for one in COPY_CLASSES},
    **{one: _COMPUTE_FIELDS for one in COMPUTE_CLASSES},
}
"""Bit fields of methods, by class and method."""

_NAMES: dict[int, type[enum.IntEnum]] = {
    **dict.fromkeys(COPY_CLASSES, CeMethod),
    **dict.fromkeys(COMPUTE_CLASSES, ComputeMethod),
}

_COPY_VALUES: dict[str, type[enum.IntEnum]] = {
    "transfer": LaunchTransfer,
    "semaphore": LaunchSemaphore,
    "interrupt": Interrupt,
    "reduction": Reduction,
}
_VALUES: dict[type[data.Struct], dict[str, type[enum.IntEnum]]] = {
    CopyLaunch: _COPY_VALUES,
    SemaphoreExecute: _COPY_VALUES,
    LegacySemaphore: _COPY_VALUES,
    ReportSemaphore: {"operation": ReportOp, "reduction": ReleaseOp},
    InlineLaunch: {"completion": InlineCompletion, "reduction": ReleaseOp},
}
"""Names of field values, by layout and field."""

_INLINE = range(
    ComputeMethod.LOAD_INLINE_QMD_DATA, ComputeMethod.LOAD_INLINE_QMD_DATA + QMD_BYTES, 4
)


def method_name(address: int, object_class: int = ObjectClass.COPY) -> str:
    """Name of the method at byte offset `address`, or the offset if it has no name. `object_class`
    is the class bound to the subchannel; 0 if unknown."""
    known = HostMethod if address < ENGINE_METHODS else _NAMES.get(object_class)
    if known is ComputeMethod and address in _INLINE:
        return f"LOAD_INLINE_QMD_DATA({_INLINE.index(address)})"
    if known is ComputeMethod and address in IGNORED_COMPUTE:
        return IGNORED_COMPUTE[address]
    try:
        return known(address).name if known else f"method {address:#x}"
    except ValueError:
        return f"method {address:#x}"


def fields(layout: type[data.Struct], word: int) -> dict[str, int]:
    """Non-zero bit fields of a dword with a given layout, by name."""
    return {name: value for name, value in unpack(layout, word).items() if value}


def _field_text(layout: type[data.Struct], name: str, value: int) -> str:
    names = _VALUES.get(layout, {}).get(name)
    if names is not None and value in set(names):
        return f"{name} {names(value).name}"
    return name if value == 1 else f"{name} {value:#x}"


def _semaphore_text(found: dict[str, int]) -> list[str]:
    """Take operation and reduction of a SEM_EXECUTE from `found`, as text. They are shown even if
    0, as 0 is an operation too."""
    operation, reduction = found.pop("operation", 0), found.pop("reduction", 0)
    if operation not in set(SemOp):
        return [f"operation {operation}"]
    words = [SemOp(operation).name]
    if operation == SemOp.REDUCTION:
        known = reduction in set(Reduction)
        words.append(Reduction(reduction).name if known else f"reduction {reduction}")
    return words


def _mem_op_text(found: dict[str, int]) -> list[str]:
    """Take the operation of a MEM_OP_D from `found`, as text."""
    operation = found.pop("operation", 0)
    return [MemOp(operation).name if operation in set(MemOp) else f"operation {operation}"]


def _remap_text(value: int) -> str:
    """Components of a remap; components that the elements lack are left out."""
    found = unpack(RemapComponents, value)
    names = [name for name in found if name.startswith("dst_")][: found["num_dst"] + 1]
    known = {int(source): source.name for source in RemapSource}
    words = [f"{name} {known.get(found[name], found[name])}" for name in names]
    size, sources = found["component_size"] + 1, found["num_src"] + 1
    return ", ".join([*words, f"{size} bytes each", f"{sources} in the source"])


def method_detail(address: int, value: int, object_class: int = ObjectClass.COPY) -> str:
    """Bit fields of a method's data as text; empty if the data is a plain number."""
    layout = _HOST_FIELDS.get(address) or _FIELDS.get(object_class, {}).get(address)
    if layout is None:
        return _action(address, value) if object_class in COMPUTE_CLASSES else ""
    if layout is RemapComponents:
        return _remap_text(value)
    found = fields(layout, value)
    words: list[str] = []
    if layout is SemaphoreExecute:
        words = _semaphore_text(found)
    elif layout is MemOpD:
        words = _mem_op_text(found)
    return ", ".join(words + [_field_text(layout, *item) for item in found.items()])


def _action(address: int, value: int) -> str:
    """Name of the action of a SEND_SIGNALING_PCAS2_B; empty for other methods."""
    known = address == ComputeMethod.SEND_SIGNALING_PCAS2_B and value in set(PcasAction)
    return PcasAction(value).name if known else ""


def decode(
    dwords: Sequence[int],
    *,
    objects: Mapping[int, int] | None = None,
    masks: SubDevices | None = None,
) -> Iterator[Method | Ignored | Directive | Malformed]:
    """Decode one segment, in order. Dwords that cannot be decoded are yielded as `Malformed`.

    `objects` has the classes bound at the start, by subchannel; it is not changed. `masks` has the
    sub-device masks at the start (default: those of a new channel), and is changed in place. After
    a malformed header, decoding continues with the next dword.
    """
    bound = dict(objects or {})
    masks = masks or SubDevices()
    position = 0
    while position < len(dwords):
        start, head = position, dwords[position]
        position += 1
        sec_op = head >> 29
        if sec_op == SecOp.END_PB_SEGMENT:
            skipped = len(dwords) - position
            behind = f", which skips the {skipped} dwords after it" if skipped else ""
            yield Directive(start, head, f"END_PB_SEGMENT{behind}")
            return
        if reason := _header_fault(head):
            yield Malformed(start, head, reason)
        elif sec_op == SecOp.IMMD_DATA_METHOD:
            yield _method(bound, masks, start, head, 0, head >> 16 & 0x1FFF)
        elif sec_op == SecOp.GRP0_USE_TERT:
            operation = TertOp(head >> 16 & 3)
            masks.apply(operation, head >> 4)
            yield Directive(start, head, operation.name if head else "no operation")
        elif not (count := head >> 16 & 0x1FFF):
            yield Directive(start, head, f"{SecOp(sec_op).name} of no dwords")
        else:
            for index, value in enumerate(dwords[position : position + count]):
                yield _method(bound, masks, position + index, head, index, value)
            position += count
            if position > len(dwords):
                missing = position - len(dwords)
                reason = f"the group lacks {missing} of its {count} dwords"
                yield Malformed(start, head, reason, missing)


class MethodReader:
    """Reads the methods of a channel's segments, in order from the channel's start. It remembers
    bound classes and sub-device masks."""

    def __init__(self) -> None:
        self._objects: dict[int, int] = {}
        self._masks = SubDevices()

    def read(self, dwords: Sequence[int]) -> list[Method]:
        """Methods of the next segment, without ignored ones."""
        found = decode(dwords, objects=self._objects, masks=self._masks)
        methods = [item for item in found if isinstance(item, Method)]
        for method in methods:
            if method.address == HostMethod.SET_OBJECT:
                self._objects[method.subchannel] = method.object_class
        return methods


def _header_fault(head: int) -> str:
    """Reason why a dword is no valid method header; empty if it is one."""
    sec_op, tert_op, count, address = head >> 29, head >> 16 & 3, head >> 16 & 0x1FFF, head & 0xFFF
    if sec_op == SecOp.RESERVED6:
        return "reserved header form"
    if sec_op == SecOp.GRP2_USE_TERT or (sec_op == SecOp.GRP0_USE_TERT and head and not tert_op):
        return "obsolete header form"
    if sec_op != SecOp.GRP0_USE_TERT and head >> 12 & 1:
        return "reserved header bit 12 is set"
    last: dict[int, int] = {
        SecOp.INC_METHOD: address + count - 1,
        SecOp.ONE_INC: address + (count > 1),
    }
    if last.get(sec_op, 0) > 0xFFF:
        return "the group runs past the last method address"
    return ""


def _method(
    bound: dict[int, int], masks: SubDevices, position: int, head: int, index: int, value: int
) -> Method | Ignored:
    """Method `index` of the group with header `head`. SET_OBJECT updates `bound`."""
    sec_op, subchannel = head >> 29, head >> 13 & 7
    steps: dict[int, int] = {SecOp.INC_METHOD: index, SecOp.ONE_INC: min(index, 1)}
    address = ((head & 0xFFF) + steps.get(sec_op, 0)) * 4
    if address == HostMethod.SET_OBJECT and masks.active:
        bound[subchannel] = value & 0xFFFF
    found = Method(position, subchannel, address, value, bound.get(subchannel, 0))
    return found if masks.active else Ignored(found)


def disassemble(dwords: Sequence[int], *, objects: Mapping[int, int] | None = None) -> str:
    """Decode a segment as text, one method per line, with repeated lines `folded`."""
    found = decode(dwords, objects=objects)
    return "\n".join(folded((f"{item.position:5}", item.text) for item in found))


def folded(lines: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Format (place, text) pairs as lines, merging consecutive pairs with the same text."""
    for text, group in groupby(lines, key=lambda line: line[1]):
        places = [place for place, _ in group]
        more = f"  … × {len(places)}, the last at {places[-1].strip()}" if places[1:] else ""
        yield f"{places[0]}: {text}{more}"
