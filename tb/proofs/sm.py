"""Proofs of the parts of the SM logic controller (PLACE-10, PLACE-20 … 26)."""

from collections.abc import Sequence
from itertools import combinations, permutations

from amaranth import Cat, Mux, Signal
from amaranth.hdl import Module, Value
from amaranth.lib import data

from signalbox.hw.config import NESTING, PRIORITIES, Config
from signalbox.hw.records.placement import PRIORITY_BITS
from signalbox.hw.sm.block_choice import BlockChoice
from signalbox.hw.sm.block_order import BlockOrder
from signalbox.hw.sm.block_table import BlockTable
from signalbox.hw.sm.resources import Resources, capacity
from signalbox.hw.sm.warp_slots import WarpSlots
from signalbox.tb.proofs.formal import (
    AnyConst,
    Assert,
    Assume,
    Cover,
    Inside,
    Proof,
    Wrap,
    anything,
    arbitrary,
)

__all__ = ["PROOFS"]

SLOTS, WARPS = 3, 3
HIGHEST = PRIORITIES + NESTING - 2
"""Highest priority of a task."""

CONFIG = Config(
    slots=4, spare_rows=1, sm_blocks=SLOTS, sm_warps=WARPS, sm_registers=6 * 128, sm_shared=5 * 1024
)


def _one(bits: Value) -> Value:
    """Whether exactly one bit is 1."""
    return bits.any() & ~(bits & (bits - 1)).any()


def _precedes(order: Inside, one: int, other: int) -> Value:
    """Whether the block in slot `one` precedes the block in slot `other` in the order of a
    `BlockOrder`."""
    low, high = sorted((one, other))
    turned = order.signal(f"turned_{low}")[high - low - 1]
    return ~turned if one < other else turned


class OrderProof(Proof):
    """For any two slots, chosen by the solver."""

    name = "sm.order"
    shows = (
        "what is chosen is a candidate, and no other one is of higher priority, or of the same and "
        "came before it; the last one likewise from the other end"
    )
    induction = 2
    cover = 8

    def build(self, m: Module, wrap: Wrap) -> None:
        dut = BlockOrder(SLOTS, choices=1)
        inside = Inside(dut)
        m.submodules.dut = wrap(dut)
        for name in ("arrive", "last_of"):
            arbitrary(m, getattr(dut, name), name)
        arbitrary(m, dut.candidates[0], "candidates")
        used, arrive, leaves = Signal(SLOTS), dut.arrive, anything(m, SLOTS, "leaves")
        m.d.comb += [
            Assume(~arrive.valid | _one(arrive.place)),
            Assume(arrive.priority <= HIGHEST),
            Assume(~arrive.valid | ~(arrive.place & (used | dut.placed)).any()),
            Assume(~((dut.candidates[0] | dut.last_of) & ~used).any()),
            Assert(~(dut.placed & used).any() & ~(dut.placed & (dut.placed - 1)).any()),
        ]
        m.d.sync += used.eq((used | dut.placed) & ~leaves)
        pair = [Signal(SLOTS, name=name) for name in ("one", "other")]
        for slot in pair:
            m.d.comb += [slot.eq(AnyConst(SLOTS)), Assume(_one(slot))]
        m.d.comb += Assume(pair[0] != pair[1])
        before = self._specify(m, dut, inside, used, pair)
        for candidates, chosen, first in (
            (dut.candidates[0], dut.first[0], before),
            (dut.last_of, dut.last, ~before),
        ):
            both = (candidates & pair[0]).any() & (candidates & pair[1]).any()
            with m.If(both):
                m.d.comb += Assert(~(chosen & Mux(first, pair[1], pair[0])).any())
            m.d.comb += [
                Assert(~(chosen & ~candidates).any()),
                Cover((used == 7) & both & first & (chosen == pair[0])),
            ]

    @staticmethod
    def _specify(
        m: Module, dut: BlockOrder, inside: Inside, used: Signal, pair: list[Signal]
    ) -> Value:
        """Model the priorities and ages of the two slots. Returns whether the first precedes the
        second. The design's state agrees with it."""
        priorities = [Signal(PRIORITY_BITS, name=f"priority_{n}") for n in range(2)]
        older = Signal(name="first_is_older")
        arriving = Signal(PRIORITY_BITS, name="arriving")
        m.d.sync += arriving.eq(dut.arrive.priority)
        m.d.comb += Assert(inside.signal("priority") == arriving)
        before = Mux(priorities[0] == priorities[1], older, priorities[0] > priorities[1])
        for n, (slot, other) in enumerate((pair, pair[::-1])):
            with m.If((dut.placed & slot).any()):
                m.d.sync += [priorities[n].eq(arriving), older.eq(n)]
                lower = priorities[1 - n] < arriving
                with m.If((used & other).any()):
                    m.d.comb += Assert((dut.behind & other).any() == lower)
        for n, slot in enumerate(pair):
            for index, level in enumerate(dut.levels):
                with m.If(slot[index] & used[index]):
                    m.d.comb += Assert(level == priorities[n] + 1)
        for one, other in combinations(range(SLOTS), 2):
            precedes = _precedes(inside, one, other)
            with m.If(used[one] & used[other]):
                with m.If(pair[0][one] & pair[1][other]):
                    m.d.comb += Assert(precedes == before)
                with m.If(pair[0][other] & pair[1][one]):
                    m.d.comb += Assert(precedes == ~before)
        return before


