"""Which entries of a large TLB still count: a number per address space (ASID-8, ASID-9)."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config

__all__ = ["GENERATION_BITS", "Generations", "generation"]

GENERATION_BITS = 3
"""An address space is swept once in so many invalidations, 2 to the power of this."""


def generation(bits: int) -> data.StructLayout:
    """The generation of an address space; `closed`: no entry of it counts, and none is made."""
    return data.StructLayout({"number": bits, "closed": 1})


class Generations(wiring.Component):
    """An entry counts while its generation is that of its address space; to advance the latter
    invalidates all of them at once, whatever the size of the TLB.

    A number that comes round again would revive entries. So a space whose number is used up is
    closed, and opens again, with number 0, when a sweep has removed all entries of it: until then
    it has no entries. Rows are looked at in turn, one per cycle, for one that is closed; each waits
    for at most one sweep of every other space.

    Parameters
    ----------
    readers : look-ups per cycle.

    Members
    -------
    advance : the generation of `asid` ends with the cycle after this one; who looks at it in these
        two has to know from elsewhere.
    asid, row : per reader, combinational.
    sweeps, swept : the entries of space `swept` are to be removed, until `clean`.
    clean : strobe, none is left.

    Attributes
    ----------
    advancing : a space that advances, and its row until now (state, for proofs).
    """

    def __init__(self, config: Config, readers: int, *, bits: int = GENERATION_BITS) -> None:
        if not 1 <= bits <= 16:
            raise ValueError(f"bits = {bits!r} is outside its limits 1 … 16")
        self._config, self._row = config, generation(bits)
        self.advancing = Signal(
            data.StructLayout({"valid": 1, "asid": config.asid_bits, "row": self._row})
        )
        super().__init__({
            "advance": In(data.StructLayout({"valid": 1, "asid": config.asid_bits})),
            "asid": In(config.asid_bits).array(readers),
            "row": Out(self._row).array(readers),
            "sweeps": Out(1),
            "swept": Out(config.asid_bits),
            "clean": In(1),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        depth = 1 << self._config.asid_bits
        # What is there after a reset does as well as zeros: all entries are invalid then.
        m.submodules.ram = ram = Memory(shape=self._row, depth=depth, init=[])
        write, old, next_ = (
            ram.write_port(),
            ram.read_port(domain="comb"),
            ram.read_port(domain="comb"),
        )
        for asid, row in zip(self.asid, self.row, strict=True):
            port = ram.read_port(domain="comb")
            m.d.comb += [port.addr.eq(asid), row.eq(port.data)]
        opens, advancing, row = Signal(), self.advancing, Signal(self._row)
        m.d.comb += [
            row.closed.eq(advancing.row.closed | advancing.row.number.all()),
            row.number.eq(advancing.row.number + 1),
            old.addr.eq(self.advance.asid),
            next_.addr.eq(self.swept),
            write.en.eq(advancing.valid | opens),
            write.addr.eq(Mux(advancing.valid, advancing.asid, self.swept)),
            write.data.eq(Mux(advancing.valid, row, 0)),
        ]
        again = advancing.valid & (advancing.asid == self.advance.asid)
        m.d.sync += [
            advancing.valid.eq(self.advance.valid),
            advancing.asid.eq(self.advance.asid),
            advancing.row.eq(Mux(again, row, old.data)),
        ]
        self._sweep(m, next_.data.closed, opens)
        return m

    def _sweep(self, m: Module, closed: Signal, opens: Signal) -> None:
        """Look for a space that is closed; open it again when it is clean."""
        # A cycle after `clean`: by then all that have read the last set before it was written have
        # looked here.
        cleaned = Signal()
        m.d.comb += opens.eq(cleaned & ~self.advancing.valid)
        with m.If(cleaned):
            m.d.sync += cleaned.eq(self.advancing.valid)
        with m.Elif(self.sweeps):
            m.d.sync += [self.sweeps.eq(~self.clean), cleaned.eq(self.clean)]
        with m.Elif(closed):
            m.d.sync += self.sweeps.eq(1)
        with m.Else():
            m.d.sync += self.swept.eq(self.swept + 1)
