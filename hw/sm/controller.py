"""SM logic controller: starts warps of blocks as resources are freed (PLACE-20 … 26)."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from signalbox.hw.config import Config
from signalbox.hw.lib.onehot import select
from signalbox.hw.lib.stream import StreamFIFO
from signalbox.hw.records.nested import block_families
from signalbox.hw.records.placement import (
    ENDS_WAITING,
    SmLink,
    ended_block,
    kernel_word,
    stopped_block,
)
from signalbox.hw.sm.block_families import family_arrival
from signalbox.hw.sm.block_needs import BlockNeeds
from signalbox.hw.sm.block_return import BlockReturn
from signalbox.hw.sm.block_stop import BlockStop, place_page
from signalbox.hw.sm.block_table import BlockTable, block_over
from signalbox.hw.sm.block_withdrawal import BlockWithdrawal, withdrawn_block
from signalbox.hw.sm.port import SmControl, block_begin, warp_start
from signalbox.hw.sm.resources import Resources, remainder
from signalbox.hw.sm.warp_slots import WarpSlots

__all__ = ["SmController", "sm_events"]

_UNDER_WAY = 4
"""Warp ends that may be in flight to the queue of ended blocks, including the one being
accepted."""


def sm_events(config: Config) -> data.StructLayout:
    """Strobes for timelines: those that correspond to the members of `SmControl`; withdrawn warps;
    with preemption, blocks that have left without an end."""
    preemption = {
        "stop": data.StructLayout({"valid": 1, "slot": config.block_bits}),
        "stopped": data.StructLayout({"valid": 1, **stopped_block(config).members}),
    }
    return data.StructLayout({
        **(preemption if config.preemption else {}),
        "begin": data.StructLayout({"valid": 1, **block_begin(config).members}),
        "start": data.StructLayout({"valid": 1, **warp_start(config).members}),
        "end": data.StructLayout({"valid": 1, "warp": config.warp_bits}),
        "finish": config.sm_blocks,
        "withdrawn": withdrawn_block(config),
    })


class SmController(wiring.Component):
    """Starts the warps of blocks as resources are freed, by the rules of `hw/sm/README.md`.

    A start is decided in one cycle, from the table and resources of that cycle, and takes effect in
    the next (`go`), where the selections already reflect it: one start every other cycle.

    2 cycles after a warp's end is accepted, its registers and hardware warp are free, `freed`
    reports them, and the next start may be decided. After 3, that start takes effect, and its block
    is offered if it begins; after 4, its warp is offered. If the ended warp was the last one of its
    block, the block is over after 4 (`finish`, `freed`). An accepted block is in the table after 3
    cycles, and its start may be decided after 4.

    Members
    -------
    link : in, the global logic controller.
    kernel : in, kernel words.
    kill : in, per kernel row: its warps that can be withdrawn do not start.
    port : out, the core.
    events : out, see `sm_events`.
    left : out, free amount of each resource.

    With nested launches
    --------------------
    arrive : out, see `family_arrival`.
    over : out, strobe per block slot: a block is over, and will not arrive again.
    gone : out, strobe per block slot: a block has left with its family, without being over.
    families : in, family of each block.
    accepts : in, a block with a family may come.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        nested = {
            "arrive": Out(family_arrival(config)),
            "over": Out(config.sm_blocks),
            "gone": Out(config.sm_blocks),
            "families": In(block_families(config)),
            "accepts": In(1),
        }
        super().__init__({
            **(nested if config.nested else {}),
            "link": In(SmLink(config)),
            "kernel": In(kernel_word(config)),
            "kill": In(config.rows),
            "port": Out(SmControl(config)),
            "events": Out(sm_events(config)),
            "left": Out(remainder(config)),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        m.submodules.needs = needs = BlockNeeds(config)
        m.submodules.blocks = self._blocks = blocks = BlockTable(config)
        m.submodules.warps = self._warps = WarpSlots(config)
        m.submodules.resources = self._resources = Resources(config)
        m.submodules.withdrawal = self._withdrawal = BlockWithdrawal(config)
        m.submodules.returns = self._returns = BlockReturn(config)
        m.d.comb += [
            needs.kernel.eq(self.kernel),
            self.port.kernel.eq(self.kernel),
            self.link.highest.eq(blocks.highest),
            self.link.received.eq(blocks.received),
            self.left.eq(self._resources.left),
        ]
        connect(m, needs.o, blocks.arrive)
        block, may = self.link.block, Signal(init=1, name="may_come")
        m.d.comb += [
            needs.i.valid.eq(block.valid & may),
            needs.i.payload.eq(block.payload),
            block.ready.eq(needs.i.ready & may),
        ]
        if config.nested:
            m.d.comb += may.eq(self.accepts | ~block.p.family.related)
        self._go, self._room = Signal(3, name="go"), Signal(name="room")
        self._finish = Signal(config.sm_blocks, name="stopped_finish")
        self._owns = Signal(name="owns")
        """The most urgent block has all that its further warps need."""
        self._decide(m)
        self._start(m)
        self._withdraw(m)
        self._return(m)
        self._gone = Signal(block_over(config), name="gone")
        m.d.comb += self._gone.eq(blocks.over)
        if config.preemption:
            self._stop(m)
        self._end(m)
        self._free(m)
        self._tell(m)
        if config.nested:
            self._nest(m)
        return m

    def _decide(self, m: Module) -> None:
        """Select a warp (rules 2 to 4): of the most urgent block; alternating with it, and whenever
        it cannot start, of a block that has all its resources; or, while the most urgent one lacks
        shared memory, of a begun block, which may hold that memory."""
        blocks, go, (fits, other) = self._blocks, self._go, self._resources.fits
        urgent, going, whole = blocks.urgent, blocks.going, blocks.whole
        names = ("ready", "may", "can", "lacks", "turn")
        ready, may, can, lacks, turn = (Signal(name=name) for name in names)
        goes = Signal(3)
        finishes = Signal(3)
        held, spared = Signal(name="held"), Signal(name="spared")
        keeps, owns = self._returns.keeps, self._owns
        m.d.comb += [
            ready.eq(
                self._room & self._warps.found & ~(self._withdrawal.stall | self._returns.freezes)
            ),
            may.eq(ready & ~go.any() & urgent.valid & ~blocks.overtaken),
            can.eq(fits.registers & fits.warps & fits.shared),
            lacks.eq((~fits.shared | held) & other.registers & other.warps),
            owns.eq(urgent.begun & urgent.block.needs.barrier),
            # Begun blocks have to end before the shared memory of the claimed one is free; those
            # with a barrier have all they need.
            spared.eq(keeps & self._resources.claim_fits.shared & ~owns),
            held.eq(spared | (keeps & ~urgent.begun)),
            goes[0].eq(may & can & ~held & ~(whole.valid & turn)),
            goes[1].eq(may & lacks & ~spared & going.valid & ~whole.valid),
            goes[2].eq(may & whole.valid & (turn | ~can | held)),
            blocks.start.eq(go),
            blocks.finish.eq(finishes),
            self._resources.wants[0].eq(urgent.takes),
            self._resources.wants[1].eq(going.takes),
            self._resources.take.eq(go[:2]),
        ]
        m.d.sync += [go.eq(goes), finishes.eq(goes & Cat(urgent.last, going.last, whole.last))]
        with m.If(go.any()):
            m.d.sync += turn.eq(go[0])
        self._begin(m, goes[0] & ~urgent.begun)

    def _begin(self, m: Module, begins: Value) -> None:
        """Offer the block from the next cycle on. The previous block has been accepted; otherwise
        there would be no room."""
        begin, urgent = self.port.begin, self._blocks.urgent
        m.d.sync += begin.valid.eq(begins | (begin.valid & ~begin.ready))
        with m.If(~begin.valid):
            m.d.sync += [
                begin.p.slot.eq(urgent.slot),
                begin.p.row.eq(urgent.block.row),
                begin.p.at.eq(urgent.block.at),
                begin.p.shared.eq(urgent.block.needs.shared),
            ]
            if self._config.preemption:
                page = place_page(self._config, urgent.block.area, urgent.block.save_place)
                m.d.sync += [
                    begin.p.restores.eq(urgent.block.restores),
                    begin.p.page.eq(page),
                ]

    def _start(self, m: Module) -> None:
        """Offer the warp, after `begin` of its block."""
        blocks, warps, go, start = self._blocks, self._warps, self._go, self.port.start
        offered = Signal()
        choices = [Value.cast(choice) for choice in (blocks.urgent, blocks.going, blocks.whole)]
        choice = data.View(blocks.urgent.shape(), select(go, choices))
        m.d.comb += [
            start.valid.eq(offered & ~self.port.begin.valid),
            self._room.eq(~offered | (start.valid & start.ready)),
            warps.start.valid.eq(go.any()),
            warps.start.slot.eq(choice.slot),
            warps.start.registers.eq(choice.block.needs.registers),
        ]
        with m.If(self._room):
            m.d.sync += offered.eq(0)
        with m.If(go.any()):
            m.d.sync += [
                offered.eq(1),
                start.p.warp.eq(warps.warp),
                start.p.slot.eq(choice.slot),
                start.p.row.eq(choice.block.row),
                start.p.index.eq(choice.index),
                start.p.registers.eq(choice.block.needs.registers),
            ]

    def _withdraw(self, m: Module) -> None:
        """Withdraw blocks of killed rows."""
        withdrawal, blocks = self._withdrawal, self._blocks
        m.d.comb += [
            withdrawal.kill.eq(self.kill),
            withdrawal.idle.eq(blocks.idle),
            withdrawal.seen.eq(blocks.seen),
            blocks.withdraw.eq(withdrawal.withdraw),
        ]

    def _return(self, m: Module) -> None:
        """Return a block that has not begun, and keep room for such blocks of other SMs."""
        returns, blocks, link, resources = self._returns, self._blocks, self.link, self._resources
        claim = Signal.like(link.claim, name="claim")
        m.d.sync += claim.eq(link.claim)
        m.d.comb += [
            returns.urgent.eq(blocks.urgent),
            returns.some.eq(blocks.waiting.any()),
            returns.fits.eq(resources.fits[0].as_value().all()),
            returns.settled.eq(~(self._withdrawal.stall | self._go.any() | blocks.overtaken)),
            returns.starts.eq((self._go[0] & ~self._owns) | self._go[1]),
            returns.claim.eq(claim),
            returns.claim_fits.eq(resources.claim_fits),
            returns.recall.eq(link.recall),
            [resources.claim[name].eq(claim[name]) for name in resources.claim.shape().members],
            [
                getattr(link, name).eq(getattr(returns, name))
                for name in ("waits", "room", "returned")
            ],
            blocks.leaves.eq(returns.leaves),
            blocks.claimed.eq(Mux(link.claim.valid, link.claim.level, 0)),
        ]
        if self._config.masked_sms:
            m.d.comb += returns.told.eq(link.claim)

    def _stop(self, m: Module) -> None:
        """Stop blocks, and let them leave once their state is saved."""
        blocks, link, port, arrive = self._blocks, self.link, self.port, self._blocks.arrive
        m.submodules.stop = self._stopping = stop = BlockStop(self._config)
        m.d.comb += [
            stop.arrive.valid.eq(blocks.arrives.valid),
            stop.arrive.place.eq(blocks.arrives.place),
            stop.arrive.block.eq(arrive.payload),
            stop.valid.eq(blocks.valid),
            stop.begun.eq(blocks.begun),
            stop.levels.eq(blocks.levels),
            stop.idle.eq(blocks.idle),
            stop.leave.eq(link.leave),
            stop.urgent.eq(blocks.urgent),
            stop.fits.eq(self._resources.fits[0].as_value().all()),
            link.victim.eq(stop.victim),
            link.lacks.eq(stop.lacks),
            stop.stop.eq(link.stop),
            stop.spare.eq(link.spare),
            stop.over.eq(blocks.over),
            stop.quiet.eq(blocks.quiet),
            stop.settled.eq(~(self._go.any() | port.begin.valid)),
            stop.returns.eq(blocks.leaves),
            stop.saved.eq(port.saved),
            blocks.stopped.eq(stop.slot),
            blocks.release.eq(Mux(stop.release.valid, stop.release.place, 0)),
            self._withdrawal.stop.eq(stop.withdraw),
            self._finish.eq(stop.finish),
        ]
        with m.If(stop.release.valid):
            m.d.comb += self._gone.eq(stop.release)
        connect(m, stop.tell, flipped(port.stop))
        connect(m, stop.stopped, flipped(link.stopped))

    def _end(self, m: Module) -> None:
        """Warp ends, of withdrawn warps too, and a queue of ended blocks. An end is
        accepted only while the queue is sure to have room for its block."""
        config, blocks, warps = self._config, self._blocks, self._warps
        m.submodules.queue = queue = StreamFIFO(ended_block(config), ENDS_WAITING)
        end, ended, withdrawal = self.port.end, self.link.ended, self._withdrawal
        m.d.comb += [
            withdrawal.accepts.eq(queue.level <= ENDS_WAITING - _UNDER_WAY),
            end.ready.eq(withdrawal.accepts & ~withdrawal.hold),
            warps.end.valid.eq(end.valid & end.ready),
            warps.end.warp.eq(end.payload),
            blocks.end.valid.eq(warps.ended.valid | withdrawal.end.valid),
            blocks.end.slot.eq(Mux(warps.ended.valid, warps.ended.slot, withdrawal.end.slot)),
            queue.i.valid.eq(blocks.over.valid),
            [
                queue.i.p[name].eq(blocks.over[name])
                for name in queue.i.p.shape().members
                if name != "reserved"
            ],
        ]
        if config.nested:
            related = Cat(family.related for family in self.families)
            reserved = (related & blocks.over.place).any() & ~blocks.over.restores
            m.d.comb += queue.i.p.reserved.eq(reserved)
        connect(m, queue.o, flipped(ended))

    def _free(self, m: Module) -> None:
        """Free resources; report them one cycle later, when they are available. Resources of
        withdrawn warps were never taken, and are only reported."""
        over, ended, freed = self._gone, self._warps.ended, self._resources.freed
        link, withdrawn, begun = self.link.freed, self._withdrawal.end, Signal(name="was_begun")
        blocks = self._blocks
        m.d.comb += [
            begun.eq(over.valid & over.begun),
            freed.registers.eq(ended.registers),
            freed.warps.eq(ended.valid),
            freed.shared.eq(Mux(begun, over.shared, 0)),
        ]
        m.d.sync += [
            link.registers.eq(ended.registers | withdrawn.registers),
            link.warps.eq(ended.valid | withdrawn.valid),
            link.shared.eq(Mux(over.valid, over.shared, 0)),
            link.block.eq(over.valid),
            self.port.finish.eq(Mux(blocks.over.valid & begun, over.place, 0) | self._finish),
        ]

    def _nest(self, m: Module) -> None:
        """Families of blocks that come and leave."""
        blocks, stop = self._blocks, self._stopping
        m.d.comb += [
            self.arrive.valid.eq(blocks.arrives.valid),
            self.arrive.place.eq(blocks.arrives.place),
            self.arrive.family.eq(blocks.arrive.p.family),
            self.arrive.restores.eq(blocks.arrive.p.restores),
            stop.families.eq(self.families),
        ]
        m.d.sync += [
            self.over.eq(Mux(blocks.over.valid, blocks.over.place, 0)),
            self.gone.eq(Mux(stop.release.valid, stop.release.place, 0) | blocks.leaves),
        ]

    def _tell(self, m: Module) -> None:
        events, port = self.events, self.port
        for event, given in ((events.begin, port.begin), (events.start, port.start)):
            m.d.comb += event.valid.eq(given.valid & given.ready)
            m.d.comb += [event[name].eq(given.p[name]) for name in given.p.shape().members]
        m.d.comb += [
            events.end.valid.eq(self._warps.end.valid),
            events.end.warp.eq(port.end.payload),
            events.finish.eq(port.finish),
            events.withdrawn.eq(self._withdrawal.withdrawn),
        ]
        if self._config.preemption:
            stop, stopped = port.stop, self.link.stopped
            m.d.comb += [
                events.stop.valid.eq(stop.valid & stop.ready),
                events.stop.slot.eq(stop.p.slot),
                events.stopped.valid.eq(stopped.valid & stopped.ready),
                [events.stopped[name].eq(stopped.p[name]) for name in stopped.p.shape().members],
            ]
