"""Kind, properties and verdict of a single method, from the public formats and the table of
refusals in `hw/README.md` (HOST-3, HOST-4, HOST-8)."""

from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Self

from signalbox.hw.config import WINDOW_BASE
from signalbox.hw.errors import Cause
from signalbox.hw.host.records import ObjectKind
from signalbox.hw.methods import (
    CeMethod,
    ComputeMethod,
    CopyLaunch,
    HostMethod,
    LaunchSemaphore,
    LaunchTransfer,
    LegacySemaphore,
    MemOp,
    MemOpD,
    SemaphoreExecute,
    SemOp,
    unpack,
)
from signalbox.tb.models.remap import Remap, remap_refused

__all__ = [
    "ACTS",
    "CHANGES",
    "HOST_STATE",
    "Action",
    "Inline",
    "Kind",
    "Method",
    "Operation",
    "Settings",
    "Verdict",
    "bound_to",
    "kind",
    "launch_modelled",
    "launch_refusal",
    "operation",
    "verdict",
]

HOST_STATE = frozenset({
    HostMethod.NOP,
    HostMethod.MEM_OP_A,
    HostMethod.MEM_OP_B,
    HostMethod.MEM_OP_C,
    HostMethod.SEMAPHOREA,
    HostMethod.SEMAPHOREB,
    HostMethod.SEMAPHOREC,
    HostMethod.SEM_ADDR_LO,
    HostMethod.SEM_ADDR_HI,
    HostMethod.SEM_PAYLOAD_LO,
    HostMethod.SEM_PAYLOAD_HI,
    HostMethod.YIELD,
})
"""Host methods of kind STATE."""

ACTS = (
    ComputeMethod.LAUNCH_DMA,
    ComputeMethod.SET_CWD_SLOT_COUNT,
    ComputeMethod.SEND_SIGNALING_PCAS_B,
    ComputeMethod.SEND_SIGNALING_PCAS2_B,
    ComputeMethod.SET_INLINE_QMD_ADDRESS_A,
    ComputeMethod.SET_INLINE_QMD_ADDRESS_B,
    ComputeMethod.WAIT_FOR_IDLE,
    ComputeMethod.SET_REPORT_SEMAPHORE_D,
)
"""Compute methods that the engine executes, besides LOAD_INLINE_DATA."""

_COMPUTE_STATE = frozenset({
    ComputeMethod.LINE_LENGTH_IN,
    ComputeMethod.LINE_COUNT,
    ComputeMethod.OFFSET_OUT_UPPER,
    ComputeMethod.OFFSET_OUT,
    ComputeMethod.PITCH_OUT,
    ComputeMethod.SET_I2M_SEMAPHORE_A,
    ComputeMethod.SET_I2M_SEMAPHORE_B,
    ComputeMethod.SET_I2M_SEMAPHORE_C,
    ComputeMethod.SEND_PCAS_A,
    ComputeMethod.SEND_PCAS_B,
    ComputeMethod.SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_A,
    ComputeMethod.SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_B,
    ComputeMethod.SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_C,
    ComputeMethod.SET_SHADER_LOCAL_MEMORY_A,
    ComputeMethod.SET_SHADER_LOCAL_MEMORY_B,
    ComputeMethod.SET_REPORT_SEMAPHORE_A,
    ComputeMethod.SET_REPORT_SEMAPHORE_B,
    ComputeMethod.SET_REPORT_SEMAPHORE_C,
    *(ComputeMethod.LOAD_INLINE_QMD_DATA + 4 * number for number in range(64)),
})

_COMPUTE_NOTHING = (ComputeMethod.NOP, ComputeMethod.INVALIDATE_SKED_CACHES)

_AFTER_TASKS = (ComputeMethod.WAIT_FOR_IDLE, ComputeMethod.SET_REPORT_SEMAPHORE_D)

CHANGES = (SemOp.RELEASE, SemOp.REDUCTION)
"""Semaphore operations that are not acquires."""

_LEGACY = (
    SemOp.ACQUIRE,
    SemOp.RELEASE,
    SemOp.ACQ_CIRC_GEQ,
    SemOp.ACQ_AND,
    SemOp.REDUCTION,
)
"""Operation of each bit of SEMAPHORED."""

