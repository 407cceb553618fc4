"""Page walker: concurrent walks of page tables in memory (ASID-2, ASID-4, ASID-7, ASID-8)."""

from functools import reduce
from operator import or_
from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.lib.arbiter import RoundRobin
from signalbox.hw.lib.onehot import encode, lowest, select
from signalbox.hw.mmu.asid_table import asid_row
from signalbox.hw.mmu.page_table_entry import (
    LEVELS,
    TABLE_BITS,
    Depth,
    PageTableEntryDecoder,
    region_page,
    skips,
)
from signalbox.hw.mmu.page_table_reads import PageTableReads
from signalbox.hw.mmu.records import (
    PAGE_BITS,
    PERMISSIONS,
    SHIFTS,
    Outcome,
    PageSize,
    covers,
    invalidation,
    page_request,
    page_result,
    touches,
)
from signalbox.hw.mmu.walk_cache import WalkCache
from signalbox.hw.mmu.walk_match import WalkMatch
from signalbox.hw.mmu.walk_registers import (
    LARGER,
    walk_candidate,
    walk_decided,
    walk_decoded,
    walk_end,
    walk_ending,
    walk_entered,
    walk_entering,
    walk_looked_up,
    walk_owner,
    walk_page,
    walk_step,
    walk_turn,
)
from signalbox.hw.page_tables import DIRECTORIES, FaultType
from signalbox.hw.records.memory import ReadPort

__all__ = ["State", "Walker", "walk_result"]

_REGION_BITS = DIRECTORIES[2].shift - PAGE_BITS
"""Page-number bits within a region, the 512 MiB of an entry of PD1."""


def walk_result(config: Config, tag: int) -> data.StructLayout:
    """Result of a `page_request`. RETRY: possibly stale, the request has to be repeated. `whole`:
    it rests on the PTE of a 512 MiB page, of which `end` is one piece."""
    return data.StructLayout({"tag": tag, "end": page_result(config), "whole": 1})


class State(enum.Enum, shape=3):
    """States of a walk. FREE; ENTER: its ASID-table row is being checked; READ: waits to issue its
    next read; PICKED: that read is being decided on; SENT: its read is outstanding; FOLLOW:
    coalesced with another walk's read; DONE: has its result."""

    FREE = 0
    ENTER = 1
    READ = 2
    PICKED = 3
    SENT = 4
    FOLLOW = 5
    DONE = 6


