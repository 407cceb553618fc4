"""Control methods: those other than settings, semaphore operations and copies (HOST-3, HOST-8).
Errors of headers and fetches are refused here, too.

A control method takes one cycle more than others: its action is determined in one cycle and
performed in the next. Dwords of an inline transfer (HOST-14) are settings, except the last dword of
each part (`room` is 0): with that one, the engine writes the part.
"""

from functools import reduce
from operator import or_

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import VA_BITS, Config
from signalbox.hw.errors import Cause
from signalbox.hw.host.methods.channel_rights import channel_rights
from signalbox.hw.host.methods.control_decoder import Action, ControlDecoder, verdict
from signalbox.hw.host.methods.served_channel import channel_status
from signalbox.hw.host.methods.service import Outcome, Service
from signalbox.hw.host.methods.state_methods import object_binding
from signalbox.hw.host.records import (
    InlinePhase,
    inline_state,
    method_settings,
    object_bound,
    object_of,
)
from signalbox.hw.host.userd_writeback import ReferencePort
from signalbox.hw.host.waits.barrier import BarrierPort
from signalbox.hw.host.waits.compute_waits import ComputeMethodPort
from signalbox.hw.host.waits.mem_ops import InvalidationPort
from signalbox.hw.qmd import SkedCheck
from signalbox.hw.records.channel import channel_event
from signalbox.hw.registers import Wait

__all__ = ["ControlMethods"]

_AT_ONCE = (Action.NOTHING, Action.BIND, Action.SET, Action.IGNORE)
"""Complete regardless of the channel's outstanding operations."""


