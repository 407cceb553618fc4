"""One memory port's bursts on their way through translation."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import VA_BITS, Config
from signalbox.hw.mmu.records import Access, Outcome, answer, lookup
from signalbox.hw.page_tables import FaultType
from signalbox.hw.records.memory import memory_request

__all__ = ["SLOTS", "SLOT_BITS", "Bursts", "fault_report", "refusal", "translated"]

SLOT_BITS = 2
SLOTS = 1 << SLOT_BITS
"""Bursts of a port that may be in translation: a hit takes three cycles from slot to slot."""


def translated(config: Config) -> data.StructLayout:
    """A burst behind translation: `beats` + 1 beats from `pa` on. Without a page it must not reach
    the bus."""
    return data.StructLayout({"pa": config.address_width, "beats": 8, "outcome": Outcome})


def refusal(config: Config) -> data.StructLayout:
    """Which access is not translated, and why (ASID-5)."""
    return data.StructLayout({
        "asid": config.asid_bits,
        "va": VA_BITS,
        "physical": 1,
        "access": Access,
        "fault": FaultType,
    })


def fault_report(config: Config, clients: int) -> data.StructLayout:
    """A `refusal`, and the number of the client."""
    number = max(1, (clients - 1).bit_length())
    return data.StructLayout({"client": number, **refusal(config).members})


class Bursts(wiring.Component):
    """Look-ups are answered in any order; bursts go on in the order in which they came.

    One burst per cycle; a look-up that is answered in the next cycle goes on 2 cycles after its
    request was taken. A fault is reported first, and goes on when the report was taken.

    Parameters
    ----------
    access : what the port's bursts do, unless they are atomic.

    Members
    -------
    request : of the client.
    lookup, answer : to and from translation; the tag is a slot's number. An answer has to be taken
        in its cycle.
    o : bursts, in cycles behind one with `room`.
    fault : reports.
    """

    def __init__(self, config: Config, access: Access) -> None:
        self._config, self._access = config, access
        super().__init__({
            "request": In(stream.Signature(memory_request(config))),
            "lookup": Out(stream.Signature(lookup(config, data.StructLayout({"slot": SLOT_BITS})))),
            "answer": In(data.StructLayout({"valid": 1, **self._answer.members})),
            "room": In(1),
            "o": Out(stream.Signature(translated(config))),
            "fault": Out(stream.Signature(refusal(config))),
        })

    @property
    def _answer(self) -> data.StructLayout:
        return answer(self._config, data.StructLayout({"slot": SLOT_BITS}))

    def elaborate(self, platform: object) -> Module:
        m = Module()
        asked = memory_request(self._config)
        m.submodules.asked = ram = Memory(shape=asked, depth=SLOTS, init=[])
        write, first = ram.write_port(), ram.read_port(domain="comb")
        taken, leaves, held = Signal(), Signal(), Signal(SLOTS)
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
        """The oldest one, when its answer has come."""
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
        """Offer the oldest one when its answer has come; returns whether it is to be reported.

        Both come out of flip-flops: a bit for each that waits, the oldest one's first; they move
        up when it leaves."""
        answer, fault = self.answer, self.fault
        passes, refused, landed = Signal(SLOTS), Signal(SLOTS), Signal(SLOTS)
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
