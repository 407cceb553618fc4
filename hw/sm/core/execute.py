"""Execution pipeline: one row of lanes per cycle."""

from itertools import pairwise
from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.sm.core.alu import STEPS, AluLane
from signalbox.hw.sm.core.coalescer import of_lowest
from signalbox.hw.sm.core.decode import Decoder
from signalbox.hw.sm.core.records import (
    Control,
    access_row,
    dest_bits,
    instruction,
    result_row,
    retired,
    row_count,
    thread,
    thread_look,
    warp_place,
)
from signalbox.hw.sm.core.register_file import register_look
from signalbox.hw.sm.isa import Opcode

__all__ = ["Execute"]

_LANES, _END = 3, 3 + STEPS
"""Pipeline stages. Stage 0 requests registers, 1 has their locations, 2 has their values. `_LANES`
is the first stage of the lanes, `_END` the one after them."""


class Execute(wiring.Component):
    """Executes instructions, one row per cycle; rows never stall inside. An instruction retires 8
    cycles after its last row starts. A warp has at most one instruction here.

    Members
    -------
    i : in, stream of `instruction`; a memory instruction only if there is room for its rows.
    pause : in, 1 bit: no row may start in this cycle, so that a later cycle has no result. The
        second step of a row with two results starts all the same.
    paused : out, 1 bit: `pause` holds in this cycle.
    look : out, a `register_look`: registers of the row that starts.
    dest : in, `dest_bits` bits, 1 cycle later: location of its fourth register.
    fresh : in, 1 bit, 2 cycles later: the fourth register has not been marked.
    words : in, 3 values of 32 bits per lane, 2 cycles later: the first three registers.
    write : out, 1 bit, 7 cycles later, as the next three: write `result`.
    cover : out, 1 bit: write 0 to the lanes outside of its mask.
    mark : out, 1 bit: mark the register of `result` as written.
    result : out, a `result_row`: words of the row.
    threads : out, a `thread_look`: a row of threads.
    thread : in, a `thread` per lane, 1 cycle later: their positions in the block.
    row : out, strobe, an `access_row`, 7 cycles after the row starts: a row of a memory instruction
        (`shared`: on shared memory) or of LAUNCH (`launch`); always accepted.
    retired : out, a `retired`, 8 cycles after the last row starts: a completed instruction; memory
        instructions complete later.
    ahead : out, a `warp_place`: the warp of `retired`, 1 cycle earlier.
    """

    def __init__(self, config: Config) -> None:
        self._config, self._rows = config, row_count(config)
        self._line = self._rows - 1
        words = data.ArrayLayout(32, config.lanes)
        self._step = data.StructLayout({
            "valid": 1,
            "last": 1,
            "line": 5,
            "high": 1,
            "control": Control,
            "writes": 1,
            "memory": 1,
            "shared": 1,
            "launch": 1,
            "local": 1,
            "store": 1,
            "what": instruction(config),
        })
        super().__init__({
            "i": In(stream.Signature(instruction(config))),
            "pause": In(1),
            "paused": Out(1),
            "look": Out(register_look(config)),
            "dest": In(dest_bits(config)),
            "fresh": In(1),
            "words": In(words).array(3),
            "write": Out(1),
            "cover": Out(1),
            "mark": Out(1),
            "result": Out(result_row(config)),
            "threads": Out(thread_look(config)),
            "thread": In(data.ArrayLayout(thread, config.lanes)),
            "row": Out(
                data.StructLayout({"valid": 1, "shared": 1, "launch": 1, "row": access_row(config)})
            ),
            "retired": Out(retired(config)),
            "ahead": Out(warp_place(config)),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        self._steps = [Signal(self._step, name=f"step{n}") for n in range(_END + 1)]
        self._dests = [Signal(dest_bits(self._config), name=f"dest{n}") for n in range(2, _END + 1)]
        for before, after in pairwise(self._steps):
            m.d.sync += after.eq(before)
        m.d.sync += self._dests[0].eq(self.dest)
        self._fresh = [self.fresh, *(Signal(name=f"fresh{n}") for n in range(_LANES, _END + 1))]
        for values in (self._dests, self._fresh):
            for before, after in pairwise(values):
                m.d.sync += after.eq(before)
        self._begin(m)
        lanes = self._lanes(m)
        self._end(m, lanes)
        return m

    def _begin(self, m: Module) -> None:
        """Stage 0: one row of the current instruction, and its registers."""
        m.submodules.controls = controls = Decoder()
        step = self._steps[0]
        current = Signal(instruction(self._config))
        busy = Signal()
        line = Signal(5)
        high = Signal()
        ends = Signal()
        pair_now = controls.pair & ~high
        m.d.comb += [
            controls.op.eq(current.op),
            step.what.eq(current),
            step.line.eq(line),
            step.high.eq(high),
            self.paused.eq(self.pause & ~high),
            step.valid.eq(busy & ~self.paused),
            step.last.eq(~pair_now & ((line == self._line) | ~controls.whole)),
            *(
                step[name].eq(getattr(controls, name))
                for name in ("control", "writes", "memory", "shared", "launch", "local", "store")
            ),
            ends.eq(step.valid & step.last),
            self.i.ready.eq(~busy | ends),
        ]
        with m.If(step.valid):
            m.d.sync += [high.eq(pair_now), line.eq(line + ~pair_now)]
        with m.If(self.i.ready):
            m.d.sync += [current.eq(self.i.payload), busy.eq(self.i.valid), line.eq(0), high.eq(0)]
        self._ask(m, step, controls)

    def _ask(self, m: Module, step: data.View, controls: Decoder) -> None:
        what, look = step.what, self.look
        long = controls.memory & ~(controls.shared | controls.local)
        m.d.comb += [
            look.warp.eq(what.at.warp),
            look.own.eq(what.own),
            look.line.eq(step.line),
            look.registers[0].eq(what.a | step.high),
            look.registers[1].eq(Mux(long, what.a | 1, what.value[:8])),
            look.registers[2].eq(what.c),
            look.registers[3].eq(what.d | step.high),
            self.threads.warp.eq(self._steps[1].what.at.warp),
            self.threads.line.eq(self._steps[1].line),
        ]

    def _special(self, lane: int) -> Value:
        """A special register that differs between lanes."""
        config, step, one = self._config, self._steps[2], self.thread[lane]
        value = step.what.value
        number = Value.cast(step.line) * config.lanes + lane
        first = Mux(value[0], one.y, one.x)
        return Mux(value[1], Mux(value[0], number, one.z), first)

    def _lanes(self, m: Module) -> list[AluLane]:
        """Stage 2 selects operands; the lanes start in the next one."""
        step, lanes = self._steps[2], []
        special = step.what.op == Opcode.S2R
        fixed = step.what.immediate | step.memory
        for n in range(self._config.lanes):
            m.submodules[f"lane{n}"] = lane = AluLane()
            words = [words[n] for words in self.words]
            operand = Mux(special, self._special(n), Mux(fixed, step.what.value, words[1]))
            operands = [Signal(32, name=f"{name}{n}") for name in ("a", "b", "c", "upper")]
            m.d.sync += [
                operands[0].eq(words[0]),
                operands[1].eq(operand),
                operands[2].eq(words[2]),
                operands[3].eq(words[1]),
            ]
            for target, value in zip((lane.a, lane.b, lane.c, lane.upper), operands, strict=True):
                m.d.comb += target.eq(value)
            for k in range(STEPS):
                self._tell(m, lane.steps[k], self._steps[_LANES + k])
            lanes.append(lane)
        return lanes

    def _tell(self, m: Module, target: data.View, step: data.View) -> None:
        m.d.comb += [
            target.control.eq(step.control),
            target.shift.eq(step.what.c),
            target.high.eq(step.high),
            target.sign.eq(step.what.value[31]),
        ]

    def _end(self, m: Module, lanes: list[AluLane]) -> None:
        step, config = self._steps[_END], self._config
        mask = Signal(config.lanes)
        line = step.line[: max(1, self._line.bit_length())]
        m.d.comb += mask.eq(step.what.at.context.mask.word_select(line, config.lanes))
        row, result = self.row.row, self.result
        loads, fresh = step.memory & ~step.store, self._fresh[-1]
        m.d.comb += [
            # The words of a load come later, but none for inactive lanes: write 0 there now.
            self.write.eq(step.valid & (step.writes | (loads & fresh & ~mask.all()))),
            self.cover.eq(fresh),
            self.mark.eq(step.valid & fresh & (step.writes | loads) & (step.line == self._line)),
            result.dest.eq(self._dests[-1]),
            result.mask.eq(Mux(loads, 0, mask)),
            self.row.valid.eq(step.valid & step.memory),
            self.row.shared.eq(step.shared),
            self.row.launch.eq(step.launch),
            row.warp.eq(step.what.at.warp),
            row.transfer.eq(step.what.transfer),
            row.place.eq(step.what.at.place),
            row.local.eq(step.local),
            row.store.eq(step.store),
            row.last.eq(step.last),
            row.dest.eq(self._dests[-1]),
            self.ahead.eq(step.what.at),
        ]
        for n, lane in enumerate(lanes):
            m.d.comb += [
                result.words[n].eq(lane.result),
                row.lanes[n].active.eq(mask[n]),
                row.lanes[n].va.eq(self._address(step, n, lane)),
                row.lanes[n].data.eq(lane.third),
            ]
        self._retire(m, step, mask, lanes)

    def _address(self, step: data.View, number: int, lane: AluLane) -> Value:
        """See `access_row`."""
        thread = Cat(Const(number, (self._config.lanes - 1).bit_length()), step.line)[:5]
        inside = Cat(Const(0, 2), thread, step.what.at.context.pc[7:])
        high = Mux(step.local, thread, lane.address)
        return Mux(step.what.transfer, inside, Cat(lane.result, high))

    def _retire(self, m: Module, step: data.View, mask: Value, lanes: list[AluLane]) -> None:
        """Collect results of all rows for the warp."""
        out, found = self.retired, Signal()
        nonzero = Cat(lane.nonzero for lane in lanes) & mask
        word = of_lowest(m, mask, [lane.result for lane in lanes], "first_lane")
        m.d.sync += [
            out.valid.eq(step.valid & step.last),
            out.transfer.eq(step.what.transfer),
            out.at.eq(step.what.at),
            out.op.eq(step.what.op),
            out.offset.eq(step.what.value),
        ]
        with m.If(step.valid):
            target: Any = out.nonzero
            if self._rows > 1:
                target = target.word_select(step.line[: self._line.bit_length()], len(mask))
            m.d.sync += [
                target.eq(nonzero),
                found.eq(~step.last & (found | mask.any())),
            ]
            with m.If(~found):
                m.d.sync += out.word.eq(Mux(mask.any(), word, 0))