_SOFTWARE_ENGINE = 0x1F
"""SET_OBJECT ENGINE (bits 20:16) of software objects."""

_FIRST_SOFTWARE = 5
"""Subchannels from this one on are for software."""

_PEER = 3
"""Physical-mode target that is not modelled."""


@dataclass(frozen=True)
class Method:
    """A method at byte offset `place`. With a `cause` other than NONE, an error of the header or
    ring entry in place of a method."""

    place: int
    data: int = 0
    subchannel: int = 0
    cause: Cause = Cause.NONE


class Kind(Enum):
    """How a method is executed."""

    STATE = auto()
    SEMAPHORE = auto()
    LAUNCH = auto()
    CONTROL = auto()


def bound_to(objects: list[ObjectKind], subchannel: int) -> ObjectKind:
    """Object of a subchannel. `objects` : objects bound to the first subchannels; those from 5 on
    are for software."""
    return objects[subchannel] if subchannel < _FIRST_SOFTWARE else ObjectKind.SOFTWARE


def kind(method: Method, objects: list[ObjectKind]) -> Kind:
    """Kind of a method. `objects` : bound to the first subchannels. A method of the copy class on a
    subchannel without a copy object is a control method, and is refused."""
    if method.cause != Cause.NONE:
        return Kind.CONTROL
    if method.place in HOST_STATE:
        return Kind.STATE
    if method.place in (HostMethod.SEM_EXECUTE, HostMethod.SEMAPHORED):
        return Kind.SEMAPHORE
    if bound_to(objects, method.subchannel) == ObjectKind.COPY and method.place in {*CeMethod}:
        if method.place == CeMethod.LAUNCH_DMA:
            return Kind.LAUNCH
        if method.place != CeMethod.SET_RENDER_ENABLE_C:
            return Kind.STATE
    return Kind.CONTROL


_COPY_FIELDS = {
    CeMethod.SET_SEMAPHORE_A: ("semaphore_va", 32, 17),
    CeMethod.SET_SEMAPHORE_B: ("semaphore_va", 0, 32),
    CeMethod.SET_SEMAPHORE_PAYLOAD: ("payload", 0, 32),
    CeMethod.SET_SEMAPHORE_PAYLOAD_UPPER: ("payload", 32, 32),
    CeMethod.OFFSET_IN_UPPER: ("src", 32, 17),
    CeMethod.OFFSET_IN_LOWER: ("src", 0, 32),
    CeMethod.OFFSET_OUT_UPPER: ("dst", 32, 17),
    CeMethod.OFFSET_OUT_LOWER: ("dst", 0, 32),
    CeMethod.PITCH_IN: ("pitch_in", 0, 32),
    CeMethod.PITCH_OUT: ("pitch_out", 0, 32),
    CeMethod.LINE_LENGTH_IN: ("line_length", 0, 32),
    CeMethod.LINE_COUNT: ("line_count", 0, 32),
    CeMethod.SET_SRC_PHYS_MODE: ("src_mode", 0, 32),
    CeMethod.SET_DST_PHYS_MODE: ("dst_mode", 0, 32),
    CeMethod.SET_REMAP_CONST_A: ("const_a", 0, 32),
    CeMethod.SET_REMAP_CONST_B: ("const_b", 0, 32),
    CeMethod.SET_REMAP_COMPONENTS: ("remap", 0, 32),
}
"""Part of a copy parameter that each method sets: name of the parameter, lowest bit, width."""


def _replaced(value: int, low: int, width: int, part: int) -> int:
    mask = (1 << width) - 1
    return value & ~(mask << low) | (part & mask) << low


