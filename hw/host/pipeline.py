"""The method pipeline: serves one channel at a time, one dword per cycle (HOST-2).

States of a service: SELECT takes the scheduler's target and reads its context; LOAD receives it;
RUN decodes a dword and executes the method decoded before it, per cycle. The context is written
back in the SELECT after RUN. So the first method of the next channel executes three cycles after
the last one of the channel before it was found blocked.
"""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from hw.config import Config
from hw.host.context import INDEX_BITS, Method, channel_context, prefetch_beat
from hw.host.decode import Decoder
from hw.host.execute import Execute
from hw.host.prefetch import channel_event
from hw.registers import Wait

__all__ = ["Pipeline", "channel_edit"]


def channel_edit(config: Config) -> data.StructLayout:
    """A change to a channel's context from outside: `reset` starts it anew, else its held method
    becomes `method` when `replace` is set, and it goes on."""
    return data.StructLayout({
        "channel": config.channel_bits,
        "reset": 1,
        "replace": 1,
        "method": Method,
    })


class Pipeline(wiring.Component):
    """Serves channels.

    Members
    -------
    alive : per channel, enabled and not halted.
    occupied : per channel, fetched beats are there.
    select, head, head_valid, take : the prefetch buffer.
    target, target_valid, taken, leave : the scheduler; `slice_now` one cycle after `taken`.
    serving, served : the channel whose context is in the registers.
    edit : a change to a context; its channel's wait ends with it.
    started : an entry of the served channel begins; GP_GET becomes `get`.
    finished : all of the entry has been executed.
    unpark : the channel is served.
    park : it is let go and waits.
    release : it is let go for another reason than a wish of the scheduler; its reservation ends.
    method : what was executed, for the trace.
    """

    def __init__(self, config: Config, execute: Execute) -> None:
        self._config = config
        self.execute = execute
        event = channel_event(config)
        super().__init__({
            "alive": In(config.channels),
            "occupied": In(config.channels),
            "select": Out(config.channel_bits),
            "head": In(prefetch_beat(config)),
            "head_valid": In(1),
            "take": Out(1),
            "target": In(config.channel_bits),
            "target_valid": In(1),
            "taken": Out(1),
            "slice_now": Out(1),
            "leave": In(1),
            "serving": Out(1),
            "served": Out(config.channel_bits),
            "edit": In(stream.Signature(channel_edit(config))),
            "started": Out(channel_event(config, get=INDEX_BITS)),
            "finished": Out(channel_event(config, get=INDEX_BITS)),
            "unpark": Out(event),
            "park": Out(channel_event(config, wait=Wait)),
            "release": Out(event),
            "method": Out(channel_event(config, method=Method)),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        layout = channel_context(config)
        m.submodules.contexts = contexts = Memory(
            shape=layout, depth=1 << config.channel_bits, init=[]
        )
        m.submodules.decoder = self._decoder = Decoder()
        m.submodules.execute = self.execute
        save = contexts.write_port()
        load = contexts.read_port(transparent_for=[save])
        self._work = work = Signal(layout)
        dirty = Signal()
        edited = Signal(channel_edit(config))
        editing = Signal()
        next_channel = Signal(config.channel_bits)

        m.d.comb += [
            save.addr.eq(self.served),
            save.data.eq(work),
            load.addr.eq(next_channel),
            self.select.eq(Mux(self.serving, self.served, next_channel)),
            next_channel.eq(Mux(self.edit.valid, self.edit.payload.channel, self.target)),
            self.unpark.channel.eq(self.served),
            self.release.channel.eq(self.served),
            self.park.channel.eq(self.served),
        ]
        unit = self.execute
        # All that only `run` gives a meaning to is there in every state, to be early.
        m.d.comb += [
            unit.work.eq(work),
            unit.channel.eq(self.served),
            unit.leave.eq(self.leave | self.edit.valid),
            self.method.channel.eq(self.served),
            self.method.method.eq(work.method),
            self.finished.channel.eq(self.served),
            self.finished.get.eq(work.finish.get),
        ]
        self._next_dword(m)
        with m.FSM(name="service"):
            with m.State("SELECT"):
                m.d.comb += save.en.eq(dirty)
                m.d.sync += dirty.eq(0)
                with m.If(self.edit.valid | self.target_valid):
                    m.d.comb += [self.edit.ready.eq(1), self.taken.eq(~self.edit.valid)]
                    m.d.sync += [
                        self.served.eq(next_channel),
                        edited.eq(self.edit.payload),
                        editing.eq(self.edit.valid),
                    ]
                    m.next = "LOAD"
            with m.State("LOAD"):
                m.d.comb += [
                    self.serving.eq(1),
                    self.unpark.valid.eq(1),
                    self.slice_now.eq(~editing),
                ]
                m.d.sync += [work.eq(load.data), dirty.eq(1)]
                m.next = "RUN"
                with m.If(editing):
                    self._change(m, edited)
                    m.next = "SELECT"
            with m.State("RUN"):
                m.d.comb += self.serving.eq(1)
                self._run(m)
        return m

    def _change(self, m: Module, edited: data.View) -> None:
        with m.If(edited.reset):
            m.d.sync += self._work.eq(0)
        with m.Else():
            m.d.comb += [self.park.valid.eq(1), self.park.wait.eq(Wait.TURN)]
            with m.If(edited.replace):
                m.d.sync += self._work.method.eq(edited.method)

    def _run(self, m: Module) -> None:
        """Execute the held method; take the next dword when there is room for its method."""
        work, unit = self._work, self.execute
        alive = self.alive.bit_select(self.served, 1)
        occupied = self.occupied.bit_select(self.served, 1)
        gone, room = Signal(), Signal()
        m.d.comb += [
            unit.run.eq((alive | unit.asked) & work.method.valid),
            self.method.valid.eq(unit.done),
            room.eq((~work.method.valid | unit.done) & ~work.finish.pending),
        ]
        with m.If(unit.update):
            m.d.sync += work.eq(unit.next_work)
        with m.If(unit.done):
            m.d.sync += work.method.valid.eq(0)
        self._finish(m)
        dry = ~work.method.valid & ~work.finish.pending & ~self.head_valid & ~occupied
        # After YIELD no further method before the scheduler's next choice (2.6).
        wanted = self.leave | self.edit.valid | unit.give_up
        unfinished = work.method.valid & (~unit.done | work.finish.pending)
        m.d.comb += gone.eq(unit.park | ~alive | dry | wanted)
        with m.If(gone & ~unit.busy):
            m.d.comb += [
                self.release.valid.eq((unit.park & ~unit.keep) | ~alive | dry),
                self.park.valid.eq(unit.park | (wanted & unfinished)),
                self.park.wait.eq(Mux(unit.park, unit.wait, Wait.TURN)),
            ]
            m.next = "SELECT"
        with m.Elif(room & self.head_valid):
            self._take(m)

    def _finish(self, m: Module) -> None:
        """Report an entry once the method of its last dword is complete."""
        work = self._work
        with m.If(work.finish.pending & ~work.method.valid):
            m.d.comb += self.finished.valid.eq(1)
            m.d.sync += work.finish.pending.eq(0)

    def _next_dword(self, m: Module) -> None:
        """The next dword and what the decoder makes of it; looked at whether it is taken or not,
        since whether it is comes late."""
        work, head, decoder = self._work, self.head, self._decoder
        position = Signal(4)
        self._last = Signal()
        m.d.comb += [
            position.eq(head.low + work.taken),
            self._last.eq(head.empty | (head.cause != 0) | (position == head.high)),
            decoder.group.eq(work.group),
            decoder.dword.eq(head.data.word_select(position, 32)),
            self.started.channel.eq(self.served),
            self.started.get.eq(head.get),
        ]

    def _take(self, m: Module) -> None:
        work, head, decoder, last = self._work, self.head, self._decoder, self._last
        m.d.comb += [
            self.take.eq(last),
            self.started.valid.eq(head.first & (work.taken == 0)),
        ]
        m.d.sync += work.taken.eq(Mux(last, 0, work.taken + 1))
        with m.If(last & head.end):
            m.d.sync += [work.finish.pending.eq(1), work.finish.get.eq(head.get)]
        with m.If(head.cause != 0):
            m.d.sync += [
                work.method.eq(0),
                work.method.valid.eq(1),
                work.method.cause.eq(head.cause),
            ]
        with m.Elif(~head.empty):
            m.d.sync += [work.group.eq(decoder.next_group), work.method.eq(decoder.method)]
        with m.If(last & head.end):
            m.d.sync += work.group.skip.eq(0)
