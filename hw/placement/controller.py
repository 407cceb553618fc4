"""Global logic controller: assigns blocks to SMs (PLACE-1 … 10, ASID-30 … 32)."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from signalbox.hw.config import Config
from signalbox.hw.placement.block_numbers import BlockNumbers
from signalbox.hw.placement.block_recall import BlockRecall, block_move, two_claims
from signalbox.hw.placement.kernel_table import KernelTable, decision
from signalbox.hw.placement.preemption import Preemption
from signalbox.hw.placement.row_order import row_event
from signalbox.hw.placement.row_requests import RowRequests
from signalbox.hw.placement.running_blocks import RunningBlocks, StreamMerger
from signalbox.hw.placement.saved_blocks import SavedBlocks
from signalbox.hw.placement.sm_choice import PipelinedOr, SmChoice
from signalbox.hw.placement.sm_table import Rank, SmRow, sm_flags
from signalbox.hw.records.placement import (
    LEVEL_BITS,
    GlobalPort,
    Policy,
    SmLink,
    block_record,
    stopped_block,
)

__all__ = ["GlobalController", "Step", "block_run", "placed", "refused"]


class Step(enum.Enum, shape=2):
    """The step that found the SM (PLACE-2, 4, 5); MOVED: the block has waited on another SM."""

    WHOLE = 0
    WARP = 1
    LOWER = 2
    MOVED = 3


def placed(config: Config) -> data.StructLayout:
    """Strobe: a block was placed on `sm`."""
    return data.StructLayout({
        "valid": 1,
        **block_record(config).members,
        "sm": config.sm_bits,
        "step": Step,
    })


def block_run(config: Config) -> data.StructLayout:
    """If `valid`, further blocks of a kernel go to the same SM, a number and one-hot (`at`).
    `just`: a block was sent in the last cycle."""
    layout = {"sm": config.sm_bits, "at": config.sms, "just": 1}
    return data.StructLayout({**layout, **decision(config).members})


refused = data.StructLayout({
    "valid": 1,
    "registers": 1,
    "warps": 1,
    "shared": 1,
    "slots": 1,
    "lower": 1,
})
"""Strobe: a decision found no SM. Flags: no SM had the registers, warps or shared memory for a
whole block, or a free slot, when the decision was issued; `lower`: no SM had only blocks of lower
priority."""


class GlobalController(wiring.Component):
    """Assigns blocks of the kernel table to SMs of the SM table, up to one block per cycle.

    A decision starts with a kernel and the state of all SMs in that cycle, passes the rounds of
    `SmChoice`, and commits in the cycle after the last round. At commit:

    * The kernel is in order: no row ahead of it has an undistributed block without a decision,
      except those passed over (`KernelTable`). From the cycle after `open` of a row is accepted, or
      the third after `add`, its blocks go ahead of those of all later rows that have not been sent
      yet, except blocks of later rows on SMs that take none of its own.
    * The SM is not disabled for the kernel, and no row ahead of the kernel that may use this SM has
      an undistributed block without a decision.
    * The SM qualifies for the step decided: its free resources can only have grown since the
      decision started, because an SM that receives a block is struck out of the choice.
    * No SM qualified for a better step, or for step A with the policy's preference, when the
      decision started. Otherwise the decision fails, as it does when no SM is found, and the kernel
      waits for a successful one.

    Within a step the SM is the best by policy among those that qualified when the decision started,
    except for SMs that received a block during the rounds, and SMs beaten by one of these in the
    choice.

    With policies other than wide, a placement by step A is followed by further blocks of the kernel
    to the same SM, one per cycle, while it has room for a whole block (PLACE-3).

    From an accepted `open`, of the first kernel in order, to its first block valid at an SM: 5
    cycles plus the rounds of the choice; from `freed` of a resource that a waiting kernel needs: 3
    cycles plus the rounds. With 132 SMs: 10 and 8. With `Config.sm_masks`, a kernel that was passed
    over waits longer: see the bounds of SM masks in `hw/compute/README.md`.

    A block placed by step C that has not begun moves to another SM that can begin it and may take
    it (`BlockRecall`). While such a block waits, blocks of lower priority do not take the last slot
    of any SM to which it may move.

    Members
    -------
    port : in, a `GlobalPort`: requests of the task unit.
    sm : out, per SM: its `SmLink`.
    placed : out, strobe, a `placed`, for traces and counters: in the first cycle in which the block
        is valid at the SM.
    refused : out, strobe, a `refused`, for traces and counters.
    saved : out, strobe: a block with saved state has left its SM; for counters.
    occupied : out, per SM: it has been sent blocks that are not over; for counters.
    lost : out, with nested launches, see `SavedBlocks`.
    lists_change : out, with nested launches: `busy` of `SavedBlocks`.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self._rows = [SmRow(config) for _ in range(config.sms)]
        """The SM table."""
        self.kernels, self.numbering = KernelTable(config), BlockNumbers(config)
        self.choice = SmChoice(config)
        self._commit = Signal(name="commit")
        """A block is placed, visible in the next cycle."""
        nested = {"lost": Out(stream.Signature(config.nested_bits)), "lists_change": Out(1)}
        super().__init__({
            "port": In(GlobalPort(config)),
            "sm": Out(SmLink(config)).array(config.sms),
            "placed": Out(placed(config)),
            "refused": Out(refused),
            "saved": Out(1),
            "occupied": Out(config.sms),
            **(nested if config.nested else {}),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        m.submodules.kernels, m.submodules.numbering = self.kernels, self.numbering
        m.submodules.choice = self.choice
        m.submodules.requests = self._requests = RowRequests(config)
        m.submodules.running = self._running = RunningBlocks(config)
        m.submodules.gather = self._gather = PipelinedOr(sm_flags(config), config.sms)
        for n, row in enumerate(self._rows):
            m.submodules[f"row_{n}"] = row
        self._flush = Signal()
        self._restart = Signal()
        self._taken = Signal(config.sms)
        self._sm = Signal(config.sm_bits)
        self._batch = Signal(block_run(config), name="block_run")
        self._move = Signal(block_move(config), name="block_move")
        self._pause, self._changes = Signal(name="pause"), Signal(name="lists_change")
        self._level = Signal(LEVEL_BITS, name="claimed_level")
        self._barred = Signal(config.sms, name="barred")
        """SMs to which the claimed block may not move."""
        self._other_level = Signal(LEVEL_BITS, name="second_level")
        self._spared = Signal(config.sms, name="spared")
        """SMs that keep a slot for the block claimed second."""
        self._saved = SavedBlocks(config) if config.preemption else None
        self._from_list = Signal(name="from_list")
        """The next block of the selected row is a saved one."""
        self._steps = self._decisions(m)
        self._ask(m)
        self._look(m)
        self._decide(m)
        self._send(m)
        if config.sms > 1:
            self._recall(m)
        if self._saved is None:
            connect(m, flipped(self.port.add), self._requests.add)
        else:
            m.submodules.saved = self._saved
            self._save(m, self._saved)
            self._preempt(m, self._saved)
        return m

    def _decisions(self, m: Module) -> list[data.View]:
        """The decisions in flight: the new one, and one per pipeline step."""
        steps = [self.kernels.begins]
        for n in range(1 + len(self.choice.rounds)):
            step = Signal(decision(self._config), name=f"decision_{n}")
            m.d.sync += step.eq(steps[-1])
            with m.If(self._flush):
                m.d.sync += step.valid.eq(0)
            steps.append(step)
        return steps

    def _ask(self, m: Module) -> None:
        """Requests of the task unit."""
        asks, kernels, numbering = self._requests, self.kernels, self.numbering
        for name in ("open", "stop", "close"):
            connect(m, flipped(getattr(self.port, name)), getattr(asks, name))
        connect(m, asks.stopped, flipped(self.port.stopped))
        opened = asks.open.p
        m.d.comb += [
            kernels.open.valid.eq(asks.opens),
            [
                kernels.open[name].eq(opened[name])
                for name in kernels.open.shape().members
                if name != "valid"
            ],
            numbering.open.valid.eq(asks.opens),
            [numbering.open[name].eq(opened[name]) for name in ("row", "blocks", "first", "grid")],
            kernels.close.eq(asks.closes),
            kernels.refill.eq(asks.refills),
            asks.blocks.eq(numbering.blocks),
            asks.at.eq(numbering.at),
            numbering.change.eq(asks.change),
            numbering.ask.eq(kernels.ask),
            kernels.asked.eq(numbering.asked),
            self._running.fill.eq(asks.fills),
            self.port.drained.eq(self._running.drained),
            self.port.ended.eq(self._running.over),
            self._restart.eq(
                asks.holds
                | kernels.overtakes
                | kernels.lost
                | self._pause
                | self._changes
                | (kernels.again if self._config.masked_sms else 0)
            ),
            kernels.restart.eq(self._restart),
            kernels.flush.eq(self._flush),
        ]
        m.d.sync += self._flush.eq(self._restart)

    def _look(self, m: Module) -> None:
        """Inputs and outputs of the SM rows."""
        asked, last, source = self.kernels.begins, self.kernels.last, self._steps[-1]
        needs, asid = source.needs.as_value(), source.asid
        move, batch = self._move, self._batch
        sent = Mux(batch.valid, batch.needs.as_value(), needs)
        space = Mux(batch.valid, batch.asid, asid)
        below, under = (
            asked.needs.priority + 1 < level for level in (self._level, self._other_level)
        )
        for n, (row, link) in enumerate(zip(self._rows, self.sm, strict=True)):
            m.d.comb += [
                row.needs.eq(asked.needs),
                row.spares.eq((below & ~self._barred[n]) | (under & self._spared[n])),
                row.asid.eq(asked.asid),
                row.policy.eq(asked.policy),
                row.last.eq(last.valid & (last.sm == n)),
                row.taken.eq(self._taken[n]),
                row.returned.eq(move.valid & move.source[n]),
                row.sent.eq(Mux(move.valid, move.needs.as_value(), sent)),
                row.space.eq(Mux(move.valid, move.asid, space)),
                row.freed.eq(link.freed),
                row.highest.eq(link.highest),
                row.received.eq(link.received),
                row.ready.eq(~link.block.valid | link.block.ready),
                self.occupied[n].eq(row.occupied),
                self.choice.candidates[n].eq(row.candidate),
                self._gather.words[n].eq(row.seen),
            ]
        if self._config.masked_sms:
            kernels = self.kernels
            m.d.comb += [row.barred.eq(kernels.barred[n]) for n, row in enumerate(self._rows)]
            m.d.comb += kernels.grows.eq(Cat(row.grows for row in self._rows))
        m.d.comb += [
            self.choice.taken.eq(self._taken),
            self.choice.found.sm.eq(self._sm),
        ]

    def _decide(self, m: Module) -> None:
        """Outcome of the decision after the last round."""
        decided, best, seen = self._steps[-1], self.choice.best, self._gather.any
        batch, numbering, kernels = self._batch, self.numbering, self.kernels
        places = Signal()
        better = Signal()
        fails = Signal()
        continues = Signal()
        found = Signal()
        m.d.comb += [
            better.eq(
                (seen.preferred & (best.rank != Rank.WHOLE + 1))
                | (seen.whole & (best.rank < Rank.WHOLE))
                | (seen.warp & (best.rank < Rank.WARP))
            ),
            kernels.settled.valid.eq(decided.valid & ~self._flush),
            kernels.settled.row.eq(decided.row),
            found.eq(decided.valid & ~numbering.empty & (best.rank != Rank.NONE) & ~better),
            places.eq(found & ~batch.valid & ~self._flush),
            # Early: a false hit during a flush does no harm.
            self.choice.found.valid.eq(batch.valid | found),
            fails.eq(kernels.settled.valid & ~places & (batch.valid | ~numbering.empty)),
            kernels.failed.eq(fails),
            kernels.batch.eq(batch.valid),
            self._commit.eq(places | continues),
            self._sm.eq(Mux(batch.valid, batch.sm, self.choice.number)),
            self._taken.eq(
                Cat(places & (self.choice.number == n) for n in range(self._config.sms))
                | Mux(continues, batch.at, 0)
                | Mux(self._move.valid, self._move.target, 0)
            ),
        ]
        none = (best.rank == Rank.NONE) & ~seen.whole & ~seen.warp & ~seen.lower
        refuses = Signal(name="refuses")
        m.d.comb += refuses.eq(fails & ~batch.valid & none)
        if self._config.masked_sms:
            m.d.comb += kernels.refused.eq(refuses)
        m.d.sync += self.refused.eq(0)
        with m.If(refuses):
            m.d.sync += [
                self.refused.valid.eq(1),
                self.refused.registers.eq(~seen.registers),
                self.refused.warps.eq(~seen.warps),
                self.refused.shared.eq(~seen.shared),
                self.refused.slots.eq(~seen.slot),
                self.refused.lower.eq(~seen.below),
            ]
        self._follow(m, places, continues)

    def _follow(self, m: Module, places: Signal, continues: Signal) -> None:
        """Further blocks to the same SM, while it has room for a whole one.

        The free resources of an SM are up to date two cycles after a block was sent to it.
        """
        decided, batch, numbering = self._steps[-1], self._batch, self.numbering
        one, two, ready = (
            (Cat(words) & batch.at).any()
            for words in (
                [row.one for row in self._rows],
                [row.two for row in self._rows],
                [row.ready for row in self._rows],
            )
        )
        room = Signal()
        begins = Signal()
        goes_on = Signal()
        m.d.comb += [
            room.eq(
                batch.valid
                & ~self._flush
                & ~(numbering.empty | self._from_list)
                & (self._steps[1].row == batch.row)
                & (decided.row == batch.row)
                & Mux(batch.just, two, one)
            ),
            continues.eq(room & ready),
            begins.eq(
                places
                & (decided.policy != Policy.WIDE)
                & (self.choice.best.rank >= Rank.WHOLE)
                & ~(numbering.last | self._from_list)
            ),
            goes_on.eq(room & ~(continues & numbering.last)),
        ]
        m.d.sync += [batch.valid.eq(begins | goes_on), batch.just.eq(self._commit)]
        with m.If(begins):
            m.d.sync += [batch.sm.eq(self._sm), batch.at.eq(self._taken)]
            m.d.sync += [batch[name].eq(decided[name]) for name in ("row", "needs", "asid")]
        # Select the row of the next decision. In a batch, this is the row of the batch: a decision,
        # if any, is of that row, and otherwise `row` is the row of the served kernel, which is the
        # same.
        reads = self._requests.reads
        m.d.comb += numbering.ahead.eq(Mux(reads.valid, reads.row, self._steps[-2].row))

    def _recall(self, m: Module) -> None:
        """Blocks that move to another SM."""
        m.submodules.recall = recall = BlockRecall(self._config)
        opened = self._requests.open.p
        m.d.comb += [
            recall.open.valid.eq(self._requests.opens),
            recall.open.row.eq(opened.row),
            recall.open.asid.eq(opened.asid),
            recall.room.eq(Cat(link.room for link in self.sm)),
            recall.accepts.eq(Cat(row.accepts for row in self._rows)),
            recall.heard.eq(Cat(row.heard for row in self._rows)),
            self._move.eq(recall.move),
            self._pause.eq(recall.pause),
            self._level.eq(Mux(recall.claim.valid, recall.claim.level, 0)),
        ]
        if self._config.masked_sms:
            m.d.comb += [
                recall.open.disabled.eq(opened.disabled),
                self._barred.eq(recall.barred),
            ]
        for n, link in enumerate(self.sm):
            told = recall.claim.valid & ~(recall.owner | self._barred)[n]
            m.d.comb += [
                recall.waits[n].eq(link.waits),
                recall.returned[n].eq(link.returned),
                link.claim.eq(recall.claim),
                link.claim.valid.eq(told),
                link.recall.eq(recall.recall[n]),
            ]
            if two_claims(self._config):
                second = recall.second_told[n] | recall.asked[n]
                m.d.comb += [
                    self._spared[n].eq(recall.second_spares[n]),
                    link.claim.eq(Mux(second, recall.second, recall.claim)),
                    link.claim.valid.eq(recall.second_told[n] | (told & ~recall.asked[n])),
                ]
        if two_claims(self._config):
            m.d.comb += self._other_level.eq(Mux(recall.second.valid, recall.second.level, 0))

    def _save(self, m: Module, saved: SavedBlocks) -> None:
        """Lists of saved blocks."""
        config, asks, port, running = self._config, self._requests, self.port, self._running
        opened, over = asks.open.p, running.over
        m.submodules.answers = answers = StreamMerger(stopped_block(config), config.sms)
        for link, answer in zip(self.sm, answers.i, strict=True):
            connect(m, flipped(link.stopped), answer)
        connect(m, answers.o, saved.stopped)
        answer = answers.o
        if config.nested:
            connect(m, saved.lost, flipped(self.lost))
            m.d.comb += [
                self.lists_change.eq(saved.busy),
                saved.reserve.eq(port.reserve),
                saved.release.eq(port.release),
                saved.unused.eq(over.valid & over.reserved),
                port.reserved.eq(saved.reserved),
            ]
        m.d.comb += self.saved.eq(answer.valid & answer.ready & answer.p.some & answer.p.restores)
        connect(m, flipped(port.keep), saved.keep)
        connect(m, saved.kept, flipped(port.kept))
        connect(m, flipped(port.discard), saved.discard)
        m.d.comb += [
            saved.open.valid.eq(asks.opens),
            saved.open.row.eq(opened.row),
            saved.open.adopts.eq(opened.saved.some),
            saved.open.save_place.eq(opened.saved.save_place),
            saved.stop.eq(asks.drop),
            saved.close.eq(asks.closes),
            saved.ahead.eq(self.numbering.ahead),
            saved.take.eq(self._commit),
            saved.ended.valid.eq(over.valid & over.restores),
            saved.ended.save_place.eq(over.save_place),
            self._from_list.eq(saved.first.some),
            self._changes.eq(saved.pause),
            asks.busy.eq(saved.busy),
            asks.drops.eq(port.drops),
            asks.saved.eq(Mux(saved.first.some, saved.first.count, 0)),
            running.leaves.eq(saved.leaves),
            # Blocks that were stopped go first.
            asks.add.valid.eq(saved.add.valid | port.add.valid),
            asks.add.payload.eq(Mux(saved.add.valid, saved.add.payload, port.add.payload)),
            saved.add.ready.eq(asks.add.ready),
            port.add.ready.eq(asks.add.ready & ~saved.add.valid),
        ]

    def _preempt(self, m: Module, saved: SavedBlocks) -> None:
        """Stop blocks."""
        m.submodules.preemption = preemption = Preemption(self._config)
        connect(m, saved.place, preemption.place)
        m.d.comb += [
            preemption.waits.eq(self.kernels.waits),
            preemption.spare.eq(saved.spare),
            preemption.changes.eq(saved.pause),
        ]
        if self._config.masked_sms:
            m.d.comb += [
                preemption.barred.eq(self.kernels.barred),
                self.kernels.placing.eq(preemption.placing),
            ]
        spare = Signal(name="spare_place")
        m.d.sync += spare.eq(saved.spare & saved.place.valid)
        for number, link in enumerate(self.sm):
            m.d.comb += [
                preemption.victims[number].eq(link.victim),
                preemption.lacks[number].eq(link.lacks),
                preemption.answered[number].eq(link.stopped.valid & link.stopped.ready),
                link.stop.eq(preemption.stop[number]),
                link.spare.eq(spare),
                link.leave.eq(self.port.leave),
            ]

    def _send(self, m: Module) -> None:
        """Send the block to its SM and update all counts."""
        batch, numbering, kernels = self._batch, self.numbering, self.kernels
        move = self._move
        running, asks = self._running, self._requests
        row = Signal(self._config.row_bits)
        empties = Signal(row_event(self._config))
        m.d.comb += [
            row.eq(Mux(batch.valid, batch.row, self._steps[-1].row)),
            numbering.take.eq(self._commit),
            numbering.saved.eq(self._from_list),
            kernels.sent.valid.eq(self._commit),
            kernels.sent.row.eq(row),
            kernels.sent.sm.eq(self._sm),
            running.sent.valid.eq(self._commit),
            running.sent.row.eq(row),
            empties.valid.eq(asks.empties.valid | (self._commit & numbering.last)),
            empties.row.eq(Mux(asks.empties.valid, asks.empties.row, row)),
            kernels.empty.eq(empties),
            running.empty.eq(empties),
        ]
        block = Signal(block_record(self._config), name="next_block")
        m.d.comb += [block.row.eq(row), block.at.eq(numbering.at)]
        if self._saved is not None:
            first = self._saved.first
            with m.If(first.some):
                m.d.comb += block.at.eq(first.at)
            m.d.comb += [
                block.restores.eq(first.some & first.restores),
                block.save_place.eq(first.save_place),
            ]
            if self._config.nested:
                m.d.comb += block.family.eq(Mux(first.some, first.family, 0))
        with m.If(move.valid):
            m.d.comb += [block[name].eq(move[name]) for name in block.shape().members]
        for n, link in enumerate(self.sm):
            connect(m, flipped(link.ended), running.ended[n])
            with m.If(self._taken[n]):
                m.d.sync += [link.block.valid.eq(1), link.block.p.eq(block)]
            with m.Elif(link.block.ready):
                m.d.sync += link.block.valid.eq(0)
        rank = Mux(batch.valid, Rank.WHOLE, self.choice.best.rank)
        m.d.sync += [
            self.placed.valid.eq(self._commit),
            [self.placed[name].eq(block[name]) for name in block.shape().members],
            self.placed.sm.eq(self._sm),
            self.placed.step.eq(_step(rank)),
        ]
        with m.If(move.valid):
            m.d.sync += [
                self.placed.valid.eq(1),
                self.placed.sm.eq(move.sm),
                self.placed.step.eq(Step.MOVED),
            ]


def _step(rank: Value) -> Value:
    return Mux(rank >= Rank.WHOLE, Step.WHOLE, Mux(rank >= Rank.WARP, Step.WARP, Step.LOWER))