@dataclass
class Settings:
    """Settings made by state methods and SET_OBJECT.

    Members
    -------
    objects : objects bound to the subchannels that can have one.
    va, payload : address and payload of semaphore methods.
    copy : parameters of copies; `src_mode`, `dst_mode`: data of SET_SRC_PHYS_MODE, SET_DST_...;
        `remap`: of SET_REMAP_COMPONENTS.
    """

    objects: list[ObjectKind] = field(default_factory=lambda: [ObjectKind.NONE] * _FIRST_SOFTWARE)
    va: int = 0
    payload: int = 0
    copy: dict[str, int] = field(
        default_factory=lambda: {name: 0 for name, _, _ in _COPY_FIELDS.values()}
    )

    def copied(self) -> Self:
        return replace(self, objects=[*self.objects], copy={**self.copy})

    def apply(self, method: Method) -> None:
        """Execute a state method."""
        data = method.data
        match method.place:
            case HostMethod.SEM_ADDR_LO | HostMethod.SEMAPHOREB:
                self.va = _replaced(self.va, 0, 32, data & ~3)
            case HostMethod.SEM_ADDR_HI | HostMethod.SEMAPHOREA:
                self.va = _replaced(self.va, 32, 8, data)
            case HostMethod.SEM_PAYLOAD_LO | HostMethod.SEMAPHOREC:
                self.payload = _replaced(self.payload, 0, 32, data)
            case HostMethod.SEM_PAYLOAD_HI:
                self.payload = _replaced(self.payload, 32, 32, data)
            case place if place in _COPY_FIELDS:
                name, low, width = _COPY_FIELDS[CeMethod(place)]
                self.copy[name] = _replaced(self.copy[name], low, width, data)

    @property
    def copies(self) -> bool:
        """Whether a copy object is bound."""
        return ObjectKind.COPY in self.objects

    def refused(self, side: str) -> bool:
        """Whether the physical mode of `side` ("src" or "dst") is not modelled."""
        mode = self.copy[f"{side}_mode"]
        return mode & 3 == _PEER or mode >> 2 & 15 != 0

    def record(self, counting: int) -> dict:
        """The settings as the record `method_settings`. `counting` : number of counting
        semaphores."""
        copy = dict(self.copy)
        del copy["src_mode"], copy["dst_mode"], copy["remap"]
        low = self.va >> 16 & 0xFFFF == WINDOW_BASE >> 16 & 0xFFFF
        return {
            "objects": self.objects,
            "copies": self.copies,
            "semaphore": {
                "va": self.va,
                "payload": self.payload,
                "low": low,
                "high": self.va >> 32 == WINDOW_BASE >> 32,
                "counter": low and self.va & 0xC == 0 and self.va >> 4 & 0xFFF < counting,
                "nonzero": self.payload & 0xFFFFFFFF != 0,
            },
            "copy": {
                **copy,
                "bytes": copy["line_length"] != 0,
                "lines": copy["line_count"] != 0,
                "src_refused": self.refused("src"),
                "dst_refused": self.refused("dst"),
                "components": Remap.of(self.copy["remap"], 0, 0).components(),
                "remap_refused": remap_refused(self.copy["remap"]),
            },
        }


@dataclass(frozen=True)
class Operation:
    """A semaphore method.

    Members
    -------
    code : the operation; None if its code is undefined.
    acquires : the operation is neither a release nor a reduction.
    plain : the operation is ACQUIRE of 32 bits.
    idle : the operation waits for the channel's tasks.
    fields : fields of the request to the semaphore unit; those without a meaning are missing.
    """

    code: SemOp | None
    acquires: bool
    plain: bool
    idle: bool
    fields: dict[str, int]


def operation(method: Method, settings: Settings) -> Operation:
    """The operation of a SEM_EXECUTE or SEMAPHORED method."""
    if method.place == HostMethod.SEMAPHORED:
        old = unpack(LegacySemaphore, method.data)
        codes = {1 << bit: code for bit, code in enumerate(_LEGACY)}
        code, wide = codes.get(old["operation"]), False
        stamps, waits, word = not old["one_word"], not old["release_no_wfi"], old
    else:
        new = unpack(SemaphoreExecute, method.data)
        code = SemOp(new["operation"]) if new["operation"] in {*SemOp} else None
        wide, stamps, waits = bool(new["wide"]), new["release_timestamp"], new["release_wfi"]
        word = new
    changes = code in CHANGES
    fields = {
        "va": settings.va,
        "wide": wide,
        "timestamp": bool(changes and stamps),
        "payload": settings.payload & ((1 << (64 if wide else 32)) - 1),
    }
    if code is not None:
        fields["operation"] = code
    if code == SemOp.REDUCTION:
        fields |= {"reduction": word["reduction"], "unsigned": word["unsigned"]}
    plain = code == SemOp.ACQUIRE and not wide
    return Operation(code, not changes, plain, bool(changes and waits), fields)


