"""All memory clients on one AXI4 port."""

from amaranth import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw.bus.axi4 import Axi4, Burst
from hw.config import Config
from hw.mmu.channels import connect_in, connect_out
from hw.mmu.front import TranslatorFactory
from hw.mmu.reads import ReadPath
from hw.mmu.translator import IdentityTranslator
from hw.mmu.writes import WritePath
from hw.records import ReadPort, WritePort

__all__ = ["MemoryFabric"]

_CACHE = 0b0010
"""Normal memory, not cacheable, not bufferable: a response means that the access has reached its
end, which is what `WritePort.done` promises."""

_PROT = 0b010
"""Unprivileged, non-secure, data."""


class MemoryFabric(wiring.Component):
    """Translates the virtual bursts of many clients and puts them on one AXI4 port.

    Reads and writes go side by side, each at one beat per cycle and one request per cycle. Bursts
    of a client are answered in order, those of different clients in any order. With the identity
    translator an unloaded request is on AR or AW 2 cycles after it was offered, the first beat on
    W 3 cycles after; R and B take 1 cycle to the client.

    Fairness: a request is translated after at most one of each other client of its direction and
    class. Urgent clients go before all others, so they must not ask without end: the host has few
    reads at a time, and fetches as many as it executes, at most one beat in as many cycles as a
    beat has dwords; the semaphore unit has one access at a time. What a client can do to others:
    take time on the bus, and hold R or B when it does not take its answers. So a client asks only
    for what it can take without waiting for another access.

    A burst that faults never reaches the bus. Its client gets one beat, or after its write beats
    were consumed one `done`, with FAULT, in order. SLVERR and DECERR give BUS on that beat or
    `done`.

    Parameters
    ----------
    readers, writers : clients of each kind, at least 1.
    urgent : so many clients of each kind, the first, go before all others.
    outstanding : bursts that each client may have on their way; a power of two from 2 to 32.
    translator : makes the two translators, one for each direction, kept as `read_translator` and
        `write_translator`.

    Members
    -------
    read, write : the clients.
    axi : AXI4 manager; INCR bursts over the full width with the client's number as id; at most
        256 beats, never across 4 KiB since clients do not.
    """

    def __init__(
        self,
        config: Config,
        readers: int,
        writers: int,
        *,
        urgent: int = 0,
        outstanding: int = 16,
        translator: TranslatorFactory = IdentityTranslator,
    ) -> None:
        for name, count in (("readers", readers), ("writers", writers)):
            if count < 1:
                raise ValueError(f"{name} = {count!r} is not at least 1")
        if outstanding not in {2, 4, 8, 16, 32}:
            raise ValueError(f"outstanding = {outstanding!r} is not a power of two from 2 to 32")
        id_width = max(1, (max(readers, writers) - 1).bit_length())
        super().__init__({
            "read": In(ReadPort(config)).array(readers),
            "write": In(WritePort(config)).array(writers),
            "axi": Out(
                Axi4(
                    addr_width=config.address_width,
                    data_width=config.data_width,
                    id_width=id_width,
                )
            ),
        })
        self.config = config
        arguments = {"outstanding": outstanding, "urgent": urgent, "translator": translator}
        self.reads = ReadPath(config, readers, id_width, **arguments)
        self.writes = WritePath(config, writers, id_width, **arguments)
        self.read_translator = self.reads.front.translator
        self.write_translator = self.writes.front.translator

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.reads = reads = self.reads
        m.submodules.writes = writes = self.writes
        for port, inner in zip(self.read, reads.ports, strict=True):
            wiring.connect(m, wiring.flipped(port), inner)
        for port, inner in zip(self.write, writes.ports, strict=True):
            wiring.connect(m, wiring.flipped(port), inner)
        connect_out(m, reads.ar, self.axi, "ar")
        connect_in(m, self.axi, "r", reads.r)
        connect_out(m, writes.aw, self.axi, "aw")
        connect_out(m, writes.w, self.axi, "w")
        connect_in(m, self.axi, "b", writes.b)
        for channel in ("ar", "aw"):
            m.d.comb += [
                getattr(self.axi, f"{channel}size").eq(self.config.offset_bits),
                getattr(self.axi, f"{channel}burst").eq(Burst.INCR),
                getattr(self.axi, f"{channel}cache").eq(_CACHE),
                getattr(self.axi, f"{channel}prot").eq(_PROT),
            ]
        return m
