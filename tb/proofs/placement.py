"""Proofs of block placement, for small machines (PLACE-1 … 10)."""

from dataclasses import replace
from itertools import combinations, pairwise
from typing import Any

from amaranth import Cat, Module, Mux, Signal, Value
from amaranth.lib import data
from amaranth.lib.wiring import In

from signalbox.hw.config import Config
from signalbox.hw.placement.block_numbers import BlockNumbers
from signalbox.hw.placement.controller import GlobalController, block_run
from signalbox.hw.placement.row_order import RowOrder, ordered_rows
from signalbox.hw.placement.sm_choice import SmChoice
from signalbox.hw.placement.sm_table import Rank, SmRow
from signalbox.hw.records.placement import (
    LEVEL_BITS,
    PRIORITY_BITS,
    coordinates,
    kernel_needs,
)
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

__all__ = ["PROOFS", "TWO_SMS", "decisions", "moves", "run_of_blocks"]

TWO_SMS = Config(
    channels=1, semaphores=8, counters=1, asids=2, slots=4, spare_rows=1, sms=2,
    sm_warps=2, sm_blocks=2, sm_registers=512, sm_shared=2048,
)  # fmt: skip
CONFIG = replace(TWO_SMS, sms=5)


def decisions(dut: GlobalController, inside: Inside) -> list[data.View]:
    """The decisions in flight in the global logic controller: the new one, and one per step."""
    shape, steps = dut.kernels.begins.shape(), range(1 + len(dut.choice.rounds))
    return [dut.kernels.begins, *(inside.signal(f"decision_{n}", shape) for n in steps)]


def run_of_blocks(inside: Inside, config: Config = TWO_SMS) -> data.View:
    """Blocks that the global logic controller sends to one SM, one after another."""
    return inside.signal("block_run", block_run(config))


def sm_rows(inside: Inside) -> list[SmRow]:
    """The global logic controller's SM table."""
    return [inside.submodule(f"row_{sm}") for sm in range(TWO_SMS.sms)]


class Holdings:
    """Named points of a row of the SM table.

    Members
    -------
    registers, warps, shared : free resources.
    blocks : number of blocks on the SM.
    top : upper bound of the priorities on the SM.
    count : blocks sent, modulo 64.
    """

    def __init__(self, row: SmRow) -> None:
        inside = Inside(row)
        self.registers, self.warps, self.shared, self.blocks, self.top, self.count = (
            inside.signal(name)
            for name in ("registers", "warps", "shared", "blocks", "top", "count")
        )


def moves(m: Module, inside: Inside) -> data.View:
    """Assume of moves between SMs what `placement.recall` shows: a block moves after a pause, to
    another SM that accepts blocks. The unit must be abstract. Returns the move."""
    recall, paused = inside.submodule("recall"), Signal(3, name="paused")
    move = recall.move
    m.d.sync += paused.eq(Cat(recall.pause, paused))
    accepts = Cat(row.accepts for row in sm_rows(inside))
    needs = move.needs
    m.d.comb += [
        Assume(~move.valid | (paused.all() & recall.pause)),
        Assume(~move.valid | ((move.source ^ move.target).all() & (move.target & accepts).any())),
        Assume((move.target == 1) | (move.target == 2)),
        Assume(~move.valid | (move.target == 1 << move.sm)),
        Assume(needs.warps <= TWO_SMS.sm_warps),
        Assume(needs.block_registers <= TWO_SMS.register_units),
        Assume(needs.shared <= TWO_SMS.shared_units),
        Cover(move.valid),
    ]
    return move


