"""Proof of kernels that are passed over while they wait for their SMs (PLACE-6)."""

from dataclasses import replace

from amaranth import Module, Mux, Signal
from amaranth.lib.wiring import In

from signalbox.hw.placement.passed_kernels import TURN, PassedKernels, least_turn, patience
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
    """Any kernels are served. One row and its mask are followed."""

    name = "placement.passed_kernels"
    shows = (
        "SMs of a kernel that was passed over are held, and some SM is not; a kernel that may have "
        "blocks stopped waits before it is passed over, and no turn ends meanwhile; all are served "
        "again when a held SM has changed and those behind have had the least turn, after the "
        "longest one, when one finds an SM after all, or when no SM or no kernel is left; a "
        "restart holds none"
    )
    induction = 3
    cover = 24
    long = True  # an option: at night

    def build(self, m: Module, wrap: Wrap) -> None:
        dut = PassedKernels(CONFIG)
        inside = Inside(dut)
        self._held, self._left = inside.signal("held"), inside.signal("patience")
        self._turn, self._woken = inside.signal("turn"), inside.signal("woken")
        self._late, self._flight = inside.signal("changed_since"), inside.signal("cycles_in_flight")
        m.submodules.dut = wrap(dut)
        for path, member, signal in dut.signature.flatten(dut):
            if member.flow is In:
                arbitrary(m, signal, "_".join(map(str, path)))
        self._follow(m, dut)
        self._wait(m, dut)
        self._serve_again(m, dut)
        self._end(m, dut)

    def _follow(self, m: Module, dut: PassedKernels) -> None:
        held, restarted = self._held, Signal(name="restarted")
        row = Signal.like(dut.served.row, name="a_row")
        mask = Signal(CONFIG.masked_sms, name="its_mask")
        m.d.sync += restarted.eq(dut.restart)
        m.d.comb += [
            row.eq(AnyConst(len(row))),
            mask.eq(AnyConst(len(mask))),
            Assume((dut.served.row != row) | (dut.served.disabled == mask)),
            Assume(~dut.served.disabled.all()),  # a kernel for which no SM is left is not opened
            Assert(~dut.passed.bit_select(row, 1) | ~(~mask & ~held).any()),
            Assert(~held.all()),
            Assert(dut.barred == held | dut.served.disabled),
            Assert(~restarted | ~(held.any() | dut.passed.any())),
            Assert(held.any() | ~dut.passed.any()),
        ]

    def _wait(self, m: Module, dut: PassedKernels) -> None:
        most, refused = patience(CONFIG), Signal(name="refused_before")
        waited = Signal(range(most + 1), name="waited")
        m.d.sync += refused.eq(dut.refused & ~dut.restart)
        m.d.sync += waited.eq(Mux(dut.waits, waited + (waited != most), 0))
        self._patient = dut.waits & (waited != most)
        self._over = refused & (~dut.served.saves | (waited == most))
        m.d.comb += [
            Assert(self._left + waited == most),
            Assert(~dut.passes | self._over),
            Cover(dut.passes & dut.served.saves),
        ]

    def _serve_again(self, m: Module, dut: PassedKernels) -> None:
        held, least = self._held.any(), least_turn(CONFIG)
        since, changed = Signal(range(TURN + 1), init=TURN, name="since_pass"), Signal()
        own = ~dut.served.disabled
        late = Signal(name="changed_late")
        """After the last decision for the served kernel began."""
        news = (dut.grows & self._held).any() | (
            dut.passes & ~dut.begins & (late | (dut.grows & own).any())
        )
        m.d.sync += [
            since.eq(Mux(dut.passes, 0, since + (since != TURN))),
            late.eq(~dut.begins & (late | (dut.grows & own).any())),
            changed.eq(~dut.restart & (changed | news)),
        ]
        event = Signal(name="refused_or_sent")
        m.d.sync += event.eq(dut.refused | dut.sent.valid)
        by_time = ~(event | dut.idle)
        found = Signal(name="found_late")
        mine = dut.passes & (dut.sent.row == dut.served.row)
        m.d.sync += found.eq(dut.sent.valid & (mine | dut.passed.bit_select(dut.sent.row, 1)))
        m.d.comb += [
            Assert(self._turn + since == TURN),
            Assert((late == self._late) & (changed == self._woken)),
            Assert(~(held & (since == TURN) & ~self._patient) | dut.again),
            Assert(~(held & changed & (since >= least) & ~self._patient) | dut.again),
            Assert(~(dut.again & by_time) | ((since >= least) & ~self._patient)),
            Assert(held | ~dut.again),
            Assert(~(held & found) | dut.again),
            Assert(~(held & self._over & (self._held | own).all()) | dut.again),
            Cover(dut.again & by_time & (since < TURN)),
        ]

    def _end(self, m: Module, dut: PassedKernels) -> None:
        """All are served again if no kernel is left, and the last decision is complete."""
        decided = len(fan_ins(CONFIG.sms)) + 3
        since = Signal(range(decided + 1), init=decided, name="since_decision")
        m.d.sync += since.eq(Mux(dut.begins, 0, since + (since != decided)))
        m.d.comb += [
            Assert(self._flight + since == decided),
            Assert(~(self._held.any() & dut.idle & (since == decided)) | dut.again),
        ]


PROOFS = [PassedKernelsProof()]
