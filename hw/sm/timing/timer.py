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
    """Finds a warp when its time has expired, its row is killed or its block is stopped. Checks one
    warp per cycle, round robin. A full turn takes as many cycles as there are warps, rounded up to
    a power of two. The turn stalls while `fire` is not accepted.

    Parameters
    ----------
    sources : number of `wakes`.

    Members
    -------
    wakes : in, streams of `warp_wake`: warps that start to compute, or have failed; one per cycle
        is accepted.
    kill : in, per kernel row: killed.
    owner : in, with preemption; strobe: `warp` starts for block slot `slot`.
    stopped : in, with preemption; per block slot: stopped.
    fire : out, stream of `warp_fire`.
    """

    def __init__(self, config: Config, sources: int) -> None:
        self._config, self._sources = config, sources
        owner = {"valid": 1, "warp": config.warp_bits, "slot": config.block_bits}
        stops = {"owner": In(data.StructLayout(owner)), "stopped": In(config.sm_blocks)}
        super().__init__({
            "wakes": In(stream.Signature(warp_wake(config))).array(sources),
            "kill": In(config.rows),
            **(stops if config.preemption else {}),
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
        """Store the time of a warp that starts to compute. Returns that warp, one-hot."""
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
        """Offer the warp looked at if it is due. Returns the warp that was accepted, one-hot. The
        value read is valid only if the warp was already computing at the read."""
        fire, found = self.fire, read.data
        turn = Signal(self._config.warp_bits)
        warp = Signal(self._config.warp_bits)
        was = Signal()
        moves = Signal()
        late = Signal()
        due = late | fire.p.dead
        if self._config.preemption:
            due |= self._stop(m, read, late)
        m.d.comb += [
            late.eq(~(self._now - found.until)[_TIME_BITS - 1]),
            fire.valid.eq(was & due),
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

    def _stop(self, m: Module, times: memory.ReadPort, late: Value) -> Value:
        """Whether the block of the warp looked at is stopped. Also gives the rest of the warp's
        time."""
        config, fire, owner = self._config, self.fire, self.owner
        stopped = Signal(name="is_stopped")
        m.submodules.slots = slots = memory.Memory(
            shape=config.block_bits, depth=1 << config.warp_bits, init=[]
        )
        write, read = slots.write_port(), slots.read_port()
        m.d.comb += [
            write.en.eq(owner.valid),
            write.addr.eq(owner.warp),
            write.data.eq(owner.slot),
            read.en.eq(times.en),
            read.addr.eq(times.addr),
            stopped.eq(self.stopped.bit_select(read.data, 1)),
            fire.p.slot.eq(read.data),
            fire.p.stopped.eq(stopped),
            fire.p.late.eq(late),
            fire.p.left.eq(Mux(late, 0, times.data.until - self._now)),
        ]
        return stopped


def _bit(valid: Value, number: Value) -> Value:
    """Bit `number`, if `valid`; a shift, which simulates fast."""
    return Mux(valid, Const(1, 1) << number, 0)