class SmRowProof(Proof):
    """Decisions are recorded at any time. A decision sends a block unless another block was sent
    since it was made. One block, chosen by the solver, is followed while it is on the SM."""

    name = "placement.sm_row"
    shows = (
        "what an SM has left and what was sent and not freed are its size; a block that is sent by "
        "step A fits, by step B its first warp does, by step C everything there is less urgent"
    )
    induction = 2
    cover = 8

    def build(self, m: Module, wrap: Wrap) -> None:
        dut = SmRow(CONFIG)
        self._holds = Holdings(dut)
        m.submodules.dut = wrap(dut)
        for name in ("needs", "asid", "policy", "last", "sent", "space", "freed", "highest",
                     "ready", "taken", "returned", "spares"):  # fmt: skip
            arbitrary(m, getattr(dut, name), name)
        self._amounts(m, dut)
        rank = self._decision(m, dut)
        self._follow(m, dut, rank)

    def _amounts(self, m: Module, dut: SmRow) -> None:
        """Held resources: sent and not freed."""
        holds, sent, freed = self._holds, dut.sent, dut.freed
        amounts = (
            (holds.registers, CONFIG.register_units, sent.block_registers, freed.registers),
            (holds.warps, CONFIG.sm_warps, sent.warps, freed.warps),
            (holds.shared, CONFIG.shared_units, sent.shared, freed.shared),
            (CONFIG.sm_blocks - holds.blocks, CONFIG.sm_blocks, 1, freed.block),
        )
        m.d.comb += Assume(~(dut.taken & dut.returned))
        for n, (left, size, needed, given) in enumerate(amounts):
            held, back = Signal(8, name=f"held_{n}"), Signal(8, name=f"back_{n}")
            m.d.comb += back.eq(given + Mux(dut.returned, needed, 0))
            m.d.sync += held.eq(held + Mux(dut.taken, needed, 0) - back)
            m.d.comb += [
                Assume(back <= held),
                Assume(needed <= size),
                # The remaining held resources belong to the remaining blocks.
                Assume(held - back <= size * (holds.blocks - freed.block - dut.returned)),
                Assert(left + held == size),
                Assert(held <= size * holds.blocks),
            ]
        m.d.comb += Assert(holds.blocks <= CONFIG.sm_blocks)

    def _decision(self, m: Module, dut: SmRow) -> Signal:
        """The rank of the decision by which a block is sent."""
        holds = self._holds
        rank, needs, before = Signal(3, name="rank"), Signal(kernel_needs), Signal(kernel_needs)
        decides = anything(m, 1, "decides")
        m.d.sync += before.eq(dut.needs)
        with m.If(dut.taken):
            m.d.sync += rank.eq(Rank.NONE)
        with m.Elif(decides):
            m.d.sync += [rank.eq(dut.candidate.rank), needs.eq(before)]
        m.d.comb += [
            Assume(~dut.taken | ((rank != Rank.NONE) & (dut.sent == needs))),
            # Relation between the registers and hardware warps of a warp and of its block.
            Assume(dut.needs.warps >= 1),
        ]
        for one, what in ((dut.candidate.rank, before), (rank, needs)):
            whole, warp = one >= Rank.WHOLE, (one >= Rank.WARP) & (one < Rank.WHOLE)
            with m.If(whole):
                m.d.comb += [
                    Assert(holds.registers >= what.block_registers),
                    Assert(holds.warps >= what.warps),
                    Assert(holds.shared >= what.shared),
                ]
            with m.If(warp):
                m.d.comb += [
                    Assert(holds.registers >= what.registers),
                    Assert(holds.warps >= 1),
                    Assert(holds.shared >= what.shared),
                    Assert(~what.barrier),
                ]
            with m.If((one != Rank.NONE) & ~whole & ~warp):
                m.d.comb += Assert(holds.top <= what.priority)
            with m.If(one != Rank.NONE):
                m.d.comb += Assert(holds.blocks < CONFIG.sm_blocks)
        m.d.comb += [Cover(dut.taken & (rank == one)) for one in (2, 4, 6)]
        return rank

    def _follow(self, m: Module, dut: SmRow, rank: Signal) -> None:
        """One block: sent, in the SM after `place` further receipts, until it ends."""
        there, level, place = Signal(), Signal(LEVEL_BITS), Signal(6)
        waiting, receives = Signal(6), anything(m, 1, "receives")
        m.d.comb += [
            waiting.eq(self._holds.count - dut.received),
            Assume(~receives | (waiting != 0)),
            Assert(waiting <= 32),
            Assume(~dut.taken | (waiting < 32)),
            # The SM reports no priority that was not sent, and reports the block's once it is
            # there.
            Assume(dut.highest <= self._holds.top),
            Assume(~(there & (place == 0)) | (dut.highest >= level)),
        ]
        received = Signal(6, name="received_count")
        m.d.sync += received.eq(received + receives)
        m.d.comb += dut.received.eq(received)
        with m.If(~there):
            with m.If(dut.taken & anything(m, 1, "follows")):
                m.d.sync += [
                    there.eq(1),
                    level.eq(dut.sent.priority + 1),
                    place.eq(waiting + 1 - receives),
                ]
        with m.Else():
            m.d.sync += place.eq(place - (receives & (place != 0)))
            with m.If((place == 0) & anything(m, 1, "ends")):
                m.d.sync += there.eq(0)
            m.d.comb += [Assert(place <= waiting), Assert(self._holds.top >= level)]
            with m.If(dut.taken & (rank < Rank.WARP)):
                m.d.comb += Assert(level <= dut.sent.priority)


