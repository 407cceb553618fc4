"""Proofs of the second-level TLB, with 2 ways and one-bit generations."""

from itertools import combinations
from typing import Any

from amaranth import Array, Cat, Const, Module, Mux, ResetInserter, Signal, Value
from amaranth.lib import data

from signalbox.hw.config import Config
from signalbox.hw.mmu.asid_generations import advancing_space
from signalbox.hw.mmu.l2_steps import Held, Kind, L2Steps
from signalbox.hw.mmu.l2_tlb import L2Tlb, refill
from signalbox.hw.mmu.records import (
    VPN_BITS,
    Outcome,
    PageSize,
    Scope,
    covers,
    overlap,
    page,
    page_request,
)
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

__all__ = ["PROOFS"]

CONFIG = Config(channels=1, semaphores=8, counters=1, asids=2, address_width=32)
TAG = 1
WAYS = 2
_SHIFTS = (0, 4, 9)
"""Number of page number bits inside a page, by `PageSize`."""

_KEPT = ("ppn", "read_only", "privileged", "no_atomics")
"""Properties of a page stored in an entry, besides its size."""


class _Small(L2Tlb):
    """A small second-level TLB with RAM that returns an arbitrary value if an address is read and
    written in the same cycle."""

    least = 2 * WAYS

    def _given(self, m: Module, word: Any, collided: Value) -> Any:
        junk = anything(m, len(Value.cast(word)), "junk")
        return data.View(word.shape(), Mux(collided, junk, Value.cast(word)))


class Points:
    """Named points of a second-level TLB, see `L2Steps`.

    Members
    -------
    waiting : change that waits to enter the pipeline.
    goes : the waiting change enters in this cycle.
    looked, read, acting, leaving : pipeline steps.
    same, hits : per page size and way: the entry is for the page; the entry is also current.
    written : set and ways written in this cycle.
    """

    def __init__(self, inside: Inside, sets: int) -> None:
        steps = L2Steps(CONFIG, TAG, WAYS, sets, generation_bits=1)
        self.waiting = inside.signal("waiting", steps.change)
        self.goes = inside.signal("goes")
        self.looked = inside.signal("looked", steps.looked)
        self.read = inside.signal("read", steps.read)
        self.acting = inside.signal("acting", steps.acting)
        self.leaving = inside.signal("leaving", steps.leaving)
        self.same = inside.signal("same", steps.matches)
        self.hits = inside.signal("hits", steps.matches)
        self.written = inside.signal("written", steps.written)


class _Page:
    """Any one page, chosen by the solver. `bits` : width of a set's number."""

    def __init__(self, m: Module, size: PageSize, bits: int) -> None:
        self._bits = bits
        self.asid, self.vpn = Signal(CONFIG.asid_bits, name="asid"), Signal(VPN_BITS, name="vpn")
        self.size = Const(size.value, 2)
        for signal in (self.asid, self.vpn):
            m.d.comb += signal.eq(AnyConst(len(signal)))
        self.home = home(self.asid, self.vpn, self.size, bits)

    def has(self, request: Any) -> Value:
        """Whether the requested address lies in the page."""
        inside = overlap(request.vpn, PageSize.SMALL, self.vpn, self.size)
        return (request.asid == self.asid) & inside

    def is_in(self, row: Any) -> Value:
        """Whether an entry of the page's set is for the page, current or not."""
        high = (self.vpn >> _SHIFTS[self.size.value])[self._bits :]
        same = row.high[: VPN_BITS - _SHIFTS[self.size.value] - self._bits] == high
        return (Value.cast(row.held) == self.size) & (row.asid == self.asid) & same


def number(vpn: Value, size: Value) -> Value:
    """Number of the page of this size."""
    return Array([vpn >> shift for shift in _SHIFTS])[size]


def home(asid: Value, vpn: Value, size: Value, bits: int) -> Value:
    """Number of the page's set, `bits` wide: two parts of the page number, with the ASID at the
    top."""
    of = number(vpn, size)
    return of[:bits] ^ of[bits : 2 * bits] ^ (asid[0] << bits - 1)


