"""Requests the source data of chunks."""

from amaranth import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.copy import records
from signalbox.hw.copy.read_window import ReadWindow
from signalbox.hw.copy.records import BURST_BEATS, DATA_BEATS, TAKES_BITS
from signalbox.hw.lib.stream import StreamRegister
from signalbox.hw.records.memory import memory_request

__all__ = ["ReadRequests"]

PAGE = 4096


class ReadRequests(wiring.Component):
    """Requests a chunk's source beats, in two bursts if they cross a 4 KiB boundary.

    A chunk starts only when the data FIFO has room for all of it, so read beats never stall, and
    when `ReadWindow` is open. One chunk per 3 cycles, 4 with two bursts.

    Members
    -------
    i : in, stream of `chunk`; the end of a copy is only passed on to `write`.
    request : out, stream of `memory_request`, 4 cycles after the chunk.
    segment : out, stream of `segment`, one per request: its contribution to the chunk; a chunk
        without reads has one, too.
    write : out, stream of `pending_write`: write bursts, in the order of chunks.
    freed : in, strobe: one beat has left the data FIFO.
    taken : in, strobe: one requested beat has arrived, or will not.
    """

    def __init__(self, config: Config) -> None:
        super().__init__({
            "i": In(stream.Signature(records.chunk(config))),
            "request": Out(stream.Signature(memory_request(config))),
            "segment": Out(stream.Signature(records.segment(config))),
            "write": Out(stream.Signature(records.pending_write(config))),
            "freed": In(1),
            "taken": In(1),
        })
        self.config = config

    def elaborate(self, platform) -> Module:
        m = Module()
        self.chunk = Signal(records.chunk(self.config))
        self.part = Signal(records.segment(self.config))
        """Next request."""
        self.rest = Signal(TAKES_BITS)
        """Beats of the chunk past the 4 KiB boundary."""
        self.near = Signal()
        self.reach = Signal(TAKES_BITS + 1)
        """`near`: the boundary is less than 32 beats away. `reach`: end of the chunk, relative to
        the point 32 beats before the boundary."""
        self.silent = Signal()
        """The chunk reads nothing."""
        m.submodules.register = self.register = StreamRegister(self.request.payload.shape())
        m.submodules.window = self.window = ReadWindow(self.config)
        wiring.connect(m, self.register.o, wiring.flipped(self.request))
        admitted = Signal()
        with m.FSM() as fsm:
            m.d.comb += self.i.ready.eq(fsm.ongoing("TAKE"))
            with m.State("TAKE"):
                self._measure(m)
                m.d.sync += self.chunk.eq(self.i.payload)
                with m.If(self.i.valid):
                    m.next = "ADMIT"
            with m.State("ADMIT"):
                self._split(m)
                with m.If(admitted):
                    m.next = "REQUEST"
                    with m.If(self.chunk.end):
                        m.next = "TAKE"
            with m.State("REQUEST"):
                self._request(m)
        self._admit(m, fsm.ongoing("ADMIT"), admitted)
        return m

    def _admit(self, m: Module, here, admitted: Signal) -> None:
        """Reserves room for the chunk and issues its write burst."""
        chunk, write, window = self.chunk, self.write.p, self.window
        room = Signal(range(DATA_BEATS + 1), init=DATA_BEATS)
        free = Signal(init=1)
        """There is room for a whole chunk. Like `window.open`, up to date 3 cycles after the last
        chunk."""
        reserved = Signal(range(BURST_BEATS + 1))
        begun = Signal()
        m.d.comb += [
            self.write.valid.eq(here & (chunk.end | (free & window.open))),
            admitted.eq(self.write.valid & self.write.ready),
            begun.eq(admitted & ~chunk.end),
            window.wanted.eq(here & ~chunk.end & free & self.write.ready),
            window.requested.eq(Mux(begun & ~self.silent, chunk.takes, 0)),
            window.taken.eq(self.taken),
            write.end.eq(chunk.end),
            write.tag.eq(chunk.tag),
            write.asid.eq(chunk.asid),
            write.physical.eq(chunk.dst_physical),
            write.va.eq(chunk.dst),
            write.puts.eq(chunk.puts),
        ]
        m.d.sync += [
            reserved.eq(Mux(begun, chunk.puts + 1, 0)),
            room.eq(room - reserved + self.freed),
            free.eq(room >= BURST_BEATS),
        ]

    def _measure(self, m: Module) -> None:
        """Locates the chunk relative to the last 32 beats of its page."""
        low, page = self.config.offset_bits, (PAGE - 1).bit_length()
        position = self.i.p.src[low:page]
        m.d.sync += [
            self.near.eq(position[TAKES_BITS:].all()),
            self.reach.eq(position[:TAKES_BITS] + self.i.p.takes),
            self.silent.eq((self.i.p.takes == 0) | self.i.p.sourceless),
        ]

    def _split(self, m: Module) -> None:
        """Prepares the first request, up to the boundary."""
        chunk, part = self.chunk, self.part
        low = self.config.offset_bits
        crosses = Signal()
        beyond = self.reach[:TAKES_BITS]
        m.d.comb += crosses.eq(self.near & self.reach[TAKES_BITS] & beyond.any())
        same = [
            *("tag", "start", "first", "last", "lead", "final", "rotate"),
            *("remap", "sourceless"),
        ]
        m.d.sync += [part[name].eq(chunk[name]) for name in same]
        m.d.sync += [
            part.va.eq(chunk.src),
            part.head.eq(chunk.dst[:low]),
            part.takes.eq(Mux(crosses, chunk.takes - beyond, chunk.takes)),
            part.close.eq(~crosses),
            part.tail.eq(chunk.tail & ~crosses),
            self.rest.eq(beyond),
        ]

    def _request(self, m: Module) -> None:
        """Issues the request and its segment together, then those past the boundary."""
        chunk, part, register = self.chunk, self.part, self.register
        page = (PAGE - 1).bit_length()
        free = register.i.ready | self.silent
        m.d.comb += [
            register.i.valid.eq(~self.silent & self.segment.ready),
            register.i.p.asid.eq(chunk.asid),
            register.i.p.physical.eq(chunk.src_physical),
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
                part.tail.eq(chunk.tail),
            ]
            with m.If(part.close):
                m.next = "TAKE"