def launch_modelled(data: int) -> bool:
    """Whether LAUNCH_DMA with data `data` launches a copy of a modelled mode."""
    launch = unpack(CopyLaunch, data)
    pitch = launch["src_pitch"] and launch["dst_pitch"]
    return not (
        launch["transfer"] == 3
        or (launch["transfer"] != LaunchTransfer.NONE and not pitch)
        or launch["semaphore"] == LaunchSemaphore.CONDITIONAL_INTERRUPT
        or launch["interrupt"] == 3
        or (launch["reduction_enable"] and launch["reduction"] >= 8)
        or launch["vpr_mode"]
        or launch["reserved"]
    )


def launch_refusal(data: int, settings: Settings, privileged: bool) -> Cause:
    """Cause for which LAUNCH_DMA with data `data` is refused; NONE if it is legal."""
    launch, copy = unpack(CopyLaunch, data), settings.copy
    physical = [side for side in ("src", "dst") if launch[f"{side}_physical"]]
    if not launch_modelled(data) or any(map(settings.refused, physical)):
        return Cause.COPY_MODE
    if physical and not privileged:
        return Cause.METHOD_PRIVILEGED
    moves = launch["transfer"] != LaunchTransfer.NONE
    if moves and launch["remap"] and remap_refused(copy["remap"]):
        return Cause.COPY_REMAP
    empty = copy["line_length"] == 0 or (launch["multi_line"] and copy["line_count"] == 0)
    if moves and empty:
        return Cause.COPY_ZERO
    return Cause.NONE


@dataclass(frozen=True)
class Inline:
    """Inline transfer of a channel (HOST-14).

    Members
    -------
    open : more dwords are expected.
    room : number of LOAD_INLINE_DATA methods that only set state; the engine executes the next one.
    failed : the last LOAD_INLINE_DATA was refused.
    ended : another compute method was refused while the transfer was open, which ends it.
    dropped : the transfer was given up; its further data are ignored.
    """

    open: bool = False
    room: int = 0
    failed: bool = False
    ended: bool = False
    dropped: bool = False

    def loaded(self) -> "Inline":
        """After a LOAD_INLINE_DATA that set state."""
        return replace(self, room=self.room - 1)

    def refused(self, method: Method) -> "Inline":
        """After the refusal of `method`, a method of a compute object."""
        if method.place == ComputeMethod.LOAD_INLINE_DATA:
            return replace(self, failed=self.open)
        if self.open and not self.failed:
            return replace(self, ended=True)
        return self._drop() if method.place == ComputeMethod.LAUNCH_DMA else self

    def replaced(self, *, again: bool) -> "Inline":
        """After a refused method has been replaced. `again` : the same method is executed again."""
        return self._drop() if self.ended or (self.failed and not again) else self

    def _drop(self) -> "Inline":
        return Inline(room=self.room, dropped=True)


class Action(Enum):
    """Action of a control method. `BARRIER`: no action, but the method waits for the channel's
    copies. For compute methods: `SET` sets state of the engine, `IGNORE` has no effect in this
    design, `COMPUTE` is executed by the engine."""

    REFUSE = auto()
    NOTHING = auto()
    BIND = auto()
    NOTIFY = auto()
    BARRIER = auto()
    REFERENCE = auto()
    IDLE = auto()
    RESUME = auto()
    INVALIDATE = auto()
    SET = auto()
    IGNORE = auto()
    COMPUTE = auto()


@dataclass(frozen=True)
class Verdict:
    """Action of a control method. `cause` : of REFUSE. `object` : bound by BIND. `idle` : the
    method waits for the channel's tasks."""

    action: Action
    cause: Cause = Cause.NONE
    object: ObjectKind = ObjectKind.NONE
    idle: bool = False


def _refuse(cause: Cause) -> Verdict:
    return Verdict(Action.REFUSE, cause)


