"""How blocks and warps begin: where a warp's accesses lie, and how long it computes."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.config import VA_BITS, Config
from hw.sm.port import CoreCause, block_begin, warp_start
from hw.sm.timing.layouts import timing_task, warp_facts, warp_place, warp_wake
from hw.work.records import coordinates

__all__ = ["Start"]


class Start(wiring.Component):
    """One block or warp at a time. Products are added up, a bit of a factor per cycle, as many as
    it has: of a block its place in the grid, then its number; of a warp its number in the block.
    So a warp takes 8 … 13 cycles, a block of a grid of one dimension 8 and the bits of its number;
    longer when the record has to be fetched first.

    Members
    -------
    begin, start : of the SM port.
    row, want, known, task : of `Tasks`.
    warp, facts, place : what is to be kept of the warp. keep : it is, if `free`.
    wake : the warp begins to compute.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        super().__init__({
            "begin": In(stream.Signature(block_begin(config))),
            "start": In(stream.Signature(warp_start(config))),
            "row": Out(config.row_bits),
            "want": Out(1),
            "known": In(1),
            "task": In(timing_task(config)),
            "warp": Out(config.warp_bits),
            "facts": Out(warp_facts(config)),
            "place": Out(warp_place(config)),
            "keep": Out(1),
            "free": In(1),
            "wake": Out(stream.Signature(warp_wake(config))),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        self._sum, self._addend = Signal(VA_BITS), Signal(VA_BITS)
        self._factor, self._index = Signal(32), Signal(6)
        self._at = Signal(coordinates)
        self._is_block, self._slot = Signal(), Signal(self._config.block_bits)
        m.d.sync += [
            self._sum.eq(self._sum + Mux(self._factor[0], self._addend, 0)),
            self._addend.eq(self._addend << 1),
            self._factor.eq(self._factor >> 1),
        ]
        self._blocks(m)
        self._mix(m)
        self._sequence(m)
        wake, task = self.wake.p, self.task
        m.d.comb += [
            self.facts.number.eq(self._block.number),
            self.facts.index.eq(self._index),
            # A fault names the record.
            self.place.va.eq(Mux(task.cause == CoreCause.NONE, self._sum, task.address)),
            self.place.count.eq(0),
            wake.warp.eq(self.warp),
            wake.row.eq(self.row),
            wake.wait.eq(self.facts.wait),
            wake.cause.eq(task.cause),
        ]
        return m

    def _blocks(self, m: Module) -> None:
        """Of the block in each slot, its number and where its accesses begin."""
        shape = data.StructLayout({"number": 32, "va": VA_BITS})
        m.submodules.blocks = blocks = memory.Memory(
            shape=shape, depth=self._config.sm_blocks, init=[]
        )
        self._write, read = blocks.write_port(), blocks.read_port()
        self._block, self._number = read.data, Signal(32)
        m.d.comb += [
            read.addr.eq(self._slot),
            self._write.addr.eq(self._slot),
            self._write.data.number.eq(self._number),
            self._write.data.va.eq(self._sum),
        ]

    def _mix(self, m: Module) -> None:
        """Block and warp stirred, a step per cycle, and with that the time to compute."""
        first, second = Signal(32), Signal(32)
        seed = Cat(self._index, self._block.number)[:32]
        folded = first ^ (first >> 6)
        part = (second ^ (second >> 11)) & self.task.spread
        m.d.sync += [
            first.eq(seed + (seed << 10)),
            second.eq(folded + (folded << 3)),
            self.facts.wait.eq(self.task.cycles + part),
        ]

    def _sequence(self, m: Module) -> None:
        begin, start = self.begin, self.start
        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += [begin.ready.eq(1), start.ready.eq(~begin.valid)]
                with m.If(begin.valid):
                    m.d.sync += self._at.eq(begin.p.at)
                m.d.sync += [
                    self._is_block.eq(begin.valid),
                    self._slot.eq(Mux(begin.valid, begin.p.slot, start.p.slot)),
                    self.row.eq(Mux(begin.valid, begin.p.row, start.p.row)),
                    self.warp.eq(start.p.warp),
                    self._index.eq(start.p.index),
                ]
                with m.If(begin.valid | start.valid):
                    m.next = "LOOK"
            with m.State("LOOK"):
                m.next = "WANT"
            with m.State("WANT"):
                m.d.comb += self.want.eq(1)
                with m.If(self.known):
                    m.next = "PLACE"
            self._products(m)
            with m.State("MIX"):
                m.next = "KEEP"
            with m.State("KEEP"):
                m.d.comb += self.keep.eq(1)
                with m.If(self.free):
                    m.next = "WAKE"
            with m.State("WAKE"):
                m.d.comb += self.wake.valid.eq(1)
                with m.If(self.wake.ready):
                    m.next = "IDLE"

    def _products(self, m: Module) -> None:
        """(z · height + y) · width + x is the block's number; its accesses begin at base + number ·
        block bytes, a warp's at that + index · warp bytes."""
        task, at, block, total = self.task, self._at, self._block, self._sum
        done = self._factor == 0
        with m.State("PLACE"):
            with m.If(self._is_block):
                self._multiply(m, at.y, at.z, task.height, "LINE")
            with m.Else():
                self._multiply(m, block.va, self._index, task.warp_bytes, "WARP")
        with m.State("LINE"), m.If(done):
            self._multiply(m, at.x, total, task.width, "NUMBER")
        with m.State("NUMBER"), m.If(done):
            m.d.sync += self._number.eq(total)
            self._multiply(m, task.base, total, task.block_bytes, "BLOCK")
        with m.State("BLOCK"), m.If(done):
            m.d.comb += self._write.en.eq(1)
            m.next = "IDLE"
        with m.State("WARP"), m.If(done):
            m.next = "MIX"

    def _multiply(self, m: Module, add: Value, factor: Value, by: Value, state: str) -> None:
        """Begin with `add` + `factor` · `by`."""
        m.d.sync += [self._sum.eq(add), self._factor.eq(factor), self._addend.eq(by)]
        m.next = state
