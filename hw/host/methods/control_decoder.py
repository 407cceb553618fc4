"""Decoder of control methods: those other than settings, semaphore operations and copies. Errors of
headers and fetches are decoded here, too."""

from amaranth.hdl import Module, Value
from amaranth.lib import data, enum, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.errors import Cause
from signalbox.hw.host.methods.decoder import ENGINE_METHODS
from signalbox.hw.host.records import InlinePhase, ObjectKind, Step, inline_state
from signalbox.hw.host.waits.compute_waits import method_result
from signalbox.hw.methods import (
    COMPUTE_CLASSES,
    COPY_CLASSES,
    ENGINE_SUBCHANNELS,
    CeMethod,
    ComputeMethod,
    HostMethod,
    MemOp,
    MemOpD,
)
from signalbox.hw.qmd import QMD_BYTES

__all__ = ["Action", "ControlDecoder", "verdict"]

SOFTWARE_ENGINE = 0x1F
"""SET_OBJECT ENGINE of software objects."""

RENDER_TRUE = 1
"""The modelled mode of SET_RENDER_ENABLE_C: unconditional."""


_LAST_LOAD = ComputeMethod.LOAD_INLINE_QMD_DATA + QMD_BYTES - 4

_SETTINGS = (
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
    *range(ComputeMethod.LOAD_INLINE_QMD_DATA, _LAST_LOAD + 4, 4),
)
"""Compute methods that set state of the engine."""

_AFTER_TASKS = (ComputeMethod.WAIT_FOR_IDLE, ComputeMethod.SET_REPORT_SEMAPHORE_D)
_ACTS = (
    ComputeMethod.LAUNCH_DMA,
    ComputeMethod.SET_CWD_SLOT_COUNT,
    ComputeMethod.SEND_SIGNALING_PCAS_B,
    ComputeMethod.SEND_SIGNALING_PCAS2_B,
    ComputeMethod.SET_INLINE_QMD_ADDRESS_A,
    ComputeMethod.SET_INLINE_QMD_ADDRESS_B,
    *_AFTER_TASKS,
)
"""Compute methods executed by the engine."""

INVALIDATIONS = (MemOp.MMU_TLB_INVALIDATE, MemOp.MMU_TLB_INVALIDATE_TARGETED)


class Action(enum.Enum, shape=4):
    """Action of a method.

    * `BARRIER`: nothing but to wait for the channel's copies and tasks.
    * `INVALIDATE`: invalidation of translations, after the channel's copies.
    * `SET`: compute method that sets state of the engine.
    * `IGNORE`: compute method for state that the engine lacks.
    * `COMPUTE`: compute method that the engine executes.
    """

    REFUSE = 0
    NOTHING = 1
    BIND = 2
    NOTIFY = 3
    BARRIER = 4
    REFERENCE = 5
    IDLE = 6
    RESUME = 7
    INVALIDATE = 8
    SET = 9
    IGNORE = 10
    COMPUTE = 11


verdict = data.StructLayout({
    "action": Action,
    "cause": Cause,
    "object": ObjectKind,
    "idle": 1,
    "inline": 1,
    "loads": 1,
})
"""Action of a method. `cause`: for REFUSE. `object`: for BIND. `idle`: the action first waits for
the channel's tasks. `inline`: the method changes the channel's inline transfer. `loads`: it is
LOAD_INLINE_DATA."""