class WarpsProof(Proof):
    """For any hardware warp, chosen by the solver."""

    name = "sm.warps"
    shows = (
        "a hardware warp is given to one block at a time; when it ends, it is told what it served; "
        "one is found when one has been free for two cycles"
    )
    induction = 3
    cover = 10

    def build(self, m: Module, wrap: Wrap) -> None:
        dut = WarpSlots(CONFIG)
        inside = Inside(dut)
        users = inside.submodule("users").read_port(domain="comb")
        frees, picked = inside.signal("free"), inside.signal("pick")
        m.submodules.dut = wrap(dut)
        for name in ("start", "end"):
            arbitrary(m, getattr(dut, name), name)
        mine, busy = Signal(range(WARPS)), Signal()
        m.d.comb += [mine.eq(AnyConst(2)), Assume(mine < WARPS), users.addr.eq(mine)]
        starts = dut.start.valid & (dut.warp == mine)
        ends = dut.end.valid & (dut.end.warp == mine)
        free, pick = frees.bit_select(mine, 1), picked.bit_select(mine, 1)
        m.d.comb += [
            Assume(~dut.start.valid | dut.found),
            Assume(~ends | busy),
            Assume(~dut.end.valid | (dut.end.warp < WARPS)),
            Assert(free == ~busy),
            Assert(~pick | free),
            Assert(~(picked & (picked - 1)).any()),
            Assert(dut.found == picked.any()),
            Assert(~(starts & busy)),
        ]
        served = Signal(dut.start.shape())
        ended = Signal()
        m.d.sync += [busy.eq((busy | starts) & ~ends), ended.eq(ends)]
        with m.If(starts):
            m.d.sync += served.eq(dut.start)
        with m.If(busy):
            same = (users.data.slot == served.slot) & (users.data.registers == served.registers)
            m.d.comb += Assert(same)
        with m.If(ended):
            same = (dut.ended.slot == served.slot) & (dut.ended.registers == served.registers)
            m.d.comb += Assert(dut.ended.valid & same)
        waited = Signal(2)
        m.d.sync += waited.eq(Mux(free & ~starts, Mux(waited == 2, 2, waited + 1), 0))
        m.d.comb += [Assert((waited != 2) | dut.found), Cover(ended & (served.slot == 2))]


class ResourcesProof(Proof):
    name = "sm.resources"
    shows = (
        "what is held and what is left are together all that there is, of each resource in every "
        "cycle, and what is taken was left"
    )
    induction = 1
    cover = 6

    def build(self, m: Module, wrap: Wrap) -> None:
        dut = Resources(CONFIG)
        m.submodules.dut = wrap(dut)
        for name in ("take", "freed"):
            arbitrary(m, getattr(dut, name), name)
        arbitrary(m, dut.wants[0], "urgent")
        arbitrary(m, dut.wants[1], "going")
        m.d.comb += Assume(dut.take != 3)
        for n in range(2):
            m.d.comb += Assume(~dut.take[n] | Value.cast(dut.fits[n]).all())
        for name, amount in capacity(CONFIG).items():
            held = Signal(12, name=f"held_{name}")
            wants = [want[name] for want in dut.wants]
            taken = Mux(dut.take[0], wants[0], Mux(dut.take[1], wants[1], 0))
            m.d.sync += held.eq(held + taken - dut.freed[name])
            m.d.comb += [
                Assume(dut.freed[name] <= held),
                Assert(held + dut.left[name] == amount),
                Assert(held <= amount),
                Cover(held == amount),
            ]
            for n in range(2):
                m.d.comb += Assert(~dut.fits[n][name] | (wants[n] + held <= amount))


