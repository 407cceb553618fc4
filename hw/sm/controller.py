"""SM logic controller: starts warps of blocks as resources come free (PLACE-20 … 26)."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import In, Out, connect, flipped

from signalbox.hw.config import Config
from signalbox.hw.lib.onehot import select
from signalbox.hw.records.placement import ENDS_WAITING, SmLink, kernel_word
from signalbox.hw.sm.block_needs import Needs
from signalbox.hw.sm.block_table import Blocks
from signalbox.hw.sm.port import SmControl, block_begin, warp_start
from signalbox.hw.sm.resources import Resources, remainder
from signalbox.hw.sm.warp_slots import Warps

__all__ = ["SmController", "sm_events"]

_UNDER_WAY = 4
"""Ends of warps that may be under way to that queue, the one that is being taken included."""


def sm_events(config: Config) -> data.StructLayout:
    """What happens on an SM, for timelines: strobes, as members of `SmControl` of the same name."""
    return data.StructLayout({
        "begin": data.StructLayout({"valid": 1, **block_begin(config).members}),
        "start": data.StructLayout({"valid": 1, **warp_start(config).members}),
        "end": data.StructLayout({"valid": 1, "warp": config.warp_bits}),
        "finish": config.sm_blocks,
    })


class SmController(wiring.Component):
    """The rules of `hw/sm/README.md`.

    A start is decided in one cycle, by the table and the resources of that cycle, and carried out
    in the next (`go`), whose choice it changes already: so a start every other cycle.

    Cycles, counted from the one in which the end of a warp is taken: 2, its registers and hardware
    warp are free, and `freed` says so; and the next start may be decided. 3, it is carried out, and
    a block that begins is offered. 4, the warp is offered. 4, too, the first block is over, if that
    was its last warp: `finish`, `freed`. Counted from the one in which a block is taken: 3, it is
    in the table; 4, its start may be decided.

    Members
    -------
    link : the global logic controller.
    kernel : words of kernel rows.
    port : the core.
    events, left : see `sm_events`; what is left of each resource.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        super().__init__({
            "link": In(SmLink(config)),
            "kernel": In(kernel_word(config)),
            "port": Out(SmControl(config)),
            "events": Out(sm_events(config)),
            "left": Out(remainder(config)),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        m.submodules.needs = needs = Needs(config)
        m.submodules.blocks = self._blocks = blocks = Blocks(config)
        m.submodules.warps = self._warps = Warps(config)
        m.submodules.resources = self._resources = Resources(config)
        m.d.comb += [
            needs.kernel.eq(self.kernel),
            self.port.kernel.eq(self.kernel),
            self.link.highest.eq(blocks.highest),
            self.link.received.eq(blocks.received),
            self.left.eq(self._resources.left),
        ]
        connect(m, flipped(self.link.block), needs.i)
        connect(m, needs.o, blocks.arrive)
        self._go, self._room = Signal(3, name="go"), Signal(name="room")
        self._decide(m)
        self._start(m)
        self._end(m)
        self._free(m)
        self._tell(m)
        return m

    def _decide(self, m: Module) -> None:
        """One warp of the most urgent block; in turn with it, and whenever that cannot be, one of a
        block that has all it needs; or, while the most urgent one lacks shared memory, of one that
        has begun, for it may have that memory (rules 2 to 4)."""
        blocks, go, (fits, other) = self._blocks, self._go, self._resources.fits
        urgent, going, whole = blocks.urgent, blocks.going, blocks.whole
        may, can, lacks, turn = (Signal(name=name) for name in ("may", "can", "lacks", "turn"))
        goes, finishes = Signal(3), Signal(3)
        m.d.comb += [
            may.eq(self._room & self._warps.found & ~go.any() & urgent.valid & ~blocks.overtaken),
            can.eq(fits.registers & fits.warps & fits.shared),
            lacks.eq(~fits.shared & other.registers & other.warps),
            goes[0].eq(may & can & ~(whole.valid & turn)),
            goes[1].eq(may & lacks & going.valid & ~whole.valid),
            goes[2].eq(may & whole.valid & (turn | ~can)),
            blocks.start.eq(go),
            blocks.finish.eq(finishes),
            self._resources.wants[0].eq(urgent.takes),
            self._resources.wants[1].eq(going.takes),
            self._resources.take.eq(go[:2]),
        ]
        m.d.sync += [go.eq(goes), finishes.eq(goes & Cat(urgent.last, going.last, whole.last))]
        with m.If(go.any()):
            m.d.sync += turn.eq(go[0])
        self._begin(m, goes[0] & ~urgent.begun)

    def _begin(self, m: Module, begins: Value) -> None:
        """Offered from the next cycle on; what was offered before has been taken, or else there
        would be no room."""
        begin, urgent = self.port.begin, self._blocks.urgent
        m.d.sync += begin.valid.eq(begins | (begin.valid & ~begin.ready))
        with m.If(~begin.valid):
            m.d.sync += [
                begin.p.slot.eq(urgent.slot),
                begin.p.row.eq(urgent.block.row),
                begin.p.at.eq(urgent.block.at),
                begin.p.shared.eq(urgent.block.needs.shared),
            ]

    def _start(self, m: Module) -> None:
        """What was decided is offered, after its block's `begin`."""
        blocks, warps, go, start = self._blocks, self._warps, self._go, self.port.start
        offered = Signal()
        choices = [Value.cast(choice) for choice in (blocks.urgent, blocks.going, blocks.whole)]
        choice = data.View(blocks.urgent.shape(), select(go, choices))
        m.d.comb += [
            start.valid.eq(offered & ~self.port.begin.valid),
            self._room.eq(~offered | (start.valid & start.ready)),
            warps.start.valid.eq(go.any()),
            warps.start.slot.eq(choice.slot),
            warps.start.registers.eq(choice.block.needs.registers),
        ]
        with m.If(self._room):
            m.d.sync += offered.eq(0)
        with m.If(go.any()):
            m.d.sync += [
                offered.eq(1),
                start.p.warp.eq(warps.warp),
                start.p.slot.eq(choice.slot),
                start.p.row.eq(choice.block.row),
                start.p.index.eq(choice.index),
                start.p.registers.eq(choice.block.needs.registers),
            ]

    def _end(self, m: Module) -> None:
        """Warps that end, and through a queue the rows of blocks that are over. An end is taken
        while its block's row is sure to find a place there."""
        config, blocks, warps = self._config, self._blocks, self._warps
        m.submodules.queue = queue = SyncFIFOBuffered(width=config.row_bits, depth=ENDS_WAITING)
        end, ended = self.port.end, self.link.ended
        m.d.comb += [
            end.ready.eq(queue.level <= ENDS_WAITING - _UNDER_WAY),
            warps.end.valid.eq(end.valid & end.ready),
            warps.end.warp.eq(end.payload),
            blocks.end.valid.eq(warps.ended.valid),
            blocks.end.slot.eq(warps.ended.slot),
            queue.w_en.eq(blocks.over.valid),
            queue.w_data.eq(blocks.over.row),
            ended.valid.eq(queue.r_rdy),
            ended.payload.eq(queue.r_data),
            queue.r_en.eq(ended.ready),
        ]

    def _free(self, m: Module) -> None:
        """What comes free, and a cycle later, when it can be had, the word of it."""
        over, ended, freed = self._blocks.over, self._warps.ended, self._resources.freed
        m.d.comb += [
            freed.registers.eq(ended.registers),
            freed.warps.eq(ended.valid),
            freed.shared.eq(Mux(over.valid, over.shared, 0)),
        ]
        link = self.link.freed
        m.d.sync += [link[name].eq(freed[name]) for name in freed.shape().members]
        m.d.sync += [
            link.block.eq(over.valid),
            self.port.finish.eq(Mux(over.valid, over.place, 0)),
        ]

    def _tell(self, m: Module) -> None:
        events, port = self.events, self.port
        for event, given in ((events.begin, port.begin), (events.start, port.start)):
            m.d.comb += event.valid.eq(given.valid & given.ready)
            m.d.comb += [event[name].eq(given.p[name]) for name in given.p.shape().members]
        m.d.comb += [
            events.end.valid.eq(self._warps.end.valid),
            events.end.warp.eq(port.end.payload),
            events.finish.eq(port.finish),
        ]
