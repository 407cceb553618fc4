"""Warp scheduler: tracks ready warps and picks one per cycle."""

from functools import reduce
from operator import or_

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.errors import CoreCause
from signalbox.hw.lib.arbiter import RoundRobin
from signalbox.hw.lib.onehot import encode
from signalbox.hw.sm.core.records import completion, unit_kinds
from signalbox.hw.sm.core.retire import warp_next
from signalbox.hw.sm.core.warp_waits import one_hot

__all__ = ["WarpScheduler", "held_for", "warp_event", "warp_outcome"]


def held_for(config: Config) -> data.StructLayout:
    """Reasons for which a fetched instruction may be held, one bit each: a line of either cache,
    room in its unit."""
    return data.StructLayout({"program": 1, "constants": 1, **unit_kinds(config).members})


def warp_event(config: Config) -> data.StructLayout:
    """Strobe for one warp."""
    return data.StructLayout({"valid": 1, "warp": config.warp_bits})


def warp_outcome(config: Config) -> data.StructLayout:
    """Outcome of a picked warp: its instruction executes; or it does not, because the warp has
    `ended`, is stopped and must be saved (`saves`), or is held (one bit of `held`) and fetches it
    again."""
    return data.StructLayout({
        "valid": 1,
        "warp": config.warp_bits,
        "ended": 1,
        "saves": 1,
        "held": held_for(config),
    })


class WarpScheduler(wiring.Component):
    """Picks a ready warp per cycle, round robin. A ready warp has nothing in flight. The states are
    one bit per warp.

    Members
    -------
    admit : in, a warp may be picked in this cycle.
    pick : out, the picked warp.
    started : in, strobe: the warp starts and becomes ready.
    next : in, a `warp_next`: the instruction of a warp retires; the warp may become ready.
    done : in, strobe: the memory access of a warp has completed; the warp becomes ready.
    wake : in, per warp: its wait is over; the warp becomes ready.
    outcome : in, outcome of a picked warp.
    open : in, per reason of `held_for`: held warps may retry.
    done_before : in, strobe: the warp had ended before its block was saved, so it ends at once.
    dying : out, per warp: its memory access failed; it ends instead of executing its next
        instruction.
    over : out, per warp: had ended before its block was saved; ends instead of executing its next
        instruction.
    saving : out, per warp: has left the pipeline, and must be saved.
    saved : in, strobe: the warp is saved.
    ending : out, per warp: has left the pipeline for good.
    ended : in, strobe: the warp is gone.
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
            "open": In(held_for(config)),
            "done_before": In(warp_event(config)),
            "dying": Out(count),
            "over": Out(count),
            "saving": Out(count),
            "saved": In(warp_event(config)),
            "ending": Out(count),
            "ended": In(warp_event(config)),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        count, next_, done, outcome = self._config.sm_warps, self.next, self.done, self.outcome
        ready = Signal(count)
        back = Signal(count)
        m.submodules.turns = turns = RoundRobin(count)
        gone = one_hot(self.ended.valid, self.ended.warp, count)
        failed = done.valid & (done.what.cause != CoreCause.NONE)
        leaves = one_hot(outcome.valid & (outcome.ended | outcome.saves), outcome.warp, count)
        saved = one_hot(self.saved.valid, self.saved.warp, count)
        over = one_hot(self.done_before.valid, self.done_before.warp, count)
        m.d.comb += [
            turns.requests.eq(Mux(self.admit, ready, 0)),
            turns.advance.eq(1),
            back.eq(
                self._held(m)
                | self.wake
                | one_hot(self.started.valid, self.started.warp, count)
                | one_hot(next_.ready, next_.warp, count)
                | one_hot(done.valid, done.what.warp, count)
                | over
            ),
        ]
        m.d.sync += [
            self.pick.valid.eq(turns.grant.any()),
            self.pick.warp.eq(encode(turns.grant)),
            ready.eq(ready & ~turns.grant | back),
            self.dying.eq(self.dying & ~gone | one_hot(failed, done.what.warp, count)),
            self.over.eq(self.over & ~gone | over),
            self.saving.eq(self.saving & ~saved | Mux(outcome.saves, leaves, 0)),
            self.ending.eq(self.ending & ~gone | saved | Mux(outcome.saves, 0, leaves)),
        ]
        return m

    def _held(self, m: Module) -> Value:
        """Held warps that fetch their instruction again."""
        count, outcome = self._config.sm_warps, self.outcome
        every = []
        for name in held_for(self._config).members:
            held, free = Signal(count, name=f"held_{name}"), Signal(count, name=f"free_{name}")
            hit = outcome.valid & outcome.held[name]
            m.d.comb += free.eq(Mux(self.open[name], held, 0))
            m.d.sync += held.eq(held & ~free | one_hot(hit, outcome.warp, count))
            every.append(free)
        return reduce(or_, every)