class RowOrderProof(Proof):
    """For any two rows, chosen by the solver."""

    name = "placement.row_order"
    shows = (
        "of two rows with undistributed blocks that were not walked, the one of higher priority is "
        "walked first, the older one among equals; a row that is walked after one that it goes "
        "before has been announced"
    )
    induction = 2
    cover = 8

    def build(self, m: Module, wrap: Wrap) -> None:
        dut = RowOrder(CONFIG)
        self._entries = list(Inside(dut).signal("entries", ordered_rows(CONFIG)))
        m.submodules.dut = wrap(dut)
        for name in ("open", "close", "refill", "empty", "priority", "walk", "restart"):
            arbitrary(m, getattr(dut, name), name)
        m.d.comb += [
            Assume(~(dut.open.valid & dut.close.valid)),
            Assume(~dut.walk | dut.next.valid),
        ]
        rows = [self._row(m, dut, f"row_{n}") for n in range(2)]
        one, other = rows
        first = Signal(name="first_is_older")
        with m.If(self._is(dut.open, one["row"])):
            m.d.sync += first.eq(0)
        with m.If(self._is(dut.open, other["row"])):
            m.d.sync += first.eq(1)
        m.d.comb += Assume(one["row"] != other["row"])
        # One entry for each; entries of higher priority first, and older ones first among equals.
        both = one["open"] & other["open"]
        before = (one["priority"] > other["priority"]) | (
            (one["priority"] == other["priority"]) & first
        )
        with m.If(both):
            m.d.comb += Assert(before == (one["at"] < other["at"]))
        for row in rows:
            with m.If(row["open"]):
                m.d.comb += Assert(row["at"].any() & ((row["at"] & (row["at"] - 1)) == 0))
        self._shape(m, dut)
        self._walks(m, dut, one, other, before)
        m.d.comb += Cover(both & dut.next.valid & (dut.next.row == other["row"]))

    @staticmethod
    def _is(event: Any, row: Value) -> Value:
        return event.valid & (event.row == row)

    def _row(self, m: Module, dut: RowOrder, name: str) -> dict[str, Any]:
        """State of a row, besides the list. `at` : its positions in the list."""
        row = Signal(CONFIG.row_bits, name=name)
        open_, filled, walked = (Signal(name=f"{name}_{one}") for one in ("is", "filled", "walked"))
        priority = Signal(PRIORITY_BITS, name=f"{name}_priority")
        opens, closes = self._is(dut.open, row), self._is(dut.close, row)
        m.d.comb += [
            row.eq(AnyConst(CONFIG.row_bits)),
            Assume(row < CONFIG.rows),
            Assume(~opens | ~open_),
            Assume(~(closes | self._is(dut.refill, row) | self._is(dut.empty, row)) | open_),
        ]
        walks = dut.walk & (dut.next.row == row)
        m.d.sync += [
            open_.eq((open_ | opens) & ~closes),
            filled.eq(opens | ((filled | self._is(dut.refill, row)) & ~self._is(dut.empty, row))),
            walked.eq(~opens & (walked | walks) & ~dut.restart),
        ]
        with m.If(opens):
            m.d.sync += priority.eq(dut.priority)
        at = Cat(entry.there & (entry.row == row) for entry in self._entries)
        with m.If(~open_):
            m.d.comb += Assert(~at.any())
        for entry in self._entries:
            with m.If(open_ & entry.there & (entry.row == row)):
                m.d.comb += [
                    Assert(entry.priority == priority),
                    Assert(entry.filled == filled),
                    Assert(entry.walked == walked),
                ]
        ready = open_ & filled & ~walked
        with m.If(ready & (~dut.open.valid | (priority >= dut.priority))):
            m.d.comb += Assert(dut.next.valid)
        return {"row": row, "open": open_, "priority": priority, "at": at, "ready": ready,
                "walked": walked, "filled": filled, "walks": walks}  # fmt: skip

    def _shape(self, m: Module, dut: RowOrder) -> None:
        """Entries have no gaps, are sorted by priority and are of different rows; there is a free
        entry for each row that opens, which is not in the list yet."""
        there = Cat(one.there & (one.row == dut.open.row) for one in self._entries)
        m.d.comb += Assume(~(dut.open.valid & there.any()))
        for one, other in combinations(self._entries, 2):
            m.d.comb += Assert(~(one.there & other.there) | (one.row != other.row))
        for one, other in pairwise(self._entries):
            m.d.comb += Assert(~other.there | (one.there & (one.priority >= other.priority)))
        m.d.comb += Assume(~(dut.open.valid & self._entries[-1].there))

    def _walks(self, m: Module, dut: RowOrder, one: dict, other: dict, before: Value) -> None:
        with m.If(dut.next.valid & (dut.next.row == other["row"]) & one["ready"]):
            m.d.comb += [Assert(~before), Assert(other["ready"])]
        opens = self._is(dut.open, one["row"])
        passed = other["filled"] & (other["walked"] | other["walks"]) & other["open"]
        with m.If(opens & passed & ~self._is(dut.empty, other["row"])):
            m.d.comb += Assert((dut.priority <= other["priority"]) | dut.overtakes)


