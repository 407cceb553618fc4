"""Second-level TLB, shared by all clients (ASID-3, ASID-8 … ASID-11)."""

from collections.abc import Iterable
from itertools import pairwise, product

from amaranth.hdl import Cat, Const, Module, Mux, ShapeLike, Signal, Value, ValueLike
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.lib.onehot import lowest, select
from signalbox.hw.mmu.asid_generations import GENERATION_BITS, AsidGenerations, generation
from signalbox.hw.mmu.plru import SetPlru
from signalbox.hw.mmu.records import (
    PERMISSIONS,
    SHIFTS,
    VPN_BITS,
    Outcome,
    PageSize,
    Scope,
    covers,
    invalidation,
    largest,
    overlap,
    page,
    page_request,
    page_result,
    touches,
)

__all__ = ["Held", "Kind", "L2Tlb", "refill", "refill_event"]


_KEPT = ("ppn", *PERMISSIONS)
"""Fields of a `page` stored in an entry, besides its size."""


def refill(config: Config, tag: int) -> data.StructLayout:
    """Refill: a `page_request` that missed, with the result of its walk."""
    return data.StructLayout({**page_request(config, tag).members, "end": page_result(config)})


def refill_event(config: Config, tag: int) -> data.StructLayout:
    """`refill` with a `valid` strobe."""
    return data.StructLayout({"valid": 1, **refill(config, tag).members})


class Kind(enum.Enum, shape=2):
    """Kinds of pipeline operations: look-up; refill by a walk; removal of one page; removal of all
    pages of an address space in one set."""

    PROBE = 0
    WALKED = 1
    REMOVE = 2
    SWEEP = 3


class Held(enum.Enum, shape=2):
    """Page size of an entry, or NONE for an invalid one."""

    SMALL = 0
    BIG = 1
    HUGE = 2
    NONE = 3