class ChoiceProof(Proof):
    """Blocks arrive, start and end as the controller allows."""

    name = "sm.choice"
    shows = (
        "a choice that is valid is the right one by the table of that very cycle, however late "
        "blocks have come and warps have started; it stays until it is started or overtaken; no "
        "block has begun without being known as one that goes on until its last warp"
    )
    induction = 3
    cover = 12
    breaks = ("forget",)  # a design frozen as a whole stays consistent

    def build(self, m: Module, wrap: Wrap) -> None:
        dut = BlockTable(CONFIG)
        inside = Inside(dut)
        order, needs = inside.submodule("order"), inside.submodule("needs")
        self._order, self._partial, self._entire = (
            Inside(order),
            inside.signal("partial"),
            inside.signal("entire"),
        )
        kept = [needs.read_port(domain="comb") for _ in range(SLOTS)]
        m.submodules.dut = wrap(dut)
        choices = (dut.urgent, dut.going, dut.whole)
        for name in ("start", "finish", "end", "withdraw", "claimed", "leaves"):
            arbitrary(m, getattr(dut, name), name)
        arbitrary(m, dut.arrive.valid, "arrives")
        arbitrary(m, dut.arrive.payload, "block")
        m.d.comb += Assume(dut.arrive.p.needs.priority <= HIGHEST)
        over = Mux(dut.over.valid, dut.over.place, 0)
        quiet, withdraws = Signal(), (dut.withdraw | dut.leaves).any()
        m.d.sync += quiet.eq(~dut.start.any() & ~withdraws & ~dut.overtaken & dut.urgent.valid)
        self._leaves(m, dut)
        m.d.comb += [
            Assume(~(dut.withdraw & (dut.withdraw - 1)).any() & ~(withdraws & dut.start.any())),
            Assume(~(dut.withdraw & ~dut.idle).any()),
            Assert(dut.idle == (dut.waiting & ~self._entire)),
            Cover(withdraws & dut.urgent.valid & (dut.urgent.place == dut.withdraw)),
            Assume(~(dut.start & (dut.start - 1)).any() & ~(dut.finish & ~dut.start).any()),
            Assume(~dut.start[1] | ~dut.urgent.begun),
            # Decided in the previous cycle, if that had no start.
            Assume(~dut.start.any() | quiet),
            Assume(~(over & (dut.waiting | ~dut.valid)).any()),
        ]
        for n, choice in enumerate(choices):
            valid = Signal(name=f"before_{n}")
            m.d.sync += valid.eq(choice.valid)
            m.d.comb += Assume(~dut.start[n] | (choice.valid & valid))
        goes_on = self._partial | self._entire
        m.d.comb += [
            Assert(~(dut.waiting & ~dut.valid).any() & ~(order.placed & dut.valid).any()),
            Assert(~(order.placed & (order.placed - 1)).any()),
            Assert(~(self._partial & self._entire).any()),
            Assert(goes_on == (dut.waiting & dut.begun)),
            Assert(~(dut.begun & ~dut.valid).any()),
        ]
        for slot, port in enumerate(kept):
            m.d.comb += port.addr.eq(slot)
            self._told(m, dut, order.placed, slot, port.data)
        self._ordered(m, dut, order, inside.signal("picked"))
        self._follows(m, dut, [inside.submodule(f"follow_{n}") for n in range(3)])
        rights = self._rights((dut.waiting, self._partial, self._entire))
        for n, (choice, right) in enumerate(zip(choices, rights, strict=True)):
            with m.If(choice.valid):
                m.d.comb += Assert(choice.place == right)
            m.d.comb += Cover(dut.start[n] & (dut.waiting == 7))
        with m.If(dut.urgent.valid):
            m.d.comb += Assert(dut.urgent.begun == (dut.urgent.place & dut.begun).any())
            with m.If((self._entire & ~dut.urgent.place).any() & ~dut.start.any()):
                m.d.comb += Assert(dut.whole.valid)
        with m.If(dut.whole.valid & dut.urgent.valid):
            m.d.comb += Assert(~(dut.whole.place & dut.urgent.place).any())
        self._stays(m, dut, choices, quiet)

    @staticmethod
    def _leaves(m: Module, dut: BlockTable) -> None:
        """A block leaves as `BlockReturn` allows; the block chosen is compared with the claim."""
        urgent, claimed = dut.urgent, Signal.like(dut.claimed, name="claimed_before")
        m.d.sync += claimed.eq(dut.claimed)
        mine = (dut.leaves == urgent.place) & urgent.valid & ~urgent.begun
        m.d.comb += [
            Assume((dut.leaves == 0) | (mine & ~dut.overtaken & ~dut.start.any())),
            Assume((dut.leaves == 0) | (dut.withdraw == 0)),
            Assert(
                ~urgent.valid | (urgent.outranked == (urgent.block.needs.priority + 1 < claimed))
            ),
            Cover(dut.leaves.any() & (dut.valid == 7)),
        ]

    def _told(self, m: Module, dut: BlockTable, placed: Value, slot: int, kept: data.View) -> None:
        """The outputs for a chosen block are its own data."""
        needs, barrier = kept.needs, kept.needs.barrier
        with m.If(dut.valid[slot] | placed[slot]):
            m.d.comb += [
                Assert(
                    kept.takes.registers == Mux(barrier, needs.block_registers, needs.registers)
                ),
                Assert(kept.takes.warps == Mux(barrier, needs.warps, 1)),
                Assert(kept.takes.shared == needs.shared),
            ]
        with m.If((self._partial | self._entire)[slot]):
            m.d.comb += Assert(barrier == self._entire[slot])
        for choice in (dut.urgent, dut.going, dut.whole):
            has, takes = choice.begun & barrier, choice.takes
            with m.If(choice.place[slot]):
                m.d.comb += [
                    Assert(choice.slot == slot),
                    Assert(Value.cast(choice.block.needs) == Value.cast(needs)),
                    Assert(takes.registers == Mux(has, 0, kept.takes.registers)),
                    Assert(takes.warps == Mux(has, 0, kept.takes.warps)),
                    Assert(takes.shared == Mux(choice.begun, 0, needs.shared)),
                ]

    def _rights(self, tables: Sequence[Value]) -> list[Value]:
        """The first blocks of two tables, and the last block of the third."""
        found = []
        for n, table in enumerate(tables):
            better = [
                Cat(
                    table[other] & (_precedes(self._order, slot, other) == (n == 2))
                    for other in range(SLOTS)
                    if other != slot
                )
                for slot in range(SLOTS)
            ]
            found.append(Cat(table[slot] & ~better[slot].any() for slot in range(SLOTS)))
        return found

    def _ordered(self, m: Module, dut: BlockTable, order: BlockOrder, picked: Value) -> None:
        """Invariants of the order of blocks in the table, and of the slot picked in advance."""
        m.d.comb += [
            Assert(~(picked & (picked - 1)).any() & (dut.arrive.ready == picked.any())),
            Assert(~(picked & (dut.valid | order.placed)).any()),
        ]
        for one in range(SLOTS):
            with m.If(dut.valid[one]):
                coming = self._order.signal("priority")
                lower = order.placed.any() & (order.levels[one] <= coming)
                m.d.comb += Assert(order.behind[one] == lower)
        for one, other in permutations(range(SLOTS), 2):
            with m.If(dut.valid[one] & dut.valid[other] & _precedes(self._order, one, other)):
                m.d.comb += Assert(order.levels[one] >= order.levels[other])
        for one, other, third in permutations(range(SLOTS), 3):
            circle = ((one, other), (other, third), (third, one))
            around = Cat(_precedes(self._order, *pair) for pair in circle).all()
            m.d.comb += Assert(~((dut.valid == (1 << SLOTS) - 1) & around))

    def _follows(self, m: Module, dut: BlockTable, follows: Sequence[BlockChoice]) -> None:
        """The successor is correct among those that were not chosen in the previous cycle."""
        tables, held = (dut.waiting, self._partial, self._entire), []
        for n, follow in enumerate(follows):
            held.append(Signal(SLOTS, name=f"held_{n}"))
            m.d.sync += held[n].eq(follow.place)
        others = [table & ~place for table, place in zip(tables, held, strict=True)]
        left = Signal(name="another_left")
        m.d.sync += left.eq((dut.finish & 6).any() | dut.withdraw.any())
        alone, rights = self._rights(tables), self._rights(others)
        for n, follow in enumerate(follows):
            exact = ~left if n == 0 else follow.following.any()
            m.d.comb += [
                Assert(follow.some == follow.place.any()),
                Assert(~exact | (follow.following == rights[n])),
                Assert(follow.some | ~exact | (follow.following == alone[n])),
                Assert(~follow.some | (follow.place == alone[n])),
                Assert(~(follow.place & (follow.place - 1)).any()),
                Assert(~(follow.place & ~tables[n]).any()),
            ]
        rest = Mux(follows[2].some, others[2], self._entire)
        m.d.comb += Assert(~rest.any() | follows[2].following.any())

    @staticmethod
    def _stays(m: Module, dut: BlockTable, choices: tuple, quiet: Signal) -> None:
        for n, choice in enumerate(choices):
            valid, place = Signal(name=f"valid_{n}"), Signal(SLOTS, name=f"place_{n}")
            used = ~(dut.urgent.begun & (choice is dut.going))
            m.d.sync += [valid.eq(choice.valid & used), place.eq(choice.place)]
            with m.If(quiet & valid):
                m.d.comb += Assert(choice.valid & (choice.place == place))


