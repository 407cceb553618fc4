"""Second-level TLB, shared by all clients (ASID-3, ASID-8 … ASID-11)."""

from collections.abc import Iterable
from itertools import pairwise, product

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, ValueLike
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.lib.onehot import lowest, select
from signalbox.hw.mmu.asid_generations import GENERATION_BITS, AsidGenerations
from signalbox.hw.mmu.l2_steps import KEPT, Held, Kind, L2Steps
from signalbox.hw.mmu.plru import SetPlru
from signalbox.hw.mmu.records import (
    SHIFTS,
    VPN_BITS,
    Outcome,
    PageSize,
    Scope,
    covers,
    invalidation,
    largest,
    overlap,
    page_request,
    page_result,
    touches,
)

__all__ = ["L2Tlb", "refill", "refill_event"]


def refill(config: Config, tag: int) -> data.StructLayout:
    """Refill: a `page_request` that missed, with the result of its walk."""
    return data.StructLayout({**page_request(config, tag).members, "end": page_result(config)})


def refill_event(config: Config, tag: int) -> data.StructLayout:
    """`refill` with a `valid` strobe."""
    return data.StructLayout({"valid": 1, **refill(config, tag).members})


class L2Tlb(wiring.Component):
    """Caches translations for all clients. Set-associative, in RAM; pages of all sizes share the
    sets.

    The set index is the page number, counted in pages of the entry's size, folded and hashed with
    the ASID. So a look-up reads every way three times, once for each page size. The low ASID bits
    are XORed, in reverse order, into the high bits of the index, so the first pages of different
    address spaces lie in different sets.

    One look-up per cycle; `result` or `missed` follows 4 cycles later. Refills pass through the
    same pipeline and leave at its end as `result`, so results never collide. A refill replaces an
    entry for the same page, else an entry that was invalid when read, else the pseudo least
    recently used one (`SetPlru`).

    A change reads the set before it writes it. So it waits in a register of its own until no other
    change of its set is in flight, then takes one cycle from look-ups. A refill leaves 6 cycles
    after it was accepted, up to 3 later if its set is being changed; there is at most one change in
    two cycles. A look-up misses a way that is written while it reads it.

    An invalidation takes effect in the next cycle. An address space: in one cycle, by
    `AsidGenerations`. Everything: also at once; all sets are then cleared, one per cycle, without
    hits or refills meanwhile. A page: three changes, one per page size; look-ups in its 2 MiB
    region miss meanwhile. Operations in the pipeline miss, or return RETRY. The sweep of a closed
    address space takes one change per set, one in four cycles while no refills come.

    Parameters
    ----------
    tag : width of a request's tag.
    entries : 64 … 8,192, a power of two.
    ways : 2 … 16, a power of two; so 4 … 4,096 sets.

    Members
    -------
    probe : in, stream of `page_request`: look-ups.
    result : out, strobe: a hit or a refill, see `refill_event`; no back-pressure.
    missed : out, strobe: a look-up missed, with its `page_request`; no back-pressure.
    walked : in, stream of `refill`; not accepted in the cycle of an invalidation.
    invalidate : in, see `invalidation`. Not with scope PAGE while `removing`.
    removing : out, the removal of a page is in flight.
    hit : out, strobe: a look-up of `asid` hit. For counters.
    """

    least = 64
    """Lower limit of `entries`; proofs use smaller TLBs."""

    def __init__(
        self,
        config: Config,
        tag: int,
        *,
        entries: int = 512,
        ways: int = 4,
        generation_bits: int = GENERATION_BITS,
    ) -> None:
        if not self.least <= entries <= 8192 or entries & (entries - 1):
            raise ValueError(
                f"entries = {entries!r} is not a power of two from {self.least} to 8,192"
            )
        if not 2 <= ways <= 16 or ways & (ways - 1):
            raise ValueError(f"ways = {ways!r} is not a power of two from 2 to 16")
        self._config, self._ways, self._sets = config, ways, entries // ways
        self._index_bits = (self._sets - 1).bit_length()
        self._widths = [max(0, VPN_BITS - self._index_bits - shift) for shift in SHIFTS]
        self._generations = AsidGenerations(config, 1 + ways, bits=generation_bits)
        self._recency = SetPlru(ways, self._sets)
        request = page_request(config, tag)
        layouts = L2Steps(config, tag, ways, self._sets, generation_bits)
        self._entry, self._step = layouts.entry, layouts.change
        self._state(layouts)
        super().__init__({
            "probe": In(stream.Signature(request)),
            "result": Out(refill_event(config, tag)),
            "missed": Out(data.StructLayout({"valid": 1, **request.members})),
            "walked": In(stream.Signature(refill(config, tag))),
            "invalidate": In(invalidation(config)),
            "removing": Out(1),
            "hit": Out(data.StructLayout({"valid": 1, "asid": config.asid_bits})),
        })

    def _state(self, layouts: L2Steps) -> None:
        """Pipeline registers."""
        self._waiting = Signal(layouts.change, name="waiting")
        """Change that waits."""
        self._goes = Signal(name="goes")
        """The waiting change enters in this cycle."""
        self._looked = Signal(layouts.looked, name="looked")
        self._read = Signal(layouts.read, name="read")
        self._acting = Signal(layouts.acting, name="acting")
        self._leaving = Signal(layouts.leaving, name="leaving")
        self._same = Signal(layouts.matches, name="same")
        self._hits = Signal(layouts.matches, name="hits")
        self._written = Signal(layouts.written, name="written")

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.generations = self._generations
        m.submodules.recency = self._recency
        self._clearing = Signal(init=1, name="clearing")
        self._cleared = Signal(self._index_bits, name="cleared")
        self._wait(m, self._removal(m), self._walked(m), self._sweep(m))
        self._enter(m)
        self._move(m)
        self._storage(m)
        self._compare(m)
        self._priorities(m)
        self._answer(m)
        self._change(m)
        self._clear(m)
        self._use(m)
        return m

    # -- pipeline input ----------------------------------------------------------------------------

    def _indices(self, request: data.View) -> data.View:
        """Set indices of a page, by page size."""
        bits, indices = self._index_bits, []
        for shift in SHIFTS:
            number = request.vpn[shift:]
            turned = Cat(reversed(request.asid[:bits]))
            shifted = turned << (bits - len(turned))
            indices.append((number[:bits] ^ number[bits : 2 * bits] ^ shifted)[:bits])
        return data.View(data.ArrayLayout(bits, len(SHIFTS)), Cat(indices))

    def _highs(self, request: data.View) -> data.View:
        """Page-number bits not implied by the set index, by page size."""
        bits = VPN_BITS - self._index_bits
        highs = (request.vpn[shift + self._index_bits :] for shift in SHIFTS)
        padded = [Cat(high, Const(0, bits - len(high))) for high in highs]
        return data.View(data.ArrayLayout(bits, len(SHIFTS)), Cat(padded))

    def _removal(self, m: Module) -> data.View:
        """Removal of a page, once for each page size."""
        event, removal = self.invalidate, Signal(self._step)
        self._sizes = sizes = Signal(len(SHIFTS), name="sizes")
        self._removed = request = Signal(self._step["request"].shape, name="request")
        size = Mux(sizes[0], 0, Mux(sizes[1], 1, 2))
        m.d.comb += [
            removal.valid.eq(sizes.any()),
            removal.kind.eq(Kind.REMOVE),
            removal.request.eq(request),
            removal.end.page.size.eq(size),
            removal.index.eq(self._indices(request)[size]),
        ]
        begins = event.valid & (event.scope == Scope.PAGE)
        with m.If(begins):
            m.d.sync += [sizes.eq(~0), request.asid.eq(event.asid), request.vpn.eq(event.vpn)]
        with m.Elif(self._free):
            m.d.sync += sizes.eq(sizes & ~lowest(sizes))
        m.d.sync += self.removing.eq(begins | sizes.any() | self._under_way(Kind.REMOVE))
        return removal

    @property
    def _steps(self) -> tuple[data.View, ...]:
        return self._waiting, self._looked, self._read, self._acting, self._leaving

    def _under_way(self, kind: Kind, steps: int = 5) -> Value:
        """Whether a change of this kind is in one of the first `steps` steps, `waiting`
        included."""
        return Cat(step.valid & (step.kind == kind) for step in self._steps[:steps]).any()

    @property
    def _free(self) -> Value:
        """Whether a change can be accepted in this cycle."""
        return ~self._waiting.valid | self._goes

    def _walked(self, m: Module) -> data.View:
        """Refill. In the cycle of an invalidation it stays with the walker, which handles the
        invalidation."""
        came = self.walked.payload
        step = Signal(self._step)
        blocked = self.invalidate.valid
        m.d.comb += [
            step.valid.eq(self.walked.valid & ~blocked),
            step.kind.eq(Kind.WALKED),
            [step.request[name].eq(came[name]) for name in step.request.shape().members],
            step.end.eq(came.end),
            step.index.eq(self._indices(came)[came.end.page.size]),
            self.walked.ready.eq(self._free & ~self._sizes.any() & ~blocked),
        ]
        return step

    def _sweep(self, m: Module) -> data.View:
        """Visits all sets while a space has to be swept and nothing else changes."""
        sweep = Signal(self._step)
        generations = self._generations
        self._position = Signal(self._index_bits, name="position")
        self._finished = Signal(name="finished")
        m.d.comb += [
            sweep.valid.eq(
                generations.sweeps & ~self._finished & ~self._under_way(Kind.SWEEP, steps=2)
            ),
            sweep.kind.eq(Kind.SWEEP),
            sweep.request.asid.eq(generations.swept),
            sweep.index.eq(self._position),
            generations.clean.eq(self._finished & ~self._under_way(Kind.SWEEP)),
        ]
        with m.If(generations.clean):
            m.d.sync += [self._position.eq(0), self._finished.eq(0)]
        return sweep

    def _wait(self, m: Module, removal: data.View, fill: data.View, sweep: data.View) -> None:
        """Holds a change back while others of the same set are in flight."""
        waiting = self._waiting
        clashes = (
            step.valid & (step.kind != Kind.PROBE) & (step.index == waiting.index)
            for step in (self._looked, self._read, self._acting)
        )
        m.d.sync += self._goes.eq(waiting.valid & ~self._goes & ~Cat(clashes).any())
        with m.If(self._free):
            m.d.sync += waiting.eq(Mux(removal.valid, removal, Mux(fill.valid, fill, sweep)))
            with m.If(sweep.valid & ~removal.valid & ~fill.valid):
                m.d.sync += [
                    self._position.eq(self._position + 1),
                    self._finished.eq(self._position == self._sets - 1),
                ]
        with m.Elif(self._covered(waiting)):
            m.d.sync += waiting.stale.eq(1)

    def _enter(self, m: Module) -> None:
        """Inserts the waiting change, else a look-up."""
        probe, looked, waiting, event = self.probe, self._looked, self._waiting, self.invalidate
        of_space = touches(event, probe.p.asid) & (event.scope != Scope.PAGE)
        m.d.comb += probe.ready.eq(~self._goes)
        m.d.sync += [
            looked.valid.eq(self._goes | probe.valid),
            looked.kind.eq(Mux(self._goes, waiting.kind, Kind.PROBE)),
            looked.request.eq(Mux(self._goes, waiting.request, probe.payload)),
            looked.end.eq(waiting.end),
            looked.index.eq(waiting.index),
            looked.stale.eq(
                Mux(
                    self._goes,
                    waiting.stale | self._covered(waiting),
                    self._clearing | of_space,
                )
            ),
        ]

    def _covered(self, step: data.View) -> Value:
        """Whether the current invalidation covers the operation in a step."""
        size = Mux(step.kind == Kind.WALKED, largest(step.end), PageSize.HUGE)
        return covers(self.invalidate, step.request.asid, step.request.vpn, size)

    def _move(self, m: Module) -> None:
        """Advances the pipeline, one cycle per step. An invalidation marks the operations that it
        covers as stale; during the removal of a page, look-ups in its 2 MiB region are stale,
        too."""
        _, *steps = self._steps
        for source, step in pairwise(steps):
            m.d.sync += [step[name].eq(source[name]) for name in self._step.members]
            with m.If(self._covered(source)):
                m.d.sync += step.stale.eq(1)
        looks, own = self._looked.request, self._removed
        near = overlap(looks.vpn, PageSize.SMALL, own.vpn, PageSize.HUGE)
        with m.If((self._looked.kind == Kind.PROBE) & self.removing & (looks.asid == own.asid)):
            with m.If(near):
                m.d.sync += self._read.stale.eq(1)

    # -- pipeline steps ----------------------------------------------------------------------------

    def _storage(self, m: Module) -> None:
        """Every way is read at three indices; for a change, three times at the same one."""
        looked, read, written, entry = self._looked, self._read, self._written, self._made(m)
        indices = self._indices(self.probe.p)
        addresses = [Mux(self._goes, self._waiting.index, index) for index in indices]
        for way in range(self._ways):
            # A read that collides with a write is not used, so the RAM may leave it undefined.
            attributes = {"no_rw_check": 1}
            ram = Memory(shape=self._entry, depth=self._sets, init=[], attrs=attributes)
            m.submodules[f"way_{way}"] = ram
            write = ram.write_port()
            m.d.comb += [
                write.en.eq(written.ways[way]),
                write.addr.eq(written.index),
                write.data.eq(entry),
            ]
            for size, address in enumerate(addresses):
                port, meets = ram.read_port(), looked.collided[size][way]
                m.d.comb += port.addr.eq(address)
                m.d.sync += [
                    meets.eq(written.ways[way] & (address == written.index)),
                    read.rows[size][way].eq(self._given(m, port.data, meets)),
                ]
        size, looks = Value.cast(looked.end.page.size), looked.kind == Kind.PROBE
        m.d.comb += self._recency.index.eq(looked.index)
        m.d.sync += [
            read.collided.eq(looked.collided),
            read.sizes.eq(Cat(looks | (size == number) for number in range(len(SHIFTS)))),
        ]

    def _given(self, m: Module, word: data.View, collided: Value) -> data.View:
        """Output of the RAM. A proof makes it arbitrary on a collision."""
        return word

    def _made(self, m: Module) -> data.View:
        """Entry to be written, from the operation in `leaving`."""
        leaving, written = self._leaving, self._written
        entry = Signal(self._entry)
        m.d.comb += [
            entry.held.eq(written.held),
            entry.asid.eq(leaving.request.asid),
            entry.high.eq(self._highs(leaving.request)[leaving.end.page.size]),
            entry.generation.eq(written.generation),
            [entry[name].eq(leaving.end.page[name]) for name in KEPT],
        ]
        return entry

    def _compare(self, m: Module) -> None:
        """Compares tags, and for a sweep the ASID; checks generations."""
        self._look_at_generations(m)
        read, acting = self._read, self._acting
        asid, current, highs = read.request.asid, read.current, self._highs(read.request)
        m.d.sync += [acting.oldest.eq(self._recency.oldest), acting.current.eq(current)]
        for way, number in product(range(self._ways), range(len(SHIFTS))):
            row, high = read.rows[number][way], highs[number][: self._widths[number]]
            one, other = Cat(row.asid, row.high[: len(high)]), Cat(asid, high)
            middle = len(one) // 2
            held = (Value.cast(row.held) == number) & read.sizes[number]
            counts = (row.generation == current.number) & ~current.closed
            m.d.sync += [
                acting.low[number][way].eq(held & (one[:middle] == other[:middle])),
                acting.high[number][way].eq(one[middle:] == other[middle:]),
                acting.counts[number][way].eq(counts & ~read.collided[number][way]),
                [acting.pages[number][way][name].eq(row[name]) for name in KEPT],
            ]
        for way in range(self._ways):
            row, own = read.rows[0][way], self._generations.row[1 + way]
            live = (row.held != Held.NONE) & (row.generation == own.number) & ~own.closed
            m.d.sync += [
                acting.swept[way].eq((read.kind == Kind.SWEEP) & (row.asid == asid)),
                acting.live[way].eq(live),
            ]

    def _look_at_generations(self, m: Module) -> None:
        """Reads the generations of the entries, and one cycle earlier the generation of the
        operation. If that advances in between, the operation is stale; if it opens, the space has
        no entries."""
        looked, read, generations = self._looked, self._read, self._generations
        m.d.comb += [
            generations.asid[0].eq(looked.request.asid),
            [generations.asid[1 + way].eq(row.asid) for way, row in enumerate(read.rows[0])],
        ]
        m.d.sync += read.current.eq(generations.row[0])

    def _priorities(self, m: Module) -> None:
        """Of several matching entries, the smallest page wins."""
        low, high, counts = (
            Value.cast(part) for part in (self._acting.low, self._acting.high, self._acting.counts)
        )
        m.d.comb += [
            Value.cast(self._same).eq(low & high),
            Value.cast(self._hits).eq(low & high & counts),
        ]
        self._small, self._big = (Value.cast(one).any() for one in list(self._hits)[:2])

    def _by_size(self, choices: Iterable[ValueLike]) -> Value:
        """Selects the choice of the page size that answers."""
        small, big, huge = choices
        return Mux(self._small, small, Mux(self._big, big, huge))

    def _answer(self, m: Module) -> None:
        """Page of the matching entry, or result of a walk."""
        acting, leaving, result, missed = self._acting, self._leaving, self.result, self.missed
        probes = acting.valid & (acting.kind == Kind.PROBE)
        m.d.sync += [
            leaving.probes.eq(probes),
            leaving.walks.eq(acting.valid & (acting.kind == Kind.WALKED)),
            leaving.hits.eq(probes & Value.cast(self._hits).any()),
        ]
        with m.If(acting.kind == Kind.PROBE):
            choices = (
                select(Value.cast(hits), map(Value.cast, pages))
                for hits, pages in zip(self._hits, acting.pages, strict=True)
            )
            kept = data.View(acting.pages.shape().elem_shape.elem_shape, self._by_size(choices))
            m.d.sync += [
                leaving.end.outcome.eq(Outcome.PAGE),
                leaving.end.page.size.eq(self._by_size(PageSize)),
                [leaving.end.page[name].eq(kept[name]) for name in KEPT],
            ]
        m.d.comb += [
            self.hit.valid.eq(leaving.hits & ~leaving.stale),
            self.hit.asid.eq(leaving.request.asid),
            result.valid.eq(leaving.walks | self.hit.valid),
            missed.valid.eq(leaving.probes & ~self.hit.valid),
            [
                out[name].eq(leaving.request[name])
                for out in (result, missed)
                for name in leaving.request.shape().members
            ],
            result.end.eq(leaving.end),
        ]
        with m.If(leaving.stale):
            m.d.comb += result.end.outcome.eq(Outcome.RETRY)

    def _change(self, m: Module) -> None:
        """Writes a refill; invalidates pages to be removed or swept."""
        acting, written = self._acting, self._written
        small, big, huge = (Value.cast(one) for one in self._same)
        same, free = small | big | huge | acting.swept, ~acting.live
        keeps = (acting.kind == Kind.WALKED) & (acting.end.outcome == Outcome.PAGE)
        keeps &= acting.valid & ~acting.stale & ~acting.current.closed
        goes = acting.valid & ((acting.kind == Kind.REMOVE) | (acting.kind == Kind.SWEEP))
        choice = Mux(same.any(), lowest(same), Mux(free.any(), lowest(free), acting.oldest))
        self._kept = Mux(keeps & ~self._clearing, choice, 0)
        m.d.sync += [
            written.ways.eq(Mux(keeps, choice, Mux(goes, same, 0))),
            written.index.eq(acting.index),
            written.held.eq(Mux(keeps, acting.end.page.size, Held.NONE)),
            written.generation.eq(acting.current.number),
        ]

    def _clear(self, m: Module) -> None:
        """Clears all sets in turn, without other changes meanwhile. An address space is invalidated
        by its generation."""
        event, generations = self.invalidate, self._generations
        m.d.comb += [
            generations.advance.valid.eq(event.valid & (event.scope == Scope.ASID)),
            generations.advance.asid.eq(event.asid),
        ]
        with m.If(self._clearing):
            m.d.sync += [
                self._written.ways.eq(~0),
                self._written.index.eq(self._cleared),
                self._written.held.eq(Held.NONE),
                self._cleared.eq(self._cleared + 1),
                self._clearing.eq(self._cleared != self._sets - 1),
            ]
        with m.Elif(event.valid & (event.scope == Scope.ALL)):
            m.d.sync += self._clearing.eq(1)

    def _use(self, m: Module) -> None:
        """Marks the entry that answered or was written as most recently used."""
        acting, leaving, recency = self._acting, self._leaving, self._recency
        looks = acting.valid & (acting.kind == Kind.PROBE)
        answers = self._by_size(map(Value.cast, self._hits))
        use = Signal(self._ways)
        m.d.sync += use.eq(Mux(looks, answers, self._kept))
        m.d.comb += [
            recency.use.eq(use),
            recency.used.eq(self._indices(leaving.request)[leaving.end.page.size]),
        ]