class L2Tlb(wiring.Component):
    """Caches translations for all clients. Set-associative, in RAM; pages of all sizes share the
    sets.

    The set index is the folded page number of the page's size, hashed with the ASID. So a look-up
    reads every way three times, once for each page size. The low ASID bits are XORed, in reverse
    order, into the high bits of the index, so the first pages of different address spaces lie in
    different sets.

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

    Attributes
    ----------
    waiting : change that waits.
    goes : it enters in this cycle.
    looked, read, acting, leaving : pipeline steps.
    written : set and ways written in this cycle (all state, for proofs).
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
        kept = data.StructLayout({name: page(config)[name].shape for name in _KEPT})
        self._entry = data.StructLayout({
            "held": Held,
            "asid": config.asid_bits,
            "high": VPN_BITS - self._index_bits,
            "generation": generation_bits,
            **kept.members,
        })
        """`high`: page number without the bits implied by the set index."""
        self._step = data.StructLayout({
            "valid": 1,
            "kind": Kind,
            "request": request,
            "end": page_result(config),
            "index": self._index_bits,
            "stale": 1,
        })
        self._state(kept, generation_bits)
        super().__init__({
            "probe": In(stream.Signature(request)),
            "result": Out(refill_event(config, tag)),
            "missed": Out(data.StructLayout({"valid": 1, **request.members})),
            "walked": In(stream.Signature(refill(config, tag))),
            "invalidate": In(invalidation(config)),
            "removing": Out(1),
            "hit": Out(data.StructLayout({"valid": 1, "asid": config.asid_bits})),
        })

    def _state(self, kept: data.StructLayout, generation_bits: int) -> None:
        """Pipeline registers. `collided`: the way was written while it was read."""
        step, ways = self._step.members, self._ways

        def each(shape: ShapeLike) -> data.ArrayLayout:
            """Per page size and way."""
            return data.ArrayLayout(data.ArrayLayout(shape, ways), len(SHIFTS))

        self.waiting = Signal(self._step)
        self.goes = Signal()
        self.looked = Signal(data.StructLayout({**step, "collided": each(1)}))
        self.read = Signal(
            data.StructLayout({
                **step,
                "collided": each(1),
                "rows": each(self._entry),
                "sizes": len(SHIFTS),
                "current": generation(generation_bits),
            })
        )
        """`sizes`: candidate page sizes."""
        self.acting = Signal(
            data.StructLayout({
                **step,
                "low": each(1),
                "high": each(1),
                "counts": each(1),
                "pages": each(kept),
                "swept": ways,
                "live": ways,
                "oldest": ways,
                "current": generation(generation_bits),
            })
        )
        """`low`, `high`: the two halves of the tag match."""
        self.same = Signal(each(1))
        self.hits = Signal(each(1))
        self.leaving = Signal(data.StructLayout({**step, "probes": 1, "walks": 1, "hits": 1}))
        self.written = Signal(
            data.StructLayout({
                "ways": ways,
                "index": self._index_bits,
                "held": Held,
                "generation": generation_bits,
            })
        )

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
        return self.waiting, self.looked, self.read, self.acting, self.leaving

    def _under_way(self, kind: Kind, steps: int = 5) -> Value:
        """Whether a change of this kind is in one of the first `steps` steps, `waiting`
        included."""
        return Cat(step.valid & (step.kind == kind) for step in self._steps[:steps]).any()

    @property
    def _free(self) -> Value:
        """Whether a change can be accepted in this cycle."""
        return ~self.waiting.valid | self.goes

    def _walked(self, m: Module) -> data.View:
        """Refill. In the cycle of an invalidation it stays with the walker, which handles the
        latter."""
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
        waiting = self.waiting
        clashes = (
            step.valid & (step.kind != Kind.PROBE) & (step.index == waiting.index)
            for step in (self.looked, self.read, self.acting)
        )
        m.d.sync += self.goes.eq(waiting.valid & ~self.goes & ~Cat(clashes).any())
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
        probe, looked, waiting, event = self.probe, self.looked, self.waiting, self.invalidate
        of_space = touches(event, probe.p.asid) & (event.scope != Scope.PAGE)
        m.d.comb += probe.ready.eq(~self.goes)
        m.d.sync += [
            looked.valid.eq(self.goes | probe.valid),
            looked.kind.eq(Mux(self.goes, waiting.kind, Kind.PROBE)),
            looked.request.eq(Mux(self.goes, waiting.request, probe.payload)),
            looked.end.eq(waiting.end),
            looked.index.eq(waiting.index),
            looked.stale.eq(
                Mux(
                    self.goes,
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
        looks, own = self.looked.request, self._removed
        near = overlap(looks.vpn, PageSize.SMALL, own.vpn, PageSize.HUGE)
        with m.If((self.looked.kind == Kind.PROBE) & self.removing & (looks.asid == own.asid)):
            with m.If(near):
                m.d.sync += self.read.stale.eq(1)

    # -- pipeline steps ----------------------------------------------------------------------------

    def _storage(self, m: Module) -> None:
        """Every way is read at three indices; for a change, three times at the same one."""
        looked, read, written, entry = self.looked, self.read, self.written, self._made(m)
        indices = self._indices(self.probe.p)
        addresses = [Mux(self.goes, self.waiting.index, index) for index in indices]
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
        leaving, written = self.leaving, self.written
        entry = Signal(self._entry)
        m.d.comb += [
            entry.held.eq(written.held),
            entry.asid.eq(leaving.request.asid),
            entry.high.eq(self._highs(leaving.request)[leaving.end.page.size]),
            entry.generation.eq(written.generation),
            [entry[name].eq(leaving.end.page[name]) for name in _KEPT],
        ]
        return entry

    def _compare(self, m: Module) -> None:
        """Compares tags, and for a sweep the ASID; checks generations."""
        self._look_at_generations(m)
        read, acting = self.read, self.acting
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
                [acting.pages[number][way][name].eq(row[name]) for name in _KEPT],
            ]
        for way in range(self._ways):
            row, own = read.rows[0][way], self._generations.row[1 + way]
            live = (row.held != Held.NONE) & (row.generation == own.number) & ~own.closed
            m.d.sync += [
                acting.swept[way].eq((read.kind == Kind.SWEEP) & (row.asid == asid)),
                acting.live[way].eq(live),
            ]

    def _look_at_generations(self, m: Module) -> None:
        """Reads the generations of the entries, and one cycle earlier that of the operation. If the
        latter advances in between, the operation is stale; if it opens, the space has no
        entries."""
        looked, read, generations = self.looked, self.read, self._generations
        m.d.comb += [
            generations.asid[0].eq(looked.request.asid),
            [generations.asid[1 + way].eq(row.asid) for way, row in enumerate(read.rows[0])],
        ]
        m.d.sync += read.current.eq(generations.row[0])

    def _priorities(self, m: Module) -> None:
        """Of several matching entries, the smallest page wins."""
        low, high, counts = (
            Value.cast(part) for part in (self.acting.low, self.acting.high, self.acting.counts)
        )
        m.d.comb += [
            Value.cast(self.same).eq(low & high),
            Value.cast(self.hits).eq(low & high & counts),
        ]
        self._small, self._big = (Value.cast(one).any() for one in list(self.hits)[:2])

    def _by_size(self, choices: Iterable[ValueLike]) -> Value:
        """Selects the choice of the page size that answers."""
        small, big, huge = choices
        return Mux(self._small, small, Mux(self._big, big, huge))

    def _answer(self, m: Module) -> None:
        """Page of the matching entry, or result of a walk."""
        acting, leaving, result, missed = self.acting, self.leaving, self.result, self.missed
        probes = acting.valid & (acting.kind == Kind.PROBE)
        m.d.sync += [
            leaving.probes.eq(probes),
            leaving.walks.eq(acting.valid & (acting.kind == Kind.WALKED)),
            leaving.hits.eq(probes & Value.cast(self.hits).any()),
        ]
        with m.If(acting.kind == Kind.PROBE):
            choices = (
                select(Value.cast(hits), map(Value.cast, pages))
                for hits, pages in zip(self.hits, acting.pages, strict=True)
            )
            kept = data.View(acting.pages.shape().elem_shape.elem_shape, self._by_size(choices))
            m.d.sync += [
                leaving.end.outcome.eq(Outcome.PAGE),
                leaving.end.page.size.eq(self._by_size(PageSize)),
                [leaving.end.page[name].eq(kept[name]) for name in _KEPT],
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
        acting, written = self.acting, self.written
        small, big, huge = (Value.cast(one) for one in self.same)
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
                self.written.ways.eq(~0),
                self.written.index.eq(self._cleared),
                self.written.held.eq(Held.NONE),
                self._cleared.eq(self._cleared + 1),
                self._clearing.eq(self._cleared != self._sets - 1),
            ]
        with m.Elif(event.valid & (event.scope == Scope.ALL)):
            m.d.sync += self._clearing.eq(1)

    def _use(self, m: Module) -> None:
        """Marks the entry that answered or was written as most recently used."""
        acting, leaving, recency = self.acting, self.leaving, self._recency
        looks = acting.valid & (acting.kind == Kind.PROBE)
        answers = self._by_size(map(Value.cast, self.hits))
        use = Signal(self._ways)
        m.d.sync += use.eq(Mux(looks, answers, self._kept))
        m.d.comb += [
            recency.use.eq(use),
            recency.used.eq(self._indices(leaving.request)[leaving.end.page.size]),
        ]