class Walker(wiring.Component):
    """Walks page tables. Up to `config.walks` walks run at a time, each at its own level with at
    most one outstanding read.

    A read is identified by address space, level and the page-number bits down to that level. A walk
    whose next read, or one further down its path, is outstanding follows that read instead of
    issuing its own. So walks of one page, of one larger page and of one region share their reads. A
    fault or a sparse entry applies only to the walk that read it, as the page may have been mapped
    since. Its followers issue their own reads and never follow again: otherwise they could wait
    forever while other walks come and fault. A walk that would end without a page, but relied on
    another walk's read to rule out a larger one, restarts and does not follow. That happens once,
    so every walk ends. A larger page must end before the limit of its address space; otherwise the
    whole page counts as past the limit, as cached translations do not know the limit.

    A page of 512 MiB, a PTE in PD1 (HOST-17), has pieces of 2 MiB; each walk returns the piece of
    its own page. The TLBs hold pieces like other pages of 2 MiB. The walk cache holds the page
    itself, in the place of the PD0 that its region lacks, so walks of further pieces read nothing.
    Limit and end of memory apply to each piece by itself.

    Three pipeline stages of one cycle, shared by all walks: an entry arrives, or without one a walk
    is picked, and its page is compared with those of all other walks; its next step is decided; it
    and its followers advance. So a decision depends only on flip-flops and on the entry.

    Latency: a read is offered 5 cycles after the request (ASID-table row, limit check), later while
    other walks are ready. From the last beat of an entry it takes 2 cycles until the walk's next
    read is offered, or 6 until its result is. Without a read, the result is offered 7 cycles after
    the request. One beat per cycle is accepted. Walks ready to read are picked in cycles without an
    entry, one in two cycles. Results come in any order.

    An invalidation turns the walks that it covers into RETRY, whatever size up to 2 MiB the page
    may have. A walk that ends at the PTE of a 512 MiB page is covered by every invalidation of its
    address space, of a page or of all. One that has found no such page may still fault, as faults
    are not shared. Nothing else returns RETRY. A bind has to be in the ASID table one cycle before
    its invalidation.

    Parameters
    ----------
    tag : width of a request's tag.

    Members
    -------
    request : in, stream of `page_request`.
    result : out, stream of `walk_result`, in any order. One that is not accepted may turn into
        RETRY.
    look : out, strobe: look up `asid` in the ASID table.
    asid : out, `asid_bits` bits: address space of that look-up.
    row : in, its `asid_row`, 1 cycle later.
    read : out, memory client with physical addresses. Memory answers at least 1 cycle after it
        accepted a read.
    invalidate : in, see `invalidation`.
    """

    def __init__(self, config: Config, tag: int) -> None:
        walks = config.walks
        self._config, self._tag, self._walks = config, tag, walks
        self._directories = WalkCache(config, entries=config.walk_cache)
        self._named, self._step = walk_page(config), walk_step(config)
        self._owner = walk_owner(config)
        super().__init__({
            "request": In(stream.Signature(page_request(config, tag))),
            "result": Out(stream.Signature(walk_result(config, tag))),
            "look": Out(1),
            "asid": Out(config.asid_bits),
            "row": In(asid_row(config)),
            "read": Out(ReadPort(config)),
            "invalidate": In(invalidation(config)),
        })
        self._sets = {
            state: Signal(
                walks,
                name=f"is_{state.name.lower()}",
                init=(1 << walks) - 1 if state is State.FREE else 0,
            )
            for state in State
        }
        """Per state, the walks in it, one bit each."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        walks = self._walks
        m.submodules.directories = self._directories
        m.submodules.pending = self._pending = PageTableReads(self._config, walks, self._owner)
        wiring.connect(m, self._pending.read, wiring.flipped(self.read))
        self._pages, self._steps = self._each(self._named, "page"), self._each(self._step, "step")
        self._ends = self._each(walk_end(self._config), "end")
        self._alone = Signal(walks, name="alone")
        """Walks that followed in vain, and do not follow any more."""
        self._jumped = Signal(walks, name="jumped")
        """Walks that follow a read below their own next table."""
        self._starts = Signal(walks, name="at_start")
        """Walks still at their first table."""
        self._nearer = Signal(walks, name="nearer")
        """Walks that started at the PD0 table of their region."""
        self._stale = Signal(walks, name="stale")
        """Walks covered by an invalidation."""
        self._before = Signal(walks, name="before")
        """Walks older than an invalidation of their address space: other walks may not use their
        reads."""
        self._moves: list[tuple[Value, State, tuple[State, ...]]] = []
        self._registers()
        self._enter(m)
        self._look_up(m)
        self._pick(m)
        self._compare(m)
        self._decide(m)
        self._settle(m)
        self._finish(m)
        self._overtake(m)
        self._change(m)
        return m

    def _each(self, shape: Any, name: str) -> list[Any]:
        """A signal per walk."""
        return [Signal(shape, name=f"{name}_{walk}") for walk in range(self._walks)]

    def _move(self, walks: Value, to: State, *out_of: State) -> None:
        """Records a transition of these walks, all of which are in one of the states `out_of`."""
        self._moves.append((walks, to, out_of))

    def _change(self, m: Module) -> None:
        """Applies the transitions. Every walk is in exactly one state."""
        none = Const(0, self._walks)
        for state, walks in self._sets.items():
            come = reduce(or_, (who for who, to, _ in self._moves if to is state), none)
            go = reduce(or_, (who for who, _, out in self._moves if state in out), none)
            m.d.sync += walks.eq((walks & ~go) | come)

    def _registers(self) -> None:
        """Pipeline registers."""
        config = self._config
        self._entering = Signal(walk_entering(config), name="entering")
        self._asked = Signal(page_request(config, self._tag), name="asked")
        self._found = Signal(walk_looked_up(config), name="looked_up")
        self._entered = Signal(walk_entered(config), name="entered")
        self._chosen = Signal(walk_turn(config), name="chosen")
        self._candidate = Signal(walk_candidate(config), name="candidate")
        self._here = Signal(walk_decoded(config), name="here")
        self._next = Signal(walk_decided(config), name="next")

    # -- requests ----------------------------------------------------------------------------------

    def _enter(self, m: Module) -> None:
        """Allocates a prepared slot to a request; looks up ASID table and walk cache."""
        known, entering, asked = self._directories, self._entering, self._asked
        m.submodules.tags = tags = Memory(shape=self._tag, depth=self._walks, init=[])
        m.submodules.names = names = Memory(shape=self._named, depth=self._walks, init=[])
        self._tags, self._names = tags, names
        offered, others = (Signal(self._walks, name=name) for name in ("offered", "others"))
        ready = Signal(name="at_hand")
        taken = self.request.valid & ready
        tag, name = tags.write_port(), names.write_port()
        m.d.comb += [
            self.request.ready.eq(ready),
            others.eq(self._sets[State.FREE] & ~offered & ~entering.slot),
            self.look.eq(taken),
            self.asid.eq(self.request.p.asid),
            known.look.eq(entering.valid),
            known.asid.eq(asked.asid),
            known.vpn.eq(asked.vpn),
            tag.en.eq(entering.valid),
            tag.addr.eq(entering.number),
            tag.data.eq(asked.tag),
            name.en.eq(entering.valid),
            name.addr.eq(entering.number),
            name.data.asid.eq(asked.asid),
            name.data.vpn.eq(asked.vpn),
        ]
        with m.If(taken | ~ready):
            m.d.sync += [offered.eq(lowest(others)), ready.eq(others.any())]
        m.d.sync += [
            entering.valid.eq(taken),
            entering.slot.eq(Mux(taken, offered, 0)),
            entering.number.eq(encode(offered)),
            asked.eq(self.request.payload),
        ]
        for page, mine in zip(self._pages, entering.slot, strict=True):
            with m.If(mine):
                m.d.sync += [page.asid.eq(asked.asid), page.vpn.eq(asked.vpn)]
        self._move(entering.slot, State.ENTER, State.FREE)

    def _look_up(self, m: Module) -> None:
        """The ASID-table row gives the limit and, on a walk-cache miss, the first table."""
        known, entering, found, entered = (
            self._directories,
            self._entering,
            self._found,
            self._entered,
        )
        row = Signal(asid_row(self._config), name="bound_to")
        m.d.sync += [
            row.eq(self.row),
            found.valid.eq(entering.valid),
            found.slot.eq(entering.slot),
            found.number.eq(entering.number),
            found.page.asid.eq(self._asked.asid),
            found.page.vpn.eq(self._asked.vpn),
        ]
        vpn, last = found.page.vpn, row.last
        m.submodules.starts = starts = Memory(
            shape=self._config.address_width - TABLE_BITS, depth=self._walks, init=[]
        )
        m.submodules.fits = self._fits = Memory(shape=len(LARGER), depth=self._walks, init=[])
        start, fits = starts.write_port(), self._fits.write_port()
        self._start = starts
        m.d.comb += [
            start.en.eq(found.valid),
            start.addr.eq(found.number),
            start.data.eq(Mux(known.hit, known.table, row.base << (PAGE_BITS - TABLE_BITS))),
            fits.en.eq(entered.slot.any()),
            fits.addr.eq(entered.number),
            fits.data.eq(entered.fits),
        ]
        self._first_table = start.data
        self._first_depth = Mux(known.hit, Depth.PD0, Depth.PD3)
        refused = ~row.bound | (vpn > last)
        whole = known.hit & known.whole
        kept = data.View(region_page(self._config), known.table)
        end, page = entered.end, entered.end.page
        m.d.sync += [
            entered.slot.eq(found.slot),
            entered.number.eq(found.number),
            entered.ends.eq(refused | whole),
            end.outcome.eq(Mux(refused, Outcome.FAULT, Outcome.PAGE)),
            end.fault.eq(Mux(row.bound, FaultType.VA_LIMIT, FaultType.UNBOUND_INST_BLOCK)),
            end.whole.eq(whole),
            page.size.eq(PageSize.HUGE),
            page.ppn.eq(kept.number << _REGION_BITS),
            [page[name].eq(kept[name]) for name in PERMISSIONS],
            entered.fits.eq(
                Cat(
                    (vpn[low:] < last[low:]) | ((vpn[low:] == last[low:]) & last[:low].all())
                    for low in SHIFTS[1:]
                )
            ),
        ]
        self._move(Mux(entered.ends, entered.slot, 0), State.DONE, State.ENTER)
        goes, straight = ~entered.ends, entered.straight
        self._move(Mux(goes & straight, entered.slot, 0), State.PICKED, State.ENTER)
        self._move(Mux(goes & ~straight, entered.slot, 0), State.READ, State.ENTER)

    # -- first stage -------------------------------------------------------------------------------

    def _pick(self, m: Module) -> None:
        """Picks a walk that is ready to read and fetches its state; without one, a walk that has
        just entered."""
        m.submodules.turns = turns = RoundRobin(self._walks)
        chosen, candidate, found, pending = (
            self._chosen,
            self._candidate,
            self._found,
            self._pending,
        )
        void = Signal()
        moves = Signal()
        passes = Signal()
        self._advances = Signal()
        name, start = (memory.read_port(domain="comb") for memory in (self._names, self._start))
        step = Signal(self._step)
        m.d.comb += [
            turns.requests.eq(self._sets[State.READ] & ~self._stale),
            # The candidate has just entered, and ends without a read.
            void.eq(candidate.enters & self._entered.ends),
            # Ample, as the walk that is decided on in this cycle may need room, too.
            self._advances.eq(candidate.valid & ~void & ~pending.came & pending.ample),
            passes.eq(~candidate.valid | void | self._advances),
            moves.eq(~chosen.valid),
            turns.advance.eq(moves),
            name.addr.eq(encode(chosen.slot)),
            start.addr.eq(encode(chosen.slot)),
            step.eq(select(chosen.slot, (one.as_value() for one in self._steps))),
        ]
        self._move(Mux(moves, turns.grant, 0), State.PICKED, State.READ)
        with m.If(moves):
            m.d.sync += [
                chosen.valid.eq(turns.requests.any()),
                chosen.slot.eq(turns.grant),
            ]
        with m.Elif(passes):
            m.d.sync += [chosen.valid.eq(0), chosen.slot.eq(0)]
        place, starts = candidate.place, (chosen.slot & self._starts).any()
        m.d.sync += [candidate.enters.eq(0), self._entered.straight.eq(0)]
        with m.If(passes):
            m.d.sync += [candidate.valid.eq(chosen.valid | found.valid)]
            with m.If(chosen.valid):
                m.d.sync += [
                    candidate.slot.eq(chosen.slot),
                    candidate.number.eq(encode(chosen.slot)),
                    place.asid.eq(name.data.asid),
                    place.vpn.eq(name.data.vpn),
                    [place[key].eq(step[key]) for key in ("depth", "below", "lent")],
                    place.table.eq(Mux(starts, start.data, step.table)),
                ]
            with m.Else():
                m.d.sync += [
                    candidate.enters.eq(found.valid),
                    self._entered.straight.eq(found.valid),
                    candidate.slot.eq(found.slot),
                    candidate.number.eq(found.number),
                    place.asid.eq(found.page.asid),
                    place.vpn.eq(found.page.vpn),
                    place.depth.eq(self._first_depth),
                    place.lent.eq(0),
                    place.table.eq(self._first_table),
                ]

    def _compare(self, m: Module) -> None:
        """Compares the entry that arrived, else the walk that was picked, with all walks."""
        pending, candidate = self._pending, self._candidate
        here, next_ = self._here, self._next
        head, place, came = pending.head, candidate.place, pending.came
        near = Signal(Depth)
        own = Signal(Depth)
        m.d.comb += [
            near.eq(Value.cast(head.depth) + 1),
            own.eq(Mux(came, near, place.depth)),
        ]
        slot = Mux(came, pending.slot, Mux(self._advances, candidate.slot, 0))
        m.d.sync += [
            here.came.eq(came),
            here.picked.eq(self._advances),
            here.slot.eq(slot),
            here.number.eq(Mux(came, pending.number_head, candidate.number)),
            here.entry.eq(pending.entry),
            here.status.eq(pending.status),
            here.near.eq(own),
            here.skips.eq(came & skips(head.depth, pending.entry)),
            [here.place[key].eq(Mux(came, head[key], place[key])) for key in self._owner.members],
            here.place.table.eq(place.table),
            here.before.eq(
                Mux(
                    came, (pending.slot & self._before).any(), (candidate.slot & self._before).any()
                )
            ),
            here.stale.eq((pending.slot & self._stale).any()),
            here.alone.eq((slot & self._alone).any()),
            here.quiet.eq(~self.invalidate.valid),
            here.behind.eq(self._behind(m, own)),
        ]
        for n, page in enumerate(self._pages):
            entry = WalkMatch(m, head, page, f"entry_{n}")
            other = WalkMatch(m, place, page, f"other_{n}")
            same = Mux(came, entry.at(near), other.at(place.depth))
            settles = next_.slot[n] & next_.goes
            depth = Value.cast(Mux(settles, next_.following, self._steps[n].depth))
            joins = Mux(came, entry.at(depth), other.at(depth)) & (depth > Value.cast(own))
            sent = self._sent(n) | (settles & ~self._before[n])
            m.d.sync += [
                here.alike[n].eq(entry.at(head.depth)),
                here.same[n].eq(same),
                here.same_small[n].eq(entry.at(Depth.SMALL)),
                here.led[n].eq(
                    Mux(
                        came,
                        entry.at(near) & self._reads(n, near),
                        other.at(place.depth) & self._reads(n, place.depth),
                    )
                ),
                here.led_small[n].eq(entry.at(Depth.SMALL) & self._reads(n, Depth.SMALL)),
                here.ahead[n].eq(joins & sent),
            ]

    def _behind(self, m: Module, own: Value) -> Value:
        """Whether the walk in the second stage may issue a read further down the path of this
        one."""
        here, pending, place = self._here, self._pending, self._candidate.place
        depth = Mux(here.skips, Depth.SMALL.value, Value.cast(here.near))
        entry = WalkMatch(m, pending.head, here.place, "entry_here").at(depth)
        other = WalkMatch(m, place, here.place, "other_here").at(depth)
        same = Mux(pending.came, entry, other)
        return same & (depth > Value.cast(own)) & here.slot.any()

    def _reads(self, n: int, depth: Value | Depth) -> Value:
        """Whether a walk has an outstanding read of that level that others may follow, or is about
        to issue one."""
        next_ = self._next
        settles = next_.slot[n] & next_.goes & (next_.following == depth) & ~self._before[n]
        return (self._sent(n) & (self._steps[n].depth == depth)) | settles

    def _sent(self, n: int) -> Value:
        """Whether a walk has an outstanding read that others may follow, and its step is up to
        date."""
        settled = self._sets[State.SENT][n] & ~self._here.slot[n] & ~self._next.slot[n]
        return settled & ~self._before[n]

    # -- second stage ------------------------------------------------------------------------------

    def _decide(self, m: Module) -> None:
        """Decodes the entry; decides whether the walk reads the next one or follows another
        walk."""
        here, next_, known, pending = self._here, self._next, self._directories, self._pending
        place, skips = here.place, here.skips
        m.submodules.entries = entries = PageTableEntryDecoder(self._config)
        m.d.comb += [
            entries.depth.eq(place.depth),
            entries.entry.eq(here.entry),
            entries.status.eq(here.status),
            entries.beside.eq(place.below),
        ]
        names = ("is_led", "jumps", "wants", "goes")
        led, jumps, wants, goes = (Signal(name=name) for name in names)
        finds = entries.end.outcome == Outcome.PAGE
        just = here.behind & next_.goes & ~next_.before
        table = Signal(self._step.members["table"])
        following = Signal(Depth)
        m.d.comb += [
            led.eq(
                ~here.alone
                & Mux(
                    skips,
                    self._led(here.led_small, here.same_small, Depth.SMALL),
                    self._led(here.led, here.same, here.near),
                )
            ),
            wants.eq(here.picked | (here.came & entries.descends & ~here.stale)),
            jumps.eq(~here.alone & ~led & (here.ahead.any() | just)),
            goes.eq(wants & pending.room & ~led & ~jumps),
            table.eq(Mux(here.came, entries.table, place.table)),
            following.eq(Mux(skips, Depth.SMALL, here.near)),
            pending.add.eq(goes),
            pending.address.eq(
                Mux(
                    skips,
                    self._address(place.vpn, Depth.SMALL, table),
                    self._address(place.vpn, here.near, table),
                )
            ),
            pending.wide.eq(following == Depth.PD0),
            pending.number.eq(here.number),
            [pending.owner[key].eq(place[key]) for key in ("asid", "vpn", "below", "lent")],
            pending.owner.depth.eq(following),
        ]
        with m.If(here.came & (place.depth == Depth.PD0)):
            m.d.comb += [pending.owner.below.eq(entries.below), pending.owner.lent.eq(0)]
        m.d.sync += [
            [next_[key].eq(here[key]) for key in ("came", "slot", "before", "alike")],
            next_.quiet.eq(here.quiet & ~self.invalidate.valid),
            next_.goes.eq(goes),
            next_.follows.eq(wants & (led | jumps)),
            next_.jumps.eq(wants & jumps),
            next_.joined.eq(Mux(just, next_.following, self._deepest(here.ahead))),
            next_.descends.eq(entries.descends),
            next_.finds.eq(~entries.descends & finds),
            # Another walk's read of PD0, or of a 64 KiB entry, found no page. One may have been
            # mapped since.
            next_.anew.eq(here.came & place.lent & ~entries.descends & ~finds),
            next_.depth.eq(place.depth),
            next_.following.eq(following),
            next_.page.asid.eq(place.asid),
            next_.page.vpn.eq(place.vpn),
            next_.table.eq(entries.table),
            next_.below.eq(entries.below),
            [next_.end[name].eq(entries.end[name]) for name in entries.end.shape().members],
            next_.end.whole.eq(entries.whole),
            next_.joins.eq(Mux(skips, here.same_small, here.same)),
        ]
        region = (next_.depth == Depth.PD1) & next_.came & (next_.descends | next_.finds)
        m.d.comb += [
            known.fill.valid.eq(region & ~next_.before & next_.quiet),
            known.fill.asid.eq(next_.page.asid),
            known.fill.vpn.eq(next_.page.vpn),
            known.fill.whole.eq(next_.finds),
            known.fill.table.eq(next_.table),
            known.invalidate.eq(self.invalidate),
        ]

    def _led(self, led: Value, same: Value, depth: Value | Depth) -> Value:
        """Whether another walk reads that entry, or issues its read in this cycle."""
        next_ = self._next
        just = (next_.slot & same).any() & next_.goes & ~next_.before
        return led.any() | (just & (next_.following == depth))

    def _deepest(self, walks: Value) -> Value:
        """The deepest level among those walks."""
        depths = [
            Cat(step.depth == depth for step in self._steps) & walks for depth in list(Depth)[1:]
        ]
        found = Const(0, len(Value.cast(self._steps[0].depth)))
        for depth, those in enumerate(depths, 1):
            found = Mux(those.any(), depth, found)
        return found

    def _address(self, vpn: Value, depth: Value | Depth, table: Value) -> Value:
        """Address of the entry; tables are aligned to their size."""
        address = Const(0)
        for number, level in enumerate(LEVELS):
            low = (level.entry_bytes - 1).bit_length()
            index = vpn[level.shift - PAGE_BITS :][: level.bits]
            inside = low + level.bits
            base = table if inside <= TABLE_BITS else table[inside - TABLE_BITS :]
            fill = Const(0, max(0, TABLE_BITS - inside))
            this = Cat(Const(0, low), index, fill, base)
            address = Mux(Value.cast(depth) == number, this, address)
        return address

    # -- third stage -------------------------------------------------------------------------------

    def _settle(self, m: Module) -> None:
        """Advances the walk and its followers."""
        next_, follow = self._next, self._sets[State.FOLLOW]
        walks = self._walks
        mine, waits, heirs, stay, ends = (
            Signal(walks, name=name) for name in ("mine", "waits", "heirs", "stay", "ends")
        )
        there = Cat(step.depth == next_.depth for step in self._steps)
        over = next_.came & ~next_.descends & ~next_.anew
        again, jumps = Mux(next_.anew, next_.slot, 0), Mux(next_.jumps, next_.slot, 0)
        m.d.comb += [
            mine.eq(Mux(next_.came, next_.slot, 0)),
            waits.eq(Mux(next_.came, follow & ~self._stale & next_.alike & there, 0)),
            heirs.eq(Mux(~next_.before, waits, 0)),
            # Followers that also need the next entry follow again at once.
            stay.eq(Mux(next_.goes | (next_.follows & ~next_.jumps), heirs & next_.joins, 0)),
            ends.eq(Mux(next_.finds, heirs, 0)),
        ]
        ongoing = next_.came & next_.descends & ~next_.goes & ~next_.follows
        both = (State.PICKED, State.SENT)
        self._move(Mux(next_.goes, next_.slot, 0), State.SENT, *both)
        self._move(Mux(next_.follows, next_.slot, 0), State.FOLLOW, *both)
        self._move(Mux(ongoing, mine, 0) | again, State.READ, State.SENT)
        self._move(Mux(over, mine, 0), State.DONE, State.SENT)
        self._move(waits & ~stay & ~ends, State.READ, State.FOLLOW)
        self._move(ends, State.DONE, State.FOLLOW)
        vain = waits & ~Mux(next_.descends | next_.finds, heirs, 0)
        anew = Signal(walks, name="anew")
        descend = Mux(next_.descends, heirs, 0)
        m.d.comb += anew.eq(again | (vain & self._jumped))
        m.d.sync += [
            self._alone.eq((self._alone | vain | again) & ~self._found.slot),
            self._jumped.eq((self._jumped & ~descend & ~anew & ~self._found.slot) | jumps),
        ]
        for n, (step, end) in enumerate(zip(self._steps, self._ends, strict=True)):
            with m.If((mine[n] | heirs[n]) & next_.descends):
                m.d.sync += [
                    step.depth.eq(next_.following),
                    step.table.eq(next_.table),
                    self._starts[n].eq(0),
                ]
                with m.If(next_.depth == Depth.PD0):
                    m.d.sync += [step.below.eq(next_.below), step.lent.eq(heirs[n])]
                with m.Elif(next_.depth == Depth.BIG):
                    m.d.sync += step.lent.eq(step.lent | heirs[n])
            with m.If(jumps[n]):
                below = Value.cast(next_.joined) > Depth.PD0.value
                m.d.sync += [step.depth.eq(next_.joined), step.lent.eq(step.lent | below)]
            with m.If(mine[n] | ends[n]):
                m.d.sync += end.eq(next_.end)
            with m.If(self._found.slot[n]):
                m.d.sync += self._nearer[n].eq(self._directories.hit)
            with m.If(self._found.slot[n] | anew[n]):
                nearer = Mux(anew[n], self._nearer[n], self._directories.hit)
                m.d.sync += [
                    step.depth.eq(Mux(nearer, Depth.PD0, Depth.PD3)),
                    step.lent.eq(0),
                    self._starts[n].eq(1),
                ]
            with m.If(self._entered.slot[n]):
                m.d.sync += end.eq(self._entered.end)

    # -- results -----------------------------------------------------------------------------------

    def _finish(self, m: Module) -> None:
        """Returns results, one per cycle: choose a walk, fetch its data, check for staleness."""
        m.submodules.done_turns = turns = RoundRobin(self._walks)
        leaving = Signal(walk_turn(self._config), name="leaving")
        left = Signal(walk_ending(self._config, self._tag), name="left")
        result, waiting = self.result, Signal(self._named)
        gives, passes, moves = (Signal(name=name) for name in ("gives", "passes", "leaves"))
        reads = [
            memory.read_port(domain="comb") for memory in (self._tags, self._names, self._fits)
        ]
        end = Signal(page_result(self._config))
        past = Signal()
        names = end.shape().members
        m.d.comb += [
            gives.eq(~result.valid | result.ready),
            passes.eq(~left.valid | gives),
            moves.eq(~leaving.valid | passes),
            turns.requests.eq(self._sets[State.DONE] & ~leaving.slot),
            turns.advance.eq(moves),
            [port.addr.eq(encode(leaving.slot)) for port in reads],
            [end[name].eq(left.end[name]) for name in names],
            past.eq(
                Cat(
                    (left.end.page.size == size) & ~left.fits[n] for n, size in enumerate(LARGER)
                ).any()
            ),
        ]
        self._move(Mux(passes, leaving.slot, 0), State.FREE, State.DONE)
        with m.If(moves):
            m.d.sync += [
                leaving.valid.eq(turns.requests.any()),
                leaving.slot.eq(turns.grant),
            ]
        with m.If(passes):
            m.d.sync += [
                left.valid.eq(leaving.valid),
                left.slot.eq(leaving.slot),
                left.tag.eq(reads[0].data),
                left.page.eq(reads[1].data),
                left.fits.eq(reads[2].data),
                left.end.eq(select(leaving.slot, (one.as_value() for one in self._ends))),
            ]
        with m.Else():
            m.d.sync += left.slot.eq(0)
        with m.If((left.end.outcome == Outcome.PAGE) & past):
            m.d.comb += [end.outcome.eq(Outcome.FAULT), end.fault.eq(FaultType.VA_LIMIT)]
        self._choose_piece(m, left, end)
        overtaken = (left.slot & self._stale).any() | self._covers(left.page)
        # Another piece of the page may be invalidated.
        touched = (left.slot & self._before).any() | touches(self.invalidate, left.page.asid)
        with m.If(overtaken | (left.end.whole & touched)):
            m.d.comb += end.outcome.eq(Outcome.RETRY)
            with m.If(~passes):
                m.d.sync += left.end.outcome.eq(Outcome.RETRY)
        with m.If(gives):
            m.d.sync += [
                result.valid.eq(left.valid),
                result.p.tag.eq(left.tag),
                result.p.end.eq(end),
                result.p.whole.eq(left.end.whole),
                waiting.eq(left.page),
            ]
        with m.Elif(
            self._covers(waiting) | (result.p.whole & touches(self.invalidate, waiting.asid))
        ):
            m.d.sync += result.p.end.outcome.eq(Outcome.RETRY)

    def _choose_piece(self, m: Module, left: data.View, end: data.View) -> None:
        """Chooses the walk's piece of a 512 MiB page. A piece that is not inside memory faults."""
        inside, memory = SHIFTS[PageSize.HUGE.value], self._config.memory_bytes >> PAGE_BITS
        number = Cat(left.page.vpn[inside:_REGION_BITS], left.end.page.ppn[_REGION_BITS:])
        outside = number >= memory >> inside
        with m.If(left.end.whole):
            m.d.comb += end.page.ppn.eq(number << inside)
            with m.If((left.end.outcome == Outcome.PAGE) & outside):
                m.d.comb += [end.outcome.eq(Outcome.FAULT), end.fault.eq(FaultType.REGION)]

    def _covers(self, page: data.View) -> Value:
        """Whether the current invalidation covers a walk's page, whatever size it will have."""
        return covers(self.invalidate, page.asid, page.vpn, PageSize.HUGE)

    def _overtake(self, m: Module) -> None:
        """Ends the walks covered by an invalidation: at once, or when their read has arrived."""
        entering = self._entering
        covered = self._covers(self._asked)
        touched = touches(self.invalidate, self._asked.asid)
        for n, page in enumerate(self._pages):
            with m.If(entering.slot[n]):
                m.d.sync += [self._stale[n].eq(covered), self._before[n].eq(touched)]
            with m.Else():
                m.d.sync += [
                    self._stale[n].eq(self._stale[n] | self._covers(page)),
                    self._before[n].eq(self._before[n] | touches(self.invalidate, page.asid)),
                ]
        for state in (State.READ, State.FOLLOW):
            self._move(self._sets[state] & self._stale, State.DONE, state)
