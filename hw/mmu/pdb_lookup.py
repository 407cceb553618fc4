"""Address spaces by their page directory base (HOST-3)."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import PA_BITS, Config
from signalbox.hw.mmu.asid_table import Spaces, row_event
from signalbox.hw.mmu.records import PAGE_BITS

__all__ = ["BaseSearch"]


class BaseSearch(wiring.Component):
    """Looks through all rows, one per cycle, and stops at each that has the base.

    Whether a row has it is known 2 cycles after it was looked up.

    Members
    -------
    bind : see `Spaces`; its own row of each is kept here.
    base : what is looked for; constant from `begin` on.
    begin : strobe: from the first row on.
    run : go on behind the row that was found last; 0 in the cycle after `found`, and with `begin`.
    found, asid : this row has it. `ended`: no further one has; both only while `run`.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        super().__init__({
            "bind": In(row_event(config)),
            "base": In(PA_BITS - PAGE_BITS),
            "begin": In(1),
            "run": In(1),
            "found": Out(1),
            "asid": Out(config.asid_bits),
            "ended": Out(1),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        count = self._config.asids
        m.submodules.spaces = spaces = Spaces(self._config, near=True)
        following, judged = Signal(range(count + 1)), Signal(range(count + 1))
        looked, compared, has_it = Signal(), Signal(), Signal()
        on = self.run & ~self.found
        m.d.comb += [
            spaces.bind.eq(self.bind),
            spaces.look.eq(on & (following != count)),
            spaces.asid.eq(following),
            self.found.eq(compared & has_it),
            self.asid.eq(judged),
            self.ended.eq(judged == count),
        ]
        m.d.sync += [
            Cat(looked, compared).eq(Mux(on, Cat(spaces.look, looked), 0)),
            has_it.eq(spaces.row.bound & (spaces.row.base == self.base)),
            judged.eq(judged + compared),
            following.eq(following + spaces.look),
        ]
        with m.If(self.found):
            m.d.sync += following.eq(judged + 1)
        with m.If(self.begin):
            m.d.sync += [judged.eq(0), following.eq(0)]
        return m
