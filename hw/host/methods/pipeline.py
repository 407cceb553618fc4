"""Method pipeline: serves one channel at a time, one dword per cycle (HOST-2).

States of a service: SELECT takes the scheduler's target and reads its context; LOAD receives it;
RUN, in every cycle, decodes a dword and executes the method decoded before. The context is written
back in the SELECT after RUN. So the next channel's first method executes three cycles after the
last method of the previous channel was found blocked.

Completion of a method is known late in its cycle. The decoder does not wait for it: it continues
while there is room for one method behind the executing one. Completion is known early only for a
method that sets state; after any other, a cycle passes before the next one executes.
"""

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.errors import Cause
from signalbox.hw.host.methods.decoder import Decoder, assign, kind_of, traits_of
from signalbox.hw.host.methods.service import Progress, Service
from signalbox.hw.host.ports import ChannelState, EntryEvents, HeadPort, MethodEvents, Served
from signalbox.hw.host.records import (
    GroupState,
    Method,
    Step,
    channel_context,
    has_copies,
    method_flow,
)
from signalbox.hw.host.scheduling.parking import ParkPort
from signalbox.hw.host.scheduling.scheduler import ChoicePort
from signalbox.hw.methods import Header
from signalbox.hw.registers import Wait

__all__ = ["MethodPipeline", "channel_edit"]


def channel_edit(config: Config) -> data.StructLayout:
    """A change of a channel's context by the channel registers. `reset`: the context is cleared for
    a start. Otherwise the channel continues; `replace`: with `method` as its held method."""
    return data.StructLayout({
        "channel": config.channel_bits,
        "reset": 1,
        "replace": 1,
        "method": Method,
    })


