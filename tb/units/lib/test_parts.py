"""Parts that are expressions or a few registers, in one component."""

import pytest
from amaranth.hdl import Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.lib.arbiter import SteadyRoundRobin
from signalbox.hw.lib.delayed import delayed
from signalbox.hw.lib.onehot import encode, lowest, lowest_number, select
from signalbox.hw.lib.popcount import popcount
from signalbox.tb.simulation.runner import simulate
from signalbox.tb.simulation.tiers import tiers

WORD = 4
"""Bits of each word that `select` chooses from."""


class Parts(wiring.Component):
    """Each part, for `count` bits.

    Members
    -------
    bits : any number of them may be 1.
    one : at most one is 1.
    words : `WORD` bits for each bit.
    lowest : lowest 1 of `bits`, combinational.
    encoded, selected : chosen by `one`, combinational.
    some, number : `lowest_number` of `bits`.
    tally : number of ones in `bits`.
    later : delayed `bits`.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        places = max(1, (count - 1).bit_length())
        super().__init__({
            "bits": In(count),
            "one": In(count),
            "words": In(WORD * count),
            "lowest": Out(count),
            "encoded": Out(places),
            "selected": Out(WORD),
            "some": Out(1),
            "number": Out(places + 1),
            "tally": Out(count.bit_length()),
            "later": Out(count),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        some, number = lowest_number(m, self.bits)
        event = data.View(data.StructLayout({"bits": self._count}), self.bits)
        m.d.comb += [
            self.lowest.eq(lowest(self.bits)),
            self.encoded.eq(encode(self.one)),
            self.selected.eq(
                select(self.one, [self.words.word_select(n, WORD) for n in range(self._count)])
            ),
            self.some.eq(some),
            self.number.eq(number),
            self.tally.eq(popcount(m, self.bits, "sum")),
            self.later.eq(delayed(m, event, "register").as_value()),
        ]
        return m


@pytest.mark.parametrize(
    "count", tiers([1, 2, 3, 5, 8, 9, 17, 64], smoke=[5], nightly=[2, 3, 8, 9, 17])
)
def test_parts(simulator: str, count: int) -> None:
    simulate(
        Parts(count),
        "signalbox.tb.units.lib.cocotb_parts",
        simulator=simulator,
        name=f"lib-parts-{count}",
        env={"COUNT": str(count)},
    )


def test_places() -> None:
    """An encoded number has the minimum width, and at least one bit."""
    widths = {count: len(encode(Signal(count))) for count in (1, 2, 3, 8, 9, 16)}
    assert widths == {1: 1, 2: 1, 3: 2, 8: 3, 9: 4, 16: 4}


@pytest.mark.parametrize("count", tiers([1, 3, 11], smoke=[3], nightly=[1, 11]))
def test_steady_round_robin(simulator: str, count: int) -> None:
    simulate(
        SteadyRoundRobin(count),
        "signalbox.tb.units.lib.cocotb_steady",
        simulator=simulator,
        name=f"lib-steady-{count}",
    )