class SmChoiceProof(Proof):
    """Five candidates, two rounds."""

    name = "placement.sm_choice"
    shows = (
        "the best candidate is found, of equals the first, if none is taken meanwhile; what is "
        "found was a candidate, and was not taken since"
    )
    induction = 4
    cover = 6

    def build(self, m: Module, wrap: Wrap) -> None:
        dut = SmChoice(CONFIG)
        m.submodules.dut = wrap(dut)
        for n, one in enumerate(dut.candidates):
            arbitrary(m, one, f"candidate_{n}")
        arbitrary(m, dut.taken, "taken")
        arbitrary(m, dut.found, "found")
        hit = 1 << dut.found.sm
        m.d.comb += Assume((dut.taken == 0) | (dut.found.valid & (dut.taken == hit)))
        size = Value.cast(dut.candidates[0]).shape()
        now = [Value.cast(one) for one in dut.candidates]
        quiet, struck, age = Signal(2), Signal(2 * CONFIG.sms), Signal(range(4))
        for step in range(2):
            later = [Signal(size, name=f"before_{step}_{n}") for n in range(CONFIG.sms)]
            m.d.sync += [one.eq(value) for one, value in zip(later, now, strict=True)]
            now = later
        m.d.sync += [
            quiet.eq(Cat(~dut.found.valid, quiet[0])),
            struck.eq(Cat(dut.taken, struck[: CONFIG.sms])),
            age.eq(Mux(age == 3, 3, age + 1)),
        ]
        best = Value.cast(dut.best)
        with m.If((dut.best.rank != 0) & (age >= 2)):
            for n, one in enumerate(now):
                with m.If(dut.number == n):
                    m.d.comb += [
                        Assert(best == one),
                        Assert(~struck[n] & ~struck[CONFIG.sms + n]),
                    ]
            m.d.comb += Assert(dut.number < CONFIG.sms)
        with m.If(quiet.all() & (age >= 2)):
            for n, one in enumerate(now):
                m.d.comb += Assert(best >= one)
                m.d.comb += Assert((best != one) | (dut.number <= n))
        m.d.comb += Cover((dut.number == 4) & quiet.all())


