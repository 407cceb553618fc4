"""Start of blocks and warps: address of the first access, computing time."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import VA_BITS, Config
from signalbox.hw.errors import CoreCause
from signalbox.hw.sm.port import block_begin, warp_start
from signalbox.hw.sm.timing.kernel_rows import Place
from signalbox.hw.sm.timing.layouts import warp_facts, warp_place, warp_wake
from signalbox.hw.sm.warp_fates import warp_fate

__all__ = ["WarpStart"]


class WarpStart(wiring.Component):
    """Starts blocks and warps: computes their constants and their first progress. One at a time,
    accepted when complete. Products are computed serially, one bit of a factor per cycle, up to its
    highest bit set: for a block, its line and its number in the grid and its offset; for a warp,
    its offset in the block. So a warp takes 10 cycles plus 1 for each bit of its number after the
    third; a block 19 plus 1 for each bit of a factor after its first; longer if the record must be
    read first.

    Members
    -------
    begin : in, stream of `block_begin`: blocks that enter a slot.
    start : in, stream of `warp_start`: warps that start.
    row : out, `row_bits` bits: number of a kernel row; stable with `want` until `known`.
    want : out, the record of the row is needed.
    known : in, the record of the previous cycle's `row` has been read, or has failed.
    cause : in, a `CoreCause`: failure of that read, if any.
    look : out, `Place` of a word in the record of `row`.
    word : in, 32 bits, 2 cycles later: its value.
    warp : out, `warp_bits` bits: number of the starting warp.
    facts : out, `warp_facts` of that warp.
    place : out, a `warp_place`: first progress of that warp.
    keep : out, store `facts` and `place`, when `free`.
    free : in, they can be stored.
    put_stride : out, strobe: store `word` as the stride.
    put_accesses : out, strobe: store `word` as the number of accesses.
    wake : out, stream of `warp_wake`: the warp starts to compute.
    fate : in, with preemption: `warp_fate` of the warp offered; while it `waits`, the start begins
        anew.
    resume : out, with preemption; strobe: the warp must be restored, instead of `wake`.
    none : out, with preemption: the warp makes no access, since it had ended.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        stops = {"fate": In(warp_fate), "resume": Out(1), "none": Out(1)}
        super().__init__({
            "begin": In(stream.Signature(block_begin(config))),
            "start": In(stream.Signature(warp_start(config))),
            "row": Out(config.row_bits),
            "want": Out(1),
            "known": In(1),
            "cause": In(CoreCause),
            "look": Out(Place),
            "word": In(32),
            "warp": Out(config.warp_bits),
            "facts": Out(warp_facts(config)),
            "place": Out(warp_place(config)),
            "put_stride": Out(1),
            "put_accesses": Out(1),
            "keep": Out(1),
            "free": In(1),
            "wake": Out(stream.Signature(warp_wake(config))),
            **(stops if config.preemption else {}),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        begin, start, wake, facts = self.begin.p, self.start.p, self.wake.p, self.facts
        self._is_block = Signal()
        self._number = Signal(32)
        self._failed = self.cause != CoreCause.NONE
        self._slot = Mux(self._is_block, begin.slot, start.slot)
        self._product(m)
        self._blocks(m)
        self._sequence(m)
        m.d.comb += [
            self.row.eq(Mux(self._is_block, begin.row, start.row)),
            self.warp.eq(start.warp),
            facts.number.eq(self._block.number),
            facts.slot.eq(start.slot),
            facts.index.eq(start.index),
            self.place.va.eq(self._sum),
            self.place.first.eq(1),
            wake.warp.eq(start.warp),
            wake.row.eq(start.row),
            wake.wait.eq(Mux(self._failed, 0, facts.wait)),
            wake.cause.eq(self.cause),
        ]
        if self._config.preemption:
            self._tell_fate(m)
        return m

    def _tell_fate(self, m: Module) -> None:
        """A warp that had ended ends at once: it does not compute, and makes no access."""
        wake, fate = self.wake.p, self.fate
        m.d.comb += self.none.eq(fate.over)
        with m.If(fate.over):
            m.d.comb += [wake.wait.eq(0), wake.cause.eq(CoreCause.NONE)]

    def _blocks(self, m: Module) -> None:
        """Per slot: number of its block and address of its first access."""
        shape = data.StructLayout({"number": 32, "va": VA_BITS})
        m.submodules.blocks = blocks = memory.Memory(
            shape=shape, depth=self._config.sm_blocks, init=[]
        )
        self._write, read = blocks.write_port(), blocks.read_port()
        self._block = read.data
        m.d.comb += [
            read.addr.eq(self._slot),
            self._write.addr.eq(self._slot),
            self._write.data.number.eq(self._number),
            self._write.data.va.eq(self._sum),
        ]

    def _product(self, m: Module) -> None:
        """`_done` comes at least 3 cycles after `_multiply`, when `word` has changed."""
        self._sum = Signal(VA_BITS)
        self._addend = Signal(VA_BITS)
        self._factor = Signal(32)
        self._done = Signal()
        self._begins = Signal()
        begun = Signal()
        m.d.sync += [
            self._sum.eq(self._sum + Mux(self._factor[0], self._addend, 0)),
            self._addend.eq(self._addend << 1),
            self._factor.eq(self._factor >> 1),
            begun.eq(self._begins),
            self._done.eq((self._factor == 0) & ~self._begins & ~begun),
        ]

    def _multiply(self, m: Module, add: Value, factor: Value | int, by: Value, state: str) -> None:
        """Start computing `add` + `factor` · `by`."""
        m.d.comb += self._begins.eq(1)
        m.d.sync += [self._sum.eq(add), self._factor.eq(factor), self._addend.eq(by)]
        m.next = state

    def _sequence(self, m: Module) -> None:
        """A word looked up in one state is available in the state after the next."""
        begin, start, is_block = self.begin, self.start, self._is_block
        with m.FSM():
            with m.State("IDLE"):
                m.d.sync += is_block.eq(begin.valid)
                with m.If(begin.valid | start.valid):
                    m.next = "LOOK"
            with m.State("LOOK"):
                m.d.comb += self.look.eq(Mux(is_block, Place.GRID_REST, Place.WARP_BYTES))
                m.next = "KNOWN"
            with m.State("KNOWN"):
                m.d.comb += self.look.eq(Mux(is_block, Place.GRID_WIDTH, Place.STRIDE))
                m.next = "WAIT"
                with m.If(self.known):
                    m.next = "WARP"
                    if self._config.preemption:
                        with m.If(self.fate.waits):
                            m.next = "IDLE"
                    with m.If(is_block):
                        m.next = "BLOCK"
            with m.State("WAIT"):
                m.d.comb += self.want.eq(1)
                with m.If(self.known):
                    m.next = "LOOK"
            self._block_states(m)
            self._warp_states(m)

    def _block_states(self, m: Module) -> None:
        """Its number is (z · height + y) · width + x; its first access is at base + number · block
        bytes, or for a fault at the record."""
        failed, at, total, word, done = (
            self._failed,
            self.begin.p.at,
            self._sum,
            self.word,
            self._done,
        )
        with m.State("BLOCK"):
            m.d.comb += self.look.eq(Place.GRID_WIDTH)
            self._multiply(m, at.y, at.z, word[:16], "LINE")
        with m.State("LINE"):
            m.d.comb += self.look.eq(Place.GRID_WIDTH)
            with m.If(done):
                self._multiply(m, at.x, total, word, "NUMBER")
        with m.State("NUMBER"):
            m.d.comb += self.look.eq(Place.BLOCK_BYTES)
            m.d.sync += self._number.eq(total)
            with m.If(done):
                self._multiply(m, Const(0), Mux(failed, 0, total), word, "OFFSET")
        with m.State("OFFSET"):
            m.d.comb += self.look.eq(Mux(failed, Place.CONSTANTS_LOW, Place.BASE_LOW))
            with m.If(done):
                self._multiply(m, total, 1, word, "BASE")
        with m.State("BASE"):
            m.d.comb += self.look.eq(Mux(failed, Place.CONSTANTS_HIGH, Place.BASE_HIGH))
            with m.If(done):
                self._multiply(m, total, 1, word << 32, "BEGUN")
        with m.State("BEGUN"), m.If(done):
            m.d.comb += [self._write.en.eq(1), self.begin.ready.eq(1)]
            m.next = "IDLE"

    def _warp_states(self, m: Module) -> None:
        """The first access of a warp is at that of the block + index · warp bytes; its computing
        time is `cycles` plus the part of `spread` selected by `_mixed`."""
        wait, mixed = self.facts.wait, self._mixed(m)
        with m.State("WARP"):
            m.d.comb += self.look.eq(Place.ACCESSES)
            index = Mux(self._failed, 0, self.start.p.index)
            self._multiply(m, self._block.va, index, self.word, "STRIDE")
        with m.State("STRIDE"):
            m.d.comb += [self.put_stride.eq(1), self.look.eq(Place.SPREAD)]
            m.next = "ACCESSES"
        with m.State("ACCESSES"):
            m.d.comb += [self.put_accesses.eq(1), self.look.eq(Place.CYCLES)]
            m.next = "SPREAD"
        with m.State("SPREAD"):
            m.d.sync += wait.eq(mixed & self.word)
            m.next = "CYCLES"
        with m.State("CYCLES"):
            m.d.sync += wait.eq(wait + self.word)
            m.next = "KEEP"
        with m.State("KEEP"):
            m.d.comb += self.keep.eq(self._done)
            with m.If(self._done & self.free):
                m.next = "WAKE"
        with m.State("WAKE"):
            m.d.comb += [self.wake.valid.eq(1), self.start.ready.eq(self.wake.ready)]
            with m.If(self.wake.ready):
                m.next = "IDLE"
            if self._config.preemption:
                resumes = self.fate.saved & ~self.fate.over & ~self._failed
                m.d.comb += self.resume.eq(resumes)
                with m.If(resumes):
                    m.d.comb += [self.wake.valid.eq(0), self.start.ready.eq(1)]
                    m.next = "IDLE"

    def _mixed(self, m: Module) -> Value:
        """Hash of block and warp numbers; valid 2 cycles after these."""
        first = Signal(32)
        second = Signal(32)
        seed = Cat(self.start.p.index, self._block.number)[:32]
        folded = first ^ (first >> 6)
        m.d.sync += [first.eq(seed + (seed << 10)), second.eq(folded + (folded << 3))]
        return second ^ (second >> 11)
