"""Proof of parked channels (COPY-7, COPY-10, COPY-13)."""

from amaranth import Const, Module, Mux, Signal, Value

from signalbox.hw.host.scheduling.parking import Parking
from signalbox.hw.registers import Wait
from signalbox.tb.proofs.formal import (
    Assert,
    Assume,
    Cover,
    Inside,
    Proof,
    Wrap,
)
from signalbox.tb.proofs.host import CONFIG, any_of, concerns, drive

__all__ = ["PROOFS"]


class ParkingProof(Proof):
    name = "host.parking"
    shows = (
        "a channel that waits for an on-chip semaphore is ready when that semaphore was updated "
        "since the cycle after `watch`, from then until it is served, and no other makes it ready; "
        "`held` says that "
        "all semaphores of the served channel's group are 0, and who waits for its group and an "
        "engine is ready when both were there in the cycle before; who waits for anything else is "
        "ready when it is there; `wanting` says who lacks an engine only"
    )
    induction = 2
    cover = 6

    def build(self, m: Module, wrap: Wrap) -> None:
        dut = Parking(CONFIG)
        acquires = dut.acquires
        inside = Inside(dut)
        m.submodules.dut = wrap(dut)
        pipeline = dut.pipeline
        drive(m, dut.state, "state", "alive", "occupied")
        drive(m, pipeline, "pipeline", "park", "unpark")
        drive(m, dut.on_chip, "on_chip", "zero", "update")
        drive(m, dut.methods, "methods", "retry", "fenced", "over", "referring")
        drive(m, dut.tasks, "tasks", "some")
        drive(m, dut.start, "start", "cleared")
        drive(m, dut.engines, "engines", "copying", "able", "queue")
        drive(m, acquires, "acquires", "watch", "guard", "unguard")
        m.d.comb += [
            Assume(pipeline.park.wait.as_value() <= Wait.COMPUTE.value),
            Assume((acquires.guard.counter < CONFIG.counters) | ~acquires.guard.valid),
        ]
        whose, serving = Signal(CONFIG.channel_bits), Signal()
        served, serves = pipeline.unpark.channel, pipeline.park.valid
        m.d.sync += [whose.eq(served), serving.eq(serves)]
        m.d.comb += [
            Assume(~serves | (pipeline.park.channel == served)),
            Assume(pipeline.unpark.valid == (serves & ~serving)),
            Assume(pipeline.unpark.valid | ~serves | (served == whose)),
        ]
        for event in (acquires.guard, acquires.unguard):
            here = serves & ~pipeline.unpark.valid & (event.channel == served)
            m.d.comb += Assume(~event.valid | here)
        unguard = Signal(acquires.unguard.shape(), name="spec_unguard")
        watch = Signal(acquires.watch.shape(), name="spec_watch")
        m.d.sync += [unguard.eq(acquires.unguard), watch.eq(acquires.watch)]
        m.d.comb += [
            Assert(inside.signal("unguarded") == unguard.as_value()),
            Assert(inside.signal("watching") == watch.as_value()),
        ]
        for channel in range(CONFIG.channels):
            self._wait(m, dut, inside, watch, channel)
            self._group(m, dut, inside, unguard, channel)

    def _wait(self, m: Module, dut: Parking, inside: Inside, watch, channel: int) -> None:
        wait = Signal(Wait, name=f"spec_wait_{channel}")
        watched = Signal(CONFIG.semaphore_bits, name=f"spec_watched_{channel}")
        updated = Signal(name=f"spec_updated_{channel}")
        with m.If(concerns(dut.pipeline.park, channel)):
            with m.If(~dut.pipeline.park.lasts | (wait == Wait.NONE)):
                m.d.sync += wait.eq(dut.pipeline.park.wait)
        named = dut.on_chip.update.valid & (dut.on_chip.update.index == watched)
        hit = named & ~concerns(watch, channel)
        with m.If(concerns(watch, channel)):
            m.d.sync += [watched.eq(watch.index), updated.eq(0)]
        with m.Elif(hit):
            m.d.sync += updated.eq(1)

        ready, on_chip = dut.parked.ready[channel], wait == Wait.ONCHIP
        m.d.comb += [
            Assert(dut.parked.waits[channel] == wait),
            Assert(~ready | dut.state.alive[channel]),
            Assert(inside.signal(f"index_{channel}") == watched),
            Assert(inside.signal(f"maybe_{channel}") == updated),
        ]
        with m.If(on_chip & dut.state.alive[channel]):
            m.d.comb += Assert(ready == (updated | named | dut.methods.retry[channel]))
        self._states(m, dut, wait, channel)
        m.d.comb += Cover(on_chip & updated & ready & ~dut.methods.retry[channel])

    def _states(self, m: Module, dut: Parking, wait: Value, channel: int) -> None:
        """Waits that are over while a condition holds."""
        over = {
            Wait.NONE: dut.state.occupied,
            Wait.COPIES: ~dut.engines.copying,
            Wait.TASKS: ~dut.tasks.some,
            Wait.RETRY: dut.methods.retry,
            Wait.FENCE: dut.methods.fenced,
            Wait.ENGINE_ONLY: dut.engines.able | dut.methods.retry,
            Wait.QUEUE: dut.engines.queue | ~dut.engines.copying,
            Wait.ALL_IDLE: dut.methods.over,
            Wait.TRANSLATION: dut.methods.over,
            Wait.COMPUTE: dut.methods.over,
            Wait.WRITEBACK: ~dut.methods.referring,
            Wait.TURN: Const(-1, CONFIG.channels),
        }
        for one, bits in over.items():
            with m.If((wait == one) & dut.state.alive[channel]):
                m.d.comb += Assert(dut.parked.ready[channel] == bits[channel])

    def _group(self, m: Module, dut: Parking, inside: Inside, unguard, channel: int) -> None:
        """The group is a set: `guard` adds (with precedence); `clear`, and one cycle later
        `unguard`, remove."""
        acquires = dut.acquires
        group = Signal(CONFIG.counters, name=f"spec_group_{channel}")
        kept, added = Signal.like(group), Signal.like(group)
        one = 1 << unguard.counter
        with m.If(concerns(dut.start.cleared, channel)):
            m.d.comb += kept.eq(0)
        with m.Elif(concerns(unguard, channel)):
            m.d.comb += kept.eq(Mux(unguard.all, 0, group & ~one))
        with m.Else():
            m.d.comb += kept.eq(group)
        with m.If(concerns(acquires.guard, channel)):
            m.d.comb += added.eq(1 << acquires.guard.counter)
        m.d.sync += group.eq(kept | added)
        holds = ~any_of(group[i] & ~dut.on_chip.zero[i] for i in range(CONFIG.counters))
        held, joined = Signal(name=f"spec_held_{channel}"), Signal(name=f"spec_joined_{channel}")
        m.d.sync += [held.eq(holds), joined.eq(concerns(acquires.guard, channel))]
        m.d.comb += [
            Assert(inside.signal(f"group_{channel}") == group),
            Assert(dut.parked.holding[channel] == held),
            Assert(inside.signal(f"joined_{channel}") == joined),
        ]
        with m.If(
            dut.pipeline.park.valid
            & ~dut.pipeline.unpark.valid
            & (dut.pipeline.unpark.channel == channel)
        ):
            m.d.comb += [
                Assert(inside.signal("served") == group),
                Assert(acquires.held == holds),
                Cover(group.all() & acquires.held),
            ]
        with m.If(dut.state.alive[channel] & (dut.parked.waits[channel] == Wait.ENGINE)):
            both = dut.engines.able[channel] & held & ~joined
            m.d.comb += Assert(dut.parked.ready[channel] == (both | dut.methods.retry[channel]))
        with m.If(dut.state.alive[channel] & (dut.parked.waits[channel] == Wait.ENGINE_TIMED)):
            fails = ~held & ~joined
            m.d.comb += Assert(dut.parked.ready[channel] == (dut.engines.able[channel] | fails))
        lacks = Signal(name=f"spec_lacks_{channel}")
        with m.Switch(dut.parked.waits[channel]):
            with m.Case(Wait.ENGINE):
                m.d.comb += lacks.eq(held & ~joined)
            with m.Case(Wait.ENGINE_ONLY, Wait.ENGINE_TIMED):
                m.d.comb += lacks.eq(1)
        m.d.comb += Assert(dut.parked.wanting[channel] == (lacks & dut.state.alive[channel]))


PROOFS = (ParkingProof(),)