class L2TlbProof(Proof):
    """For any page of 4 KiB of any address space, chosen by the solver. There are resets at any
    time, after which RAM has arbitrary contents."""

    name = "mmu.l2_tlb"
    shows = (
        "a page that is found is what the last walk of that page of that address space found, and "
        "no invalidation for it came since, across generations that come round and sweeps; no set "
        "has two entries for a page; a look-up, and what a walk has found, is answered once, "
        "4 cycles after it came, or after it could enter: within 5 cycles"
    )
    induction = 1
    cover = 21
    long = True
    sets = 2
    size = PageSize.SMALL

    @property
    def _bits(self) -> int:
        return (self.sets - 1).bit_length()

    def build(self, m: Module, wrap: Wrap) -> None:
        dut = _Small(CONFIG, TAG, entries=self.sets * WAYS, ways=WAYS, generation_bits=1)
        inside = Inside(dut)
        self._points = Points(inside, self.sets)
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
        """Internal signals."""
        ways = [inside.submodule(f"way_{way}") for way in range(WAYS)]
        self._read_data = [[port.data for port in way.read_ports] for way in ways]
        self._home = [way.read_port(domain="comb") for way in ways]
        self._rows = [port.data for port in self._home]
        generations = inside.submodule("generations")
        of_spaces = Inside(generations)
        look = of_spaces.submodule("ram").read_port(domain="comb")
        self._generation, self._generation_at = look.data, look.addr
        self._sweeping, self._swept = generations.sweeps, generations.swept
        self._advancing = of_spaces.signal("advancing", advancing_space(CONFIG, 1))
        self._cleaned = of_spaces.signal("cleaned")
        self._clearing, self._cleared, self._sizes, self._position, self._finished = (
            inside.signal(name) for name in ("clearing", "cleared", "sizes", "position", "finished")
        )
        self._removed = inside.signal("request", page_request(CONFIG, TAG))

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
            arbitrary(m, target, name)
        event = dut.invalidate
        m.d.comb += [
            Assume(Value.cast(event.scope) <= Scope.PAGE.value),
            Assume(~(event.valid & (event.scope == Scope.PAGE) & dut.removing)),
            Assume(Value.cast(dut.walked.p.end.page.size) <= PageSize.HUGE.value),
        ]

    # -- specification -----------------------------------------------------------------------------

    def _specify(self, m: Module) -> None:
        """Model the result of the last walk for the page, while it may be used (`known`), and the
        request in each step (`taken`), with the value of `known` when the request was taken."""
        dut, event = self._dut, self._dut.invalidate
        knows = data.StructLayout({"valid": 1, "page": page(CONFIG)})
        layout = data.StructLayout({
            "valid": 1,
            "walked": 1,
            "what": refill(CONFIG, TAG),
            "touched": 1,
            "known": knows,
        })
        self._known = known = Signal(knows, name="known")
        self._taken = [Signal(layout, name=f"taken_{number}") for number in range(5)]
        enters = Signal(layout, name="enters")
        probes, walks = dut.probe.valid & dut.probe.ready, dut.walked.valid & dut.walked.ready
        waits, comes = self._taken[0], Signal(layout, name="comes")
        m.d.comb += [
            Assert(~(probes & self._points.goes)),
            enters.eq(waits),
            comes.valid.eq(walks),
            comes.walked.eq(1),
            comes.what.eq(dut.walked.payload),
        ]
        with m.If(~self._points.goes):
            m.d.comb += [
                enters.valid.eq(probes),
                enters.walked.eq(0),
                enters.touched.eq(0),
                enters.known.eq(known),
                *(enters.what[name].eq(dut.probe.p[name]) for name in ("tag", "asid", "vpn")),
            ]
        with m.If(waits.valid & ~self._points.goes):
            m.d.comb += [comes.eq(waits), Assert(~walks)]
        gone = covers(event, self._page.asid, self._page.vpn, self._page.size)
        sources = (comes, enters, *self._taken[1:4])
        for before, after in zip(sources, self._taken, strict=True):
            m.d.sync += after.eq(before)
            what, end = before.what, before.what.end
            found = before.walked & (end.outcome == Outcome.PAGE)
            size = Mux(found, end.page.size, PageSize.HUGE)
            with m.If(covers(event, what.asid, what.vpn, size)):
                m.d.sync += after.touched.eq(1)
            with m.If(gone):
                m.d.sync += after.known.valid.eq(0)
        last, end = self._taken[4], dut.result.end
        with m.If(last.valid & last.walked & (end.outcome == Outcome.PAGE) & self._is(end, last)):
            m.d.sync += [known.valid.eq(1), known.page.eq(end.page)]
        with m.If(gone):
            m.d.sync += known.valid.eq(0)
        with m.If(self._restart):
            m.d.sync += [known.valid.eq(0), [taken.valid.eq(0) for taken in self._taken]]

    def _is(self, end: Any, taken: Any) -> Value:
        """Whether the request `taken` ended with the page as its result."""
        return self._page.has(taken.what) & (Value.cast(end.page.size) == self._page.size)

    def _answers(self, m: Module) -> None:
        dut, last = self._dut, self._taken[4]
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

    # -- invariants --------------------------------------------------------------------------------

    @property
    def _steps(self) -> list[Any]:
        return [
            self._points.waiting,
            self._points.looked,
            self._points.read,
            self._points.acting,
            self._points.leaving,
        ]

    def _flow(self, m: Module) -> None:
        """Steps hold the requests taken. Two changes of the same set are never in progress
        together."""
        for step, taken in zip(self._steps, self._taken, strict=True):
            walks, probes = step.kind == Kind.WALKED, step.kind == Kind.PROBE
            m.d.comb += Assert(taken.valid == (step.valid & (walks | probes)))
            with m.If(taken.valid):
                same = [step.request[name] == taken.what[name] for name in ("tag", "asid", "vpn")]
                near = self._near(step) if step is self._points.looked else 0
                m.d.comb += [
                    Assert((taken.walked == walks) & Cat(same).all()),
                    Assert(~taken.touched | step.stale | near),
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
            waits = (one is self._points.waiting) & ~self._points.goes
            m.d.comb += Assert(waits | ~(Cat(changes).all() & (one.index == other.index)))
        removes = Cat(step.valid & (step.kind == Kind.REMOVE) for step in self._steps)
        m.d.comb += Assert(self._dut.removing | ~(removes.any() | self._sizes.any()))
        self._patience(m)

    def _patience(self, m: Module) -> None:
        """A change waits for earlier ones; none overtakes it."""
        waited = Signal(3, name="waited")
        changes = [step.valid & (step.kind != Kind.PROBE) for step in self._steps]
        m.d.sync += waited.eq(Mux(self._points.waiting.valid & ~self._points.goes, waited + 1, 0))
        with m.If(self._restart):
            m.d.sync += waited.eq(0)
        m.d.comb += [
            Assert(waited <= 4),
            Assert((waited == 0) | self._points.waiting.valid),
            Assert((waited != 4) | self._points.goes),
            Assert(~self._points.goes | self._points.waiting.valid),
            Assert(changes[0] == self._points.waiting.valid),
        ]
        for n, change in enumerate(changes[1:4]):
            m.d.comb += Assert((waited <= n) | ~change)

    def _near(self, step: Any) -> Value:
        """Whether a look-up is for the page being removed, or near it."""
        own = self._removed
        here = overlap(step.request.vpn, PageSize.SMALL, own.vpn, PageSize.HUGE)
        probes = step.valid & (step.kind == Kind.PROBE)
        return probes & self._dut.removing & (step.request.asid == own.asid) & here

    def _sweeps(self, m: Module) -> None:
        """A space being swept is closed until it is clean."""
        sweeps, mine = self._sweeping, self._swept == self._page.asid
        before = self._advancing.row
        same = Value.cast(before) == Value.cast(self._generation)
        m.d.comb += Assert(~self._advances | before.closed | same)
        under_way = [step.valid & (step.kind == Kind.SWEEP) for step in self._steps]
        for step, sweep in zip(self._steps, under_way, strict=True):
            m.d.comb += Assert(~sweep | (step.request.asid == self._swept))
        m.d.comb += [
            Assert(sweeps | ~(self._finished | self._position.any() | Cat(under_way).any())),
            Assert(~(self._cleaned & sweeps)),
            Assert(~(self._finished & self._position.any())),
            Assert(~((sweeps | self._cleaned) & mine & ~self._generation.closed)),
        ]

    @property
    def _advances(self) -> Value:
        """The generation of the page's space ends with this cycle."""
        return self._advancing.valid & (self._advancing.asid == self._page.asid)

    def _concerns(self, step: Any) -> Value:
        """Whether a change is for the page."""
        page = self._page
        whole = (step.request.asid == page.asid) & (step.index == page.home)
        one = page.has(step.request) & (Value.cast(step.end.page.size) == page.size)
        return step.valid & (step.kind != Kind.PROBE) & Mux(step.kind == Kind.SWEEP, whole, one)

    def _counts(self, row: Any) -> Value:
        """Whether an entry is for the page and current."""
        return self._page.is_in(row) & self._is_current(row.generation)

    def _is_current(self, generation: Value) -> Value:
        current = self._generation
        return (generation == current.number) & ~current.closed & ~self._advances

    def _sets(self, m: Module) -> None:
        """Entries for the page, in its set."""
        page, rows, known = self._page, self._rows, self._known
        mine = [page.is_in(row) for row in rows]
        written, self._zero = self._points.written, Signal(name="zero")
        zero = self._zero
        m.d.comb += zero.eq(written.ways.all() & (written.held == Held.NONE))
        before = zero & (written.index == self._cleared - 1)
        m.d.comb += Assert(~self._clearing | (self._cleared == 0) | before)
        self._pending = pending = self._clearing & (self._cleared <= page.home) | zero & (
            written.index == page.home
        )
        self._empty = empty = Cat(row.held == Held.NONE for row in rows).all()
        with m.If(~self._clearing):
            m.d.comb += Assert(self._cleared == 0)
        with m.Elif(~pending):
            m.d.comb += Assert(empty)
        removes = [self._concerns(step) & (step.kind == Kind.REMOVE) for step in self._steps]
        waits = page.has(self._removed) & self._sizes.bit_select(page.size, 1)
        self._removal = removal = waits | Cat(removes).any()
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
        """A change for the page has the current contents of the set, unless it was cleared
        meanwhile."""
        page, acting = self._page, self._points.acting
        for way, row in enumerate(self._rows):
            same = (
                Cat(Value.cast(ways)[way] for ways in self._points.same).any() | acting.swept[way]
            )
            for size in {0, self.size.value}:
                looked = Value.cast(self._read_data[way][size])
                read = Value.cast(self._points.read.rows[size][way])
                for step, seen in ((self._points.looked, looked), (self._points.read, read)):
                    with m.If(self._concerns(step) & ~self._empty):
                        m.d.comb += Assert(seen == Value.cast(row))
                with m.If(self._concerns(self._points.looked) & ~self._empty):
                    m.d.comb += Assert(~self._points.looked.collided[size][way])
            with m.If(self._concerns(acting) & ~self._empty):
                sweeps = acting.kind == Kind.SWEEP
                m.d.comb += [
                    Assert(same | ~page.is_in(row)),
                    Assert(sweeps | page.is_in(row) | ~same),
                ]
        wanted = [Value.cast(self._points.read.end.page.size) == size for size in PageSize]
        changes = self._points.read.valid & (self._points.read.kind != Kind.PROBE)
        m.d.comb += [
            Assert(~changes | (self._points.read.sizes == Cat(wanted))),
            Assert(~acting.swept.any() | (acting.kind == Kind.SWEEP)),
            Assert(~acting.oldest.all()),
        ]
        self._seen_generation(m)
        self._writes(m)

    def _seen_generation(self, m: Module) -> None:
        """A generation read early is still the current one, or the space was closed."""
        page, current = self._page, self._generation
        nothing = ~Cat(page.is_in(row) for row in self._rows).any()
        for step in (self._points.looked, self._points.read, self._points.acting):
            mine = step.valid & ~step.stale & (step.request.asid == page.asid)
            m.d.comb += Assert(~mine | ~self._advances)
            if step is self._points.looked:
                continue
            same = Value.cast(step.current) == Value.cast(current)
            m.d.comb += Assert(~mine | step.current.closed | same)
            keeps = mine & self._concerns(step) & (step.kind == Kind.WALKED)
            closed = step.current.closed & ~self._clearing & ~self._pending
            m.d.comb += Assert(~(keeps & closed) | current.closed | nothing)

    def _writes(self, m: Module) -> None:
        """A write for the page leaves no other entry for it. If the result is out of date, the
        entry is not current, or is about to be removed."""
        page, current = self._page, self._generation
        leaving, written = self._points.leaving, self._points.written
        here = (written.index == page.home) & written.ways.any()
        keeps = here & (written.held != Held.NONE)
        mine = keeps & self._concerns(leaving)
        counts = self._is_current(written.generation)
        changes = leaving.valid & (leaving.kind != Kind.PROBE)
        goes = self._removal | (self._clearing & (self._cleared == 0))
        closing = (self._sweeping | self._cleaned) & (self._swept == page.asid)
        m.d.comb += [
            Assert(~keeps | (leaving.valid & (leaving.kind == Kind.WALKED))),
            Assert(~keeps | (leaving.end.outcome == Outcome.PAGE) | leaving.stale),
            Assert(~keeps | (Value.cast(written.held) == Value.cast(leaving.end.page.size))),
            Assert(~written.ways.any() | self._zero | changes & (written.index == leaving.index)),
            Assert(~mine | Mux(leaving.stale, goes | ~counts, counts)),
            Assert(~mine | ~closing),
            Assert(~mine | current.closed | (written.generation <= current.number)),
        ]
        for n, one in enumerate(written.ways):
            others = Cat(way for k, way in enumerate(written.ways) if k != n).any()
            m.d.comb += Assert(~(keeps & one & others))
        ends = self._concerns(leaving) & (leaving.kind == Kind.WALKED) & ~leaving.stale
        found = ends & (leaving.end.outcome == Outcome.PAGE)
        for way, row in enumerate(self._rows):
            m.d.comb += [
                Assert(~mine | written.ways[way] | ~page.is_in(row)),
                Assert(~found | mine | self._clearing | self._pending | ~self._counts(row)),
            ]
        with m.If(self._concerns(leaving) & (leaving.kind != Kind.WALKED)):
            for way, row in enumerate(self._rows):
                gone = written.ways[way] & (written.held == Held.NONE)
                m.d.comb += Assert(~page.is_in(row) | (gone & here) | self._clearing)

    def _probes(self, m: Module) -> None:
        """The contents of the page's set read by a look-up were known when it was taken."""
        page, size = self._page, self._page.size
        looked = [Array(map(Value.cast, ports))[size] for ports in self._read_data]
        read = [
            Array(Value.cast(rows[way]) for rows in self._points.read.rows)[size]
            for way in range(WAYS)
        ]
        layout = self._rows[0].shape()
        steps = zip(
            (self._points.looked, self._points.read), (looked, read), self._taken[1:3], strict=True
        )
        for step, seen, taken in steps:
            rows = [data.View(layout, row) for row in seen]
            counts = step.valid & (step.kind == Kind.PROBE) & ~step.stale & page.has(step.request)
            if step is self._points.looked:
                counts &= ~self._near(step)
            collided = Array(map(Value.cast, step.collided))[size]
            mine = [page.is_in(row) & ~collided[way] for way, row in enumerate(rows)]
            with m.If(counts):
                m.d.comb += Assert(~Cat(mine).all())
            for row, here in zip(rows, mine, strict=True):
                same = Cat(row[name] == taken.known.page[name] for name in _KEPT).all()
                with m.If(counts & here & self._counts(row)):
                    m.d.comb += Assert(taken.known.valid & same)
                if step is self._points.looked:
                    clean = self._cleaned & (self._swept == page.asid)
                    with m.If(counts & clean):
                        m.d.comb += Assert(~here)
        self._hits(m)

    def _hits(self, m: Module) -> None:
        page, acting, taken = self._page, self._points.acting, self._taken[3]
        probes = acting.valid & (acting.kind == Kind.PROBE) & ~acting.stale
        hits = Array(map(Value.cast, self._points.hits))[page.size]
        with m.If(probes & page.has(acting.request)):
            m.d.comb += Assert(~hits.all())
            for way in range(WAYS):
                kept = Array(Value.cast(pages[way]) for pages in acting.pages)[page.size]
                same = kept == Cat(taken.known.page[name] for name in _KEPT)
                with m.If(hits[way]):
                    m.d.comb += Assert(taken.known.valid & same)
        self._found(m)

    def _found(self, m: Module) -> None:
        """A look-up that leaves with the page returns the known result."""
        leaving, taken = self._points.leaving, self._taken[4]
        probes = leaving.valid & (leaving.kind == Kind.PROBE)
        walks = leaving.valid & (leaving.kind == Kind.WALKED)
        m.d.comb += [
            Assert((leaving.probes == probes) & (leaving.walks == walks)),
            Assert(probes | ~leaving.hits),
        ]
        with m.If(leaving.hits & ~leaving.stale):
            m.d.comb += [
                Assert(leaving.end.outcome == Outcome.PAGE),
                Assert(Value.cast(leaving.end.page.size) <= PageSize.HUGE.value),
            ]
            with m.If(self._is(leaving.end, taken)):
                m.d.comb += Assert(taken.known.valid & (leaving.end.page == taken.known.page))


class L2TlbBigProof(L2TlbProof):
    name = "mmu.l2_tlb_big"
    shows = "the same for pages of 64 KiB, with 4 sets, whose numbers have more bits than an ASID"
    cover = 15
    sets = 4
    size = PageSize.BIG


class L2TlbHugeProof(L2TlbProof):
    name = "mmu.l2_tlb_huge"
    shows = "the same for pages of 2 MiB"
    cover = 14
    size = PageSize.HUGE


PROOFS = [L2TlbProof(), L2TlbBigProof(), L2TlbHugeProof()]
