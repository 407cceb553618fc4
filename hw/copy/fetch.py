"""From chunks to read requests."""

from amaranth import Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.config import Config
from hw.copy import layouts
from hw.copy.layouts import BURST_BEATS, DATA_BEATS
from hw.lib.stream import StreamRegister
from hw.records import memory_request

__all__ = ["Fetch"]

PAGE = 4096


class Fetch(wiring.Component):
    """Requests a chunk's source beats, in two bursts where they cross 4 KiB.

    A chunk is begun only when `DATA_BEATS` has room for all of it, so that read beats never wait.
    A chunk per 2 cycles, 3 with two bursts.

    Members
    -------
    i : chunks; the end of a copy only passes on to `write`.
    request : to memory, 2 cycles later.
    segment : what each request, or the lack of one, contributes to the chunk.
    write : the chunk's write burst, in the order of the chunks.
    freed : strobe; one beat has left the data queue.
    """

    def __init__(self, config: Config) -> None:
        super().__init__({
            "i": In(stream.Signature(layouts.chunk(config))),
            "request": Out(stream.Signature(memory_request(config))),
            "segment": Out(stream.Signature(layouts.segment(config))),
            "write": Out(stream.Signature(layouts.pending_write(config))),
            "freed": In(1),
        })
        self.config = config

    def elaborate(self, platform) -> Module:
        m = Module()
        self.part = Signal(layouts.segment(self.config))
        """What is requested next."""
        self.space = Signal(data.StructLayout({"asid": self.config.asid_bits, "physical": 1}))
        self.rest = Signal(7)
        """Beats of the chunk past the 4 KiB boundary."""
        self.tail = Signal()
        m.submodules.register = self.register = StreamRegister(self.request.payload.shape())
        wiring.connect(m, self.register.o, wiring.flipped(self.request))
        with m.FSM() as fsm:
            with m.State("CHUNK"):
                with m.If(self.i.valid & self.i.ready & ~self.i.p.end):
                    self._split(m)
                    m.next = "REQUEST"
            with m.State("REQUEST"):
                self._request(m)
        self._admit(m, fsm.ongoing("CHUNK"))
        return m

    def _admit(self, m: Module, free) -> None:
        """Reserve room for a chunk and plan its write, when the part after this is free."""
        chunk, write = self.i.p, self.write.p
        room = Signal(range(DATA_BEATS + 1), init=DATA_BEATS)
        go = Signal()
        m.d.comb += [
            go.eq(free & (chunk.end | room[(BURST_BEATS - 1).bit_length() :].any())),
            self.write.valid.eq(self.i.valid & go),
            self.i.ready.eq(self.write.ready & go),
            write.end.eq(chunk.end),
            write.tag.eq(chunk.tag),
            write.asid.eq(chunk.asid),
            write.physical.eq(chunk.dst_physical),
            write.va.eq(chunk.dst),
            write.puts.eq(chunk.puts),
        ]
        taken = Signal(7)
        with m.If(self.i.valid & self.i.ready & ~chunk.end):
            m.d.comb += taken.eq(chunk.puts + 1)
        m.d.sync += room.eq(room - taken + self.freed)

    def _split(self, m: Module) -> None:
        """Prepare the first request, up to the end of the 4 KiB page."""
        chunk, part = self.i.p, self.part
        low = self.config.offset_bits
        page_beats = PAGE // self.config.beat_bytes
        position = chunk.src[low : (PAGE - 1).bit_length()]
        here = Signal(range(page_beats + 1))
        crosses = Signal()
        m.d.comb += [here.eq(Const(page_beats) - position), crosses.eq(chunk.takes > here)]
        same = ["tag", "start", "first", "last", "lead", "final", "rotate"]
        m.d.sync += [part[name].eq(chunk[name]) for name in same]
        m.d.sync += [
            part.va.eq(chunk.src),
            part.head.eq(chunk.dst[:low]),
            part.takes.eq(Mux(crosses, here, chunk.takes)),
            part.close.eq(~crosses),
            part.tail.eq(chunk.tail & ~crosses),
            self.tail.eq(chunk.tail),
            self.rest.eq(chunk.takes - here),
            self.space.asid.eq(chunk.asid),
            self.space.physical.eq(chunk.src_physical),
        ]

    def _request(self, m: Module) -> None:
        """Send the request and its segment together, then the one past the boundary."""
        part, register = self.part, self.register
        page = (PAGE - 1).bit_length()
        silent = part.takes == 0
        free = register.i.ready | silent
        m.d.comb += [
            register.i.valid.eq(~silent & self.segment.ready),
            register.i.p.asid.eq(self.space.asid),
            register.i.p.physical.eq(self.space.physical),
            register.i.p.va.eq(part.va),
            register.i.p.beats.eq(part.takes - 1),
            self.segment.valid.eq(free),
            self.segment.payload.eq(part),
        ]
        with m.If(self.segment.ready & free):
            m.d.sync += [
                part.va[:page].eq(0),
                part.va[page:].eq(part.va[page:] + 1),
                part.takes.eq(self.rest),
                part.start.eq(0),
                part.first.eq(0),
                part.lead.eq(0),
                part.close.eq(1),
                part.tail.eq(self.tail),
            ]
            with m.If(part.close):
                m.next = "CHUNK"
