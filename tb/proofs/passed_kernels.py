"""Proof of kernels that are passed over while they wait for their SMs (PLACE-6)."""

from dataclasses import replace

from amaranth import Module, Mux, Signal
from amaranth.lib.wiring import In

from signalbox.hw.placement.passed_kernels import TURN, PassedKernels, least_turn, patience
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
        "blocks stopped waits before it is passed over; all are served again when a held SM has "
        "changed and those behind have had the least turn, or after the longest one; a restart "
        "holds none"
    )
    induction = 3
    cover = 24

    def build(self, m: Module, wrap: Wrap) -> None:
        dut = PassedKernels(CONFIG)
        inside = Inside(dut)
        self._held, self._left = inside.signal("held"), inside.signal("patience")
        self._turn, self._woken = inside.signal("turn"), inside.signal("woken")
        self._late = inside.signal("changed_since")
        m.submodules.dut = wrap(dut)
        for path, member, signal in dut.signature.flatten(dut):
            if member.flow is In:
                arbitrary(m, signal, "_".join(map(str, path)))
        self._follow(m, dut)
        self._wait(m, dut)
        self._serve_again(m, dut)

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
        m.d.comb += [
            Assert(self._left + waited == most),
            Assert(~dut.passes | (refused & (~dut.served.saves | (waited == most)))),
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
        m.d.comb += [
            Assert(self._turn + since == TURN),
            Assert((late == self._late) & (changed == self._woken)),
            Assert(~(held & (since == TURN) & ~self._patient) | dut.again),
            Assert(~(held & changed & (since >= least) & ~self._patient) | dut.again),
            Assert(~(dut.again & by_time) | (since >= least)),
            Assert(held | ~dut.again),
            Cover(dut.again & by_time & (since < TURN)),
        ]


PROOFS = [PassedKernelsProof()]
