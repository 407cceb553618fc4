"""Splits a copy command into lines."""

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import VA_BITS, Config
from signalbox.hw.copy import records
from signalbox.hw.copy.records import LINE_BITS, TAG_BITS
from signalbox.hw.copy.remap_plan import RemapPlan, RemapWay
from signalbox.hw.lib.onehot import lowest
from signalbox.hw.records.copy import copy_command

__all__ = ["Lines"]


class Lines(wiring.Component):
    """Issues the lines of each copy, then an `end` (HOST-8, HOST-16).

    One line per 2 cycles. After `stop`, at most one more line comes before the end.

    A remapped copy begins 2 cycles later; its `RemapWay` decides about its lines. With FILL, it has
    the same lines, without a source. With RUNS, each line of the copy becomes a line with the
    constants, if there are any, and a line per run of components of each element. These are 3
    cycles apart, and each line of the copy takes 3 cycles more.

    Members
    -------
    command : in, stream of `copy_command`; the next is accepted once the previous one has been
        issued completely.
    tag : in, `TAG_BITS` bits: tag of the next copy.
    stop : in, level: the current copy has failed; the rest of it is dropped.
    o : out, stream of `line`: lines and ends of copies.
    current : out, `TAG_BITS` bits: tag of the current copy.
    copy : out, `copy_command` of the current copy, except that `src` and `dst` are those of the
        next line, and `line_count` counts the lines left. `src` is 0 if the next line has no
        source, `pitch_in` with FILL.
    """

    def __init__(self, config: Config) -> None:
        super().__init__({
            "command": In(stream.Signature(copy_command(config))),
            "tag": In(TAG_BITS),
            "stop": In(1),
            "o": Out(stream.Signature(records.line(config))),
            "current": Out(TAG_BITS),
            "copy": Out(copy_command(config)),
        })
        self.config = config

    def elaborate(self, platform) -> Module:
        m = Module()
        self.extent = Signal(LINE_BITS)
        """Bytes of the line, minus 1; before scaling, elements of the line, minus 1."""
        self.remap = Signal()
        self.sourceless = Signal()
        self.runs = Signal()
        """`remap`, `sourceless`: as in `line`, for the next line. `runs`: the way of the copy is
        RUNS."""
        self.no_more = Signal()
        """The last line has been issued."""
        start = Signal()
        done = Signal()
        scaled = self._scale(m)
        self._plan(m)
        self._pick(m)
        self._measure(m)
        with m.FSM() as fsm:
            m.d.comb += self.command.ready.eq(fsm.ongoing("ACCEPT"))
            with m.State("ACCEPT"):
                with m.If(self.command.valid):
                    m.d.sync += [
                        self.copy.eq(self.command.payload),
                        self.extent.eq(self.command.p.line_length - 1),
                        self.less.eq(self.command.p.components.targets),
                        self.current.eq(self.tag),
                        start.eq(1),
                        self.no_more.eq(~self.command.p.transfer),
                        Cat(self.remap, self.sourceless, self.runs).eq(0),
                    ]
                    m.next = "MAKE"
                    with m.If(self.command.p.remap & self.command.p.transfer):
                        m.next = "COUNT"
            with m.State("MAKE"):
                self._make(m, start, self.no_more | self.stop)
                m.d.sync += [
                    self.o.valid.eq(1),
                    start.eq(0),
                    done.eq(self.no_more | self.stop),
                ]
                with m.If(~self.runs):
                    self._advance(m)
                m.next = "OFFER"
            with m.State("OFFER"), m.If(self.o.ready):
                m.d.sync += self.o.valid.eq(0)
                m.next = "MAKE"
                with m.If(done):
                    m.next = "ACCEPT"
                with m.Elif(self.runs):
                    m.next = "RUN"
                    with m.If(self.ended):
                        m.next = "NEXT"
            with m.State("COUNT"):
                m.d.sync += [self.extent.eq(scaled), self.less.eq(self.copy.components.size)]
                m.next = "SCALE"
            with m.State("SCALE"):
                m.d.sync += self.extent.eq(scaled)
                self._choose(m)
            with m.State("PICK"):
                m.next = "RUN"
            with m.State("RUN"):
                self._run(m)
                m.next = "MAKE"
            with m.State("NEXT"):
                self._next_line(m)
        return m

    def _plan(self, m: Module) -> None:
        m.submodules.plan = self.plan = RemapPlan(self.config)
        m.d.comb += [
            self.plan.components.eq(self.copy.components),
            self.plan.src.eq(self.copy.src),
            self.plan.pitch.eq(self.copy.pitch_in),
            self.plan.single.eq(self.copy.line_count == 1),
        ]
        self.line_src = Signal(VA_BITS)
        self.line_dst = Signal(VA_BITS)
        self.element_src = Signal(VA_BITS)
        self.element_dst = Signal(VA_BITS)
        """With RUNS: start of the next line and of the next element."""
        self.next_src = Signal(VA_BITS)
        self.next_dst = Signal(VA_BITS)
        m.d.comb += [
            self.next_src.eq(self.copy.src + self.copy.pitch_in),
            self.next_dst.eq(self.copy.dst + self.copy.pitch_out),
        ]
        self.elements = Signal(32)
        """Elements after the next one."""
        self.left = Signal.like(self.plan.begins)
        """Runs left in the next element."""
        self.rest = Signal.like(self.left)
        self.run = Signal.like(self.plan.runs[0])
        """`run`: the first of the runs in `left`; `rest`: the runs after it; one cycle late."""
        self.ended = Signal()
        """No run is left in the line."""

    def _measure(self, m: Module) -> None:
        """Computes the line's destination beats, and the alignment of its ends in source beats."""
        low = self.config.offset_bits
        extent = self.extent
        source, target = self.copy.src[:low], self.copy.dst[:low]
        source_carry = (source + extent[:low])[low]
        target_carry = (target + extent[:low])[low]
        self.reach = Signal(LINE_BITS + 1)
        """Index of the last byte, relative to the first destination beat."""
        self.lead = Signal()
        self.tail = Signal()
        self.rotate = Signal(low)
        m.d.comb += [
            self.reach.eq(extent + target),
            self.rotate.eq(source - target),
            self.lead.eq(source > target),
            # Number of steps: lead + destination beats = source beats + tail. `tail` is one bit.
            self.tail.eq(self.lead ^ target_carry ^ source_carry),
        ]

    def _make(self, m: Module, start: Signal, end) -> None:
        low = self.config.offset_bits
        copy, line = self.copy, self.o.p
        m.d.sync += [
            line.asid.eq(copy.asid),
            line.src_physical.eq(copy.src_physical),
            line.dst_physical.eq(copy.dst_physical),
            line.tag.eq(self.current),
            line.end.eq(end),
            line.start.eq(start),
            line.src.eq(copy.src),
            line.dst.eq(copy.dst),
            line.beats.eq(self.reach[low:]),
            line.final.eq(self.reach[:low]),
            line.rotate.eq(self.rotate),
            line.lead.eq(self.lead),
            line.tail.eq(self.tail),
            line.remap.eq(self.remap),
            line.sourceless.eq(self.sourceless),
        ]

    def _advance(self, m: Module) -> None:
        m.d.sync += [
            self.copy.src.eq(self.next_src),
            self.copy.dst.eq(self.next_dst),
            self.copy.line_count.eq(self.copy.line_count - 1),
        ]
        with m.If(self.copy.line_count == 1):
            m.d.sync += self.no_more.eq(1)

    def _scale(self, m: Module) -> Signal:
        """Multiplies `extent` + 1 by `less` + 1; returns the product minus 1."""
        self.less = Signal(2)
        extent, scaled = self.extent, Signal(LINE_BITS)
        threefold = self.less == 2
        most = Signal(LINE_BITS)
        with m.Switch(self.less):
            with m.Case(0):
                m.d.comb += most.eq(extent)
            with m.Case(3):
                m.d.comb += most.eq(Cat(Const(3, 2), extent))
            with m.Default():
                m.d.comb += most.eq(Cat(Const(1, 1), extent))
        m.d.comb += scaled.eq(most + Mux(threefold, extent, 0) + threefold)
        return scaled

    def _choose(self, m: Module) -> None:
        """Prepares the first line, or a line of RUNS."""
        copy, way = self.copy, self.plan.way
        m.next = "MAKE"
        with m.If(self.runs | (way == RemapWay.RUNS)):
            m.d.sync += [
                self.runs.eq(1),
                self.line_src.eq(self.next_src),
                self.line_dst.eq(self.next_dst),
                self.element_src.eq(copy.src),
                self.element_dst.eq(copy.dst),
                self.elements.eq(copy.line_length - 1),
                self.left.eq(self.plan.begins),
                self.ended.eq(0),
                Cat(self.remap, self.sourceless).eq(self.plan.constants.replicate(2)),
            ]
            with m.If(self.plan.constants):
                m.d.sync += copy.src.eq(0)
            with m.Else():
                m.next = "PICK"
        with m.Elif(way == RemapWay.FILL):
            m.d.sync += [
                Cat(self.remap, self.sourceless).eq(3),
                copy.src.eq(0),
                copy.pitch_in.eq(0),
            ]
        with m.Elif(way == RemapWay.MAP):
            m.d.sync += self.remap.eq(1)

    def _run(self, m: Module) -> None:
        """Prepares the line of a run, and moves on to the next run or element."""
        plan, run = self.plan, self.run
        m.d.sync += [
            self.copy.src.eq(self.element_src + run.source),
            self.copy.dst.eq(self.element_dst + run.target),
            self.extent.eq(run.extent),
            Cat(self.remap, self.sourceless).eq(0),
            self.left.eq(self.rest),
        ]
        with m.If(self.rest == 0):
            m.d.sync += [
                self.left.eq(plan.begins),
                self.element_src.eq(self.element_src + plan.source_bytes),
                self.element_dst.eq(self.element_dst + plan.target_bytes),
                self.elements.eq(self.elements - 1),
                self.ended.eq(self.elements == 0),
            ]

    def _pick(self, m: Module) -> None:
        """Registers the next run."""
        chosen = Signal.like(self.left)
        m.d.comb += chosen.eq(lowest(self.left))
        m.d.sync += self.rest.eq(self.left & ~chosen)
        for number in range(len(self.left)):
            with m.If(chosen[number]):
                m.d.sync += self.run.eq(self.plan.runs[number])

    def _next_line(self, m: Module) -> None:
        """Prepares the next line of RUNS, or the end."""
        copy = self.copy
        m.d.sync += [
            copy.src.eq(self.line_src),
            copy.dst.eq(self.line_dst),
            copy.line_count.eq(copy.line_count - 1),
            self.extent.eq(copy.line_length - 1),
            self.less.eq(copy.components.targets),
        ]
        m.next = "COUNT"
        with m.If(copy.line_count == 1):
            m.d.sync += self.no_more.eq(1)
            m.next = "MAKE"
