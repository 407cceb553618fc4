"""Proof of the turns of time-slice groups (HOST-7)."""

from typing import Any

from amaranth import Array, Module, Mux, Signal, Value
from amaranth.lib import data

from signalbox.hw.config import Config
from signalbox.hw.host.scheduling.tsg_rotation import TsgRotation, channel_work, next_turn
from signalbox.tb.proofs.formal import (
    AnyConst,
    Assert,
    Assume,
    Cover,
    Inside,
    Proof,
    Wrap,
    anything,
    stays,
)
from signalbox.tb.proofs.host import drive

__all__ = ["PROOFS"]

CONFIG = Config(channels=2, runlist_entries=3)

ENTRIES, PLACES = CONFIG.runlist_entries, 1 << CONFIG.runlist_bits


class RotationProof(Proof):
    name = "host.tsg_rotation"
    shows = (
        "for lists of up to three TSGs of two channels: the channels that may be served are those "
        "of the TSG that has the turn, none without one, and all without runlists; while a channel "
        "of it can proceed, is served or waits otherwise than for a failed acquire that leaves the "
        "TSG, the turn and its channels change only after the end of the slice, or when runlists "
        "are disabled; a new list is accepted only when the turn may change, at once when runlists "
        "are disabled, and does not take the turn of a TSG later in the list with a channel that "
        "has been ready since the last change; a TSG with a channel "
        "that stays ready is found within a cycle per TSG and one more, if no other one is, and no "
        "other one has the turn twice before it; once another one has had the turn, only TSGs from "
        "there to it are found; a TSG that was found is kept until its turn or another is found"
    )
    induction = 2
    cover = 14

    def build(self, m: Module, wrap: Wrap) -> None:
        dut = TsgRotation(CONFIG)
        inside = Inside(dut)
        m.submodules.dut = wrap(dut)
        for name in ("enable", "unit", "work", "expire"):
            drive(m, getattr(dut, name), name)
        served = dut.work.served
        m.d.comb += Assume((served & (served - 1)) == 0)
        masks = self._words(m, dut)
        work = Signal(channel_work(CONFIG), name="spec_work")
        m.d.sync += work.eq(dut.work)
        m.d.comb += Assert(inside.signal("work") == work.as_value())
        self._turn(m, dut, masks, work, inside.signal("over"))
        self._scanner(m, dut, inside, masks)
        self._keeps(m, dut, inside)
        self._reach(m, dut, inside, masks, work)

    def _words(self, m: Module, dut: TsgRotation) -> Array:
        """The words of the active list; words of a new list are arbitrary. The TSGID is the place.
        Returns the channels of each word."""
        masks = Array(Signal(CONFIG.channels, name=f"spec_mask_{n}") for n in range(PLACES))
        drive(m, dut.list, "list", "valid", "payload")
        stays(m, dut.list, Assume, "list")
        drive(m, dut.word, "word", "timeout", "scale")
        offered, place = dut.list.p, Signal(CONFIG.runlist_bits, name="spec_asked")
        word = Signal(CONFIG.channels, name="spec_word")
        m.d.comb += [
            Assume(offered.groups <= ENTRIES),
            Assume((offered.start < offered.groups) | (offered.start == 0)),
            Assert(dut.groups <= ENTRIES),
            Assert(dut.at[-1] == dut.half),
            dut.word.channels.eq(word),
            dut.word.tsgid.eq(place),
        ]
        m.d.sync += [place.eq(dut.at), word.eq(masks[dut.at[:-1]])]
        with m.If(dut.list.valid & dut.list.ready):
            for number, mask in enumerate(masks):
                m.d.sync += mask.eq(anything(m, CONFIG.channels, f"new_{number}"))
        return masks

    def _turn(
        self, m: Module, dut: TsgRotation, masks: Array, work: data.View, over: Value
    ) -> None:
        """Channels that may be served, and the length of a turn."""
        detained, may, kept = Signal(), Signal(), Signal()
        eligible, tsgid = Signal(CONFIG.channels), Signal(12)
        enabled, accepted = Signal(), Signal()
        waits = work.working & ~work.yielding
        m.d.comb += [
            detained.eq((dut.eligible & (work.ready | work.served | waits)).any()),
            may.eq(~dut.running | over | ~detained),
            Assert(~dut.list.ready | (dut.list.valid & (may | ~dut.enable))),
            Assert(dut.list.ready | ~dut.list.valid | dut.enable),
        ]
        m.d.sync += [
            kept.eq(dut.enable & ~may),
            eligible.eq(dut.eligible),
            tsgid.eq(dut.tsgid),
            enabled.eq(dut.enable),
            accepted.eq(dut.list.ready),
        ]
        with m.If(dut.running):
            m.d.comb += Assert((dut.tsgid < dut.groups) & (dut.eligible == masks[dut.tsgid[:2]]))
            m.d.comb += Assert(enabled & ~accepted)
        with m.Elif(enabled):
            m.d.comb += Assert(dut.eligible == 0)
        with m.If(kept):
            m.d.comb += Assert(dut.running & (dut.tsgid == tsgid) & (dut.eligible == eligible))
        m.d.comb += [
            Cover(dut.running & (dut.tsgid == 2) & (tsgid == 1)),
            Cover(accepted & enabled & (tsgid == 1) & dut.groups),
        ]

    def _scanner(self, m: Module, dut: TsgRotation, inside: Inside, masks: Array) -> None:
        """Invariants of the search: the next place to look at follows the one just seen, or is the
        first one."""
        scan, seen, fresh, origin = self._search(inside)
        place, found = inside.signal("place"), inside.signal("next", next_turn(CONFIG))
        m.d.comb += [
            Assert((scan < dut.groups) | (scan == 0)),
            Assert((origin < dut.groups) | (origin == 0)),
            Assert(~dut.running | (place == dut.tsgid)),
            Assert(~dut.running | (origin == self._after(place, dut.groups))),
        ]
        with m.If(fresh):
            m.d.comb += [
                Assert((seen < dut.groups) & (scan == self._after(seen, dut.groups))),
                Assert((dut.word.channels == masks[seen]) & (dut.word.tsgid == seen)),
            ]
        with m.If(found.valid):
            m.d.comb += [
                Assert((found.place < dut.groups) & (found.channels == masks[found.place])),
                Assert(found.tsgid == found.place),
                Assert(~dut.running | (found.place != place)),
            ]

    def _keeps(self, m: Module, dut: TsgRotation, inside: Inside) -> None:
        """A TSG that was found is kept until a change of turn or of the list."""
        found, before, taken = inside.signal("next", next_turn(CONFIG)), Signal(), Signal()
        m.d.sync += [before.eq(found.valid), taken.eq(inside.signal("change") | dut.list.ready)]
        m.d.comb += Assert(Mux(taken, ~found.valid, found.valid | ~before))

    @staticmethod
    def _search(inside: Inside) -> tuple[Value, ...]:
        return tuple(inside.signal(name) for name in ("scan", "seen", "fresh", "origin"))

    @staticmethod
    def _after(place: Value, groups: Value) -> Value:
        return Mux(place + 1 == groups, 0, place + 1)

    def _reach(
        self, m: Module, dut: TsgRotation, inside: Inside, masks: Array, work: data.View
    ) -> None:
        """For a TSG, at any one place, with a channel that stays ready: count turns of other TSGs
        since then, and cycles in which no TSG was found."""
        scan, seen, fresh, origin = self._search(inside)
        found = inside.signal("next", next_turn(CONFIG))
        mine = Signal(CONFIG.runlist_bits, name="mine")
        channel = Signal(range(CONFIG.channels), name="channel")
        m.d.comb += [mine.eq(AnyConst(mine.shape())), channel.eq(AnyConst(channel.shape()))]
        waits = Signal()
        passed, searched = Signal(4), Signal(4)
        able = (masks[mine] & work.ready).bit_select(channel, 1)
        here = dut.running & (dut.tsgid == mine)
        stays_able = (mine < dut.groups) & able & ~here
        m.d.comb += waits.eq(stays_able & ~dut.list.ready)
        with m.If(stays_able & (passed != 0)):
            skipped = dut.list.ready & dut.enable & dut.running & (dut.tsgid < mine)
            m.d.comb += [Assert(~inside.signal("vain")), Assert(~skipped)]
        with m.If(~waits | ~dut.enable):
            m.d.sync += passed.eq(0)
        with m.Elif(inside.signal("change") & (found.place != mine)):
            m.d.sync += passed.eq(passed + 1)
        with m.If(~waits | found.valid):
            m.d.sync += searched.eq(0)
        with m.Else():
            m.d.sync += searched.eq(searched + 1)
        with m.If(waits):
            far = self._ahead(mine, origin, dut.groups)
            near = [
                self._ahead(one, origin, dut.groups) <= far for one in (scan, seen, found.place)
            ]
            first = passed == 0
            m.d.comb += [
                Assert(first | (passed + far < dut.groups)),
                Assert(first | ~found.valid | near[2]),
                Assert(first | ~fresh | near[1]),
                Assert(first | near[0] | (fresh & (seen == mine))),
                Assert(fresh | (scan == origin) | first),
                Assert(passed < dut.groups),
                Assert(found.valid | (searched <= dut.groups)),
                Assert(found.valid | (searched == 0) | fresh),
                Assert(~fresh | (searched + self._ahead(mine, seen, dut.groups) <= dut.groups)),
                Cover(passed == 2),
            ]

    @staticmethod
    def _ahead(mine: Value, place: Value, groups: Value) -> Any:
        """Places from `place` to `mine`."""
        return Mux(mine >= place, mine - place, mine + groups - place)[:4]


PROOFS = (RotationProof(),)