def verdict(
    method: Method,
    bound: ObjectKind,
    privileged: bool,
    refused: Cause,
    inline: Inline,
    *,
    compute: bool,
) -> Verdict:
    """Verdict on a control method.

    Parameters
    ----------
    bound : object bound to the subchannel of the method.
    privileged : the channel may execute privileged methods.
    refused : cause for which the unit that executes the method has refused it, or NONE.
    inline : inline transfer of the channel.
    compute : the machine has a compute engine.
    """
    if method.cause != Cause.NONE:
        return _refuse(method.cause)
    if method.place >= 0x100:
        return _of_engine(method, bound, refused, inline)
    match method.place:
        case HostMethod.SET_OBJECT:
            return _set_object(method, compute)
        case HostMethod.ILLEGAL:
            return _refuse(Cause.METHOD_ILLEGAL)
        case HostMethod.NON_STALL_INTERRUPT:
            return Verdict(Action.NOTIFY)
        case HostMethod.FB_FLUSH:
            return Verdict(Action.BARRIER, idle=True)
        case HostMethod.WFI:
            return Verdict(Action.IDLE, idle=True)
        case HostMethod.SET_REFERENCE:
            return _refuse(refused) if refused else Verdict(Action.REFERENCE, idle=True)
        case HostMethod.CLEAR_FAULTED | HostMethod.MEM_OP_D if not privileged:
            return _refuse(Cause.METHOD_PRIVILEGED)
        case HostMethod.CLEAR_FAULTED:
            return Verdict(Action.RESUME)
        case HostMethod.MEM_OP_D:
            return _mem_op(unpack(MemOpD, method.data)["operation"], refused)
    return _refuse(Cause.METHOD_UNDEFINED)


def _set_object(method: Method, compute: bool) -> Verdict:
    data = method.data
    if method.subchannel >= _FIRST_SOFTWARE:
        return _refuse(Cause.OBJECT_SOFTWARE)
    if data >> 16 & 31 == _SOFTWARE_ENGINE:
        return Verdict(Action.BIND, object=ObjectKind.SOFTWARE)
    if data & 0xFFFF in (0xC6B5, 0xC7B5):
        return Verdict(Action.BIND, object=ObjectKind.COPY)
    if data & 0xFFFF in (0xC6C0, 0xC7C0, 0xC9C0) and compute:
        return Verdict(Action.BIND, object=ObjectKind.COMPUTE)
    return _refuse(Cause.OBJECT_CLASS)


def _mem_op(code: int, refused: Cause) -> Verdict:
    if code not in {*MemOp}:
        return _refuse(Cause.METHOD_UNDEFINED)
    if code in (MemOp.MMU_TLB_INVALIDATE, MemOp.MMU_TLB_INVALIDATE_TARGETED):
        return _refuse(refused) if refused else Verdict(Action.INVALIDATE)
    return Verdict(Action.BARRIER, idle=True)


def _of_engine(method: Method, bound: ObjectKind, refused: Cause, inline: Inline) -> Verdict:
    match bound:
        case ObjectKind.NONE:
            return _refuse(Cause.OBJECT_UNBOUND)
        case ObjectKind.SOFTWARE:
            return _refuse(Cause.OBJECT_SOFTWARE)
        case ObjectKind.COPY if method.place != CeMethod.SET_RENDER_ENABLE_C:
            return _refuse(Cause.COPY_METHOD)
        case ObjectKind.COPY:
            return Verdict(Action.NOTHING) if method.data & 7 == 1 else _refuse(Cause.COPY_MODE)
    if method.place == ComputeMethod.LOAD_INLINE_DATA:
        return _load(refused, inline)
    if inline.open and not inline.failed:
        return _refuse(Cause.INLINE_ORDER)
    if method.place in ACTS:
        idle = method.place in _AFTER_TASKS
        return _refuse(refused) if refused else Verdict(Action.COMPUTE, idle=idle)
    if method.place in _COMPUTE_NOTHING:
        return Verdict(Action.NOTHING)
    return Verdict(Action.SET if method.place in _COMPUTE_STATE else Action.IGNORE)


def _load(refused: Cause, inline: Inline) -> Verdict:
    """Verdict on LOAD_INLINE_DATA."""
    if inline.dropped:
        return Verdict(Action.IGNORE)
    if not inline.open:
        return _refuse(Cause.INLINE_ORDER)
    if inline.room:
        return Verdict(Action.SET)
    return _refuse(refused) if refused else Verdict(Action.COMPUTE)
