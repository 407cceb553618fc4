"""Proofs of the second-level TLB, of 2 ways and generations of one bit, and of
generations."""

from itertools import combinations
from typing import Any

from amaranth import Array, Cat, Const, Module, Mux, ResetInserter, Signal, Value
from amaranth.lib import data

from hw.config import Config
from hw.mmu.generations import Generations
from hw.mmu.l2 import Held, Kind, L2Tlb, walked
from hw.mmu.lookups import (
    VPN_BITS,
    Outcome,
    PageSize,
    Scope,
    covers,
    overlap,
    page,
    page_request,
)
from tb.proofs.formal import AnyConst, Assert, Assume, Cover, Inside, Proof, Wrap, anything

__all__ = ["PROOFS"]

CONFIG = Config(channels=1, semaphores=8, counters=1, asids=2, address_width=32)
SPACES = Config(channels=1, semaphores=8, counters=1, asids=4)
TAG = 1
WAYS = 2
_SHIFTS = (0, 4, 9)
"""Bits of a page number inside a page, by `PageSize`."""

_KEPT = ("ppn", "read_only", "privileged", "no_atomics")
"""What an entry remembers of a page, beside its size."""


class _Small(L2Tlb):
    least = 2 * WAYS


class _Page:
    """One page: any, chosen by the solver. `bits` of a set's number."""

    def __init__(self, m: Module, size: PageSize, bits: int) -> None:
        self._bits = bits
        self.asid, self.vpn = Signal(CONFIG.asid_bits, name="asid"), Signal(VPN_BITS, name="vpn")
        self.size = Const(size.value, 2)
        for signal in (self.asid, self.vpn):
            m.d.comb += signal.eq(AnyConst(len(signal)))
        self.home = home(self.asid, self.vpn, self.size, bits)

    def has(self, request: Any) -> Value:
        """Whether what is requested lies in it."""
        inside = overlap(request.vpn, PageSize.SMALL, self.vpn, self.size)
        return (request.asid == self.asid) & inside

    def is_in(self, row: Any) -> Value:
        """Whether an entry of its set is for it, current or not."""
        high = number(self.vpn, self.size)[self._bits :]
        return (Value.cast(row.held) == self.size) & (row.asid == self.asid) & (row.high == high)


def number(vpn: Value, size: Value) -> Value:
    """Number of the page of that size."""
    return Array([vpn >> shift for shift in _SHIFTS])[size]


def home(asid: Value, vpn: Value, size: Value, bits: int) -> Value:
    """Its set, of that number of bits: two pieces of the page number, and above all the ASID."""
    of = number(vpn, size)
    return of[:bits] ^ of[bits : 2 * bits] ^ (asid[0] << bits - 1)


