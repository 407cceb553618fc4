"""Page walker: many walks at once over tables in memory (ASID-2, ASID-4, ASID-7, ASID-8)."""

from itertools import pairwise
from typing import Any

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from hw.config import Config
from hw.lib.arbiter import RoundRobin
from hw.lib.onehot import encode, select
from hw.mmu.directories import Directories
from hw.mmu.entries import ENTRY_BITS, TABLE_BITS, Below, Depth, Entries
from hw.mmu.lookups import (
    PAGE_BITS,
    SHIFTS,
    VPN_BITS,
    Outcome,
    PageSize,
    covers,
    ending,
    invalidation,
    page_request,
    touches,
)
from hw.mmu.spaces import space
from hw.pagetables import DIRECTORIES, TABLES, FaultType
from hw.records import MemoryStatus, ReadPort

__all__ = ["Walker", "walk_result"]

_LEVELS = (*DIRECTORIES, TABLES[1 << 16], TABLES[1 << 12])
"""By the value of their `Depth`."""

_CUTS = sorted({level.shift - PAGE_BITS for level in _LEVELS} | {VPN_BITS})
"""Where a page number is cut into pieces: an entry is named by the highest of them."""


_LARGER = (PageSize.BIG, PageSize.HUGE)


def walk_result(config: Config, tag: int) -> data.StructLayout:
    """What came of a `page_request`. RETRY: it may be out of date, and is to be asked again."""
    return data.StructLayout({"tag": tag, "end": ending(config)})


class _State(enum.Enum, shape=3):
    """FREE; READ: its next entry is to be read; SENT: that was asked for; FOLLOW: another walk has
    asked for the same entry; DONE: it has come to its end."""

    FREE = 0
    READ = 1
    SENT = 2
    FOLLOW = 3
    DONE = 4


def _page(walk: data.View) -> Value:
    """The page that is walked, without the rest."""
    return Cat(walk.asid, walk.vpn)