class MethodPipeline(wiring.Component):
    """Serves channels.

    Members
    -------
    state : in, channels that are `alive`, and those that have fetched beats (`occupied`).
    head : out, the prefetch buffer.
    choice : out, the scheduler.
    service : out, the served channel, to the execution of its methods.
    progress : in, outcome of its method.
    served : out, the served channel, to all others.
    edit : in, stream of `channel_edit`. A start ends the channel's wait; any other edit leaves it.
    parking : out, parking of the served channel.
    entries : out, its entries.
    methods : out, its methods.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        super().__init__({
            "state": In(ChannelState(config)),
            "head": Out(HeadPort(config)),
            "choice": Out(ChoicePort(config)),
            "service": Out(Service(config)),
            "progress": In(Progress()),
            "served": Out(Served(config)),
            "edit": In(stream.Signature(channel_edit(config))),
            "parking": Out(ParkPort(config)),
            "entries": Out(EntryEvents(config)),
            "methods": Out(MethodEvents(config)),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, service, progress = self._config, self.service, self.progress
        served, channel, choice = self.served, self.served.channel, self.choice
        park, unpark = self.parking.park, self.parking.unpark
        methods, finished = self.methods, self.entries.finished
        m.submodules.contexts = contexts = Memory(
            shape=channel_context(), depth=1 << config.channel_bits, init=[]
        )
        save, load = contexts.write_port(), contexts.read_port()
        self._loaded = load.data.flow
        self._flow = flow = Signal(method_flow(), name="flow")
        self._alive = Signal()
        self._was_alive = Signal()
        self._accepts = Signal()
        # Registered, for timing: a channel halted by a copy may still execute one method, but none
        # that waits for copies, as these had not ended a cycle ago.
        m.d.sync += self._was_alive.eq(self._alive)
        # State RUN as one bit, for timing; a method was refused in the previous cycle.
        self._running = Signal(name="running")
        self._halting = Signal(name="halting")
        m.d.sync += self._halting.eq(progress.refuse)
        dirty = Signal()
        self._kept = kept = Signal(name="kept")
        edited = Signal(channel_edit(config))
        editing = Signal()
        next_channel = Signal(config.channel_bits)

        m.d.comb += [
            save.addr.eq(channel),
            save.data.flow.eq(flow),
            save.data.state.eq(progress.state),
            load.addr.eq(next_channel),
            served.select.eq(Mux(served.active, channel, next_channel)),
            next_channel.eq(Mux(self.edit.valid, self.edit.payload.channel, choice.target)),
            served.asked.eq(progress.asked),
            unpark.channel.eq(channel),
            methods.released.channel.eq(channel),
            park.channel.eq(channel),
            self._alive.eq(self.state.alive.bit_select(channel, 1)),
        ]
        # Everything qualified by `run` is driven in all states, for timing.
        m.d.comb += [
            park.valid.eq(served.active),
            service.step.eq(flow.step),
            service.run.eq(
                (self._running & ~self._halting & flow.step.method.valid)
                & (self._was_alive | progress.asked)
            ),
            service.channel.eq(channel),
            service.select.eq(served.select),
            service.loaded.eq(load.data.state),
            service.leave.eq(choice.leave | self.edit.valid),
            service.quit.eq((choice.leave & ~choice.stay) | self.edit.valid),
            methods.executed.channel.eq(channel),
            methods.executed.method.eq(flow.step.method),
            methods.cleared.valid.eq(service.reset),
            methods.cleared.channel.eq(channel),
            finished.channel.eq(channel),
            finished.get.eq(flow.finish.get),
        ]
        self._decode(m)
        self._move(m)
        with m.FSM(name="service"):
            with m.State("SELECT"):
                m.d.comb += [save.en.eq(dirty), service.ahead.eq(1)]
                # In every cycle, as `choice.found` comes later in the cycle than `target`.
                m.d.sync += [
                    dirty.eq(0),
                    channel.eq(next_channel),
                    edited.eq(self.edit.payload),
                    editing.eq(self.edit.valid),
                    # A context being saved cannot be read yet; it is still in the registers.
                    kept.eq(dirty & (next_channel == channel)),
                ]
                with m.If(self.edit.valid | choice.found):
                    m.d.comb += [self.edit.ready.eq(1), choice.take.eq(~self.edit.valid)]
                    m.next = "LOAD"
            with m.State("LOAD"):
                m.d.comb += [
                    served.active.eq(1),
                    unpark.valid.eq(1),
                    choice.taken.eq(~editing),
                    service.load.eq(~kept),
                    service.early.eq(~kept & ~editing & self._alive),
                ]
                m.d.sync += dirty.eq(1)
                with m.If(~kept):
                    m.d.sync += flow.eq(load.data.flow)
                m.d.sync += self._running.eq(~editing)
                m.next = "RUN"
                with m.If(editing):
                    self._change(m, edited)
                    m.next = "SELECT"
            with m.State("RUN"):
                m.d.comb += served.active.eq(1)
                self._run(m)
        return m

    def _change(self, m: Module, edited: data.View) -> None:
        flow, settings = self._flow, self.progress.state.settings
        with m.If(edited.reset):
            m.d.sync += flow.eq(0)
            m.d.comb += self.service.reset.eq(1)
        with m.Else():
            # An operation begun by the held method is still waited for.
            park = self.parking.park
            m.d.comb += [park.wait.eq(Wait.TURN), park.lasts.eq(1)]
            with m.If(edited.replace):
                held, now = Signal(flow.step.method.shape(), name="held"), edited.method
                same = (now.subchannel == held.subchannel) & (now.address == held.address)
                m.d.comb += [
                    held.eq(Mux(self._kept, flow.step.method, self._loaded.step.method)),
                    self.service.replace.eq(1),
                    self.service.again.eq(now.valid & same),
                ]
                step = Signal(Step)
                copies = Mux(
                    self._kept,
                    has_copies(settings.objects, edited.method.subchannel),
                    has_copies(self.service.loaded.settings.objects, edited.method.subchannel),
                )
                m.d.comb += step.method.eq(edited.method)
                assign(m, step.kind, kind_of(edited.method.address))
                assign(m, step.traits, traits_of(edited.method.data, edited.method.address[2]))
                self._hold(m, step, copies)

    def _run(self, m: Module) -> None:
        """Execute the held method; take the next dword while there is room for its method."""
        flow, progress = self._flow, self.progress
        held, queued, finish = flow.step.method.valid, flow.queued.method.valid, flow.finish.pending
        occupied = self.state.occupied.bit_select(self.served.channel, 1)
        accepts = self._accepts
        m.d.comb += [
            self.methods.executed.valid.eq(progress.done),
            accepts.eq(self._was_alive & ~queued & ~finish & self.head.valid),
        ]
        self._take(m, accepts)
        with m.If(finish & ~held & ~queued):
            m.d.comb += self.entries.finished.valid.eq(1)
            m.d.sync += finish.eq(0)

        gone = Signal()
        dry = ~held & ~queued & ~finish & ~occupied
        # After YIELD, no further method before the scheduler's next choice (spec 2.6).
        acquires = held & flow.step.kind.semaphore & flow.step.traits.acquires
        wanted = self.service.quit | (self.choice.leave & acquires) | progress.yields
        unfinished = queued | accepts | (held & (~progress.done | finish))
        dead = self._halting | ~self._alive
        m.d.comb += [
            gone.eq(progress.park | ((dead | dry | wanted) & ~progress.busy)),
            self.methods.released.valid.eq(progress.park & ~progress.keep),
        ]
        with m.If(progress.park):
            m.d.comb += self.parking.park.wait.eq(progress.wait)
        with m.Elif(wanted & unfinished & ~progress.busy):
            m.d.comb += self.parking.park.wait.eq(Wait.TURN)
        with m.If(gone):
            m.d.sync += self._running.eq(0)
            m.next = "SELECT"

    def _decode(self, m: Module) -> None:
        """Selects the next dword and decodes it into `_next`, whether or not it is taken, as that
        is known late in the cycle."""
        flow, head, dwords = self._flow, self.head.oldest, self._config.beat_dwords
        beat = head.beat
        objects = self.progress.state.settings.objects
        self._place = Signal(4)
        self._last = Signal()
        self._next = Signal(Step)
        self._next_copies = Signal()
        group_copies = Signal()
        m.d.comb += group_copies.eq(has_copies(objects, flow.group.subchannel))
        # All dwords are decoded in parallel with the selection of the next one.
        decoded = data.StructLayout({"step": Step, "copies": 1, "next_group": GroupState})
        steps = Signal(data.ArrayLayout(decoded, dwords))
        step = Signal(decoded)
        for number in range(dwords):
            m.submodules[f"decoder_{number}"] = decoder = Decoder()
            m.d.comb += [
                decoder.group.eq(flow.group),
                decoder.dword.eq(beat.data.word_select(number, 32)),
                decoder.refusal.eq(head.refusals[number]),
                steps[number].step.eq(decoder.step),
                steps[number].copies.eq(
                    Mux(
                        flow.group.open,
                        group_copies,
                        has_copies(objects, data.View(Header, decoder.dword).subchannel),
                    )
                ),
                steps[number].next_group.eq(decoder.next_group),
            ]
        self._next_group = step.next_group
        m.d.comb += [
            self._place.eq(Mux(flow.begun, flow.place, beat.low)),
            self._last.eq(Mux(flow.begun, flow.final, head.single)),
            step.eq(steps[self._place]),
            self._next.eq(step.step),
            self._next_copies.eq(step.copies),
            self.entries.started.channel.eq(self.served.channel),
            self.entries.started.get.eq(beat.get),
        ]
        with m.If(beat.cause != Cause.NONE):
            m.d.comb += [
                self._next.method.valid.eq(1),
                self._next.method.cause.eq(beat.cause),
                self._next.kind.eq(0),
            ]
        with m.Elif(beat.empty):
            m.d.comb += self._next.method.valid.eq(0)

    def _take(self, m: Module, accepts: Signal) -> None:
        """Advance to the next dword."""
        flow, beat, last = self._flow, self.head.oldest.beat, self._last
        unread = (beat.cause == Cause.FETCH_BUS) | (beat.cause == Cause.FETCH_FAULT)
        m.d.comb += [
            self.head.take.eq(accepts & last),
            self.entries.started.valid.eq(accepts & beat.first & ~flow.begun),
        ]
        with m.If(accepts):
            m.d.sync += [
                flow.begun.eq(~last),
                flow.place.eq(self._place + 1),
                flow.final.eq((self._place + 1)[:4] == beat.high),
            ]
            with m.If(~beat.empty & (beat.cause == Cause.NONE)):
                m.d.sync += flow.group.eq(self._next_group)
            with m.Elif(~beat.empty | (beat.cause == Cause.ENTRY_RANGE) | (beat.first & unread)):
                # Dwords are lost: those that follow are not data of the open group.
                m.d.sync += [flow.group.open.eq(0), flow.group.skip.eq(0)]
            with m.If(last & beat.end):
                m.d.sync += [
                    flow.finish.pending.eq(1),
                    flow.finish.get.eq(beat.get),
                    flow.group.skip.eq(0),
                ]

    def _move(self, m: Module) -> None:
        """Updates the held method and the one behind it; driven in all states, for timing."""
        flow = self._flow
        valid = self._accepts & self._next.method.valid
        queued = flow.queued.method.valid
        free = ~flow.step.method.valid | self.progress.sets
        with m.If(self.progress.done):
            m.d.sync += flow.step.method.valid.eq(0)
        copies = Mux(
            queued,
            has_copies(self.progress.state.settings.objects, flow.queued.method.subchannel),
            self._next_copies,
        )
        moving = Signal(Step)
        m.d.comb += moving.eq(Mux(queued, flow.queued, self._next))
        with m.If(free):
            self._hold(m, moving, copies)
            m.d.sync += flow.step.method.valid.eq(queued | valid)
        with m.If(~queued):
            m.d.sync += flow.queued.eq(self._next)
        m.d.sync += queued.eq(~free & (queued | valid))

    def _hold(self, m: Module, step: data.View, copies: Value) -> None:
        """`step` becomes the held method; `copies`: a copy object is bound to its subchannel."""
        m.d.sync += [
            self._flow.step.eq(step),
            self._flow.step.kind.copy.eq(step.kind.copy & copies),
            self._flow.step.kind.launch.eq(step.kind.launch & copies),
        ]
