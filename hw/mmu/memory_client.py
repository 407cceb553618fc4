"""Memory client: its read and write port share one translation."""

from collections.abc import Sequence

from amaranth.hdl import Cat, Module
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.lib.arbiter import SteadyRoundRobin
from signalbox.hw.lib.onehot import encode, select
from signalbox.hw.mmu.bursts import SLOT_BITS
from signalbox.hw.mmu.records import answer, lookup

__all__ = ["CLIENT_TAG", "MemoryClient"]

CLIENT_TAG = data.StructLayout({"slot": SLOT_BITS, "port": 1})
"""Tag of a client's look-ups: port, and slot within the port."""


class MemoryClient(wiring.Component):
    """Arbitrates between the look-ups of a client's ports, one or two, and routes answers back.

    Combinational in both directions. No back-pressure on answers.

    Parameters
    ----------
    ports : a `BurstReorderBuffer` per port.

    Members
    -------
    lookup : out, stream of `lookup`, to the translation.
    answer : in, stream of `answer`, from the translation.
    """

    def __init__(self, config: Config, ports: Sequence[wiring.Component]) -> None:
        self.ports = ports
        super().__init__({
            "lookup": Out(stream.Signature(lookup(config, CLIENT_TAG))),
            "answer": In(stream.Signature(answer(config, CLIENT_TAG))),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.turns = turns = SteadyRoundRobin(len(self.ports))
        lookups = [port.lookup for port in self.ports]
        shape, words = lookups[0].p.shape(), (one.p.as_value() for one in lookups)
        chosen = data.View(shape, select(turns.grant, words))
        out, answer = self.lookup, self.answer
        m.d.comb += [
            turns.requests.eq(Cat(one.valid for one in lookups)),
            turns.advance.eq(out.ready),
            out.valid.eq(turns.requests.any()),
            out.p.tag.slot.eq(chosen.tag.slot),
            out.p.tag.port.eq(encode(turns.grant)),
            [out.p[name].eq(chosen[name]) for name in ("asid", "va", "access", "physical")],
            answer.ready.eq(1),
        ]
        for number, port in enumerate(self.ports):
            m.submodules[f"port_{number}"] = port
            m.d.comb += [
                port.lookup.ready.eq(turns.grant[number] & out.ready),
                port.answer.valid.eq(answer.valid & (answer.p.tag.port == number)),
                port.answer.tag.slot.eq(answer.p.tag.slot),
                [port.answer[name].eq(answer.p[name]) for name in ("outcome", "pa", "fault")],
            ]
        return m