class Walker(wiring.Component):
    """Up to `walks` walks, each at its own depth, one read of memory each at most.

    A read is named by address space, depth and the address bits down to that depth. A walk whose
    next read is under way does not read but takes what comes: so walks of one page, of one larger
    page and of one region read once. A fault, or that a page is sparse, is only for the walk that
    read it; those that followed read themselves, for the page may have been mapped since. A walk
    that ends without a page, but learnt from another's read that there was none of a larger size,
    gives RETRY: so does each one that asks again, as long as it finds such a read under way.
    A page has to end before the limit of its space, else all of it is past the limit: what is
    remembered of a page knows no limit.

    Cycles: a request, the row of its space, its slot: a read is offered 4 cycles after the request.
    An entry's last beat → the next read of its walk is offered: 2. → the result is offered: 3. A
    beat is taken per cycle; walks begin to read in cycles in which no entry came. Results come in
    any order.

    An invalidation turns what it covers into RETRY: also walks whose page may be of any size.
    A bind has to be in the ASID table a cycle before its invalidation.

    Parameters
    ----------
    tag : bits of a request's tag.
    walks : 2 … 64.
    directories : entries of the walk cache, a power of two.

    Members
    -------
    request, result : see `page_request`, `walk_result`. A result that waits may turn into RETRY.
    look, asid, row : the ASID table, see `Spaces`.
    read : a memory client; addresses are physical.
    invalidate : see `invalidation`.

    Attributes
    ----------
    states : per walk (state, for proofs).
    """

    def __init__(self, config: Config, tag: int, *, walks: int = 32, directories: int = 8) -> None:
        if not 2 <= walks <= 64:
            raise ValueError(f"walks = {walks!r} is outside its limits 2 … 64")
        self._config, self._tag, self._walks = config, tag, walks
        self._directories = Directories(config, entries=directories)
        self._place = data.StructLayout({
            "asid": config.asid_bits,
            "vpn": VPN_BITS,
            "depth": Depth,
            "table": config.address_width - TABLE_BITS,
            "beside": Below,
            "lent": 1,
            "fits": len(_LARGER),
        })
        """A walk: whose page, and which table is read next. `lent`: which of its region's tables
        that is comes from the read of another walk. `fits`: which larger pages around its page end
        before the limit of their space."""
        self._named = data.StructLayout({"asid": config.asid_bits, "vpn": VPN_BITS})
        super().__init__({
            "request": In(stream.Signature(page_request(config, tag))),
            "result": Out(stream.Signature(walk_result(config, tag))),
            "look": Out(1),
            "asid": Out(config.asid_bits),
            "row": In(space(config)),
            "read": Out(ReadPort(config)),
            "invalidate": In(invalidation(config)),
        })
        self.states = self._each(_State, "state")

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.directories = self._directories
        self._places = self._each(self._place, "place")
        self._ends = self._each(ending(self._config), "end")
        self._stale = Signal(self._walks)
        """Walks that have been overtaken."""
        self._before = Signal(self._walks)
        """Walks that began before an invalidation of their space: what they read is for nobody
        else."""
        self._is = {state: Signal(self._walks, name=f"is_{state.name.lower()}") for state in _State}
        """Per state, which walks are in it."""
        m.d.comb += [
            walks.eq(Cat(one == state for one in self.states)) for state, walks in self._is.items()
        ]
        self._enter(m)
        self._read_next(m)
        self._receive(m)
        self._go_on(m)
        self._finish(m)
        self._overtake(m)
        return m

    def _each(self, shape: Any, name: str) -> Any:
        """A signal per walk."""
        return Array(Signal(shape, name=f"{name}_{walk}") for walk in range(self._walks))

    # -- requests ----------------------------------------------------------------------------------

    def _enter(self, m: Module) -> None:
        """A request waits for the row of its space, and gets a slot in the next cycle."""
        config, known = self._config, self._directories
        entering = Signal(data.StructLayout({"valid": 1, "slot": self._walks}))
        asked = Signal(page_request(config, self._tag))
        free, first = Signal(self._walks), Signal(self._walks)
        m.submodules.tags = tags = Memory(shape=self._tag, depth=self._walks, init=[])
        write, self._tags = tags.write_port(), tags.read_port(domain="comb")
        taken = self.request.valid & self.request.ready
        m.d.comb += [
            free.eq(self._is[_State.FREE] & ~entering.slot),
            first.eq(free & -free),
            self.request.ready.eq(free.any()),
            self.look.eq(taken),
            self.asid.eq(self.request.p.asid),
            known.asid.eq(asked.asid),
            known.vpn.eq(asked.vpn),
            known.use.eq(entering.valid),
            write.addr.eq(encode(entering.slot)),
            write.data.eq(asked.tag),
            write.en.eq(entering.valid),
        ]
        m.d.sync += [
            entering.valid.eq(taken),
            entering.slot.eq(first & taken.replicate(self._walks)),
            asked.eq(self.request.payload),
        ]
        refused, fault = Signal(), Signal(FaultType)
        with m.If(~self.row.bound):
            m.d.comb += [refused.eq(1), fault.eq(FaultType.UNBOUND_INST_BLOCK)]
        with m.Elif(asked.vpn > self.row.last):
            m.d.comb += [refused.eq(1), fault.eq(FaultType.VA_LIMIT)]
        root, last = self.row.base << (PAGE_BITS - TABLE_BITS), self.row.last
        fits = Cat(
            (asked.vpn[low:] < last[low:]) | ((asked.vpn[low:] == last[low:]) & last[:low].all())
            for low in SHIFTS[1:]
        )
        for number in range(self._walks):
            place, end = self._places[number], self._ends[number]
            with m.If(entering.slot[number]):
                m.d.sync += [
                    self.states[number].eq(Mux(refused, _State.DONE, _State.READ)),
                    place.asid.eq(asked.asid),
                    place.vpn.eq(asked.vpn),
                    place.depth.eq(Mux(known.hit, Depth.PD0, Depth.PD3)),
                    place.table.eq(Mux(known.hit, known.table, root)),
                    place.lent.eq(0),
                    place.fits.eq(fits),
                    end.outcome.eq(Outcome.FAULT),
                    end.fault.eq(fault),
                ]
        self._entering, self._asked = entering, asked

    # -- reads -------------------------------------------------------------------------------------

    def _read_next(self, m: Module) -> None:
        """Choose a walk that wants to read; in the next cycle it is `picked`, in the one after that
        its read is on the port, unless it follows."""
        m.submodules.turns = turns = RoundRobin(self._walks)
        self._picked = Signal(self._walks)
        self._moves = Signal()
        wants = self._is[_State.READ]
        m.d.comb += [
            turns.requests.eq(wants & ~self._picked),
            turns.advance.eq(self._moves),
        ]
        with m.If(self._moves):
            m.d.sync += self._picked.eq(turns.grant)
        # It may have been overtaken meanwhile.
        self._pick = Signal(self._place)
        self._picks = Signal()
        m.d.comb += [
            self._picks.eq((self._picked & wants).any()),
            self._pick.eq(select(self._picked, (place.as_value() for place in self._places))),
        ]

        self._ask = ask = Signal(
            data.StructLayout({"valid": 1, "slot": self._slot_bits, "place": self._place})
        )
        m.submodules.order = order = Memory(
            shape=self._sent_layout, depth=1 << self._slot_bits, init=[]
        )
        sent, self._head = order.write_port(), order.read_port(domain="comb")
        request, address = self.read.request, Signal(self._config.address_width)
        asks = request.valid & request.ready
        m.d.comb += [
            address.eq(self._address(ask.place)),
            request.valid.eq(ask.valid),
            request.p.va.eq(address),
            request.p.physical.eq(1),
            request.p.beats.eq(
                (ask.place.depth == Depth.PD0) if self._config.data_width < ENTRY_BITS else 0
            ),
            sent.en.eq(asks),
            sent.data.slot.eq(ask.slot),
            sent.data.lane.eq(address[3:]),
        ]
        m.d.sync += sent.addr.eq(sent.addr + asks)
        with m.If(request.ready):
            m.d.sync += ask.valid.eq(0)

    @property
    def _slot_bits(self) -> int:
        return (self._walks - 1).bit_length()

    @property
    def _sent_layout(self) -> data.StructLayout:
        """A read that is under way: whose, and where in its beat the entry begins, in 8 bytes."""
        lanes = self._config.data_width // 64
        return data.StructLayout({"slot": self._slot_bits, "lane": (lanes - 1).bit_length()})

    def _address(self, place: data.View) -> Value:
        """Where the entry lies: tables are aligned to their size."""
        address = Const(0)
        for depth, level in enumerate(_LEVELS):
            low = (level.entry_bytes - 1).bit_length()
            index = place.vpn[level.shift - PAGE_BITS :][: level.bits]
            inside = low + level.bits
            base = place.table if inside <= TABLE_BITS else place.table[inside - TABLE_BITS :]
            fill = Const(0, max(0, TABLE_BITS - inside))
            this = Cat(Const(0, low), index, fill, base)
            address = Mux(Value.cast(place.depth) == depth, this, address)
        return address

    # -- entries -----------------------------------------------------------------------------------

    def _receive(self, m: Module) -> None:
        """Beats to entries; beside an entry, whose it is."""
        config, beat, head = self._config, self.read.beat, self._head
        self._came = came = Signal(
            data.StructLayout({
                "valid": 1,
                "slot": self._walks,
                "entry": ENTRY_BITS,
                "status": MemoryStatus,
                "place": self._place,
            })
        )
        ends = beat.valid & beat.p.last
        slot = head.data.slot
        m.d.comb += beat.ready.eq(1)
        m.d.sync += [
            head.addr.eq(head.addr + ends),
            came.valid.eq(ends),
            came.slot.eq((1 << slot) & ends.replicate(self._walks)),
            came.place.eq(self._places[slot]),
            came.status.eq(beat.p.status),
        ]
        if config.data_width > ENTRY_BITS:
            wide = beat.p.data.word_select(head.data.lane[1:], ENTRY_BITS)
        else:
            wide = beat.p.data
        if config.data_width >= ENTRY_BITS:
            low = Mux(head.data.lane[0], wide[64:], wide[:64])
            m.d.sync += came.entry.eq(Cat(low, wide[64:]))
        else:
            # The low half of an entry of PD0 comes first.
            first, failed = Signal(64), Signal(MemoryStatus)
            second = self._places[slot].depth == Depth.PD0
            m.d.sync += came.entry.eq(Cat(Mux(second, first, beat.p.data), beat.p.data))
            with m.If(beat.valid):
                m.d.sync += [first.eq(beat.p.data), failed.eq(beat.p.status)]
            with m.If(second & (failed != MemoryStatus.OK) & (beat.p.status == MemoryStatus.OK)):
                m.d.sync += came.status.eq(failed)
            with m.If(ends):
                m.d.sync += failed.eq(MemoryStatus.OK)

    def _go_on(self, m: Module) -> None:
        """What an entry means for its walk and for those that follow it; else, what becomes of the
        walk that is picked."""
        came, ask, known = self._came, self._ask, self._directories
        m.submodules.entries = entries = Entries(self._config)
        subject = Signal(self._place)
        m.d.comb += [
            entries.depth.eq(came.place.depth),
            entries.entry.eq(came.entry),
            entries.status.eq(came.status),
            entries.beside.eq(came.place.beside),
            subject.eq(Mux(came.valid, came.place, self._pick)),
        ]
        depth, chosen = Signal(Depth.as_shape().width), Signal(self._walks)
        descends, room, goes, follow, joins = (
            Signal(name=name) for name in ("descends", "room", "goes", "follow", "joins")
        )
        # Per walk, whether it reads the same entry as the subject, where that is and was.
        alike, alike_before = self._alike(m, subject, depth, came.place.depth)
        # Another walk reads that entry. The one that came is still SENT, but with its former depth.
        follows = Cat(
            alike[n] & (Value.cast(place.depth) == depth) for n, place in enumerate(self._places)
        )
        self._sends = Signal(self._walks)
        m.d.comb += [
            depth.eq(Mux(came.valid, entries.following, self._pick.depth)),
            chosen.eq(Mux(came.valid, came.slot, self._picked)),
            descends.eq(came.valid & entries.descends & ~(came.slot & self._stale).any()),
            room.eq(~ask.valid | self.read.request.ready),
            follow.eq((self._is[_State.SENT] & ~self._before & follows).any()),
            self._moves.eq(~self._picks | (~came.valid & (follow | room))),
            goes.eq((descends | (self._picks & ~came.valid)) & room & ~follow),
            # Walks that follow this one and want the same entry again follow at once.
            joins.eq(goes | follow),
            self._sends.eq(chosen & goes.replicate(self._walks)),
        ]
        with m.If(goes):
            m.d.sync += [
                ask.valid.eq(1),
                ask.slot.eq(encode(chosen)),
                ask.place.eq(subject),
            ]
            with m.If(came.valid):
                m.d.sync += [
                    ask.place.depth.eq(entries.following),
                    ask.place.table.eq(entries.table),
                ]
        lends, finds, old = Signal(), Signal(), Signal()
        m.d.comb += [
            lends.eq(came.valid & ~(came.slot & self._before).any()),
            finds.eq(entries.end.outcome == Outcome.PAGE),
            # When another walk read PD0, or a 64 KiB entry, there was no such page: there may be
            # now.
            old.eq(came.place.lent & ~finds),
        ]
        for n, place in enumerate(self._places):
            state, end = self.states[n], self._ends[n]
            mine = came.slot[n]
            waits, heir = Signal(name=f"waits_{n}"), Signal(name=f"heir_{n}")
            m.d.comb += [
                waits.eq(
                    came.valid
                    & self._is[_State.FOLLOW][n]
                    & (place.depth == came.place.depth)
                    & alike_before[n]
                ),
                heir.eq(waits & lends),
            ]
            with m.If(waits):
                m.d.sync += state.eq(_State.READ)
            with m.If(mine | heir):
                follow_on = Mux(mine, follow, joins & alike[n])
                with m.If(entries.descends):
                    m.d.sync += [
                        state.eq(Mux(follow_on, _State.FOLLOW, _State.READ)),
                        place.depth.eq(entries.following),
                        place.table.eq(entries.table),
                    ]
                    with m.If(came.place.depth == Depth.PD0):
                        m.d.sync += [place.beside.eq(entries.below), place.lent.eq(heir)]
                    with m.Elif(came.place.depth == Depth.BIG):
                        m.d.sync += place.lent.eq(place.lent | heir)
                with m.Elif(mine | finds):
                    m.d.sync += [state.eq(_State.DONE), end.eq(entries.end)]
                    with m.If(old):
                        m.d.sync += end.outcome.eq(Outcome.RETRY)
            with m.If(mine & goes):
                m.d.sync += state.eq(_State.SENT)
            with m.If(self._picked[n] & self._is[_State.READ][n] & ~came.valid):
                with m.If(follow):
                    m.d.sync += state.eq(_State.FOLLOW)
                with m.Elif(room):
                    m.d.sync += state.eq(_State.SENT)
        m.d.comb += [
            known.fill.valid.eq(descends & (came.place.depth == Depth.PD1) & lends),
            known.fill.asid.eq(came.place.asid),
            known.fill.vpn.eq(came.place.vpn),
            known.fill.table.eq(entries.table),
            known.invalidate.eq(self.invalidate),
        ]

    def _alike(
        self, m: Module, subject: data.View, depth: Value, before: Value
    ) -> tuple[Signal, Signal]:
        """Per walk, whether its entry of that depth is the subject's; the same of another depth."""
        alike, alike_before = Signal(self._walks), Signal(self._walks)
        for n, place in enumerate(self._places):
            agree = Signal(len(_CUTS) - 1, name=f"agree_{n}")
            pieces = [subject.vpn[low:high] == place.vpn[low:high] for low, high in pairwise(_CUTS)]
            m.d.comb += [
                agree.eq(
                    Cat(
                        (subject.asid == place.asid) & Cat(pieces[cut:]).all()
                        for cut in range(len(pieces))
                    )
                ),
                alike[n].eq(self._same(agree, depth)),
                alike_before[n].eq(self._same(agree, before)),
            ]
        return alike, alike_before

    def _same(self, agree: Value, depth: Value) -> Value:
        """Whether two walks that agree from those cuts on read the same entry at that depth."""
        return Cat(
            (Value.cast(depth) == number) & agree[_CUTS.index(level.shift - PAGE_BITS)]
            for number, level in enumerate(_LEVELS)
        ).any()

    # -- ends --------------------------------------------------------------------------------------

    def _finish(self, m: Module) -> None:
        """Give results away, one per cycle."""
        m.submodules.done_turns = turns = RoundRobin(self._walks)
        result, waiting = self.result, Signal(self._named)
        moves = ~result.valid | result.ready
        done = self._is[_State.DONE]
        found, end = Signal(ending(self._config)), Signal(ending(self._config))
        chosen, fits = Signal(self._named), Signal(len(_LARGER))
        m.d.comb += [
            turns.requests.eq(done),
            turns.advance.eq(moves),
            self._tags.addr.eq(encode(turns.grant)),
            found.eq(select(turns.grant, (one.as_value() for one in self._ends))),
            fits.eq(select(turns.grant, (place.fits for place in self._places))),
            end.eq(found),
            chosen.eq(select(turns.grant, (_page(place) for place in self._places))),
        ]
        past = Cat((found.page.size == size) & ~fits[n] for n, size in enumerate(_LARGER)).any()
        with m.If((found.outcome == Outcome.PAGE) & past):
            m.d.comb += [end.outcome.eq(Outcome.FAULT), end.fault.eq(FaultType.VA_LIMIT)]
        self._given = turns.grant & moves.replicate(self._walks)
        with m.If(moves):
            m.d.sync += [
                result.valid.eq(done.any()),
                result.p.tag.eq(self._tags.data),
                result.p.end.eq(end),
                waiting.eq(chosen),
            ]
        for n in range(self._walks):
            with m.If(self._given[n]):
                m.d.sync += self.states[n].eq(_State.FREE)
        with m.If(self._covers(data.View(self._named, Mux(moves, chosen, waiting)))):
            m.d.sync += result.p.end.outcome.eq(Outcome.RETRY)

    def _covers(self, walk: data.View) -> Value:
        """Whether the invalidation is for the walk's page, whatever size it will have."""
        return covers(self.invalidate, walk.asid, walk.vpn, PageSize.HUGE)

    def _overtake(self, m: Module) -> None:
        """An invalidation ends the walks that it covers: at once, or when their read has come."""
        for n, place in enumerate(self._places):
            state, entering = self.states[n], self._entering.slot[n]
            sent, done = self._is[_State.SENT][n], self._is[_State.DONE][n]
            named = Mux(entering, _page(self._asked), _page(place))
            old, follows = Signal(name=f"old_{n}"), self._is[_State.FOLLOW][n]
            covered = self._covers(data.View(self._named, named))
            m.d.comb += old.eq(covered | (self._stale[n] & ~entering))
            m.d.sync += self._stale[n].eq(old)
            here = touches(self.invalidate, Mux(entering, self._asked.asid, place.asid))
            m.d.sync += self._before[n].eq(here | (self._before[n] & ~entering))
            rests = (self._is[_State.READ][n] | (sent & self._came.slot[n])) & ~self._sends[n]
            gives = done & ~self._given[n]
            with m.If(old & (entering | rests | follows | gives)):
                m.d.sync += [state.eq(_State.DONE), self._ends[n].outcome.eq(Outcome.RETRY)]