class ControlDecoder(wiring.Component):
    """Determines the action of a method that is of no kind in `Kind`. Combinational.

    Members
    -------
    step : in, the method.
    bound : in, the object of its subchannel.
    privileged : in, its channel is privileged.
    unwritten : in, REF of this SET_REFERENCE could not be written.
    refused : in, the invalidation of this MEM_OP_D was refused.
    uncomputed : in, the engine has refused this compute method.
    why : in, reason for that refusal.
    inline : in, the inline transfer of its channel.
    verdict : out, its action.
    """

    step: In(Step)
    bound: In(ObjectKind)
    privileged: In(1)
    unwritten: In(1)
    refused: In(1)
    uncomputed: In(1)
    why: In(method_result)
    inline: In(inline_state)
    verdict: Out(verdict)

    def __init__(self, *, compute: bool) -> None:
        """`compute`: a compute engine is built."""
        self._compute = compute
        super().__init__()

    def elaborate(self, platform: object) -> Module:
        m = Module()
        method = self.step.method
        with m.If(method.cause != Cause.NONE):
            self._refuse(m, method.cause)
        with m.Elif(method.address >= ENGINE_METHODS >> 2):
            self._engine_method(m)
        with m.Else():
            self._host_method(m)
        return m

    def _do(self, m: Module, action: Action) -> None:
        m.d.comb += self.verdict.action.eq(action)

    def _refuse(self, m: Module, cause: Value | Cause) -> None:
        m.d.comb += [self.verdict.action.eq(Action.REFUSE), self.verdict.cause.eq(cause)]

    def _engine_method(self, m: Module) -> None:
        method = self.step.method
        with m.If(self.bound == ObjectKind.NONE):
            self._refuse(m, Cause.OBJECT_UNBOUND)
        with m.Elif(self.bound == ObjectKind.SOFTWARE):
            self._refuse(m, Cause.OBJECT_SOFTWARE)
        with m.Elif(self.bound == ObjectKind.COMPUTE):
            self._compute_method(m)
        with m.Elif(method.address != CeMethod.SET_RENDER_ENABLE_C >> 2):
            self._refuse(m, Cause.COPY_METHOD)
        with m.Elif(method.data[:3] == RENDER_TRUE):
            self._do(m, Action.NOTHING)
        with m.Else():
            self._refuse(m, Cause.COPY_MODE)

    def _compute_method(self, m: Module) -> None:
        """Between LAUNCH_DMA and its last dword, only data are accepted (HOST-14)."""
        address, phase = self.step.method.address, self.inline.phase
        is_open = (phase == InlinePhase.OPEN) | (phase == InlinePhase.ENDED)
        loads = address == ComputeMethod.LOAD_INLINE_DATA >> 2
        m.d.comb += [
            self.verdict.loads.eq(loads),
            self.verdict.inline.eq(is_open | loads | (address == ComputeMethod.LAUNCH_DMA >> 2)),
        ]
        with m.If(loads):
            self._load_inline(m, is_open | (phase == InlinePhase.FAILED))
        with m.Elif(is_open):
            self._refuse(m, Cause.INLINE_ORDER)
        with m.Else():
            self._other_compute_method(m)

    def _load_inline(self, m: Module, is_open: Value) -> None:
        """LOAD_INLINE_DATA."""
        with m.If(is_open & (self.inline.room != 0)):
            self._do(m, Action.SET)
        with m.Elif(is_open):
            self._execute(m)
        with m.Elif(self.inline.phase == InlinePhase.DROPPED):
            self._do(m, Action.IGNORE)
        with m.Else():
            self._refuse(m, Cause.INLINE_ORDER)

    def _execute(self, m: Module) -> None:
        """Has the engine execute the method, or refuses it if the engine has."""
        self._do(m, Action.COMPUTE)
        with m.If(self.uncomputed):
            self._refuse(m, self.why.cause)

    def _other_compute_method(self, m: Module) -> None:
        nothing = (ComputeMethod.NOP, ComputeMethod.INVALIDATE_SKED_CACHES)
        with m.Switch(self.step.method.address):
            with m.Case(*(name >> 2 for name in nothing)):
                self._do(m, Action.NOTHING)
            with m.Case(*(name >> 2 for name in _SETTINGS)):
                self._do(m, Action.SET)
            with m.Case(*(name >> 2 for name in _ACTS)):
                self._execute(m)
            with m.Default():
                self._do(m, Action.IGNORE)
        with m.If(self.step.method.address.matches(*(name >> 2 for name in _AFTER_TASKS))):
            m.d.comb += self.verdict.idle.eq(~self.uncomputed)

    def _host_method(self, m: Module) -> None:
        simple = {
            HostMethod.NON_STALL_INTERRUPT: Action.NOTIFY,
            HostMethod.FB_FLUSH: Action.BARRIER,
            HostMethod.WFI: Action.IDLE,
        }
        after_tasks = (HostMethod.FB_FLUSH, HostMethod.WFI, HostMethod.SET_REFERENCE)
        m.d.comb += self.verdict.idle.eq(
            self.step.method.address[:6].matches(*(name >> 2 for name in after_tasks))
        )
        with m.Switch(self.step.method.address[:6]):
            for name, action in simple.items():
                with m.Case(name >> 2):
                    self._do(m, action)
            with m.Case(HostMethod.SET_OBJECT >> 2):
                self._set_object(m)
            with m.Case(HostMethod.ILLEGAL >> 2):
                self._refuse(m, Cause.METHOD_ILLEGAL)
            with m.Case(HostMethod.SET_REFERENCE >> 2):
                self._do(m, Action.REFERENCE)
                with m.If(self.unwritten):
                    self._refuse(m, Cause.USERD_WRITE)
            with m.Case(HostMethod.MEM_OP_D >> 2):
                self._mem_op(m)
            with m.Case(HostMethod.CLEAR_FAULTED >> 2):
                with m.If(self.privileged):
                    self._do(m, Action.RESUME)
                with m.Else():
                    self._refuse(m, Cause.METHOD_PRIVILEGED)
            with m.Default():
                self._refuse(m, Cause.METHOD_UNDEFINED)

    def _set_object(self, m: Module) -> None:
        method = self.step.method
        value = method.data
        with m.If(method.subchannel >= ENGINE_SUBCHANNELS):
            self._refuse(m, Cause.OBJECT_SOFTWARE)
        with m.Elif(value[16:21] == SOFTWARE_ENGINE):
            self._do(m, Action.BIND)
            m.d.comb += self.verdict.object.eq(ObjectKind.SOFTWARE)
        with m.Elif(value[:16].matches(*COPY_CLASSES)):
            self._do(m, Action.BIND)
            m.d.comb += self.verdict.object.eq(ObjectKind.COPY)
        with m.Elif(value[:16].matches(*COMPUTE_CLASSES) & self._compute):
            self._do(m, Action.BIND)
            m.d.comb += self.verdict.object.eq(ObjectKind.COMPUTE)
        with m.Else():
            self._refuse(m, Cause.OBJECT_CLASS)

    def _mem_op(self, m: Module) -> None:
        """Invalidations, and barriers. As there is no cache, a barrier is complete once the
        channel's copies and tasks have ended."""
        operation = data.View(MemOpD, self.step.method.data).operation
        with m.If(~self.privileged):
            self._refuse(m, Cause.METHOD_PRIVILEGED)
        with m.Else():
            with m.Switch(operation):
                with m.Case(*INVALIDATIONS):
                    self._do(m, Action.INVALIDATE)
                    with m.If(self.refused):
                        self._refuse(m, Cause.METHOD_UNDEFINED)
                with m.Case(*(one for one in MemOp if one not in INVALIDATIONS)):
                    self._do(m, Action.BARRIER)
                    m.d.comb += self.verdict.idle.eq(1)
                with m.Default():
                    self._refuse(m, Cause.METHOD_UNDEFINED)
