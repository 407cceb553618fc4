"""Issues write bursts once their data is complete."""

from amaranth import Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import VA_BITS, Config
from signalbox.hw.copy import records
from signalbox.hw.copy.flop_queue import FlopQueue
from signalbox.hw.copy.realign import destination_beat
from signalbox.hw.copy.records import DATA_BEATS, QUEUE, TAG_BITS
from signalbox.hw.lib.stream import StreamRegister
from signalbox.hw.records.memory import memory_request, write_beat

__all__ = ["WriteRequests", "outstanding_write"]


def outstanding_write(config: Config) -> data.StructLayout:
    """Outstanding write burst, or (`end`) the end of a copy.

    `va` is its first byte; `failed`: its data includes the first failed read of the copy.
    """
    return data.StructLayout({"end": 1, "tag": TAG_BITS, "failed": 1, "va": VA_BITS})


class WriteRequests(wiring.Component):
    """Buffers the destination beats and writes them, one burst per chunk.

    A request is offered once all its beats have arrived. Its beats are offered once it was
    accepted; the next request does not wait for them. A beat is offered 5 cycles after its arrival
    at the earliest.

    Members
    -------
    beat : in, a `destination_beat`; at most `DATA_BEATS`, counted by the sender.
    beat_valid : in, strobe for `beat`.
    freed : out, strobe: a beat has left.
    plan : in, stream of `pending_write`: bursts of the chunks and ends of copies, in order.
    request : out, stream of `memory_request`.
    data : out, stream of `write_beat`, to memory.
    owed : out, stream of `outstanding_write`: issued requests and ends of copies, in order; not
        later than `request`.
    """

    def __init__(self, config: Config) -> None:
        super().__init__({
            "beat": In(destination_beat(config)),
            "beat_valid": In(1),
            "freed": Out(1),
            "plan": In(stream.Signature(records.pending_write(config))),
            "request": Out(stream.Signature(memory_request(config))),
            "data": Out(stream.Signature(write_beat(config))),
            "owed": Out(stream.Signature(outstanding_write(config))),
        })
        self.config = config

    def elaborate(self, platform) -> Module:
        m = Module()
        self._offer(m)
        self._send(m)
        return m

    def _offer(self, m: Module) -> None:
        """Once a chunk is complete, issues its request and enters it into `owed`."""
        m.submodules.complete = complete = FlopQueue(1, QUEUE * 2)
        m.submodules.register = self.register = StreamRegister(self.request.payload.shape())
        wiring.connect(m, self.register.o, wiring.flipped(self.request))
        plan, request = self.plan, self.register.i
        ready = Signal()
        m.d.comb += [
            complete.i.payload.eq(self.beat.failed),
            complete.i.valid.eq(self.beat_valid & self.beat.close),
            ready.eq(plan.valid & (plan.p.end | (complete.o.valid & request.ready))),
            self.owed.valid.eq(ready),
            self.owed.p.end.eq(plan.p.end),
            self.owed.p.tag.eq(plan.p.tag),
            self.owed.p.failed.eq(complete.o.payload),
            self.owed.p.va.eq(plan.p.va),
            request.valid.eq(plan.valid & ~plan.p.end & complete.o.valid & self.owed.ready),
            request.p.asid.eq(plan.p.asid),
            request.p.physical.eq(plan.p.physical),
            request.p.va.eq(plan.p.va),
            request.p.beats.eq(plan.p.puts),
            plan.ready.eq(ready & self.owed.ready),
            complete.o.ready.eq(request.ready & self.owed.ready & plan.valid & ~plan.p.end),
        ]

    def _send(self, m: Module) -> None:
        """Beats of accepted requests leave in order of arrival."""
        layout = write_beat(self.config)
        m.submodules.queue = queue = FlopQueue(layout, DATA_BEATS, block=True)
        granted = Signal(range(QUEUE * 2))
        """Number of accepted requests with beats that have not left."""
        accepted = Signal()
        ended = Signal()
        open_ = Signal()
        out = queue.o
        moved = out.valid & out.ready
        m.d.comb += [
            queue.i.valid.eq(self.beat_valid),
            queue.i.p.data.eq(self.beat.data),
            queue.i.p.strobe.eq(self.beat.strobe),
            queue.i.p.last.eq(self.beat.close),
            self.data.payload.eq(out.payload),
            self.data.valid.eq(out.valid & open_),
            out.ready.eq(self.data.ready & open_),
            accepted.eq(self.request.valid & self.request.ready),
            ended.eq(moved & out.p.last),
        ]
        with m.If(accepted & ~ended):
            m.d.sync += [granted.eq(granted + 1), open_.eq(1)]
        with m.If(ended & ~accepted):
            m.d.sync += [granted.eq(granted - 1), open_.eq(granted != 1)]
        m.d.sync += self.freed.eq(moved)
