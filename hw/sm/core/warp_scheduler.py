"""Which warps can go on, and whose turn it is."""

from functools import reduce
from operator import or_

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.errors import CoreCause
from signalbox.hw.lib.arbiter import RoundRobin
from signalbox.hw.lib.onehot import encode
from signalbox.hw.sm.core.records import completion
from signalbox.hw.sm.core.retire import warp_next
from signalbox.hw.sm.core.warp_waits import one_hot

__all__ = ["HELD", "Warps", "warp_event", "warp_outcome"]

HELD = ("program", "constants", "memory", "shared")
"""What a fetched instruction may have to wait for: a line of either cache, room for its rows."""


def warp_event(config: Config) -> data.StructLayout:
    """Something happened to a warp."""
    return data.StructLayout({"valid": 1, "warp": config.warp_bits})


def warp_outcome(config: Config) -> data.StructLayout:
    """What became of a warp that was picked: its instruction executes, or none of it and the warp
    `ended`, or waits (one bit of `held`) and is fetched again."""
    return data.StructLayout({
        "valid": 1,
        "warp": config.warp_bits,
        "ended": 1,
        "held": data.StructLayout(dict.fromkeys(HELD, 1)),
    })


class Warps(wiring.Component):
    """A bit per warp and state. A warp is picked when it is ready, in turn; until then it has
    nothing under way.

    Members
    -------
    admit : one may be picked. pick : it was.
    started, next, done, wake : why warps become ready: they start, their instruction has ended, its
    access to memory has, they wait no more.
    outcome : what became of one that was picked.
    open : what `HELD` names is worth another try.
    dying : its memory has failed; it is to end instead of its next instruction.
    ending, ended : it has left the pipeline; it is gone (strobe).
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        count = config.sm_warps
        super().__init__({
            "admit": In(1),
            "pick": Out(warp_event(config)),
            "started": In(warp_event(config)),
            "next": In(warp_next(config)),
            "done": In(data.StructLayout({"valid": 1, "what": completion(config)})),
            "wake": In(count),
            "outcome": In(warp_outcome(config)),
            "open": In(data.StructLayout(dict.fromkeys(HELD, 1))),
            "dying": Out(count),
            "ending": Out(count),
            "ended": In(warp_event(config)),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        count, next_, done, outcome = self._config.sm_warps, self.next, self.done, self.outcome
        ready, back = Signal(count), Signal(count)
        m.submodules.turns = turns = RoundRobin(count)
        gone = one_hot(self.ended.valid, self.ended.warp, count)
        m.d.comb += [
            turns.requests.eq(Mux(self.admit, ready, 0)),
            turns.advance.eq(1),
            back.eq(
                self._held(m)
                | self.wake
                | one_hot(self.started.valid, self.started.warp, count)
                | one_hot(next_.ready, next_.warp, count)
                | one_hot(done.valid, done.what.warp, count)
            ),
        ]
        failed = done.valid & (done.what.cause != CoreCause.NONE)
        m.d.sync += [
            self.pick.valid.eq(turns.grant.any()),
            self.pick.warp.eq(encode(turns.grant)),
            ready.eq(ready & ~turns.grant | back),
            self.dying.eq(self.dying & ~gone | one_hot(failed, done.what.warp, count)),
            self.ending.eq(
                self.ending & ~gone | one_hot(outcome.valid & outcome.ended, outcome.warp, count)
            ),
        ]
        return m

    def _held(self, m: Module) -> Value:
        """Those whose instruction is fetched again."""
        count, outcome = self._config.sm_warps, self.outcome
        every = []
        for name in HELD:
            held, free = Signal(count, name=f"held_{name}"), Signal(count, name=f"free_{name}")
            hit = outcome.valid & outcome.held[name]
            m.d.comb += free.eq(Mux(self.open[name], held, 0))
            m.d.sync += held.eq(held & ~free | one_hot(hit, outcome.warp, count))
            every.append(free)
        return reduce(or_, every)
