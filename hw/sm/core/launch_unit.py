"""Launches of kernels by warps (NEST-10)."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import VA_BITS, Config
from signalbox.hw.errors import CoreCause
from signalbox.hw.sm.core.coalescer import of_lowest
from signalbox.hw.sm.core.records import access_row, bits, completion, result_row, row_count
from signalbox.hw.sm.port import block_launch, launch_answer, record_fault, record_page

__all__ = ["LaunchUnit"]

_result = data.StructLayout({"refusal": 8, "check": 8, "zero": 16})
"""Result of LAUNCH."""


class LaunchUnit(wiring.Component):
    """Executes LAUNCH, one at a time. The answer of the SM port is the result in all active lanes;
    then the instruction has completed. Without an active lane, or with a wrong address, it
    completes without a launch.

    Members
    -------
    room : out, no instruction is in the unit.
    reserve : in, strobe: an instruction will come.
    row : in, strobe, an `access_row`: rows of the instruction.
    launch : out, see `SmPort`; 2 cycles after the last row.
    launched : in, see `SmPort`.
    result : out, stream of `result_row`: the result, one row per cycle from the cycle after the
        answer on.
    end : out, stream of `completion`: the completed instruction; MEMORY_ALIGNMENT or MEMORY_FAULT
        for a wrong address.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        super().__init__({
            "room": Out(1),
            "reserve": In(1),
            "row": In(data.StructLayout({"valid": 1, "row": access_row(config)})),
            "launch": Out(stream.Signature(block_launch(config))),
            "launched": In(launch_answer(config)),
            "result": Out(stream.Signature(result_row(config))),
            "end": Out(stream.Signature(completion(config))),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        busy, last = Signal(name="busy"), row_count(self._config) - 1
        found, va = Signal(name="found"), Signal(64, name="va")
        line, answer = Signal(bits(last + 1), name="line"), Signal(_result, name="answer")
        m.d.comb += [
            self.room.eq(~busy),
            *(word.eq(answer) for word in self.result.p.words),
        ]
        with m.If(self.reserve):
            m.d.sync += busy.eq(1)
        self._gather(m, line, found, va)
        cause = Mux(found, record_fault(va), CoreCause.NONE)
        with m.FSM():
            with m.State("GATHER"):
                with m.If(self.row.valid & self.row.row.last):
                    m.next = "CHECK"
            with m.State("CHECK"):
                m.d.sync += [self.end.p.cause.eq(cause), self.end.p.va.eq(va[:VA_BITS])]
                with m.If(found & (cause == CoreCause.NONE)):
                    m.next = "LAUNCH"
                with m.Else():
                    m.next = "END"
            with m.State("LAUNCH"):
                m.d.comb += self.launch.valid.eq(1)
                with m.If(self.launch.ready):
                    m.next = "ANSWER"
            with m.State("ANSWER"):
                m.d.sync += [
                    answer.refusal.eq(self.launched.verdict.refusal),
                    answer.check.eq(self.launched.verdict.check),
                ]
                with m.If(self.launched.valid):
                    m.next = "WRITE"
            with m.State("WRITE"):
                m.d.comb += self.result.valid.eq(1)
                with m.If(self.result.ready):
                    m.d.sync += line.eq(line + 1)
                    with m.If(line == last):
                        m.next = "END"
            with m.State("END"):
                m.d.comb += self.end.valid.eq(1)
                with m.If(self.end.ready):
                    m.d.sync += [busy.eq(0), line.eq(0), found.eq(0)]
                    m.next = "GATHER"
        return m

    def _gather(self, m: Module, line: Signal, found: Signal, va: Signal) -> None:
        """Rows of the instruction, in order: address of the lowest active lane; masks and
        destination of the result."""
        config, row, result = self._config, self.row.row, self.result.p
        masks = Signal(data.ArrayLayout(config.lanes, 1 << len(line)), name="masks")
        active = Cat(lane.active for lane in row.lanes)
        inside = (row_count(config) - 1).bit_length()
        upper = Signal(len(row.dest) - inside, name="dest")
        with m.If(self.row.valid):
            m.d.sync += [
                masks[line].eq(active),
                line.eq(Mux(row.last, 0, line + 1)),
                found.eq(found | active.any()),
                self.launch.p.slot.eq(row.place.slot),
                self.launch.p.row.eq(row.place.row),
                self.end.p.warp.eq(row.warp),
                upper.eq(row.dest[inside:]),
            ]
            with m.If(~found):
                m.d.sync += va.eq(of_lowest(m, active, [lane.va for lane in row.lanes], "first"))
        m.d.comb += [
            self.launch.p.page.eq(record_page(va)),
            result.dest.eq(Cat(line[:inside], upper)),
            result.mask.eq(masks[line]),
        ]
