"""Proof of the location of blocks between the opening and the end of a row (PLACE-7, ASID-25)."""

from typing import Any

from amaranth import Module, Mux, Signal, Value
from amaranth.hdl import Cat

from signalbox.hw.placement.controller import GlobalController
from signalbox.hw.placement.sm_table import Rank
from signalbox.hw.records.placement import row_blocks
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
from signalbox.tb.proofs.placement import (
    TWO_SMS,
    Holdings,
    decisions,
    run_of_blocks,
    sm_rows,
)

__all__ = ["PROOFS"]

SMS, SLOTS = TWO_SMS.sms, TWO_SMS.sm_blocks
MOST = SMS * SLOTS
AMOUNT = 5  # bits of a count of blocks on SMs


class BlocksProof(Proof):
    """For any row, chosen by the solver. Any kernel with undistributed blocks may be served. An SM
    may free a block's slot at any time, and offers the block's end from then on."""

    name = "placement.blocks"
    shows = (
        "every block of an open row is undistributed, offered to an SM, there, or on its way back, "
        "and no two of these; a row that is stopped tells what was left; it is drained when "
        "nothing of it is anywhere"
    )
    induction = 2
    cover = 16
    long = True

    def build(self, m: Module, wrap: Wrap) -> None:
        self._dut = dut = GlobalController(TWO_SMS)
        numbering, choice = Inside(dut.numbering), dut.choice
        inside = Inside(dut)
        inside.abstract("kernels")
        self._selected, self._fresh = numbering.signal("selected"), numbering.signal("is_fresh")
        self._running, self._requests = inside.submodule("running"), inside.submodule("requests")
        asks = Inside(self._requests)
        self._held = asks.signal("held", row_blocks(TWO_SMS))
        self._stops = asks.signal("stops")
        running = Inside(self._running)
        self._filled = running.signal("filled")
        self._counts = [running.signal(f"blocks_{number}") for number in range(TWO_SMS.rows)]
        self._collect = running.submodule("collect")
        self._spare = Inside(Inside(self._collect).submodule("register_0_0")).signal("full")
        self._commits = inside.signal("commit")
        self._rows = [(row, Holdings(row)) for row in sm_rows(inside)]
        self._rams = {
            name: numbering.submodule(name).read_port(domain="comb")
            for name in ("opened", "counts")
        }
        m.submodules.dut = wrap(dut)
        self._batch, self._steps = run_of_blocks(inside), decisions(dut, inside)
        self._flush = dut.kernels.flush
        self._row = row = Signal(TWO_SMS.row_bits, name="row")
        self._left = Signal(32, name="left_of_row")
        self._open, self._opened = Signal(name="is_open"), Signal(name="was_opened")
        self._adds, self._adding = Signal(32, name="adds"), Signal(name="adding")
        self._sends, self._since = Signal(name="sends"), Signal(3, init=7, name="since")
        sent = self._running.sent
        m.d.comb += [
            row.eq(AnyConst(TWO_SMS.row_bits)),
            Assume(row < TWO_SMS.rows),
            self._sends.eq(sent.valid & (sent.row == row)),
        ]
        m.d.sync += self._since.eq(Mux(self._sends, 1, self._since + (self._since != 7)))
        self._leaving = [Signal(AMOUNT, name=f"all_leave_{n}") for n in range(SMS)]
        self._specify(m)
        self._request(m)
        self._decide(m)
        self._room(m, choice)
        self._number(m)
        self._away(m)

    def _specify(self, m: Module) -> None:
        """Requests of the task unit for the row, one at a time, and the number of remaining
        blocks."""
        port, row, left = self._dut.port, self._row, self._left
        numbers = {
            "open": port.open.p.row, "add": port.add.p.row, "stop": port.stop.payload,
            "close": port.close.payload,
        }  # fmt: skip
        taken = {}
        for name, number in numbers.items():
            one = getattr(port, name)
            arbitrary(m, one.valid, name)
            arbitrary(m, one.payload, f"{name}_payload")
            taken[name] = one.valid & one.ready & (number == row)
        self._stopping, told = Signal(name="stopping"), port.stopped
        changes = self._requests.change.valid & (self._held.row == row)
        m.d.comb += [
            told.ready.eq(anything(m, 1, "told")),
            Assume(~Cat(taken.values()).any() | ~(self._stopping | self._adding)),
            Assume(taken["open"] | self._open | ~Cat(taken.values()).any()),
            Assume(~(taken["open"] & self._open) & ~(taken["open"] & (port.open.p.blocks == 0))),
            Assume(~taken["close"] | port.drained.bit_select(row, 1)),
            Assume(~taken["add"] | (port.add.p.blocks != 0)),
            Assume(~taken["add"] | (port.add.p.blocks + left < 1 << 32)),
        ]
        ends = told.valid & told.ready & (told.p.row == row)
        m.d.sync += [
            self._opened.eq(taken["open"]),
            self._open.eq((self._open | taken["open"]) & ~taken["close"]),
            self._stopping.eq((self._stopping | taken["stop"]) & ~ends),
            self._adding.eq((self._adding | taken["add"]) & ~changes),
        ]
        with m.If(taken["add"]):
            m.d.sync += self._adds.eq(port.add.p.blocks)
        with m.If(taken["open"]):
            m.d.sync += left.eq(port.open.p.blocks)
        with m.Elif(changes):
            m.d.sync += left.eq(Mux(self._adding, left + self._adds, 0))
        with m.Elif(self._sends):
            m.d.sync += left.eq(left - 1)
            m.d.comb += Assert(self._open & (left != 0))
        self._stop(m, changes)

    def _stop(self, m: Module, changes: Value) -> None:
        """The reported count of a stopped row is its number of remaining blocks."""
        told, then = self._dut.port.stopped, Signal(32, name="left_then")
        mine = told.valid & (told.p.row == self._row)
        with m.If(changes):
            m.d.sync += then.eq(self._left)
            m.d.comb += [Assert(self._adding != self._stopping), Assert(~self._sends)]
        with m.If(mine):
            m.d.comb += [
                Assert(self._stopping & (self._left == 0)),
                Assert(told.p.blocks == then),
                Cover((told.p.blocks == 2) & (self._since < 7)),
            ]

    def _request(self, m: Module) -> None:
        """Properties of the current request."""
        asks, held, told = self._requests, self._held, self._dut.port.stopped
        under_way = asks.reads.valid | asks.change.valid
        mine = under_way & (held.row == self._row)
        m.d.comb += [
            Assert(~(asks.reads.valid & asks.change.valid)),
            Assert(~under_way | self._flush),
            Assert(~(under_way & self._stops & told.valid)),
            Assert(~mine | (self._stops == self._stopping)),
            Assert((mine & self._adding) | (mine & self._stopping) | ~mine),
            Assert(~self._adding | (mine & (held.blocks == self._adds) & ~self._stopping)),
            Assert(~self._adding | ((self._adds != 0) & (self._left + self._adds < 1 << 32))),
            Assert(self._since != 0),
            Assert(~self._stopping | mine | (told.valid & (told.p.row == self._row))),
            Assert(~asks.change.valid | (self._selected == held.row)),
            Assert(~(self._adding | self._stopping) | self._open),
        ]

    def _decide(self, m: Module) -> None:
        """Properties of the row from which a block is taken."""
        batch, row, steps = self._batch, self._row, self._steps
        begins = steps[0]
        m.d.comb += [
            Assume(~(begins.valid & (begins.row == row)) | (self._left != 0)),
            Assert(~(self._commits & self._flush)),
            Assert(self._flush | (self._selected == steps[-1].row)),
            Assert(~batch.valid | (batch.at == 1 << batch.sm)),
            Assert(~(batch.valid & (batch.row == row)) | (self._open & (self._left != 0))),
            Assert(~batch.valid | (batch.row != row) | ~self._opened),
        ]
        for age, step in enumerate(steps[1:], 1):
            with m.If(step.valid & (step.row == row)):
                m.d.comb += [
                    Assert(self._open & ~self._opened),
                    Assert((self._left != 0) | (self._since <= age)),
                ]

    def _room(self, m: Module, choice: Any) -> None:
        """A chosen SM has a slot, and has received its previous block."""
        dut, batch = self._dut, self._batch
        for n, ((row, holds), link) in enumerate(zip(self._rows, dut.sm, strict=True)):
            # Freed slots are known too late for the row counts to increase by them.
            slots = holds.blocks + Mux(self._collect.o.valid, 0, self._leaving[n])
            room = slots < SLOTS
            best = (choice.best.rank != Rank.NONE) & (choice.number == n)
            m.d.comb += [
                Assert(slots <= SLOTS),
                Assert(self._collect.o.valid | (self._leaving[n] <= 1)),
                Assert(~(best | (row.candidate.rank != Rank.NONE)) | (room & ~link.block.valid)),
                Assert(~Mux(batch.just, row.two, row.one) | room),
            ]

    def _number(self, m: Module) -> None:
        """Contents of the table for the row."""
        numbering, row, left, rams = self._dut.numbering, self._row, self._left, self._rams
        m.d.comb += [port.addr.eq(row) for port in rams.values()]
        fresh = self._fresh.bit_select(row, 1)
        opened, now = rams["opened"].data, rams["counts"].data
        with m.If(self._open):
            m.d.comb += [
                Assert(Mux(fresh, opened.blocks, now.blocks) == left),
                Assert(Mux(fresh, opened.last, now.last) == (left == 1)),
                Assert(Mux(fresh, opened.empty, now.empty) == (left == 0)),
            ]
            with m.If((self._selected == row) & ~self._opened):
                m.d.comb += [
                    Assert(numbering.blocks == left),
                    Assert(numbering.last == (left == 1)),
                    Assert(numbering.empty == (left == 0)),
                ]

    def _away(self, m: Module) -> None:
        """Blocks that were distributed and are not over: those of the row, and those of all
        rows."""
        offered, there, leave, all_leave, blocks = [], [], [], [], []
        for n, ((_, holds), link) in enumerate(zip(self._rows, self._dut.sm, strict=True)):
            mine = self._sm(m, n, holds, link)
            for values, value in zip((offered, there, leave, all_leave), mine, strict=True):
                values.append(value)
            blocks.append(holds.blocks)
        collected = self._collect.o.valid & (self._collect.o.p.row == self._row)
        away, told = Signal(AMOUNT, name="away"), self._dut.port.ended
        stages = [sum(offered), sum(there), sum(leave), collected]
        m.d.comb += [
            away.eq(sum(stages)),
            Assert(~self._spare),
            Assert(sum(blocks) + sum(all_leave) + self._collect.o.valid <= MOST),
            Cover(away == MOST),
            Assert(collected == (told.valid & (told.row == self._row))),
        ]
        for cycles in range(1, 5):
            with m.If(self._since == cycles):
                m.d.comb += Assert(sum(stages[:cycles]) != 0)
        filled, drained = self._filled, self._dut.port.drained
        m.d.comb += [
            Assert(self._open | ((self._left == 0) & (away == 0) & ~self._opened)),
            Assert(filled.bit_select(self._row, 1) == ((self._left != 0) | self._adding)),
            Assert(
                drained.bit_select(self._row, 1)
                == ((self._left == 0) & ~self._adding & (away == 0))
            ),
        ]
        for number, count in enumerate(self._counts):
            with m.If(self._row == number):
                m.d.comb += Assert(count == away)

    def _sm(self, m: Module, n: int, holds: Holdings, link: Any) -> tuple:
        """Numbers of blocks at one SM: blocks of the row that are offered to it, that are on it,
        and that have left it but are not reported as over; and blocks of all rows of the last
        kind."""
        every, mine = Signal(AMOUNT, name=f"every_{n}"), Signal(AMOUNT, name=f"mine_{n}")
        all_leave, leave = self._leaving[n], Signal(AMOUNT, name=f"leave_{n}")
        is_mine = anything(m, 1, f"frees_mine_{n}")
        for port, name in (
            (link.freed, "freed"), (link.highest, "highest"), (link.received, "received"),
            (link.block.ready, "ready"), (link.ended.payload, "ended"),
        ):  # fmt: skip
            arbitrary(m, port, f"{name}_{n}")
        takes, frees = link.block.valid & link.block.ready, link.freed.block
        of_row = link.block.p.row == self._row
        ends, ends_mine = link.ended.valid & link.ended.ready, link.ended.p.row == self._row
        m.d.comb += [
            link.ended.valid.eq(all_leave != 0),
            Assume(~frees | Mux(is_mine, mine != 0, every != mine)),
            Assume(~link.ended.valid | Mux(ends_mine, leave != 0, all_leave != leave)),
            Assert((mine <= every) & (leave <= all_leave)),
            Assert(holds.blocks == every + link.block.valid),
        ]
        m.d.sync += [
            every.eq(every + takes - frees),
            mine.eq(mine + (takes & of_row) - (frees & is_mine)),
            all_leave.eq(all_leave + frees - ends),
            leave.eq(leave + (frees & is_mine) - (ends & ends_mine)),
        ]
        return link.block.valid & of_row, mine, leave, all_leave


PROOFS = [BlocksProof()]
