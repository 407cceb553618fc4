"""Bus beats of lines of memory (PREEMPT-9)."""

from amaranth.hdl import Cat, Const, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import STATE_LINE, Config
from signalbox.hw.sm.timing.layouts import state_access, state_bits, warp_state
from signalbox.hw.sm.timing.state_lines import LINE_BITS, block_lines

__all__ = ["StateBeats"]


class StateBeats(wiring.Component):
    """Splits lines into bus beats. One beat per cycle, from the cycle after the lines are accepted
    on; the next lines are accepted with the last beat.

    Members
    -------
    i : in, stream of `block_lines`.
    o : out, stream of `state_access`: their beats, the first ones with their head, the others with
        zeros.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        super().__init__({
            "i": In(stream.Signature(block_lines(config))),
            "o": Out(stream.Signature(state_access(config))),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, i, o = self._config, self.i, self.o
        inside = (STATE_LINE // config.beat_bytes).bit_length() - 1
        at = Signal(LINE_BITS + inside, name="at")
        left = Signal.like(i.p.count, name="left")
        head = Signal(warp_state.size, name="head")
        m.d.comb += [
            o.p.va.eq(Cat(Const(0, config.offset_bits), at)),
            o.p.begins.eq(~at[:inside].any()),
            o.p.ends.eq(at[:inside].all()),
            o.p.last.eq(left == 1),
            o.p.word.eq(head),
            i.ready.eq(~o.valid | (o.ready & o.p.ends & o.p.last)),
        ]
        with m.If(o.ready):
            m.d.sync += [
                at.eq(at + 1),
                left.eq(left - o.p.ends),
                head.eq(head >> state_bits(config)),
            ]
        with m.If(i.ready):
            m.d.sync += [
                o.valid.eq(i.valid),
                o.p.row.eq(i.p.owner.row),
                at.eq(i.p.line << inside),
                left.eq(i.p.count),
                head.eq(i.p.head),
            ]
        return m
