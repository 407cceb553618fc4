"""Memory side of the SM port: maps kernel rows to address spaces (ASID-1, ASID-27)."""

from amaranth.hdl import Module, Value
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out, connect, flipped

from signalbox.hw.config import Config
from signalbox.hw.lib.stream import StreamFIFO
from signalbox.hw.records.memory import ReadPort, WritePort, write_beat
from signalbox.hw.records.placement import kernel_word
from signalbox.hw.sm.port import SmMemory
from signalbox.hw.sm.row_asids import keep_asids

__all__ = ["MemoryGate"]

_BEATS = 8
"""Beats to be written that wait for the translation of their burst."""


class MemoryGate(wiring.Component):
    """Adds the ASID of the kernel row to each request; a core cannot use any other. Physical
    requests are for the state of blocks only.

    Requests are registered: latency one cycle, one per cycle. Beats to be written pass a FIFO, so
    that the core's next write need not wait for them: latency 2 cycles. Beats that were read, and
    responses, pass unchanged.

    Members
    -------
    kernel : in, kernel words; SPACE contains the ASID.
    core : out, an `SmMemory`: memory side of the core.
    read : out, memory client, reads.
    write : out, memory client, writes.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        super().__init__({
            "kernel": In(kernel_word(config)),
            "core": Out(SmMemory(config)),
            "read": Out(ReadPort(config)),
            "write": Out(WritePort(config)),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        core = self.core
        spaces = keep_asids(m, self._config, self.kernel)
        self._request(m, spaces, core.read_request, self.read.request)
        self._request(m, spaces, core.write_request, self.write.request)
        connect(m, flipped(self.read.beat), flipped(core.read_beat))
        m.submodules.beats = beats = StreamFIFO(write_beat(self._config), _BEATS + 1)
        connect(m, flipped(core.write_beat), beats.i)
        connect(m, beats.o, flipped(self.write.beat))
        connect(m, flipped(self.write.done), flipped(core.write_done))
        return m

    @staticmethod
    def _request(
        m: Module, spaces: Memory, i: wiring.PureInterface, o: wiring.PureInterface
    ) -> None:
        """A request with its ASID, held at the RAM output until the request is accepted."""
        asid, takes = spaces.read_port(), Value.cast(i.valid & i.ready)
        m.d.comb += [
            i.ready.eq(~o.valid | o.ready),
            asid.en.eq(takes),
            asid.addr.eq(i.p.row),
            o.p.asid.eq(asid.data),
        ]
        with m.If(i.ready):
            m.d.sync += o.valid.eq(i.valid)
        with m.If(takes):
            m.d.sync += [o.p[name].eq(i.p[name]) for name in i.p.shape().members if name != "row"]
