"""Generation number per ASID: invalidates all entries of an address space in the second-level TLB
at once (ASID-8, ASID-9)."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config

__all__ = ["GENERATION_BITS", "AsidGenerations", "advancing_space", "generation"]

GENERATION_BITS = 3
"""Width of a generation number. An address space needs a sweep once in 2^width invalidations."""


def generation(bits: int) -> data.StructLayout:
    """Generation of an address space. While `closed`, none of its entries is valid and none is
    made."""
    return data.StructLayout({"number": bits, "closed": 1})


def advancing_space(config: Config, bits: int) -> data.StructLayout:
    """Strobe: space `asid` advances; `row`: its `generation` before that."""
    return data.StructLayout({"valid": 1, "asid": config.asid_bits, "row": generation(bits)})


class AsidGenerations(wiring.Component):
    """Invalidates all TLB entries of an address space in one cycle, whatever the size of the TLB.
    An entry is valid while its generation matches that of its address space, which an invalidation
    advances.

    A reused number would revive stale entries. So a space that has used up its numbers is closed:
    no entry of it is valid. It reopens with number 0 once a sweep has removed all its entries. The
    rows are scanned for closed spaces in turn, one per cycle, so each waits for at most one sweep
    of every other space.

    Parameters
    ----------
    readers : number of read ports.
    bits : width of a generation number, 1 … 16.

    Members
    -------
    advance : in, strobe: the generation of `asid` ends. `row` still shows it in this cycle and the
        next; meanwhile the reader has to account for the event itself.
    asid : in, per reader, `asid_bits` bits: address space of the look-up.
    row : out, per reader, combinational: the `generation` of that space.
    sweeps : out, the entries of space `swept` must be removed; high until `clean`.
    swept : out, `asid_bits` bits: that space, stable while `sweeps`.
    clean : in, strobe: no entry of `swept` is left.
    """

    def __init__(self, config: Config, readers: int, *, bits: int = GENERATION_BITS) -> None:
        if not 1 <= bits <= 16:
            raise ValueError(f"bits = {bits!r} is outside its limits 1 … 16")
        self._config, self._row = config, generation(bits)
        self._advancing = Signal(advancing_space(config, bits), name="advancing")
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
        # Not cleared by reset: any contents will do, as all entries are invalid then.
        m.submodules.ram = ram = Memory(shape=self._row, depth=depth, init=[])
        write, old, next_ = (
            ram.write_port(),
            ram.read_port(domain="comb"),
            ram.read_port(domain="comb"),
        )
        for asid, row in zip(self.asid, self.row, strict=True):
            port = ram.read_port(domain="comb")
            m.d.comb += [port.addr.eq(asid), row.eq(port.data)]
        opens = Signal()
        advancing = self._advancing
        row = Signal(self._row)
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
        """Scans for a closed space and reopens it once it is clean."""
        # Delayed by a cycle: by then, readers that fetched the last set before it was written have
        # also looked up their generation.
        cleaned = Signal()
        m.d.comb += opens.eq(cleaned & ~self._advancing.valid)
        with m.If(cleaned):
            m.d.sync += cleaned.eq(self._advancing.valid)
        with m.Elif(self.sweeps):
            m.d.sync += [self.sweeps.eq(~self.clean), cleaned.eq(self.clean)]
        with m.Elif(closed):
            m.d.sync += self.sweeps.eq(1)
        with m.Else():
            m.d.sync += self.swept.eq(self.swept + 1)
