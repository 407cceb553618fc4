"""Reorder buffer for the bursts of one memory port that are in translation."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import VA_BITS, Config
from signalbox.hw.mmu.records import Access, Outcome, answer, lookup
from signalbox.hw.page_tables import FaultType
from signalbox.hw.records.memory import memory_request

__all__ = [
    "SLOTS",
    "SLOT_BITS",
    "BurstReorderBuffer",
    "fault_report",
    "faulting_access",
    "translated_burst",
]

SLOT_BITS = 2
SLOTS = 1 << SLOT_BITS
"""Bursts of a port in translation; a hit occupies its slot for three cycles."""


def translated_burst(config: Config) -> data.StructLayout:
    """Burst after translation: `beats` + 1 beats from `pa` on. Only one with outcome PAGE goes to
    the bus."""
    return data.StructLayout({"pa": config.address_width, "beats": 8, "outcome": Outcome})


def faulting_access(config: Config) -> data.StructLayout:
    """Access that faulted, and the cause (ASID-5)."""
    return data.StructLayout({
        "asid": config.asid_bits,
        "va": VA_BITS,
        "physical": 1,
        "access": Access,
        "fault": FaultType,
    })


def fault_report(config: Config, clients: int) -> data.StructLayout:
    """`faulting_access` with the number of its client."""
    number = max(1, (clients - 1).bit_length())
    return data.StructLayout({"client": number, **faulting_access(config).members})


class BurstReorderBuffer(wiring.Component):
    """Sends look-ups to the translation, accepts answers in any order and releases bursts in order.

    One burst per cycle. If its look-up is answered in the next cycle, a burst leaves 2 cycles after
    its request. A burst that faulted leaves only after its report was accepted.

    Parameters
    ----------
    access : access type of the port's bursts, unless they are atomic.

    Members
    -------
    request : in, stream of `memory_request`: bursts of the client.
    lookup : out, stream of look-ups, to the translation; the tag is the slot number.
    answer : in, strobe: an answer of the translation; no back-pressure.
    room : in, a burst may leave in the next cycle.
    o : out, stream of `translated_burst`, in order.
    fault : out, stream of `faulting_access`.
    """

    def __init__(self, config: Config, access: Access) -> None:
        self._config, self._access = config, access
        super().__init__({
            "request": In(stream.Signature(memory_request(config))),
            "lookup": Out(stream.Signature(lookup(config, data.StructLayout({"slot": SLOT_BITS})))),
            "answer": In(data.StructLayout({"valid": 1, **self._answer.members})),
            "room": In(1),
            "o": Out(stream.Signature(translated_burst(config))),
            "fault": Out(stream.Signature(faulting_access(config))),
        })

    @property
    def _answer(self) -> data.StructLayout:
        return answer(self._config, data.StructLayout({"slot": SLOT_BITS}))

    def elaborate(self, platform: object) -> Module:
        m = Module()
        asked = memory_request(self._config)
        m.submodules.asked = ram = Memory(shape=asked, depth=SLOTS, init=[])
        write, first = ram.write_port(), ram.read_port(domain="comb")
        taken = Signal()
        leaves = Signal()
        held = Signal(SLOTS)
        request, look, room = self.request, self.lookup, ~held[-1]
        m.d.comb += [
            look.valid.eq(request.valid & room),
            request.ready.eq(look.ready & room),
            taken.eq(request.valid & request.ready),
            look.p.tag.slot.eq(write.addr),
            look.p.access.eq(self._access_of(request.p)),
            [look.p[name].eq(request.p[name]) for name in ("asid", "va", "physical")],
            write.en.eq(taken),
            [write.data[name].eq(request.p[name]) for name in asked.members],
        ]
        m.d.sync += [
            write.addr.eq(write.addr + taken),
            first.addr.eq(first.addr + leaves),
        ]
        with m.If(taken & ~leaves):
            m.d.sync += held.eq(Cat(1, held))
        with m.Elif(leaves & ~taken):
            m.d.sync += held.eq(held[1:])
        self._pass(m, first, leaves)
        return m

    def _access_of(self, request: data.View) -> Value:
        return Mux(request.atomic, Access.ATOMIC, self._access)

    def _pass(self, m: Module, first, leaves: Signal) -> None:
        """The oldest burst leaves once its answer is there."""
        m.submodules.answers = ram = Memory(shape=self._answer, depth=SLOTS, init=[])
        write, read = ram.write_port(), ram.read_port(domain="comb")
        answer, o, fault = self.answer, self.o, self.fault
        refused = self._arrive(m, first.addr, leaves)
        m.d.comb += [
            write.en.eq(answer.valid),
            write.addr.eq(answer.tag.slot),
            [write.data[name].eq(answer[name]) for name in self._answer.members],
            read.addr.eq(first.addr),
            o.p.pa.eq(read.data.pa),
            o.p.beats.eq(first.data.beats),
            o.p.outcome.eq(read.data.outcome),
            leaves.eq(o.valid & o.ready),
            fault.valid.eq(refused),
            fault.p.asid.eq(first.data.asid),
            fault.p.va.eq(first.data.va),
            fault.p.physical.eq(first.data.physical),
            fault.p.access.eq(self._access_of(first.data)),
            fault.p.fault.eq(read.data.fault),
        ]

    def _arrive(self, m: Module, first: Value, leaves: Value) -> Value:
        """Offers the oldest burst once its answer is there; returns whether it has to be reported
        first.

        Both bits come straight from flip-flops: shift registers with the oldest slot in bit 0,
        which shift when a burst leaves.
        """
        answer, fault = self.answer, self.fault
        passes = Signal(SLOTS)
        refused = Signal(SLOTS)
        landed = Signal(SLOTS)
        fails, reported = answer.outcome == Outcome.FAULT, fault.valid & fault.ready
        m.d.comb += landed.bit_select((answer.tag.slot - first)[:SLOT_BITS], 1).eq(answer.valid)
        go_on = passes | Mux(fails, 0, landed) | reported
        wait = (refused | Mux(fails, landed, 0)) & Cat(~reported, Const(~0, SLOTS - 1))
        following = Mux(leaves, go_on[1:], go_on)
        m.d.sync += [
            passes.eq(following),
            refused.eq(Mux(leaves, wait[1:], wait)),
            self.o.valid.eq(following[0] & self.room),
        ]
        return refused[0]