class BlockNumbersProof(Proof):
    """For any row, chosen by the solver."""

    name = "placement.block_numbers"
    shows = (
        "each block that is taken of a row is the next one of its grid, and its count is that of "
        "what was opened or set, less those that were taken since"
    )
    induction = 3
    cover = 12
    long = True

    def build(self, m: Module, wrap: Wrap) -> None:
        dut = BlockNumbers(CONFIG)
        self._counts = Inside(dut)
        self._raster = Inside(self._counts.submodule("raster"))
        self._fresh_bits = self._counts.signal("is_fresh")
        self._looked = self._counts.signal("selected")
        m.submodules.dut = wrap(dut)
        for name in ("open", "ahead", "take", "change", "ask"):
            arbitrary(m, getattr(dut, name), name)
        self._row = row = Signal(CONFIG.row_bits, name="row")
        # Cycles since the row was opened.
        self._since = since = Signal(3)
        opens, mine = dut.open.valid & (dut.open.row == row), self._looked == row
        writes = dut.take | dut.change.valid
        m.d.comb += [
            row.eq(AnyConst(CONFIG.row_bits)),
            Assume(row < CONFIG.rows),
            Assume(~(dut.take & dut.change.valid)),
            Assume(~dut.take | ~dut.empty),
            Assume(
                ~opens | (dut.open.blocks.any() & dut.open.grid.x.any() & dut.open.grid.y.any())
            ),
            # A row has one event at a time, and none in the 3 cycles after it was opened.
            Assume(~opens | ~(mine & writes)),
            Assume(~(opens | (mine & writes)) | ~since.any() | (since > 3)),
        ]
        m.d.sync += since.eq(Mux(opens, 1, since + (since.any() & ~since.all())))
        count, grid, at = self._model(m, dut, mine, opens)
        # A stored position includes flags for the end of its line and of its plane; a stored grid
        # has the last index but one of both, and a flag for a single index.
        last = [(grid[name] - 1)[: len(grid[name])] for name in ("x", "y")]
        place = Cat(at, *(at[name] == end for name, end in zip("xy", last, strict=True)))
        compared = Cat(*((end - 1)[: len(end)] for end in last), *(end == 0 for end in last))
        self._ports(m, dut, mine, count, at)
        self._count(m, mine, count)
        self._opening(m, at, grid, Cat(place, compared))
        self._at(m, mine, place, compared)
        m.d.comb += [
            Assert(~since.any() | (grid.x.any() & grid.y.any())),
            Cover(mine & (since > 3) & dut.take & (at.y == 1)),
        ]

    def _model(self, m: Module, dut: BlockNumbers, mine: Value, opens: Value) -> tuple:
        """Count, grid and next position of the row."""
        count, grid, at = Signal(32), Signal(coordinates), Signal(coordinates, name="next_at")
        with m.If(opens):
            m.d.sync += [count.eq(dut.open.blocks), grid.eq(dut.open.grid), at.eq(dut.open.first)]
        with m.Elif(mine & dut.take):
            m.d.sync += count.eq(count - 1)
            with m.If(at.x + 1 != grid.x):
                m.d.sync += at.x.eq(at.x + 1)
            with m.Elif(at.y + 1 != grid.y):
                m.d.sync += [at.x.eq(0), at.y.eq(at.y + 1)]
            with m.Else():
                m.d.sync += [at.x.eq(0), at.y.eq(0), at.z.eq(at.z + 1)]
        with m.Elif(mine & dut.change.valid):
            m.d.sync += count.eq(dut.change.count)
        return count, grid, at

    def _ports(self, m: Module, dut: BlockNumbers, mine: Value, count: Signal, at: Any) -> None:
        """The guarantees at the ports."""
        with m.If(mine & (self._since > 1)):
            m.d.comb += [
                Assert(dut.blocks == count),
                Assert(dut.empty == (count == 0)),
                Assert(dut.last == (count == 1)),
            ]
        with m.If(mine & (self._since > 3)):
            m.d.comb += Assert(dut.at == at)
        with m.If(self._since.any() & (dut.ask == self._row)):
            m.d.comb += Assert(dut.asked == count)

    def _count(self, m: Module, mine: Value, count: Signal) -> None:
        """The RAMs of counts, and the current count."""
        rams, since = self._rams(m, self._counts, "opened", "counts"), self._since
        fresh = self._fresh_bits.bit_select(self._row, 1)
        right = Cat(count, count == 1, count == 0)
        now, stale = self._counts.signal("now"), self._counts.signal("stale")
        m.d.comb += Assert(~(stale & mine) | (since == 1))
        with m.If(since.any()):
            m.d.comb += [
                Assert(Mux(fresh, rams["opened"], rams["counts"]) == right),
                Assert(~mine | stale | (now == right)),
                Assert(~fresh | (count != 0)),
                Assert(fresh | (since > 3)),
            ]

    def _opening(self, m: Module, at: Any, grid: Any, stored: Value) -> None:
        """The opened row, on its way into the RAM."""
        raster = self._counts.submodule("raster")
        step = self._raster.signal("step", raster.open.shape())
        final = self._raster.signal("final", coordinates)
        (write,) = self._raster.submodule("opened").write_ports
        first = step.valid & (step.row == self._row)
        second = write.en & (write.addr == self._row)
        m.d.comb += [Assert(first == (self._since == 1)), Assert(second == (self._since == 2))]
        with m.If(first):
            m.d.comb += [Assert(step.first == at), Assert(step.grid == grid)]
            m.d.comb += [
                Assert(final[name] == (grid[name] - 1)[: len(grid[name])]) for name in "xy"
            ]
        with m.If(second):
            m.d.comb += Assert(Value.cast(write.data) == stored)

    def _at(self, m: Module, mine: Value, place: Value, compared: Value) -> None:
        """The RAMs of positions, and the current position."""
        rams, since = self._rams(m, self._raster, "opened", "places"), self._since
        fresh = self._fresh_bits.bit_select(self._row, 1)
        first, grid = rams["opened"][: len(place)], rams["opened"][len(place) :]
        now, held, stale = (self._raster.signal(name) for name in ("now", "grid", "stale"))
        m.d.comb += Assert(~(stale & mine) | (since == 3))
        with m.If(since > 2):
            m.d.comb += [
                Assert(grid == compared),
                Assert(Mux(fresh, first, rams["places"]) == place),
                Assert(~mine | (since == 3) | ((now == place) & (held == compared))),
            ]

    def _rams(self, m: Module, inside: Inside, *names: str) -> dict[str, Value]:
        """Contents of the RAMs for the row."""
        ports = {name: inside.submodule(name).read_port(domain="comb") for name in names}
        m.d.comb += [port.addr.eq(self._row) for port in ports.values()]
        return {name: Value.cast(port.data) for name, port in ports.items()}


