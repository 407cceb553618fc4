"""Registers of the contexts: instance block address, placement policy, save area."""

from functools import reduce
from operator import or_

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.front_end.contexts import context_setting
from signalbox.hw.records.register import RegisterPort
from signalbox.hw.registers import CONTEXT

__all__ = ["ContextRegisters"]

_WORD_BITS = (CONTEXT.stride // 4 - 1).bit_length()


class ContextRegisters(wiring.Component):
    """Serves the context block of the register map; 3 cycles per access.

    Members
    -------
    port : in, register port; word address context × 4 + offset / 4.
    settings : out, per context: its `context_setting`.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        super().__init__({
            "port": In(RegisterPort(12)),
            "settings": Out(context_setting()).array(config.contexts),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        request, response = self.port.request, self.port.response
        access = Signal.like(request.p)
        # Registered with `access`, for timing: one-hot, its context.
        here = Signal(self._config.contexts)
        value = Signal(32)
        writes = Signal(self._config.contexts)
        words = self._words(m, access, here, writes)
        with m.FSM(name="access"):
            with m.State("IDLE"):
                m.d.comb += request.ready.eq(1)
                m.d.sync += access.eq(request.p)
                for number in range(self._config.contexts):
                    m.d.sync += here[number].eq(request.p.address[_WORD_BITS:] == number)
                with m.If(request.valid):
                    m.next = "CHOOSE"
            with m.State("CHOOSE"):
                m.d.comb += writes.eq(Mux(access.write, here, 0))
                m.d.sync += value.eq(reduce(or_, words))
                m.next = "RESPOND"
            with m.State("RESPOND"):
                m.d.comb += response.valid.eq(1)
                with m.If(response.ready):
                    m.next = "IDLE"
        m.d.comb += response.p.data.eq(value)
        return m

    def _words(self, m: Module, access: data.View, here: Signal, writes: Signal) -> list[Value]:
        """Fields of all registers, each 0 unless its register is being read."""
        found = []
        for number, setting in enumerate(self.settings):
            parts = []
            for register in CONTEXT:
                mine = access.address[:_WORD_BITS] == register.offset // 4
                for field in register.fields:
                    name = f"{register.name}_{field.name}_{number}".lower()
                    part = Signal(field.width, name=name)
                    with m.If(writes[number] & mine):
                        m.d.sync += part.eq(access.data[field.lo :])
                    parts.append(part)
                    found.append(Mux(here[number] & mine, part << field.lo, 0))
            m.d.comb += setting.eq(Cat(parts))
        return found
