"""Proof of kernels that are passed over while they wait for their SMs (PLACE-6)."""

from dataclasses import replace

from amaranth import Module, Mux, Signal, Value
from amaranth.lib import data
from amaranth.lib.wiring import In

from signalbox.hw.placement.passed_kernels import (
    TURN,
    PassedKernels,
    least_turn,
    longest_turn,
    patience,
)
from signalbox.hw.placement.sm_choice import fan_ins
from signalbox.tb.proofs.formal import (
    AnyConst,
    Assert,
    Assume,
    Cover,
    Inside,
    Proof,
    Wrap,
    arbitrary,
)
from signalbox.tb.proofs.placement import TWO_SMS

__all__ = ["PROOFS"]

CONFIG = replace(TWO_SMS, sms=3, sm_masks=True)


class PassedKernelsProof(Proof):
    """The order in which kernels are served is arbitrary. One row and its mask are followed."""

    name = "placement.passed_kernels"
    shows = (
        "while a kernel is passed over, its SMs are held, and at least one SM is not held; a "
        "kernel that may have blocks stopped is passed over only after it has waited for a number "
        "of cycles in which blocks can be stopped, counted across restarts; no turn ends during "
        "that wait, or in the cycle in which a kernel is passed over; all kernels are served "
        "again, in a new turn: after the least turn, if an SM of a passed kernel has changed or a "
        "passed kernel has found an SM after all; after the longest turn; or when no SM or no "
        "kernel is left; a restart releases all SMs, but in the same turn a kernel passed over "
        "before it is passed over again in the cycle in which it is served; a kernel that opens in "
        "the row of one that was passed over has not been passed over"
    )
    induction = 3
    cover = 24

    def build(self, m: Module, wrap: Wrap) -> None:
        dut = PassedKernels(CONFIG)
        inside = Inside(dut)
        self._held, self._kept = inside.signal("held"), inside.signal("kept")
        self._left, self._spent = inside.signal("patience"), inside.signal("spent")
        self._turn, self._rest = inside.signal("turn"), inside.signal("rest")
        self._woken, self._row = inside.signal("woken"), inside.signal("patient_row")
        self._mine = inside.signal("is_patient")
        self._late, self._flight = inside.signal("changed_since"), inside.signal("cycles_in_flight")
        m.submodules.dut = wrap(dut)
        for path, member, signal in dut.signature.flatten(dut):
            if member.flow is In:
                arbitrary(m, signal, "_".join(map(str, path)))
        m.d.comb += Assume(~dut.again | dut.restart)
        self._wait(m, dut)
        self._serve_again(m, dut)
        self._follow(m, dut)
        self._end(m, dut)

    def _follow(self, m: Module, dut: PassedKernels) -> None:
        held, restarted = self._held, Signal(name="restarted")
        row = Signal.like(dut.served.row, name="a_row")
        mask = Signal(CONFIG.masked_sms, name="its_mask")
        loaded, passed, loads, now = (
            Signal(name=name)
            for name in ("row_loaded", "passed_in_turn", "loaded", "passed_since_restart")
        )
        last = Signal.like(row, name="last_row")
        m.d.sync += [
            restarted.eq(dut.restart),
            loads.eq(dut.loads.valid),
            last.eq(dut.loads.row),
            loaded.eq(dut.loads.valid & ~dut.restart & (dut.loads.row == row) & passed),
        ]
        for signal, ends in ((passed, self._ends), (now, dut.restart)):
            with m.If(ends | _of(dut.opens, row)):
                m.d.sync += signal.eq(0)
            with m.Elif(dut.passes & (dut.served.row == row)):
                m.d.sync += signal.eq(1)
        m.d.comb += [
            row.eq(AnyConst(len(row))),
            mask.eq(AnyConst(len(mask))),
            Assume(row < CONFIG.rows),
            Assume((dut.served.row != row) | (dut.served.disabled == mask)),
            Assume(~dut.served.disabled.all()),  # a kernel whose SMs are all disabled is not opened
            Assume(~loads | (dut.served.row == last)),
            Assert(~dut.passed.bit_select(row, 1) | ~(~mask & ~held).any()),
            Assert(~held.all()),
            Assert(dut.barred == held | dut.served.disabled),
            Assert(~restarted | ~(held.any() | dut.passed.any())),
            Assert(held.any() | ~dut.passed.any()),
            Assert(dut.holds == held.any()),
            Assert(~(held & ~self._kept).any()),
            Assert(self._spent.bit_select(row, 1) == passed),
            Assert(dut.passed.bit_select(row, 1) == now),
            Assert(~passed | (mask.any() & ~(~mask & ~self._kept).any())),
            Assert(~loaded | (dut.at_once & mask.any())),
            Assert(~(dut.at_once & (last == row)) | loaded),
            Assert(~loaded | dut.passes | dut.again),
            Cover(loaded & dut.passes),
        ]

    def _wait(self, m: Module, dut: PassedKernels) -> None:
        """The kernel that waited last keeps its patience until it is passed over, sent or
        opened."""
        most, refused = patience(CONFIG), Signal(name="refused_before")
        waited, now = Signal(range(most + 1), name="waited"), Signal(range(most + 1), name="has")
        row, mine = Signal.like(dut.served.row, name="waiting_row"), Signal(name="waits_again")
        counts, loads = dut.waits & ~dut.at_once, dut.loads
        m.d.comb += now.eq(Mux(mine, waited, 0))
        m.d.sync += refused.eq(dut.refused & ~dut.restart)
        with m.If(counts):
            m.d.sync += [row.eq(dut.served.row), waited.eq(now + ((now != most) & ~dut.placing))]
        with m.If(loads.valid | counts):
            same = (loads.row == row) & ~counts
            m.d.sync += mine.eq(Mux(loads.valid, same, 1))
        over = dut.passes & ~dut.at_once
        with m.If(over | _of(dut.sent, row) | _of(dut.opens, row)):
            m.d.sync += waited.eq(0)
        self._begun = waited != 0
        self._over = refused & (~dut.served.saves | (now == most))
        self._stays = (dut.waits & (now != most)) | self._over
        """No turn ends: the served kernel is patient, or is being passed over."""
        m.d.comb += [
            Assert((self._left + waited == most) & (self._mine == mine) & (self._row == row)),
            Assert(~dut.passes | self._over | dut.at_once),
            Cover(dut.passes & dut.served.saves & self._over),
        ]

    def _serve_again(self, m: Module, dut: PassedKernels) -> None:
        held, least, longest = self._held.any(), least_turn(CONFIG), longest_turn(CONFIG)
        since, changed = Signal(range(longest + 1), init=longest, name="since_pass"), Signal()
        calm = Signal(range(least + 1), init=least, name="calm")
        """Cycles of the kernels behind the one that was passed over, until they have had their
        minimum turn."""
        own, late = ~dut.served.disabled, Signal(name="changed_late")
        """`late`: an SM of the served kernel has changed after the last decision for it began."""
        passes = dut.passes & self._over
        found = Signal(name="found_late")
        news = (
            found
            | (dut.grows & self._kept).any()
            | (passes & ~dut.at_once & ~dut.begins & (late | (dut.grows & own).any()))
        )
        over = ((calm == least) & (changed | (since >= TURN))) | (since == longest)
        m.d.sync += [
            since.eq(Mux(passes, 0, since + (since != longest))),
            late.eq(~dut.begins & (late | (dut.grows & own).any())),
            changed.eq(~self._ends_turn(dut, over) & (changed | news)),
        ]
        with m.If(passes):
            m.d.sync += calm.eq(0)
        with m.Elif(dut.restart & self._begun):
            m.d.sync += calm.eq(0)
        with m.Elif(calm != least):
            m.d.sync += calm.eq(Mux(dut.at_once | dut.restart, 0, calm + held))
        refused = Signal(name="refused_late")
        by_time = ~(refused | dut.idle | dut.at_once)
        mine = dut.passes & (dut.sent.row == dut.served.row)
        m.d.sync += [
            refused.eq(dut.refused),
            found.eq(dut.sent.valid & (mine | dut.passed.bit_select(dut.sent.row, 1))),
        ]
        leaves = self._over | dut.at_once
        m.d.comb += [
            Assert((self._turn + since == longest) & (self._rest + calm == least)),
            Assert((late == self._late) & (changed == self._woken)),
            Assert(~(held & over & ~self._stays) | dut.again),
            Assert(~(dut.again & by_time) | (over & ~self._stays)),
            Assert(held | ~dut.again),
            Assert(~(held & leaves & (self._held | own).all()) | dut.again),
            Cover(dut.again & by_time & (since < TURN)),
        ]

    def _ends_turn(self, dut: PassedKernels, over: Value) -> Value:
        """Whether the turn ends. Then kernels that were passed over are no longer passed over at
        once."""
        self._ends = dut.again | (dut.restart & over & ~self._stays)
        return self._ends

    def _end(self, m: Module, dut: PassedKernels) -> None:
        """All kernels are served again when none is left and the last decision is complete."""
        decided = len(fan_ins(CONFIG.sms)) + 3
        since = Signal(range(decided + 1), init=decided, name="since_decision")
        m.d.sync += since.eq(Mux(dut.begins, 0, since + (since != decided)))
        m.d.comb += [
            Assert(self._flight + since == decided),
            Assert(~(self._held.any() & dut.idle & (since == decided)) | dut.again),
        ]


def _of(event: data.View, row: Value) -> Value:
    return event.valid & (event.row == row)


PROOFS = [PassedKernelsProof()]
