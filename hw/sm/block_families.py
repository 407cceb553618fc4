"""Children of the blocks on an SM (NEST-10, NEST-12)."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from signalbox.hw.config import Config
from signalbox.hw.lib.stream import StreamFIFO
from signalbox.hw.nested.link import NestedLink
from signalbox.hw.records.launch import Refusal
from signalbox.hw.records.nested import block_family
from signalbox.hw.sm.port import block_launch, launch_answer

__all__ = ["BlockFamilies"]


class BlockFamilies(wiring.Component):
    """Keeps the family of each block that has launched kernels, and knows whether it has children
    that are not complete. One launch at a time.

    A launch is offered to the engine one cycle after it was accepted. `waits` and `failed` reflect
    `answer` and `joined` of the link one cycle later, when `answer` is given.

    Members
    -------
    launch : in, launches of blocks on this SM; not of a block that is over before the answer.
    answer : out, the result.
    over : in, strobe per block slot: the block is over.
    waits : out, per block slot: the block has children that are not complete.
    failed : out, per block slot: a child that is complete, or a descendant of it, has failed.
    link : out, the engine.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        super().__init__({
            "launch": In(stream.Signature(block_launch(config))),
            "answer": Out(launch_answer(config)),
            "over": In(config.sm_blocks),
            "waits": Out(config.sm_blocks),
            "failed": Out(config.sm_blocks),
            "link": In(NestedLink(config)),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, link, launch = self._config, self.link, self.launch
        slots = range(config.sm_blocks)
        families = Signal(data.ArrayLayout(block_family(config), config.sm_blocks))
        asks, waiting = Signal(name="asks"), Signal(name="waits_for_answer")
        slot = Signal(config.block_bits, name="launching_slot")
        m.submodules.leaving = leaving = StreamFIFO(config.nested_bits, config.sm_blocks + 1)
        connect(m, leaving.o, flipped(link.leave))
        # Families of blocks that are over fit the queue: none is new while some are in it.
        m.d.comb += [
            launch.ready.eq(~waiting & (leaving.level == 0)),
            link.launch.valid.eq(asks),
        ]
        with m.If(launch.ready):
            m.d.sync += [
                asks.eq(launch.valid),
                waiting.eq(launch.valid),
                slot.eq(launch.p.slot),
                link.launch.p.row.eq(launch.p.row),
                link.launch.p.page.eq(launch.p.page),
                link.launch.p.block.eq(families[launch.p.slot]),
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
        mine = Cat(link.answer.valid & (slot == n) for n in slots)
        accepted = link.answer.verdict.refusal == Refusal.NONE
        for n in slots:
            family, joined = families[n], Signal(name=f"joined_{n}")
            m.d.comb += joined.eq(
                link.joined.valid & family.related & (family.family == link.joined.family)
            )
            with m.If(joined):
                m.d.sync += [self.waits[n].eq(0), self.failed[n].eq(link.joined.failed)]
            with m.If(mine[n]):
                m.d.sync += [
                    family.eq(link.answer.block),
                    self.waits[n].eq(accepted | (self.waits[n] & ~joined)),
                ]
            with m.If(self.over[n]):
                m.d.sync += [family.eq(0), self.waits[n].eq(0), self.failed[n].eq(0)]
        self._leave(m, families, leaving)
        return m

    def _leave(self, m: Module, families: data.View, leaving: StreamFIFO) -> None:
        """One block is over per cycle."""
        gone = Signal(block_family(self._config), name="gone")
        for n in range(self._config.sm_blocks):
            with m.If(self.over[n]):
                m.d.comb += gone.eq(families[n])
        m.d.comb += [
            leaving.i.valid.eq(self.over.any() & gone.related),
            leaving.i.payload.eq(Mux(gone.related, gone.family, 0)),
        ]