class DisabledProof(Proof):
    """A decision for a kernel that may have disabled the SM, after any other decision."""

    name = "placement.disabled"
    shows = "an SM that is disabled for a kernel is no candidate for its blocks and shows no flags"
    induction = 2
    cover = 5
    breaks = ("freeze",)
    long = True  # an option: at night

    def build(self, m: Module, wrap: Wrap) -> None:
        dut = SmRow(replace(CONFIG, sm_masks=True))
        m.submodules.dut = wrap(dut)
        for path, member, signal in dut.signature.flatten(dut):
            if member.flow is In:
                arbitrary(m, signal, "_".join(map(str, path)))
        barred = Signal(name="was_barred")
        m.d.sync += barred.eq(dut.barred)
        m.d.comb += [
            Assert(~barred | ((dut.candidate.rank == Rank.NONE) & ~dut.seen.as_value().any())),
            Cover(~barred & (dut.candidate.rank == Rank.WHOLE)),
        ]


class GrowingRowProof(Proof):
    """The needs of a kernel do not change, and no block is sent to the SM."""

    name = "placement.growing_row"
    shows = (
        "an SM that did not qualify for a kernel does so only when it has said that it may; it "
        "says so only when resources are freed, a block is returned, or its link or report changes"
    )
    induction = 3
    cover = 6
    long = True  # an option: at night

    def build(self, m: Module, wrap: Wrap) -> None:
        dut = SmRow(replace(CONFIG, sm_masks=True))
        m.submodules.dut = wrap(dut)
        for name in ("sent", "freed", "highest", "received", "ready", "returned"):
            arbitrary(m, getattr(dut, name), name)
        for name in ("needs", "spares"):
            signal = Value.cast(getattr(dut, name))
            m.d.comb += signal.eq(AnyConst(len(signal)))
        now, was, grew = (Signal(name=name) for name in ("qualifies", "did", "grew"))
        m.d.comb += now.eq(dut.seen.whole | dut.seen.warp | dut.seen.lower)
        m.d.sync += [was.eq(now), grew.eq(dut.grows)]
        m.d.comb += [
            Assert(~now | was | grew | dut.grows),
            Cover(now & ~was & grew & ~dut.grows),
            Cover(now & ~was & ~grew & dut.grows),
        ]
        self._changes(m, dut)

    @staticmethod
    def _changes(m: Module, dut: SmRow) -> None:
        """Every reason for which the row reports a change."""
        ready, heard = Signal(name="was_ready"), Signal(init=1, name="was_heard")
        highest = Signal.like(dut.highest, name="was_highest")
        news, changed = Signal(name="news"), Signal(name="has_changed")
        m.d.comb += news.eq(
            dut.freed.as_value().any()
            | dut.returned
            | (dut.ready & ~ready)
            | (dut.heard & ~(heard & (highest == dut.highest)))
        )
        m.d.sync += [
            ready.eq(dut.ready),
            heard.eq(dut.heard),
            highest.eq(dut.highest),
            changed.eq(news),
        ]
        m.d.comb += Assert(~dut.grows | changed)


PROOFS = [
    SmRowProof(),
    DisabledProof(),
    GrowingRowProof(),
    RowOrderProof(),
    SmChoiceProof(),
    BlockNumbersProof(),
]
