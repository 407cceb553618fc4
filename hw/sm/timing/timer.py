"""Computing time of warps, and choice of the next warp to issue."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.errors import CoreCause
from signalbox.hw.lib.arbiter import RoundRobin
from signalbox.hw.lib.onehot import select
from signalbox.hw.sm.timing.layouts import warp_fire, warp_wake

__all__ = ["Timer"]

_TIME_BITS = 33
"""One more than the width of the longest time."""


class Timer(wiring.Component):
    """Checks one warp per cycle, round robin: its time has expired, or its row was killed. A full
    turn takes as many cycles as there are warps, rounded up to a power of two. The turn stalls
    while `fire` is not accepted.

    Parameters
    ----------
    sources : number of `wakes`.

    Members
    -------
    wakes : in, warps that start to compute, or have failed; one per cycle is accepted.
    kill : in, per kernel row.
    fire : out, warps whose time has expired.
    """

    def __init__(self, config: Config, sources: int) -> None:
        self._config, self._sources = config, sources
        super().__init__({
            "wakes": In(stream.Signature(warp_wake(config))).array(sources),
            "kill": In(config.rows),
            "fire": Out(stream.Signature(warp_fire(config))),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        shape = data.StructLayout({
            "until": _TIME_BITS,
            "row": config.row_bits,
            "cause": CoreCause,
        })
        self._now = Signal(_TIME_BITS)
        self._timed = Signal(1 << config.warp_bits)
        m.submodules.times = times = memory.Memory(
            shape=shape, depth=1 << config.warp_bits, init=[]
        )
        begins = self._begin(m, times.write_port())
        fires = self._look(m, times.read_port())
        m.d.sync += [
            self._now.eq(self._now + 1),
            self._timed.eq((self._timed | begins) & ~fires),
        ]
        return m

    def _begin(self, m: Module, write: memory.WritePort) -> Value:
        """The starting warp, one-hot."""
        m.submodules.turns = turns = RoundRobin(self._sources)
        words = [wake.p.as_value() for wake in self.wakes]
        wake = Signal(warp_wake(self._config))
        valid = Signal()
        m.d.comb += [
            turns.requests.eq(Cat(wake.valid for wake in self.wakes)),
            turns.advance.eq(1),
            *(wake.ready.eq(turns.grant[n]) for n, wake in enumerate(self.wakes)),
        ]
        m.d.sync += [valid.eq(turns.grant.any()), wake.as_value().eq(select(turns.grant, words))]
        m.d.comb += [
            write.en.eq(valid),
            write.addr.eq(wake.warp),
            write.data.until.eq(self._now + wake.wait),
            write.data.row.eq(wake.row),
            write.data.cause.eq(wake.cause),
        ]
        return _bit(valid, wake.warp)

    def _look(self, m: Module, read: memory.ReadPort) -> Value:
        """The warp whose time has expired, one-hot. The value read is valid only if the warp was
        already computing at the read."""
        fire, found = self.fire, read.data
        turn = Signal(self._config.warp_bits)
        warp = Signal(self._config.warp_bits)
        was = Signal()
        moves = Signal()
        late = Signal()
        m.d.comb += [
            late.eq(~(self._now - found.until)[_TIME_BITS - 1]),
            fire.valid.eq(was & (late | fire.p.dead)),
            fire.p.warp.eq(warp),
            fire.p.row.eq(found.row),
            fire.p.cause.eq(found.cause),
            fire.p.dead.eq(self.kill.bit_select(found.row, 1)),
            moves.eq(fire.ready | ~fire.valid),
            read.addr.eq(turn),
            read.en.eq(moves),
        ]
        with m.If(moves):
            m.d.sync += [
                turn.eq(turn + 1),
                warp.eq(turn),
                was.eq(self._timed.bit_select(turn, 1)),
            ]
        return _bit(fire.valid & fire.ready, warp)


def _bit(valid: Value, number: Value) -> Value:
    """Bit `number`, if `valid`; a shift, which simulates fast."""
    return Mux(valid, Const(1, 1) << number, 0)