class ControlMethods(wiring.Component):
    """Executes the held control method; owns `referred` and `inline` of its channel.

    Members
    -------
    service : in, the served channel.
    run : in, execute its method as a control method in this cycle.
    settings : in, `method_settings` of the channel.
    rights : in, `channel_rights` of the channel.
    known : in, see `ServedChannel`.
    all_idle : in, no copy, task or change of a semaphore in memory is outstanding, in any channel.
    reference : out, REF.
    barrier : out, WFI of scope ALL.
    invalidation : out, invalidations.
    compute : out, methods of compute objects.
    outcome : out, see `Outcome`.
    referred : out, registered; see `method_state`.
    inline : out, an `inline_state`, registered.
    bind : out, strobe: SET_OBJECT, an `object_binding`.
    bound : out, strobe: SET_OBJECT, an `object_bound`.
    notify : out, strobe: NON_STALL_INTERRUPT.
    resume : out, strobe: CLEAR_FAULTED for channel `target`.
    ignored : out, strobe: a compute method without effect in this design is executed.
    check : out, a `SkedCheck`, with a refusal: the failed check of a task's record.
    va : out, 49 bits, with a refusal: its address.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        super().__init__({
            "service": In(Service(config)),
            "run": In(1),
            "settings": In(method_settings()),
            "rights": In(channel_rights(config)),
            "known": In(channel_status),
            "all_idle": In(1),
            "reference": Out(ReferencePort(config)),
            "barrier": Out(BarrierPort(config)),
            "invalidation": Out(InvalidationPort(config)),
            "compute": Out(ComputeMethodPort(config)),
            "outcome": Out(Outcome()),
            "referred": Out(1),
            "inline": Out(inline_state),
            "bind": Out(object_binding),
            "bound": Out(object_bound(config)),
            "notify": Out(channel_event(config)),
            "resume": Out(channel_event(config, target=12)),
            "ignored": Out(1),
            "check": Out(SkedCheck),
            "va": Out(VA_BITS),
        })
        self._found = Signal(verdict, name="found")
        """Verdict of the previous cycle."""
        self._acts, self._blocked = Signal(name="acts"), Signal(name="blocked")
        """`_acts`: perform the action in this cycle. `_blocked`: it must wait for outstanding
        copies or tasks."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        self._decode(m)
        out, known, action = self.outcome, self.known, self._found.action
        copying, at_once = known.copying, reduce(or_, (action == one for one in _AT_ONCE))
        refused = action == Action.REFUSE
        working = Signal()
        ready = self._ready()
        m.d.comb += [
            working.eq(self._found.idle & known.tasks),
            self._blocked.eq(copying | working),
            out.refuse.eq(self._acts & refused & ~copying),
            out.cause.eq(self._found.cause),
            out.done.eq(self._acts & (at_once | (ready & ~self._blocked))),
            out.park.eq(self._acts & ~at_once & (copying | (~refused & (working | ~ready)))),
        ]
        self._wait(m, working)
        self._perform(m)
        self._ask(m)
        self._refer(m)
        self._follow_inline(m)
        return m

    def _decode(self, m: Module) -> None:
        """Verdict on the method, in the cycle before it acts."""
        m.submodules.decoder = decoder = ControlDecoder(compute=self._config.compute)
        service, looked = self.service, Signal()
        channel, compute = service.channel, self.compute
        uncomputed = compute.refused.bit_select(channel, 1)
        m.d.comb += [
            decoder.step.eq(service.step),
            decoder.bound.eq(object_of(self.settings.objects, service.step.method.subchannel)),
            decoder.privileged.eq(self.rights.privileged),
            decoder.unwritten.eq(self.referred & self.reference.failed.bit_select(channel, 1)),
            decoder.refused.eq(self.invalidation.refused.bit_select(channel, 1)),
            decoder.uncomputed.eq(uncomputed),
            decoder.why.eq(compute.why),
            decoder.inline.eq(self.inline),
            self.va.eq(Mux(uncomputed, compute.why.va, 0)),
            self.check.eq(Mux(uncomputed, compute.why.check, SkedCheck.NONE)),
            self._acts.eq(self.run & looked),
            self.outcome.busy.eq(self.run & ~looked),
        ]
        m.d.sync += [
            self._found.eq(decoder.verdict),
            looked.eq(self.run & ~self.outcome.done),
        ]

    def _ready(self) -> Value:
        """Whether the action can be completed, outstanding copies and tasks apart."""
        action, over = self._found.action, self.known.over
        this_channel = ~self.service.step.method.data[0]
        return (
            (action == Action.NOTIFY)
            | (action == Action.RESUME)
            | (action == Action.BARRIER)
            | ((action == Action.REFERENCE) & self.referred)
            | ((action == Action.IDLE) & (this_channel | self.all_idle | over))
            | (((action == Action.INVALIDATE) | (action == Action.COMPUTE)) & over)
        )

    def _wait(self, m: Module, working: Value) -> None:
        wait, action = self.outcome.wait, self._found.action
        with m.If(self.known.copying):
            m.d.comb += wait.eq(Wait.COPIES)
        with m.Elif(working):
            m.d.comb += wait.eq(Wait.TASKS)
        with m.Elif(action == Action.REFERENCE):
            m.d.comb += wait.eq(Wait.WRITEBACK)
        with m.Elif(action == Action.INVALIDATE):
            m.d.comb += wait.eq(Wait.TRANSLATION)
        with m.Elif(action == Action.COMPUTE):
            m.d.comb += wait.eq(Wait.COMPUTE)
        with m.Else():
            m.d.comb += wait.eq(Wait.ALL_IDLE)

    def _perform(self, m: Module) -> None:
        """Actions of a complete method."""
        method, found, done = self.service.step.method, self._found, self.outcome.done
        setting = self.compute.setting
        m.d.comb += [
            self.bind.valid.eq(done & (found.action == Action.BIND)),
            self.bind.subchannel.eq(method.subchannel),
            self.bind.object.eq(found.object),
            self.bound.valid.eq(self.bind.valid),
            self.bound.channel.eq(self.service.channel),
            self.bound.subchannel.eq(method.subchannel),
            self.bound.data.eq(method.data),
            self.notify.valid.eq(done & (found.action == Action.NOTIFY)),
            self.notify.channel.eq(self.service.channel),
            self.resume.valid.eq(done & (found.action == Action.RESUME)),
            self.resume.channel.eq(self.service.channel),
            self.resume.target.eq(method.data),
            self.ignored.eq(done & (found.action == Action.IGNORE)),
            setting.valid.eq(done & (found.action == Action.SET)),
            setting.channel.eq(self.service.channel),
            setting.address.eq(method.address),
            setting.data.eq(method.data),
        ]

    def _ask(self, m: Module) -> None:
        """Requests to the unit for which a method waits. A request is dropped when its method is
        complete or replaced, or its channel starts."""
        service, method = self.service, self.service.step.method
        waits = {
            Action.IDLE: self.barrier,
            Action.INVALIDATE: self.invalidation,
            Action.COMPUTE: self.compute,
        }
        chosen = {action: self._found.action == action for action in waits}
        ends = self.outcome.done & reduce(or_, chosen.values())
        for action, port in waits.items():
            m.d.comb += [
                port.ask.valid.eq(self.outcome.park & chosen[action] & ~self._blocked),
                port.ask.channel.eq(service.channel),
                port.drop.valid.eq(ends | service.reset | service.replace),
                port.drop.channel.eq(service.channel),
            ]
        m.d.comb += [
            self.invalidation.ask.data.eq(method.data),
            self.compute.ask.asid.eq(self.rights.asid),
            self.compute.ask.context.eq(self.rights.context),
            self.compute.ask.address.eq(method.address),
            self.compute.ask.data.eq(method.data),
            self.compute.skip.valid.eq(
                (service.replace & ~service.again)
                & self.compute.refused.bit_select(service.channel, 1)
            ),
            self.compute.skip.channel.eq(service.channel),
        ]

    def _refer(self, m: Module) -> None:
        """SET_REFERENCE: parked until REF is in memory; complete, or refused, when served again."""
        write, refers = self.reference.write, Signal()
        m.d.comb += [
            refers.eq(self._acts & ~self._blocked & (self._found.action == Action.REFERENCE)),
            write.valid.eq(refers & ~self.referred),
            write.channel.eq(self.service.channel),
            write.value.eq(self.service.step.method.data),
        ]
        with m.If(self._acts):
            m.d.sync += self.referred.eq(refers & ~self.referred)
        with m.If(self.service.load):
            m.d.sync += self.referred.eq(self.service.loaded.referred)
        with m.If(self.service.reset):
            m.d.sync += self.referred.eq(0)

    def _follow_inline(self, m: Module) -> None:
        """Updates the inline transfer: the engine's last answer, less the dwords set since."""
        out, found, service = self.outcome, self._found, self.service
        inline, result = self.inline, self.compute.why.inline
        with m.If(found.inline & out.done & (found.action == Action.SET)):
            m.d.sync += inline.room.eq(inline.room - 1)
        with m.If(found.inline & out.done & (found.action == Action.COMPUTE)):
            m.d.sync += [
                inline.phase.eq(Mux(result.open, InlinePhase.OPEN, InlinePhase.CLOSED)),
                inline.room.eq(result.room),
            ]
        ended = found.cause == Cause.INLINE_ORDER
        with m.If(found.inline & out.refuse & ~found.loads):
            m.d.sync += inline.phase.eq(Mux(ended, InlinePhase.ENDED, InlinePhase.DROPPED))
        with m.If(found.inline & out.refuse & found.loads & (inline.phase == InlinePhase.OPEN)):
            m.d.sync += inline.phase.eq(InlinePhase.FAILED)
        present = Signal.like(inline)
        m.d.comb += present.eq(Mux(service.load, service.loaded.inline, inline))
        with m.If(service.load):
            m.d.sync += inline.eq(present)
        failed = (present.phase == InlinePhase.FAILED) & ~service.again
        with m.If(service.replace & (failed | (present.phase == InlinePhase.ENDED))):
            m.d.sync += inline.phase.eq(InlinePhase.DROPPED)
        with m.If(service.reset):
            m.d.sync += inline.eq(0)
