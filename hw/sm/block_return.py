"""Blocks that wait on their SM while another SM could begin them (PLACE-5)."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.records.placement import block_claim, block_record, returned_block, wanted
from signalbox.hw.sm.block_table import chosen_block
from signalbox.hw.sm.resources import fits

__all__ = ["BlockReturn"]

_AMOUNTS = tuple(wanted.members)


class BlockReturn(wiring.Component):
    """Reports the most urgent block while it has not begun and lacks resources, keeps room for the
    claimed block of another SM, and returns the most urgent block.

    Room is kept if the claimed block is more urgent than all blocks with warps to start.

    A recall is answered in the second cycle or later, once no start is under way. The most urgent
    block is returned if it has not begun, and its priority and the needs of its first warp are
    those of the claim. With `Config.sm_masks`, its row must match, too, and the claim is that of
    the cycle of the recall, as the next one may be for another block.

    Members
    -------
    urgent : in, a `chosen_block`: the most urgent block.
    some : in, some block has warps to start.
    fits : in, the next warp of `urgent` can start.
    settled : in, `urgent` is the most urgent block, and does not begin in this cycle.
    starts : in, a warp that takes resources starts in this cycle.
    claim : in, a `block_claim`: the block claimed in the last cycle, see `SmLink`.
    told : in, with `Config.sm_masks`: the claim of this cycle.
    claim_fits : in, per resource: enough is free for the first warp of the claimed block.
    recall : in, strobe: return the claimed block, reported in `waits`.
    waits : out, a `block_claim`: the most urgent block, if it has not begun and lacks resources.
    room : out, the first warp of the claimed block can start here, see `SmLink`.
    returned : out, strobe: answer to `recall`, see `returned_block`.
    keeps : out, resources are left for the claimed block.
    freezes : out, no warp may start.
    leaves : out, strobe per block slot: the block of this slot is returned.
    """

    def __init__(self, config: Config) -> None:
        self._record = block_record(config).members
        self._masks = config.masked_sms > 0
        super().__init__({
            "urgent": In(chosen_block(config)),
            "some": In(1),
            "fits": In(1),
            "settled": In(1),
            "starts": In(1),
            "claim": In(block_claim(config)),
            **({"told": In(block_claim(config))} if self._masks else {}),
            "claim_fits": In(fits),
            "recall": In(1),
            "waits": Out(block_claim(config)),
            "room": Out(1),
            "returned": Out(returned_block(config)),
            "keeps": Out(1),
            "freezes": Out(1),
            "leaves": Out(config.sm_blocks),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        urgent, claim, waits = self.urgent, self.claim, self.waits
        level = Signal.like(claim.level, name="level")
        m.d.comb += [
            level.eq(urgent.block.needs.priority + 1),
            self.keeps.eq(claim.valid & Mux(urgent.valid, urgent.outranked, ~self.some)),
        ]
        m.d.sync += [
            waits.valid.eq(urgent.valid & ~urgent.begun & ~self.fits),
            waits.level.eq(level),
            [waits[name].eq(urgent.takes[name]) for name in _AMOUNTS],
        ]
        if self._masks:
            m.d.sync += waits.row.eq(urgent.block.row)
        m.d.sync += [
            self.room.eq(self.keeps & self.claim_fits.as_value().all() & ~self.starts),
        ]
        self._return(m, level)
        return m

    def _return(self, m: Module, level: Signal) -> None:
        urgent, claim, returned = self.urgent, self.claim, self.returned
        if self._masks:
            claim = Signal.like(self.claim, name="recalled")
            with m.If(self.recall):
                m.d.sync += claim.eq(self.told)
        decides, gives, same = (Signal(name=name) for name in ("decides", "gives", "same"))
        alike = [level == claim.level, *(urgent.takes[name] == claim[name] for name in _AMOUNTS)]
        if self._masks:
            alike.append(urgent.block.row == claim.row)
        m.d.comb += [
            same.eq(Cat(alike).all()),
            decides.eq(self.freezes & self.settled),
            gives.eq(decides & urgent.valid & ~urgent.begun & same),
            self.leaves.eq(Mux(gives, urgent.place, 0)),
        ]
        m.d.sync += [
            self.freezes.eq(self.recall | (self.freezes & ~decides)),
            returned.valid.eq(decides),
            returned.some.eq(gives),
            returned.needs.eq(urgent.block.needs),
            [returned[name].eq(urgent.block[name]) for name in self._record],
        ]
