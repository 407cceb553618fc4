"""Reads and writes of single 8-byte words."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import VA_BITS, Config
from signalbox.hw.records.memory import MemoryStatus, ReadPort, WritePort

__all__ = ["WORD_BYTES", "WordAccess", "word_request"]

WORD_BYTES = 8


def word_request(config: Config) -> data.StructLayout:
    """An access to the 8-byte word at `va`, rounded down. With `physical`, `va` is a physical
    address. A write stores the bytes enabled by `strobe`."""
    return data.StructLayout({
        "asid": config.asid_bits,
        "va": VA_BITS,
        "physical": 1,
        "write": 1,
        "strobe": WORD_BYTES,
        "data": 8 * WORD_BYTES,
    })


class WordAccess(wiring.Component):
    """Reads and writes 8-byte words, one at a time. A request is offered to memory in the next
    cycle; write data follow when it is accepted; the answer comes one cycle after the response.

    Members
    -------
    request : in, stream of `word_request`; accepted after the answer to the previous access.
    answer : out, strobe: status and data.
    read : out, memory client.
    write : out, memory client.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        super().__init__({
            "request": In(stream.Signature(word_request(config))),
            "answer": Out(
                data.StructLayout({"valid": 1, "status": MemoryStatus, "data": 8 * WORD_BYTES})
            ),
            "read": Out(ReadPort(config)),
            "write": Out(WritePort(config)),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        read, write = self.read, self.write
        busy = Signal()
        asks = Signal()
        gives = Signal()
        word = Signal(word_request(self._config))
        ended = Signal()
        m.d.comb += [
            self.request.ready.eq(~busy),
            read.request.valid.eq(asks & ~word.write),
            write.request.valid.eq(asks & word.write),
            write.beat.valid.eq(gives),
            read.beat.ready.eq(1),
            write.done.ready.eq(1),
            ended.eq(read.beat.valid | write.done.valid),
        ]
        for port in (read, write):
            m.d.comb += [port.request.p[name].eq(word[name]) for name in ("asid", "va", "physical")]
        m.d.sync += self.answer.valid.eq(ended)
        with m.If(ended):
            m.d.sync += busy.eq(0)
        with m.If(asks & Mux(word.write, write.request.ready, read.request.ready)):
            m.d.sync += [asks.eq(0), gives.eq(word.write)]
        with m.If(write.beat.ready & gives):
            m.d.sync += gives.eq(0)
        with m.If(self.request.valid & ~busy):
            m.d.sync += [word.eq(self.request.p), busy.eq(1), asks.eq(1)]
        self._lanes(m, word)
        return m

    def _lanes(self, m: Module, word: data.View) -> None:
        """Align the word within a beat."""
        read, write = self.read, self.write
        count = self._config.beat_bytes // WORD_BYTES
        lane = word.va[3 : self._config.offset_bits]
        strobes = [
            Mux(lane == n, word.strobe, 0) if count > 1 else word.strobe for n in range(count)
        ]
        m.d.comb += [
            write.beat.p.data.eq(word.data.replicate(count)),
            write.beat.p.strobe.eq(Cat(strobes)),
            write.beat.p.last.eq(1),
        ]
        m.d.sync += [
            self.answer.data.eq(read.beat.p.data.word_select(lane, 8 * WORD_BYTES)),
            self.answer.status.eq(Mux(word.write, write.done.p.status, read.beat.p.status)),
        ]
