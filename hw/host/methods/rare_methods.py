"""Methods that need a closer look: all but settings, semaphores and copies, and all that is wrong.

They take a cycle more than others: what is to be done is found out in one, and done in the next.
"""

from amaranth.hdl import Module, Value
from amaranth.lib import data, enum, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.errors import Cause
from signalbox.hw.host.methods.decoder import ENGINE_METHODS
from signalbox.hw.host.records import ObjectKind, Step
from signalbox.hw.host.waits.compute_waits import method_refusal
from signalbox.hw.methods import CeMethod, ComputeMethod, HostMethod, MemOp, MemOpD, ObjectClass
from signalbox.hw.qmd import QMD_BYTES

__all__ = ["Action", "RareMethods", "verdict"]

SOFTWARE_ENGINE = 0x1F
"""SET_OBJECT ENGINE of software objects."""

RENDER_TRUE = 1
"""SET_RENDER_ENABLE_C mode that is modelled: unconditional."""


_LAST_LOAD = ComputeMethod.LOAD_INLINE_QMD_DATA + QMD_BYTES - 4

_SETTINGS = (
    ComputeMethod.SEND_PCAS_A,
    ComputeMethod.SEND_PCAS_B,
    ComputeMethod.SET_REPORT_SEMAPHORE_A,
    ComputeMethod.SET_REPORT_SEMAPHORE_B,
    ComputeMethod.SET_REPORT_SEMAPHORE_C,
    *range(ComputeMethod.LOAD_INLINE_QMD_DATA, _LAST_LOAD + 4, 4),
)
"""Compute methods that set what the engine has."""

_AFTER_TASKS = (ComputeMethod.WAIT_FOR_IDLE, ComputeMethod.SET_REPORT_SEMAPHORE_D)
_ACTS = (
    ComputeMethod.SET_CWD_SLOT_COUNT,
    ComputeMethod.SEND_SIGNALING_PCAS_B,
    ComputeMethod.SEND_SIGNALING_PCAS2_B,
    ComputeMethod.SET_INLINE_QMD_ADDRESS_A,
    ComputeMethod.SET_INLINE_QMD_ADDRESS_B,
    *_AFTER_TASKS,
)
"""Compute methods that the engine carries out."""

INVALIDATIONS = (MemOp.MMU_TLB_INVALIDATE, MemOp.MMU_TLB_INVALIDATE_TARGETED)


class Action(enum.Enum, shape=4):
    """What is to be done; `BARRIER`: nothing, but after the channel's copies; `INVALIDATE`: after
    them translations are to be forgotten. `SET`, `IGNORE`, `COMPUTE`: compute methods that set what
    the engine has, what it lacks, and that are to be carried out."""

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


verdict = data.StructLayout({"action": Action, "cause": Cause, "object": ObjectKind, "idle": 1})
"""What is to be done with a method: for REFUSE why, for BIND what is bound. `idle`: not before the
channel's tasks are over."""


class RareMethods(wiring.Component):
    """Combinational.

    Members
    -------
    step, bound, privileged : a method, what is bound to its subchannel, whether its channel is
        privileged.
    unwritten : it is a SET_REFERENCE whose REF could not be written.
    refused : it is a MEM_OP_D whose invalidation was refused.
    uncomputed : it is a compute method that the engine has refused; `why`.
    verdict : what is to be done, if it is none of the kinds of `Kind`.
    """

    step: In(Step)
    bound: In(ObjectKind)
    privileged: In(1)
    unwritten: In(1)
    refused: In(1)
    uncomputed: In(1)
    why: In(method_refusal)
    verdict: Out(verdict)

    def __init__(self, *, compute: bool) -> None:
        """`compute`: there is a compute engine."""
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
        nothing = (ComputeMethod.NOP, ComputeMethod.INVALIDATE_SKED_CACHES)
        with m.Switch(self.step.method.address):
            with m.Case(*(name >> 2 for name in nothing)):
                self._do(m, Action.NOTHING)
            with m.Case(*(name >> 2 for name in _SETTINGS)):
                self._do(m, Action.SET)
            with m.Case(*(name >> 2 for name in _ACTS)):
                self._do(m, Action.COMPUTE)
                with m.If(self.uncomputed):
                    self._refuse(m, self.why.cause)
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
        value = self.step.method.data
        with m.If(value[16:21] == SOFTWARE_ENGINE):
            self._do(m, Action.BIND)
            m.d.comb += self.verdict.object.eq(ObjectKind.SOFTWARE)
        with m.Elif(value[:16] == ObjectClass.COPY):
            self._do(m, Action.BIND)
            m.d.comb += self.verdict.object.eq(ObjectKind.COPY)
        with m.Elif((value[:16] == ObjectClass.COMPUTE) & self._compute):
            self._do(m, Action.BIND)
            m.d.comb += self.verdict.object.eq(ObjectKind.COMPUTE)
        with m.Else():
            self._refuse(m, Cause.OBJECT_CLASS)

    def _mem_op(self, m: Module) -> None:
        """Invalidations, and barriers: all that these order has happened once the channel's copies
        and tasks have ended, for there is no cache."""
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
