"""Children of the blocks on an SM (NEST-10, NEST-12)."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from signalbox.hw.config import Config
from signalbox.hw.errors import Refusal
from signalbox.hw.lib.onehot import lowest, select
from signalbox.hw.lib.stream import StreamFIFO, StreamRegister
from signalbox.hw.nested.link import NestedLink, family_notice
from signalbox.hw.records.nested import block_families, block_family
from signalbox.hw.sm.port import block_launch, launch_answer

__all__ = ["BlockFamilies", "family_arrival"]

_ARRIVING = 2
"""Most blocks on their way from `accepts` to `arrive`."""


def family_arrival(config: Config) -> data.StructLayout:
    """Strobe: a block with `family` enters slot `place` (one-hot) in the next cycle. `restores`: it
    has a saved state, and so a save place."""
    return data.StructLayout({
        "valid": 1,
        "place": config.sm_blocks,
        "family": block_family(config),
        "restores": 1,
    })


class BlockFamilies(wiring.Component):
    """Keeps the family of each block that has launched kernels, and a flag: it has children that
    are not complete. One launch at a time.

    A launch is offered to the engine one cycle after it was accepted. `answer`, `waits` and
    `failed` lag `answer` and `joined` of the link by one cycle.

    A block that was stopped takes its family along. When it arrives again, it counts as waiting,
    without a failure, until `joined`, for which it asks.

    Members
    -------
    launch : in, stream of `block_launch`: launches of blocks on this SM; not of a block that is
        over before the answer.
    answer : out, strobe: result of the launch, see `launch_answer`.
    accepts : out, a block with a family may come.
    arrive : in, strobe: a block arrives, see `family_arrival`.
    over : in, strobe per block slot: the block is over.
    left : in, strobe per block slot: the block has left with its family, without being over.
    families : out, families of the blocks, see `block_families`.
    waits : out, per block slot: the block has children that are not complete.
    failed : out, per block slot: a child that is complete, or a descendant of it, has failed.
    link : in, the engine, see `NestedLink`.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        super().__init__({
            "launch": In(stream.Signature(block_launch(config))),
            "answer": Out(launch_answer(config)),
            "accepts": Out(1),
            "arrive": In(family_arrival(config)),
            "over": In(config.sm_blocks),
            "left": In(config.sm_blocks),
            "families": Out(block_families(config)),
            "waits": Out(config.sm_blocks),
            "failed": Out(config.sm_blocks),
            "link": In(NestedLink(config)),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, link, launch = self._config, self.link, self.launch
        slots = range(config.sm_blocks)
        asks, waiting = Signal(name="asks"), Signal(name="waits_for_answer")
        restored = Signal(config.sm_blocks, name="restored")
        slot = Signal(config.block_bits, name="launching_slot")
        m.submodules.leaving = leaving = StreamFIFO(
            config.nested_bits, config.sm_blocks + _ARRIVING + 1
        )
        # The queue has room for the families of all blocks: while it is not empty, no block comes
        # with a family, and none can get one.
        m.d.comb += [
            self.accepts.eq(leaving.level == 0),
            launch.ready.eq(~waiting & self.accepts),
            link.launch.valid.eq(asks),
        ]
        with m.If(launch.ready):
            m.d.sync += [
                asks.eq(launch.valid),
                waiting.eq(launch.valid),
                slot.eq(launch.p.slot),
                link.launch.p.row.eq(launch.p.row),
                link.launch.p.page.eq(launch.p.page),
                link.launch.p.block.eq(self.families[launch.p.slot]),
                link.launch.p.has_place.eq(
                    restored.bit_select(launch.p.slot, 1) | self.families[launch.p.slot].related
                ),
            ]
        with m.Elif(link.launch.ready):
            m.d.sync += asks.eq(0)
        with m.If(link.answer.valid):
            m.d.sync += waiting.eq(0)
        m.d.sync += [
            self.answer.valid.eq(link.answer.valid),
            self.answer.slot.eq(slot),
            self.answer.verdict.eq(link.answer.verdict),
        ]
        for n in slots:
            self._slot(m, n, link.answer.valid & (slot == n))
            with m.If(self.arrive.valid & self.arrive.place[n]):
                m.d.sync += restored[n].eq(self.arrive.restores)
        self._leave(m, leaving)
        self._notice(m, leaving)
        return m

    def _slot(self, m: Module, n: int, mine: Signal) -> None:
        """State of the block in slot `n`. `mine`: the answer in this cycle is for this block."""
        link, family, joined = self.link, self.families[n], Signal(name=f"joined_{n}")
        accepted = link.answer.verdict.refusal == Refusal.NONE
        m.d.comb += joined.eq(
            link.joined.valid & family.related & (family.family == link.joined.family)
        )
        with m.If(joined):
            m.d.sync += [self.waits[n].eq(0), self.failed[n].eq(link.joined.failed)]
        with m.If(mine):
            m.d.sync += [
                family.eq(link.answer.block),
                self.waits[n].eq(accepted | (self.waits[n] & ~joined)),
            ]
        with m.If(self.over[n] | self.left[n]):
            m.d.sync += [family.eq(0), self.waits[n].eq(0), self.failed[n].eq(0)]
        with m.If(self.arrive.valid & self.arrive.place[n]):
            arrived = self.arrive.family
            m.d.sync += [family.eq(arrived), self.waits[n].eq(arrived.related)]

    def _leave(self, m: Module, leaving: StreamFIFO) -> None:
        """Queue the family of a block that is over; at most one is over per cycle."""
        gone = Signal(block_family(self._config), name="gone")
        for n in range(self._config.sm_blocks):
            with m.If(self.over[n]):
                m.d.comb += gone.eq(self.families[n])
        m.d.comb += [
            leaving.i.valid.eq(self.over.any() & gone.related),
            leaving.i.payload.eq(Mux(gone.related, gone.family, 0)),
        ]

    def _notice(self, m: Module, leaving: StreamFIFO) -> None:
        """Blocks that are over first, then blocks that have arrived."""
        config, count = self._config, self._config.sm_blocks
        m.submodules.notices = notices = StreamRegister(family_notice(config))
        connect(m, notices.o, flipped(self.link.notice))
        asking, chosen = Signal(count, name="asking"), Signal(count, name="asks_now")
        arrived = Mux(self.arrive.valid & self.arrive.family.related, self.arrive.place, 0)
        m.d.comb += [
            chosen.eq(Mux(leaving.o.valid, 0, lowest(asking))),
            notices.i.valid.eq(leaving.o.valid | asking.any()),
            notices.i.p.asks.eq(~leaving.o.valid),
            notices.i.p.family.eq(
                Mux(
                    leaving.o.valid,
                    leaving.o.payload,
                    select(chosen, [family.family for family in self.families]),
                )
            ),
            leaving.o.ready.eq(notices.i.ready),
        ]
        sent = Mux(notices.i.ready, chosen, 0)
        m.d.sync += asking.eq(asking & ~(sent | self.over | self.left) | arrived)
