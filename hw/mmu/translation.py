"""Translation of virtual addresses, for all memory clients (ASID-1 … ASID-11)."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from signalbox.hw.config import Config
from signalbox.hw.lib.arbiter import RoundRobin
from signalbox.hw.lib.onehot import encode, select
from signalbox.hw.lib.shared import Shared
from signalbox.hw.lib.stream import StreamFIFO, StreamRegister
from signalbox.hw.mmu.asid_table import AsidTable, asid_row
from signalbox.hw.mmu.l1_tlb import L1Tlb
from signalbox.hw.mmu.l2_tlb import L2Tlb
from signalbox.hw.mmu.mshr import miss_bits
from signalbox.hw.mmu.records import VPN_BITS, Scope, answer, invalidation, lookup, page_request
from signalbox.hw.mmu.refill_fifo import RefillFifo
from signalbox.hw.mmu.walker import Walker
from signalbox.hw.mmu.whole_regions import WholeRegions
from signalbox.hw.records.memory import ReadPort

__all__ = ["Mmu", "maintenance_command", "miss_tag"]


def maintenance_command(config: Config) -> data.StructLayout:
    """Invalidation of `scope`; or, with `bind`, writes `row` to the ASID table and invalidates all
    earlier translations of `asid` (ASID-8)."""
    return data.StructLayout({
        "bind": 1,
        "scope": Scope,
        "asid": config.asid_bits,
        "vpn": VPN_BITS,
        "row": asid_row(config),
    })


def miss_tag(config: Config, clients: int) -> data.StructLayout:
    """Tag of a miss behind the first-level TLBs: client and its MSHR number."""
    return data.StructLayout({
        "miss": miss_bits(config.l1_misses),
        "client": max(1, (clients - 1).bit_length()),
    })


class Mmu(wiring.Component):
    """First-level TLB per client; shared second-level TLB, ASID table and page walker.

        request ─► L1 ─ miss ─► arbiter ─► L2 ─ missed ─► queue ─► walker ─► memory
        answer  ◄──┘ ◄─ RefillFifo ◄───────┘ ◄──────── walked ───────┘  └─ ASID table

    Latency: an L1 hit takes 1 cycle, an L2 hit 11 more (miss 1, arbiter 1, L2 4, `RefillFifo` 1, L1
    4), a walk 8 more than in `Walker` (queue 2, L2 6).

    Nothing behind the first level waits for a client: L2 has no back-pressure on its results, and
    `RefillFifo` and the queue before the walker have an entry for every outstanding miss.

    Fairness: misses are arbitrated round robin, one per cycle, and walked in that order. So a miss
    waits for at most one walk of every other outstanding miss of all clients; with as many walks as
    outstanding misses, it never waits. A walk restarts when an invalidation covers its page or
    address space. A miss that waits for a walk is not looked up in L2 again: if its page has been
    walked meanwhile, it is walked again, from the walk cache on.

    Both levels hold 512 MiB pages as pieces of 2 MiB (HOST-17), which the walker makes from the
    page in its walk cache. So neither level grows or slows down. In return, the invalidation of one
    page covers the whole space while it may have such pieces (`WholeRegions`).

    An invalidation reaches all parts in the same cycle. From the next cycle on, no answer depends
    on translations that it covers; `done` marks that cycle. Memory has to be reset together with
    this unit, as the walker takes each response for one to its own reads.

    Parameters
    ----------
    clients : at least 1.
    tag : layout of a look-up's tag.

    Members
    -------
    request : in, one stream of `lookup` per client.
    answer : out, one stream of `answer` per client, see `L1Tlb`.
    command : in, stream of `maintenance_command`: invalidations and binds.
    done : out, strobe: the last command accepted has taken effect.
    read : out, memory client with physical addresses.
    hit : out, strobe per client: a look-up of `asid` hit in its first-level TLB.
    missed : out, strobe per client: a new look-up of `asid` missed there.
    found : out, strobe: a miss of a client hit in L2.
    walks : out, strobe: a walk for `asid` begins.
    walked : out, strobe: a walk for `asid` has ended.
    """

    def __init__(self, config: Config, clients: int, tag: data.Layout) -> None:
        if clients < 1:
            raise ValueError(f"clients = {clients!r} is not at least 1")
        self._config, self._clients = config, clients
        sizes = {"entries": config.l1_entries, "misses": config.l1_misses}
        l1 = L1Tlb(config, tag, **sizes)
        self._l1 = [Shared(l1, "l1") for _ in range(clients)]
        self._results = RefillFifo(config, config.l1_misses)
        self._number = number = miss_tag(config, clients)
        self._l2 = L2Tlb(config, number.size, entries=config.l2_entries, ways=config.l2_ways)
        self._request = page_request(config, number.size)
        self._walker = Walker(config, self._request.size)
        event = data.StructLayout({"valid": 1, "asid": config.asid_bits})
        super().__init__({
            "request": In(stream.Signature(lookup(config, tag))).array(clients),
            "answer": Out(stream.Signature(answer(config, tag))).array(clients),
            "command": In(stream.Signature(maintenance_command(config))),
            "done": Out(1),
            "read": Out(ReadPort(config)),
            "hit": Out(event).array(clients),
            "missed": Out(event).array(clients),
            "found": Out(event),
            "walks": Out(event),
            "walked": Out(event),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.l2, m.submodules.walker = self._l2, self._walker
        m.submodules.spaces = self._spaces = AsidTable(self._config)
        m.submodules.whole = self._whole = WholeRegions(self._config)
        self._event = Signal(invalidation(self._config))
        self._maintain(m)
        self._first_levels(m)
        self._ask(m)
        self._walk(m)
        return m

    def _maintain(self, m: Module) -> None:
        """Executes a bind; the invalidation follows in the next cycle, for all parts at once."""
        command, event, spaces, whole = self.command, self._event, self._spaces, self._whole
        taken = command.valid & command.ready
        m.d.comb += [
            command.ready.eq(~event.valid & ~self._l2.removing & ~spaces.busy),
            spaces.bind.valid.eq(taken & command.p.bind),
            spaces.bind.asid.eq(command.p.asid),
            spaces.bind.row.eq(command.p.row),
            self._l2.invalidate.eq(event),
            self._walker.invalidate.eq(event),
        ]
        of_space = (command.p.scope == Scope.PAGE) & whole.has
        m.d.comb += [
            whole.look.eq(command.p.asid),
            whole.clears.eq(event.valid & (event.scope == Scope.ASID)),
        ]
        m.d.sync += [
            event.valid.eq(taken),
            event.scope.eq(Mux(command.p.bind | of_space, Scope.ASID, command.p.scope)),
            [event[name].eq(command.p[name]) for name in ("asid", "vpn")],
            self.done.eq(event.valid),
        ]

    def _first_levels(self, m: Module) -> None:
        """First-level TLBs with their refill FIFOs."""
        came = self._l2.result
        number = data.View(self._number, came.tag)
        for client, l1 in enumerate(self._l1):
            results = Shared(self._results, "results")
            m.submodules[f"l1_{client}"], m.submodules[f"results_{client}"] = l1, results
            connect(m, flipped(self.request[client]), l1.request)
            connect(m, l1.answer, flipped(self.answer[client]))
            connect(m, results.o, l1.result)
            m.d.comb += [
                results.found.valid.eq(came.valid & (number.client == client)),
                results.found.tag.eq(number.miss),
                [results.found[name].eq(came[name]) for name in ("asid", "vpn", "end")],
                results.invalidate.eq(self._event),
                l1.invalidate.eq(self._event),
                self.hit[client].eq(l1.hit),
                self.missed[client].eq(l1.missed),
            ]

    def _ask(self, m: Module) -> None:
        """Arbitrates between the clients' misses."""
        m.submodules.turns = turns = RoundRobin(self._clients)
        m.submodules.asked = asked = StreamRegister(self._request)
        connect(m, asked.o, self._l2.probe)
        misses = [l1.miss for l1 in self._l1]
        shape, words = misses[0].p.shape(), (one.p.as_value() for one in misses)
        chosen = data.View(shape, select(turns.grant, words))
        m.d.comb += [
            turns.requests.eq(Cat(one.valid for one in misses)),
            turns.advance.eq(asked.i.ready),
            asked.i.valid.eq(turns.requests.any()),
            asked.i.p.tag.eq(Cat(chosen.miss, encode(turns.grant))),
            asked.i.p.asid.eq(chosen.asid),
            asked.i.p.vpn.eq(chosen.vpn),
        ]
        for client, miss in enumerate(misses):
            m.d.comb += miss.ready.eq(turns.grant[client] & asked.i.ready)

    def _walk(self, m: Module) -> None:
        """Misses of the second level go to the walker, its results come back as refills."""
        l2, walker, spaces = self._l2, self._walker, self._spaces
        # One more entry, as the output register fills a cycle after the memory.
        m.submodules.queue = queue = StreamFIFO(self._request, (1 << self._number.size) + 1)
        missed = Signal(self._request)
        waits = data.View(self._request, queue.o.payload)
        back = data.View(self._request, walker.result.p.tag)
        event, whole = self._event, self._whole
        names = self._request.members
        m.d.comb += [
            [missed[name].eq(l2.missed[name]) for name in names],
            queue.i.valid.eq(l2.missed.valid),
            queue.i.payload.eq(missed),
            queue.o.ready.eq(walker.request.ready),
            walker.request.valid.eq(queue.o.valid),
            walker.request.p.tag.eq(queue.o.payload),
            walker.request.p.asid.eq(waits.asid),
            walker.request.p.vpn.eq(waits.vpn),
            l2.walked.valid.eq(walker.result.valid),
            [l2.walked.p[name].eq(back[name]) for name in names],
            l2.walked.p.end.eq(walker.result.p.end),
            walker.result.ready.eq(l2.walked.ready),
            spaces.look.eq(walker.look),
            spaces.asid.eq(walker.asid),
            walker.row.eq(spaces.row),
            self.walks.valid.eq(walker.request.valid & walker.request.ready),
            self.walks.asid.eq(waits.asid),
            whole.adds.eq(self.walked.valid & walker.result.p.whole),
            # L2 takes no result in the cycle of an invalidation.
            whole.asid.eq(Mux(event.valid, event.asid, back.asid)),
            self.walked.valid.eq(walker.result.valid & walker.result.ready),
            self.walked.asid.eq(back.asid),
            self.found.eq(l2.hit),
        ]
        connect(m, walker.read, flipped(self.read))
