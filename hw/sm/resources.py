"""Free registers, hardware warps and shared memory of an SM (PLACE-10)."""

from amaranth.hdl import Cat, Const, Module, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.lib.onehot import select
from signalbox.hw.records.placement import wanted

__all__ = ["Resources", "capacity", "fits", "remainder"]

fits = data.StructLayout(dict.fromkeys(wanted.members, 1))
"""Per resource: enough is free."""


def capacity(config: Config) -> dict[str, int]:
    """Capacity of an SM, in units."""
    return {
        "registers": config.register_units,
        "warps": config.sm_warps,
        "shared": config.shared_units,
    }


def remainder(config: Config) -> data.StructLayout:
    """Free or freed amount of each resource."""
    return data.StructLayout({name: range(amount + 1) for name, amount in capacity(config).items()})


class Resources(wiring.Component):
    """Counts the free amount of each resource, starting from the capacity.

    One of two requests may be granted per cycle, in the cycle in which it fits; freed amounts are
    available from the next cycle on.

    Members
    -------
    wants : in, two requests, each a `wanted`: the amounts.
    fits : out, per request and resource, combinational: enough is free.
    take : in, per request, one-hot: granted; it fits.
    freed : in, amounts freed in this cycle.
    claim : in, a `wanted`: amounts of a third request, which is only compared.
    claim_fits : out, per resource, combinational: enough is free for it.
    left : out, free amounts.
    """

    def __init__(self, config: Config) -> None:
        amounts = capacity(config)
        left = remainder(config)
        super().__init__({
            "wants": In(wanted).array(2),
            "fits": Out(fits).array(2),
            "take": In(2),
            "freed": In(left),
            "claim": In(wanted),
            "claim_fits": Out(fits),
            "left": Out(left, init=amounts),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        for name in self.left.shape().members:
            left, freed = self.left[name], self.freed[name]
            wants = [want[name] for want in self.wants]
            m.d.comb += [
                self.claim_fits[name].eq(left >= self.claim[name]),
                *(self.fits[n][name].eq(left >= wants[n]) for n in range(2)),
            ]
            taken = Signal.like(wants[0], name=f"taken_{name}")
            m.d.comb += taken.eq(select(self.take, wants))
            m.d.sync += left.eq(_difference(left, freed, taken))
        return m


def _difference(left: Value, freed: Value, want: Value) -> Value:
    """`left` + `freed` - `want`, modulo the width of `left`, with one carry chain."""
    width = len(left)
    one, two, three = left, Cat(freed, Const(0, width))[:width], ~Cat(want, Const(0, width))[:width]
    carries = (one & two) | (one & three) | (two & three)
    return (one ^ two ^ three) + Cat(Const(1, 1), carries)[:width]