class L2Proof(Proof):
    """For any one page of 4 KiB of any one address space, chosen by the solver; with resets at any
    moment, which find anything in RAM."""

    name = "mmu.l2"
    shows = (
        "a page that is found is what the last walk of that page of that address space found, and "
        "no invalidation for it came since, across generations that come round and sweeps; no set "
        "has two entries for a page; a look-up, and what a walk has found, is answered once, "
        "3 cycles later"
    )
    induction = 1
    cover = 15
    long = True
    sets = 2
    size = PageSize.SMALL

    @property
    def _bits(self) -> int:
        return (self.sets - 1).bit_length()

    def build(self, m: Module, wrap: Wrap) -> None:
        dut = _Small(CONFIG, TAG, entries=self.sets * WAYS, ways=WAYS, generation_bits=1)
        inside = Inside(dut)
        self._look(m, inside)
        self._restart = anything(m, 1, "restart")
        m.submodules.dut = wrap(ResetInserter(self._restart)(dut))
        self._dut, self._page = dut, _Page(m, self.size, self._bits)
        m.d.comb += [port.addr.eq(self._page.home) for port in self._home]
        m.d.comb += self._generation_at.eq(self._page.asid)
        self._inputs(m)
        self._specify(m)
        self._answers(m)
        self._flow(m)
        self._sweeps(m)
        self._sets(m)
        self._changes(m)
        self._probes(m)

    def _look(self, m: Module, inside: Inside) -> None:
        """What no port shows."""
        ways = [inside.submodule(f"way_{way}") for way in range(WAYS)]
        self._read_data = [[port.data for port in way.read_ports] for way in ways]
        self._home = [way.read_port(domain="comb") for way in ways]
        self._rows = [port.data for port in self._home]
        generations = inside.submodule("generations")
        of_spaces = Inside(generations)
        look = of_spaces.submodule("ram").read_port(domain="comb")
        self._generation, self._generation_at = look.data, look.addr
        self._sweeping, self._swept = generations.sweeps, generations.swept
        self._cleaned = of_spaces.signal("cleaned")
        names = ("clearing", "cleared", "sizes", "request", "position", "finished")
        (
            self._clearing,
            self._cleared,
            self._sizes,
            request,
            self._position,
            self._finished,
        ) = (inside.signal(name) for name in names)
        self._removed = data.View(page_request(CONFIG, TAG), Value.cast(request))

    def _inputs(self, m: Module) -> None:
        dut = self._dut
        inputs = {
            "probe_valid": dut.probe.valid,
            "probe": dut.probe.payload,
            "walked_valid": dut.walked.valid,
            "walked": dut.walked.payload,
            "invalidate": dut.invalidate,
        }
        for name, target in inputs.items():
            value = Value.cast(target)
            m.d.comb += value.eq(anything(m, len(value), name))
        event = dut.invalidate
        m.d.comb += [
            Assume(Value.cast(event.scope) <= Scope.PAGE.value),
            Assume(~(event.valid & (event.scope == Scope.PAGE) & dut.removing)),
            Assume(Value.cast(dut.walked.p.end.page.size) <= PageSize.HUGE.value),
        ]

    # -- specification -----------------------------------------------------------------------------

    def _specify(self, m: Module) -> None:
        """What the last result of a walk said of the page, if that may still be used (`known`);
        what was taken 1, 2 and 3 cycles ago, and what was known then."""
        dut, event = self._dut, self._dut.invalidate
        knows = data.StructLayout({"valid": 1, "page": page(CONFIG)})
        layout = data.StructLayout({
            "valid": 1,
            "walked": 1,
            "what": walked(CONFIG, TAG),
            "touched": 1,
            "known": knows,
        })
        self._known = known = Signal(knows, name="known")
        self._taken = [Signal(layout, name=f"taken_{ago}") for ago in (1, 2, 3)]
        enters = Signal(layout, name="enters")
        probes, walks = dut.probe.valid & dut.probe.ready, dut.walked.valid & dut.walked.ready
        m.d.comb += [
            Assert(~(probes & walks)),
            enters.valid.eq(probes | walks),
            enters.walked.eq(walks),
            enters.what.eq(dut.walked.payload),
            enters.known.eq(known),
        ]
        with m.If(probes):
            m.d.comb += [enters.what[name].eq(dut.probe.p[name]) for name in ("tag", "asid", "vpn")]
        gone = covers(event, self._page.asid, self._page.vpn, self._page.size)
        for before, after in zip((enters, *self._taken[:2]), self._taken, strict=True):
            m.d.sync += after.eq(before)
            what, end = before.what, before.what.end
            found = before.walked & (end.outcome == Outcome.PAGE)
            size = Mux(found, end.page.size, PageSize.HUGE)
            with m.If(covers(event, what.asid, what.vpn, size)):
                m.d.sync += after.touched.eq(1)
            with m.If(gone):
                m.d.sync += after.known.valid.eq(0)
        last, end = self._taken[2], dut.result.end
        with m.If(last.valid & last.walked & (end.outcome == Outcome.PAGE) & self._is(end, last)):
            m.d.sync += [known.valid.eq(1), known.page.eq(end.page)]
        with m.If(gone):
            m.d.sync += known.valid.eq(0)
        with m.If(self._restart):
            m.d.sync += [known.valid.eq(0), [taken.valid.eq(0) for taken in self._taken]]

    def _is(self, end: Any, taken: Any) -> Value:
        """Whether what was taken ended with the page."""
        return self._page.has(taken.what) & (Value.cast(end.page.size) == self._page.size)

    def _answers(self, m: Module) -> None:
        dut, last = self._dut, self._taken[2]
        result, missed = dut.result, dut.missed
        m.d.comb += [
            Assert(result.valid + missed.valid == last.valid),
            Assert(dut.hit.valid == (result.valid & ~last.walked)),
        ]
        with m.If(missed.valid):
            same = [missed[name] == last.what[name] for name in ("tag", "asid", "vpn")]
            m.d.comb += Assert(~last.walked & Cat(same).all())
        with m.If(result.valid):
            m.d.comb += Assert((result.tag == last.what.tag) & (result.asid == last.what.asid))
        with m.If(result.valid & last.walked):
            found, end = result.end, last.what.end
            retries = found.outcome == Outcome.RETRY
            m.d.comb += [
                Assert(Mux(last.touched, retries, found.outcome == end.outcome)),
                Assert((found.page == end.page) & (found.fault == end.fault)),
            ]
        with m.If(dut.hit.valid):
            m.d.comb += [
                Assert((result.end.outcome == Outcome.PAGE) & (dut.hit.asid == last.what.asid)),
                Assert(Value.cast(result.end.page.size) <= PageSize.HUGE.value),
            ]
            with m.If(self._is(result.end, last)):
                m.d.comb += Assert(last.known.valid & (result.end.page == last.known.page))
        mine = dut.hit.valid & self._is(result.end, last)
        opened, closed = Signal(name="opened"), Signal(name="closed")
        m.d.sync += closed.eq(self._generation.closed)
        with m.If(closed & ~self._generation.closed):
            m.d.sync += opened.eq(1)
        m.d.comb += Cover(mine)
        if self.size == PageSize.SMALL:
            m.d.comb += Cover(opened)

    # -- why ---------------------------------------------------------------------------------------

    @property
    def _steps(self) -> list[Any]:
        return [self._dut.looked, self._dut.read, self._dut.acting]

    def _flow(self, m: Module) -> None:
        """Steps hold what was taken. Two changes of one set are never under way."""
        for step, taken in zip(self._steps, self._taken, strict=True):
            walks, probes = step.kind == Kind.WALKED, step.kind == Kind.PROBE
            m.d.comb += Assert(taken.valid == (step.valid & (walks | probes)))
            with m.If(taken.valid):
                same = [step.request[name] == taken.what[name] for name in ("tag", "asid", "vpn")]
                m.d.comb += [
                    Assert((taken.walked == walks) & Cat(same).all()),
                    Assert(~taken.touched | step.stale),
                ]
            with m.If(taken.valid & walks):
                m.d.comb += Assert((step.end == taken.what.end) & (step.stale == taken.touched))
            with m.If(step.valid & (walks | (step.kind == Kind.REMOVE))):
                size, request = Value.cast(step.end.page.size), step.request
                m.d.comb += [
                    Assert(size <= PageSize.HUGE.value),
                    Assert(step.index == home(request.asid, request.vpn, size, self._bits)),
                ]
            with m.If(step.valid & (step.kind == Kind.REMOVE)):
                same = [step.request[name] == self._removed[name] for name in ("asid", "vpn")]
                m.d.comb += Assert(Cat(same).all())
            with m.If(step.valid & probes & self._clearing):
                m.d.comb += Assert(step.stale)
        for one, other in combinations(self._steps, 2):
            changes = [step.valid & (step.kind != Kind.PROBE) for step in (one, other)]
            m.d.comb += Assert(~(Cat(changes).all() & (one.index == other.index)))

    def _sweeps(self, m: Module) -> None:
        """A space that is swept is closed until it is clean."""
        sweeps, mine = self._sweeping, self._swept == self._page.asid
        under_way = [step.valid & (step.kind == Kind.SWEEP) for step in self._steps]
        for one, other in combinations(under_way, 2):
            m.d.comb += Assert(~(one & other))
        for step, sweep in zip(self._steps, under_way, strict=True):
            m.d.comb += Assert(~sweep | (step.request.asid == self._swept))
        m.d.comb += [
            Assert(sweeps | ~(self._finished | self._position.any() | Cat(under_way).any())),
            Assert(~(self._cleaned & sweeps)),
            Assert(~(self._finished & self._position.any())),
            Assert(~((sweeps | self._cleaned) & mine & ~self._generation.closed)),
        ]

    def _concerns(self, step: Any) -> Value:
        """Whether a change is for the page."""
        page = self._page
        whole = (step.request.asid == page.asid) & (step.index == page.home)
        one = page.has(step.request) & (Value.cast(step.end.page.size) == page.size)
        return step.valid & (step.kind != Kind.PROBE) & Mux(step.kind == Kind.SWEEP, whole, one)

    def _counts(self, row: Any) -> Value:
        """Whether an entry is for the page and counts."""
        current = self._generation
        return self._page.is_in(row) & (row.generation == current.number) & ~current.closed

    def _sets(self, m: Module) -> None:
        """Entries for the page, in its set."""
        page, rows, known = self._page, self._rows, self._known
        mine = [page.is_in(row) for row in rows]
        pending = self._clearing & (self._cleared <= page.home)
        self._empty = empty = Cat(row.held == Held.NONE for row in rows).all()
        with m.If(~self._clearing):
            m.d.comb += Assert(self._cleared == 0)
        with m.Elif(~pending):
            m.d.comb += Assert(empty)
        removes = [self._concerns(step) & (step.kind == Kind.REMOVE) for step in self._steps]
        waits = page.has(self._removed) & self._sizes.bit_select(page.size, 1)
        removal = waits | Cat(removes).any()
        sweeps = [self._concerns(step) & (step.kind == Kind.SWEEP) for step in self._steps]
        past = self._finished | (self._position > page.home)
        swept = self._cleaned | (self._sweeping & past & ~Cat(sweeps).any())
        with m.If(~pending):
            m.d.comb += Assert(~Cat(mine).all())
            for row, here in zip(rows, mine, strict=True):
                same = Cat(row[name] == known.page[name] for name in _KEPT).all()
                young = row.generation <= self._generation.number
                m.d.comb += [
                    Assert(~self._counts(row) | (known.valid & same) | removal),
                    Assert(~here | self._generation.closed | young),
                    Assert(~(here & swept & (self._swept == page.asid))),
                ]
        for one in (known, *(taken.known for taken in self._taken)):
            m.d.comb += Assert(~one.valid | (Value.cast(one.page.size) == page.size))

    def _changes(self, m: Module) -> None:
        """A change for the page knows the set as it is, unless that was cleared meanwhile."""
        page, acting, current = self._page, self._dut.acting, self._generation
        for way, row in enumerate(self._rows):
            looked, read = (
                Value.cast(self._read_data[way][0]),
                Value.cast(self._dut.read.rows[0][way]),
            )
            for step, seen in ((self._dut.looked, looked), (self._dut.read, read)):
                with m.If(self._concerns(step) & ~self._empty):
                    m.d.comb += Assert(seen == Value.cast(row))
            with m.If(self._concerns(acting) & ~self._empty):
                sweeps = acting.kind == Kind.SWEEP
                m.d.comb += [
                    Assert(acting.same[way] | ~page.is_in(row)),
                    Assert(sweeps | page.is_in(row) | ~acting.same[way]),
                ]
        keeps = self._concerns(acting) & (acting.kind == Kind.WALKED) & ~acting.stale
        with m.If(keeps & acting.open):
            m.d.comb += Assert(~current.closed & (acting.generation == current.number))
        with m.Elif(keeps & ~self._clearing):
            nothing = ~Cat(page.is_in(row) for row in self._rows).any()
            m.d.comb += Assert(current.closed | nothing)

    def _probes(self, m: Module) -> None:
        """What a look-up has read of the page's set was known when it was taken."""
        page, dut, size = self._page, self._dut, self._page.size
        looked = [Array(map(Value.cast, ports))[size] for ports in self._read_data]
        read = [Array(Value.cast(rows[way]) for rows in dut.read.rows)[size] for way in range(WAYS)]
        layout = self._rows[0].shape()
        for step, seen, taken in zip(self._steps, (looked, read), self._taken, strict=False):
            rows = [data.View(layout, row) for row in seen]
            counts = step.valid & (step.kind == Kind.PROBE) & ~step.stale & page.has(step.request)
            with m.If(counts):
                m.d.comb += Assert(~Cat(page.is_in(row) for row in rows).all())
            for row in rows:
                same = Cat(row[name] == taken.known.page[name] for name in _KEPT).all()
                with m.If(counts & self._counts(row)):
                    m.d.comb += Assert(taken.known.valid & same)
                if step is dut.looked:
                    clean = self._cleaned & (self._swept == page.asid)
                    with m.If(counts & clean):
                        m.d.comb += Assert(~page.is_in(row))
        self._hits(m)

    def _hits(self, m: Module) -> None:
        page, acting, taken = self._page, self._dut.acting, self._taken[2]
        probes = acting.valid & (acting.kind == Kind.PROBE) & ~acting.stale
        hits = Array(map(Value.cast, acting.hits))[page.size]
        with m.If(probes & page.has(acting.request)):
            m.d.comb += Assert(~hits.all())
            for way in range(WAYS):
                entry = Array(Value.cast(pages[way]) for pages in acting.pages)[page.size]
                with m.If(hits[way]):
                    m.d.comb += Assert(taken.known.valid & (entry == Value.cast(taken.known.page)))
        for size, pages in enumerate(acting.pages):
            for way in range(WAYS):
                with m.If(acting.hits[size][way]):
                    m.d.comb += Assert(Value.cast(pages[way].size) == size)


