"""Proofs of the parts in `hw/lib`."""

from itertools import combinations

from amaranth import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.lib.arbiter import FEW, RoundRobin
from signalbox.hw.lib.onehot import lowest_number
from signalbox.hw.lib.stream import StreamRegister
from signalbox.tb.proofs.formal import (
    AnyConst,
    Assert,
    Assume,
    Cover,
    Inside,
    Proof,
    Wrap,
    anything,
    queue_of_two,
    stays,
)

__all__ = ["PROOFS"]


class StreamRegisterProof(Proof):
    name = "lib.stream"
    shows = "a stream register gives out what it took in, in order; offers stay"
    induction = 2
    cover = 8

    def build(self, m: Module, wrap: Wrap) -> None:
        dut = StreamRegister(4)
        spare = Inside(dut).signal("spare")
        m.submodules.dut = wrap(dut)
        m.d.comb += [
            dut.i.valid.eq(anything(m, 1, "i_valid")),
            dut.i.payload.eq(anything(m, 4, "i_payload")),
            dut.o.ready.eq(anything(m, 1, "o_ready")),
        ]
        stays(m, dut.i, Assume, "i")
        stays(m, dut.o, Assert, "o")

        taken = dut.i.valid & dut.i.ready
        given = dut.o.valid & dut.o.ready
        first, second, level = queue_of_two(m, 4, taken, dut.i.payload, given, "words")
        m.d.comb += [
            Assert(dut.o.valid == (level != 0)),
            Assert(dut.i.ready == (level != 2)),
        ]
        with m.If(level != 0):
            m.d.comb += Assert(dut.o.payload == first)
        with m.If(level == 2):
            m.d.comb += Assert(spare == second)

        streak = Signal(3)
        m.d.sync += streak.eq(0)
        with m.If(taken & given):
            m.d.sync += streak.eq(streak + 1)
        m.d.comb += [Cover(level == 2), Cover(streak == 4)]


def turns_of(dut: RoundRobin) -> tuple[Signal, dict[tuple[int, int], Signal]]:
    """Named points of an arbiter: requesters after the last one granted; with few requesters, per
    pair of a class, whether the second comes before the first."""
    inside = Inside(dut)
    pairs = [pair for members in dut.classes for pair in combinations(members, 2)]
    few = pairs if dut.count <= FEW else []
    turned = {pair: inside.signal("turned_{}_{}".format(*pair)) for pair in few}
    return inside.signal("later"), turned


class RoundRobinProof(Proof):
    name = "lib.arbiter"
    shows = "one grant, to a requester, when any requests; each waits for at most 4 turns (of 5)"
    induction = 2
    cover = 8
    count = 5

    def build(self, m: Module, wrap: Wrap) -> None:
        count = self.count
        dut = RoundRobin(count)
        later, turned = turns_of(dut)
        m.submodules.dut = wrap(dut)
        m.d.comb += [
            dut.requests.eq(anything(m, count, "requests")),
            dut.advance.eq(anything(m, 1, "advance")),
        ]
        m.d.comb += [
            Assert((dut.grant & (dut.grant - 1)) == 0),
            Assert((dut.grant & ~dut.requests) == 0),
            Assert(dut.grant.any() == dut.requests.any()),
        ]

        # Any requester that does not withdraw, and the turns of others in the meantime.
        chosen = Signal(range(count))
        waiting = Signal()
        turns = Signal(range(count + 1))
        asks = dut.requests.bit_select(chosen, 1)
        granted = dut.grant.bit_select(chosen, 1) & dut.advance
        m.d.comb += [chosen.eq(AnyConst(len(chosen))), Assume(chosen < count)]
        m.d.sync += waiting.eq(asks & ~granted)
        with m.If(waiting):
            m.d.comb += Assume(asks)
        with m.If(~asks | granted):
            m.d.sync += turns.eq(0)
        with m.Elif(dut.advance):
            m.d.sync += turns.eq(turns + 1)
        m.d.comb += [Assert(turns <= count - 1), Cover(turns == count - 1)]

        # Invariant: each turn of another requester brings the chosen one closer to the front.
        ahead = Signal(range(2 * count))
        behind = sum((later[i] for i in range(count)), 0)
        with m.If(later.bit_select(chosen, 1)):
            m.d.comb += ahead.eq(chosen - (count - behind))
        with m.Else():
            m.d.comb += ahead.eq(chosen + behind)
        m.d.comb += [
            Assert((~later & (~later + 1)[:count]) == 0),
            Assert(~later.all()),
            Assert(turns + ahead <= count - 1),
        ]
        for (one, other), bit in turned.items():
            m.d.comb += Assert(bit == later[other] & ~later[one])


