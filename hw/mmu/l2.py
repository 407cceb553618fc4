"""Second-level TLB, shared by all clients (ASID-3, ASID-8 … ASID-11)."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from hw.config import Config
from hw.lib.onehot import select
from hw.mmu.generations import GENERATION_BITS, Generations
from hw.mmu.lookups import (
    SHIFTS,
    VPN_BITS,
    Outcome,
    PageSize,
    Scope,
    covers,
    ending,
    invalidation,
    largest,
    overlap,
    page,
    page_request,
)
from hw.mmu.recency import SetRecency

__all__ = ["Held", "Kind", "L2Tlb", "found", "walked"]


_KEPT = ("ppn", "read_only", "privileged", "no_atomics")
"""What an entry has of a `page`, beside its size."""


def walked(config: Config, tag: int) -> data.StructLayout:
    """What came of a `page_request` that had missed."""
    return data.StructLayout({**page_request(config, tag).members, "end": ending(config)})


def found(config: Config, tag: int) -> data.StructLayout:
    """The same, if `valid`."""
    return data.StructLayout({"valid": 1, **walked(config, tag).members})


class Kind(enum.Enum, shape=2):
    """What goes through the pipeline: a look-up; what a walk has found; the removal of a page; that
    of all pages of a space in one set."""

    PROBE = 0
    WALKED = 1
    REMOVE = 2
    SWEEP = 3


class Held(enum.Enum, shape=2):
    """Of what size the page of an entry is, or that there is none."""

    SMALL = 0
    BIG = 1
    HUGE = 2
    NONE = 3


class L2Tlb(wiring.Component):
    """Set-associative, in RAM; pages of all sizes share its sets.

    A set is chosen by the page number of the page's size, folded, and the ASID: so every way is
    read three times for a look-up, once as if the page had each size. Low bits of the ASID turn the
    high bits of the set's number: the first pages of several spaces lie in different sets.

    One look-up per cycle, `result` or `missed` 3 cycles later. What walks have found goes the same
    way and is given away at its end, so results never meet; it takes the place of an entry for the
    same page, else of one that did not count when it was read, else of the least recently used
    one, as a tree of bits remembers it. A change takes one cycle from look-ups; it waits while
    another of its set is under way.

    An invalidation takes effect in the cycle after it. A space or everything: in one cycle
    (`Generations`; all sets are cleared, one per cycle, and nothing is found or kept meanwhile).
    A page: three changes, one for each size, during which look-ups of its 2 MiB miss. What was on
    its way through the pipeline misses, or is RETRY. The sweep of a space that is closed takes
    every fourth cycle, and as many as there are sets.

    Parameters
    ----------
    tag : bits of a request's tag.
    entries : 64 … 8,192, a power of two. ways : 2 … 16, a power of two; so 4 … 4,096 sets.

    Members
    -------
    probe : pages that are wanted. result : of those found, and of all that were `walked`; it has to
        be taken in its cycle. missed : of the others; likewise.
    walked : what walks have found.
    invalidate : see `invalidation`. None of a page while `removing`.
    hit : a page of `asid` was found at once. For counters.

    Attributes
    ----------
    looked, read, acting : what is in each step (state, for proofs).
    """

    least = 64
    """Of `entries`; a proof takes fewer."""

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
        self._generations = Generations(config, 1 + ways, bits=generation_bits)
        self._recency = SetRecency(ways, self._sets)
        request = page_request(config, tag)
        self._entry = data.StructLayout({
            "held": Held,
            "asid": config.asid_bits,
            "high": VPN_BITS - self._index_bits,
            "generation": generation_bits,
            **{name: page(config)[name].shape for name in _KEPT},
        })
        """`high`: its page number without the bits that the number of its set tells."""
        step = {
            "valid": 1,
            "kind": Kind,
            "request": request,
            "end": ending(config),
            "index": self._index_bits,
            "stale": 1,
        }
        sizes = len(SHIFTS)
        rows = data.ArrayLayout(data.ArrayLayout(self._entry, ways), sizes)
        pages = data.ArrayLayout(data.ArrayLayout(page(config), ways), sizes)
        self._step = data.StructLayout(step)
        self.looked = Signal(self._step)
        self.read = Signal(data.StructLayout({**step, "rows": rows}))
        self.acting = Signal(
            data.StructLayout({
                **step,
                "hits": data.ArrayLayout(ways, sizes),
                "pages": pages,
                "same": ways,
                "live": ways,
                "oldest": ways,
                "open": 1,
                "generation": generation_bits,
            })
        )
        super().__init__({
            "probe": In(stream.Signature(request)),
            "result": Out(found(config, tag)),
            "missed": Out(data.StructLayout({"valid": 1, **request.members})),
            "walked": In(stream.Signature(walked(config, tag))),
            "invalidate": In(invalidation(config)),
            "removing": Out(1),
            "hit": Out(data.StructLayout({"valid": 1, "asid": config.asid_bits})),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.generations = self._generations
        m.submodules.recency = self._recency
        self._enters = Signal(self._step)
        self._clearing = Signal(init=1, name="clearing")
        self._cleared = Signal(self._index_bits, name="cleared")
        self._move(m)
        self._choose(m, self._removal(m), self._walked(m), self._sweep(m))
        self._storage(m)
        self._compare(m)
        self._answer(m)
        self._change(m)
        return m

    @property
    def _steps(self) -> tuple[data.View, ...]:
        return self.looked, self.read, self.acting

    def _move(self, m: Module) -> None:
        """Every step takes one cycle. What an invalidation meets on its way is stale."""
        sources = (self._enters, self.looked, self.read)
        for source, step in zip(sources, self._steps, strict=True):
            request = source.request
            size = Mux(source.kind == Kind.WALKED, largest(source.end), PageSize.HUGE)
            m.d.sync += [step[name].eq(source[name]) for name in self._step.members]
            with m.If(covers(self.invalidate, request.asid, request.vpn, size)):
                m.d.sync += step.stale.eq(1)

    # -- what enters -------------------------------------------------------------------------------

    def _indices(self, request: data.View) -> data.View:
        """The sets of a page, by its size."""
        bits, indices = self._index_bits, []
        for shift in SHIFTS:
            number = request.vpn[shift:]
            turned = Cat(reversed(request.asid[:bits]))
            shifted = turned << (bits - len(turned))
            indices.append((number[:bits] ^ number[bits : 2 * bits] ^ shifted)[:bits])
        return data.View(data.ArrayLayout(bits, len(SHIFTS)), Cat(indices))

    def _highs(self, request: data.View) -> data.View:
        """What their numbers do not tell of it, by its size."""
        bits = VPN_BITS - self._index_bits
        highs = ((request.vpn >> shift + self._index_bits)[:bits] for shift in SHIFTS)
        padded = [Cat(high, Const(0, bits - len(high))) for high in highs]
        return data.View(data.ArrayLayout(bits, len(SHIFTS)), Cat(padded))

    def _removal(self, m: Module) -> data.View:
        """A page to remove, once as if it had each size."""
        event, removal = self.invalidate, Signal(self._step)
        sizes = Signal(len(SHIFTS))
        request = Signal(self._step["request"].shape)
        size = Mux(sizes[0], 0, Mux(sizes[1], 1, 2))
        m.d.comb += [
            removal.valid.eq(sizes.any()),
            removal.kind.eq(Kind.REMOVE),
            removal.request.eq(request),
            removal.end.page.size.eq(size),
            removal.index.eq(self._indices(request)[size]),
        ]
        with m.If(event.valid & (event.scope == Scope.PAGE)):
            m.d.sync += [sizes.eq(~0), request.asid.eq(event.asid), request.vpn.eq(event.vpn)]
        with m.Elif(self._enters.valid & (self._enters.kind == Kind.REMOVE)):
            m.d.sync += sizes.eq(sizes & (sizes - 1))
        m.d.comb += self.removing.eq(sizes.any() | self._under_way(Kind.REMOVE))
        return removal

    def _under_way(self, kind: Kind) -> Value:
        return Cat(step.valid & (step.kind == kind) for step in self._steps).any()

    def _walked(self, m: Module) -> data.View:
        """What a walk has found."""
        came, step = self.walked.payload, Signal(self._step)
        m.d.comb += [
            step.valid.eq(self.walked.valid),
            step.kind.eq(Kind.WALKED),
            [step.request[name].eq(came[name]) for name in step.request.shape().members],
            step.end.eq(came.end),
            step.index.eq(self._indices(came)[came.end.page.size]),
        ]
        m.d.comb += self.walked.ready.eq(self._enters.valid & (self._enters.kind == Kind.WALKED))
        return step

    def _sweep(self, m: Module) -> data.View:
        """All sets in turn, one at a time, while a space is to be swept."""
        sweep, generations = Signal(self._step), self._generations
        position = Signal(self._index_bits)
        finished = Signal()
        under_way = self._under_way(Kind.SWEEP)
        m.d.comb += [
            sweep.valid.eq(generations.sweeps & ~finished & ~under_way),
            sweep.kind.eq(Kind.SWEEP),
            sweep.request.asid.eq(generations.swept),
            sweep.index.eq(position),
            generations.clean.eq(finished & ~under_way),
        ]
        with m.If(self._enters.valid & (self._enters.kind == Kind.SWEEP)):
            m.d.sync += [position.eq(position + 1), finished.eq(position == self._sets - 1)]
        with m.If(generations.clean):
            m.d.sync += [position.eq(0), finished.eq(0)]
        return sweep

    def _choose(self, m: Module, removal: data.View, fill: data.View, sweep: data.View) -> None:
        """A change enters before a look-up, when no other of the same set is under way: it reads
        the set before it writes."""
        enters, probe, change = self._enters, self.probe, Signal(self._step)
        m.d.comb += change.eq(Mux(removal.valid, removal, Mux(fill.valid, fill, sweep)))
        clashes = (
            step.valid & (step.kind != Kind.PROBE) & (step.index == change.index)
            for step in self._steps
        )
        with m.If(change.valid & ~Cat(clashes).any()):
            m.d.comb += enters.eq(change)
        with m.Else():
            own = removal.request
            here = overlap(probe.p.vpn, PageSize.SMALL, own.vpn, PageSize.HUGE)
            removed = self.removing & (probe.p.asid == own.asid) & here
            m.d.comb += [
                enters.valid.eq(probe.valid),
                enters.request.eq(probe.payload),
                enters.stale.eq(self._clearing | removed),
                probe.ready.eq(1),
            ]

    # -- steps -------------------------------------------------------------------------------------

    def _storage(self, m: Module) -> None:
        """Every way is read at three sets, or for a change three times at one."""
        enters, looks = self._enters, self._enters.kind == Kind.PROBE
        indices = self._indices(enters.request)
        self._writes = []
        for way in range(self._ways):
            ram = Memory(shape=self._entry, depth=self._sets, init=[])
            m.submodules[f"way_{way}"] = ram
            self._writes.append(ram.write_port())
            for size in range(len(SHIFTS)):
                port = ram.read_port()
                m.d.comb += port.addr.eq(Mux(looks, indices[size], enters.index))
                m.d.sync += self.read.rows[size][way].eq(port.data)
        m.d.comb += self._recency.index.eq(self.looked.index)

    def _compare(self, m: Module) -> None:
        """Which entries answer a look-up; of a change, which are for its page or space, and which
        count."""
        read, acting, generations = self.read, self.acting, self._generations
        asid, current = read.request.asid, generations.row[0]
        highs, size = self._highs(read.request), read.end.page.size
        m.d.comb += generations.asid[0].eq(asid)
        m.d.sync += [
            acting.oldest.eq(self._recency.oldest),
            acting.open.eq(~current.closed),
            acting.generation.eq(current.number),
        ]
        for way in range(self._ways):
            for number, row in enumerate(rows[way] for rows in read.rows):
                counts = (row.generation == current.number) & ~current.closed
                same = (row.asid == asid) & (row.high == highs[number])
                held, entry = Value.cast(row.held) == number, acting.pages[number][way]
                m.d.sync += [
                    acting.hits[number][way].eq(held & same & counts),
                    entry.size.eq(number),
                    [entry[name].eq(row[name]) for name in _KEPT],
                ]
            row, own = read.rows[0][way], generations.row[1 + way]
            page = (Value.cast(row.held) == Value.cast(size)) & (row.high == highs[size])
            swept = (read.kind == Kind.SWEEP) & (row.held != Held.NONE)
            live = (row.held != Held.NONE) & (row.generation == own.number) & ~own.closed
            m.d.comb += generations.asid[1 + way].eq(row.asid)
            m.d.sync += [
                acting.same[way].eq((row.asid == asid) & (swept | page)),
                acting.live[way].eq(live),
            ]

    def _answer(self, m: Module) -> None:
        """The page of an entry that matches, the smallest; or what a walk has found."""
        acting, result, missed = self.acting, self.result, self.missed
        probes = acting.valid & (acting.kind == Kind.PROBE)
        walks = acting.valid & (acting.kind == Kind.WALKED)
        self._hits = hits = Signal(acting.hits.shape())
        nothing = [~Value.cast(one).any() for one in acting.hits]
        hit, entries = Value.cast(hits).any(), [one for size in acting.pages for one in size]
        m.d.comb += [
            hits[0].eq(acting.hits[0]),
            hits[1].eq(acting.hits[1] & nothing[0].replicate(self._ways)),
            hits[2].eq(acting.hits[2] & (nothing[0] & nothing[1]).replicate(self._ways)),
            self.hit.valid.eq(probes & hit & ~acting.stale),
            self.hit.asid.eq(acting.request.asid),
            result.valid.eq(walks | self.hit.valid),
            missed.valid.eq(probes & ~self.hit.valid),
            [
                out[name].eq(acting.request[name])
                for out in (result, missed)
                for name in acting.request.shape().members
            ],
        ]
        with m.If(acting.kind == Kind.PROBE):
            m.d.comb += [
                result.end.outcome.eq(Outcome.PAGE),
                result.end.page.eq(select(Value.cast(hits), map(Value.cast, entries))),
            ]
        with m.Else():
            m.d.comb += result.end.eq(acting.end)
            with m.If(acting.stale):
                m.d.comb += result.end.outcome.eq(Outcome.RETRY)

    def _change(self, m: Module) -> None:
        """A page that was walked takes a place; what is to be removed or swept goes; all sets are
        cleared in turn."""
        acting, end, event = self.acting, self.acting.end, self.invalidate
        entry, keeps, goes = Signal(self._entry), Signal(), Signal()
        place, choice, ways = (Signal(self._ways) for _ in range(3))
        free, same = ~acting.live, acting.same
        index = Signal(self._index_bits)
        m.d.comb += [
            keeps.eq(
                (acting.kind == Kind.WALKED)
                & (end.outcome == Outcome.PAGE)
                & ~acting.stale
                & acting.open
                & ~self._clearing
            ),
            goes.eq((acting.kind == Kind.REMOVE) | (acting.kind == Kind.SWEEP)),
            place.eq(Mux(same.any(), same, Mux(free.any(), free, acting.oldest))),
            choice.eq(place & -place),
            ways.eq(Mux(keeps, choice, same & goes.replicate(self._ways))),
            entry.held.eq(Mux(keeps, end.page.size, Held.NONE)),
            entry.asid.eq(acting.request.asid),
            entry.high.eq(self._highs(acting.request)[end.page.size]),
            entry.generation.eq(acting.generation),
            [entry[name].eq(end.page[name]) for name in _KEPT],
            index.eq(Mux(self._clearing, self._cleared, acting.index)),
        ]
        m.d.comb += [
            self._generations.advance.valid.eq(event.valid & (event.scope == Scope.ASID)),
            self._generations.advance.asid.eq(event.asid),
        ]
        for way, write in enumerate(self._writes):
            m.d.comb += [
                write.en.eq(self._clearing | (acting.valid & ways[way])),
                write.addr.eq(index),
                write.data.eq(entry),
            ]
        self._use(m, choice & (acting.valid & keeps).replicate(self._ways))
        with m.If(self._clearing):
            m.d.sync += self._cleared.eq(self._cleared + 1)
            m.d.sync += self._clearing.eq(self._cleared != self._sets - 1)
        with m.Elif(event.valid & (event.scope == Scope.ALL)):
            m.d.sync += self._clearing.eq(1)

    def _use(self, m: Module, kept: Value) -> None:
        """The entry that answered, or that was made, was used last of its set."""
        acting, recency = self.acting, self._recency
        hits = [Value.cast(one) for one in self._hits]
        indices = self._indices(acting.request)
        m.d.comb += [recency.use.eq(kept), recency.used.eq(acting.index)]
        with m.If(acting.valid & (acting.kind == Kind.PROBE)):
            m.d.comb += [
                recency.use.eq(hits[0] | hits[1] | hits[2]),
                recency.used.eq(
                    Mux(hits[0].any(), indices[0], Mux(hits[1].any(), indices[1], indices[2]))
                ),
            ]