class GenerationsProof(Proof):
    """For any one entry of any one of four address spaces; with resets at any moment, which find
    anything in RAM. There are no entries after a reset."""

    name = "mmu.generations"
    shows = (
        "an entry counts until its generation ends, and never again before it is removed, though "
        "numbers come round; a closed space waits for at most one sweep of every other"
    )
    induction = 2
    cover = 20

    def build(self, m: Module, wrap: Wrap) -> None:
        dut = Generations(SPACES, 1, bits=2)
        inside = Inside(dut)
        look = inside.submodule("ram").read_port(domain="comb")
        cleaned = inside.signal("cleaned")
        restart, asid = anything(m, 1, "restart"), Signal(SPACES.asid_bits, name="asid")
        m.submodules.dut = wrap(ResetInserter(restart)(dut))
        m.d.comb += [
            asid.eq(AnyConst(len(asid))),
            dut.asid[0].eq(asid),
            look.addr.eq(dut.swept),
            Value.cast(dut.advance).eq(anything(m, len(Value.cast(dut.advance)), "advance")),
            dut.clean.eq(anything(m, 1, "clean")),
            Assume(dut.sweeps | ~dut.clean),
        ]
        row, mine = dut.row[0], dut.swept == asid
        removed = dut.clean & mine
        ends = dut.advance.valid & (dut.advance.asid == asid)
        self._entry(m, row, ends, removed | restart, cleaned & mine)
        opened = self._turn(m, dut, asid, cleaned, restart)
        m.d.comb += [
            Assert(~(cleaned & dut.sweeps)),
            Assert(~(cleaned | dut.sweeps) | look.data.closed),
            Assert(~opened | ~(look.data.closed | cleaned | dut.sweeps)),
        ]

    def _entry(self, m: Module, row: Any, ends: Value, removed: Value, clean: Value) -> None:
        """An entry is made at any moment, when its space is not closed."""
        entry = Signal(data.StructLayout({"there": 1, "stamp": 2, "ended": 1}), name="entry")
        makes = anything(m, 1, "makes") & ~row.closed & ~entry.there
        counts = (row.number == entry.stamp) & ~row.closed
        with m.If(makes):
            m.d.sync += [entry.there.eq(1), entry.stamp.eq(row.number), entry.ended.eq(ends)]
        with m.Elif(ends):
            m.d.sync += entry.ended.eq(1)
        with m.If(removed):
            m.d.sync += entry.there.eq(0)
        with m.If(entry.there):
            m.d.comb += [
                Assert(counts == ~entry.ended),
                Assert(~entry.ended | row.closed | (row.number > entry.stamp)),
                Assert(~clean),
            ]
        again = Signal(name="again")
        m.d.sync += again.eq(again | removed & entry.ended)
        m.d.comb += Cover(again & entry.there & entry.ended & ~row.closed)

    def _turn(self, m: Module, dut: Any, asid: Signal, cleaned: Signal, restart: Any) -> Signal:
        """Sweeps of others while the space is closed; whether one was opened right now."""
        others, ahead = Signal(3, name="others"), Signal(SPACES.asid_bits, name="ahead")
        m.d.comb += ahead.eq(asid - dut.swept)
        with m.If(~dut.row[0].closed | restart):
            m.d.sync += others.eq(0)
        with m.Elif(dut.clean & (dut.swept != asid)):
            m.d.sync += others.eq(others + 1)
        opened = Signal(name="opened")
        m.d.sync += opened.eq(cleaned & ~dut.advance.valid & ~restart)
        m.d.comb += Assert(others + ahead <= 3 + (cleaned | opened))
        return opened


class BigProof(L2Proof):
    name = "mmu.l2_big"
    shows = "the same for pages of 64 KiB, with 4 sets, whose numbers have more bits than an ASID"
    cover = 12
    long = False
    sets = 4
    size = PageSize.BIG


class HugeProof(L2Proof):
    name = "mmu.l2_huge"
    shows = "the same for pages of 2 MiB"
    cover = 8
    size = PageSize.HUGE


PROOFS = [L2Proof(), BigProof(), HugeProof(), GenerationsProof()]