class ManyProof(RoundRobinProof):
    name = "lib.arbiter_many"
    shows = "the same among many: each waits for at most 8 turns (of 9)"
    cover = 12
    count = 9


class ClassesProof(Proof):
    name = "lib.arbiter_classes"
    shows = "a requester of the first class (2 of 5) waits for none of the second, and for one turn"
    induction = 2
    cover = 8
    count = 5

    def build(self, m: Module, wrap: Wrap) -> None:
        dut = RoundRobin(self.count, first=2)
        later, turned = turns_of(dut)
        m.submodules.dut = wrap(dut)
        m.d.comb += [
            dut.requests.eq(anything(m, self.count, "requests")),
            dut.advance.eq(anything(m, 1, "advance")),
            Assert((dut.grant & (dut.grant - 1)) == 0),
            Assert((dut.grant & ~dut.requests) == 0),
            Assert(dut.grant.any() == dut.requests.any()),
        ]
        with m.If(dut.requests[:2].any()):
            m.d.comb += Assert(~dut.grant[2:].any())
        waited = Signal(2)
        m.d.sync += waited.eq(
            dut.requests[:2] & ~dut.grant[:2] & (waited | dut.advance.replicate(2))
        )
        for one in range(2):
            with m.If(waited[one] & dut.requests[one]):
                m.d.comb += Assert(dut.grant[one])
        for members in dut.classes:
            mine = later[members.start : members.stop]
            m.d.comb += [
                Assert((~mine & (~mine + 1)[: len(mine)]) == 0),
                Assert(~mine.all()),
            ]
        for (one, other), bit in turned.items():
            m.d.comb += Assert(bit == later[other] & ~later[one])
        m.d.comb += [Cover(waited.any() & dut.advance), Cover(dut.grant[4] & later[4])]


class ManyClassesProof(ClassesProof):
    name = "lib.arbiter_many_classes"
    shows = "the same among many (2 of 11)"
    count = 11


class Lowest(wiring.Component):
    """Result of `lowest_number` for `bits`."""

    def __init__(self, count: int) -> None:
        super().__init__({"bits": In(count), "some": Out(1), "number": Out(8)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        some, number = lowest_number(m, self.bits)
        m.d.comb += [self.some.eq(some), self.number.eq(number)]
        return m


class LowestProof(Proof):
    name = "lib.lowest"
    shows = "of 1 to 9 bits, and of 64, the number of the lowest one that was set a cycle before"
    induction = 2
    counts = (*range(1, 10), 64)

    def build(self, m: Module, wrap: Wrap) -> None:
        for count in self.counts:
            dut, bits = Lowest(count), Signal(count, name=f"bits_{count}")
            m.submodules[f"dut_{count}"] = wrap(dut)
            m.d.comb += dut.bits.eq(anything(m, count, f"anything_{count}"))
            m.d.sync += bits.eq(dut.bits)
            m.d.comb += Assert(dut.some == bits.any())
            with m.If(dut.some):
                lower = (1 << dut.number) - 1
                m.d.comb += [Assert(dut.number < count), Assert((bits & lower) == 0)]
                m.d.comb += Assert(bits.bit_select(dut.number, 1))


PROOFS = (
    StreamRegisterProof(),
    RoundRobinProof(),
    ManyProof(),
    ClassesProof(),
    ManyClassesProof(),
    LowestProof(),
)