class EndProof(Proof):
    """For any slot, chosen by the solver. Only running warps end."""

    name = "sm.end"
    shows = (
        "a block is over two cycles after the end of its last warp, and never before; what is told "
        "of it then is its own"
    )
    induction = 3
    cover = 14
    breaks = ("forget",)  # a design frozen as a whole stays consistent

    def build(self, m: Module, wrap: Wrap) -> None:
        dut = BlockTable(CONFIG)
        inside = Inside(dut)
        needs = inside.submodule("needs").read_port(domain="comb")
        names = inside.submodule("names").read_port(domain="comb")
        counts = inside.submodule("ended").read_port(domain="comb")
        some, placed = inside.signal("some_ended"), inside.submodule("order").placed
        ending, ending_in = inside.signal("ending"), inside.signal("ending_in")
        picked = inside.signal("picked")
        m.submodules.dut = wrap(dut)
        arbitrary(m, dut.end, "end")
        arbitrary(m, dut.arrive.valid, "arrives")
        arbitrary(m, dut.arrive.payload, "block")
        mine = Signal(range(SLOTS), name="mine")
        m.d.comb += [mine.eq(AnyConst(2)), Assume(mine < SLOTS)]
        for port in (needs, names, counts):
            m.d.comb += port.addr.eq(mine)
        here, warps = dut.valid.bit_select(mine, 1), needs.data.needs.warps
        ends = dut.end.valid & (dut.end.slot == mine)
        over = dut.over.valid & dut.over.place.bit_select(mine, 1)
        ended, counted = Signal(7, name="ended"), Signal(7, name="counted")
        m.d.sync += [ended.eq(Mux(over, 0, ended + ends)), counted.eq(Mux(over, 0, ended))]
        m.d.comb += [
            Assume(~dut.end.valid | (dut.end.slot < SLOTS)),
            Assume(~ends | (here & (ended < warps))),
            Assume((dut.arrive.p.needs.warps != 0) & (dut.arrive.p.needs.warps <= 64)),
            Assert(here | ((ended == 0) & (counted == 0))),
            Assert(~(here & placed.bit_select(mine, 1))),
            Assert(~(picked & (picked - 1)).any() & (dut.arrive.ready == picked.any())),
            Assert(~((here | placed.bit_select(mine, 1)) & picked.bit_select(mine, 1))),
            Assert(here | ~some.bit_select(mine, 1)),
            Assert(ended == counted + (ending & ending_in.bit_select(mine, 1))),
            Assert(ended <= warps),
            Cover(over & (ended == 3)),
        ]
        with m.If(here | placed.bit_select(mine, 1)):
            m.d.comb += [Assert(needs.data.final == warps - 1), Assert(warps != 0)]
        with m.If(here & ~over):
            m.d.comb += [
                Assert(counted < warps),
                Assert(some.bit_select(mine, 1) == (counted != 0)),
                Assert((counted == 0) | (counts.data == counted)),
            ]
        with m.If(over):
            m.d.comb += [
                Assert(here & (counted == warps)),
                Assert(dut.over.row == names.data.row),
                Assert(dut.over.number == names.data.at.x[: len(dut.over.number)]),
                Assert(dut.over.shared == needs.data.needs.shared[: len(dut.over.shared)]),
            ]


PROOFS = [OrderProof(), WarpsProof(), ResourcesProof(), ChoiceProof(), EndProof()]
