"""Data of a read."""

from functools import reduce
from operator import or_

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.registers import OBJECTS, channel_word

__all__ = ["SHOWN", "ReadChoice"]

_OF_ERRORS = ("INTR_0", "INTR_1", "CAUSE", "ERROR_VA", "ERROR_VA_HI", "METHOD0", "DATA0")
"""Registers that read as 0 unless the channel is halted."""

_OF_STATE = (
    *("CONTROL", "STATUS", "GP_PUT", "GP_GET", "METHODS", "COPIES", "TASKS", "REFERENCE"),
    *OBJECTS,
)

SHOWN = data.StructLayout(dict.fromkeys((*_OF_STATE, *_OF_ERRORS), 32))
"""Registers that show state. All others are settings, and read as they were written."""


class ReadChoice(wiring.Component):
    """Selects the register to read, and decides whether a write clears the error. Owns only the
    registered selects and results.

    Members
    -------
    word : in, 6 bits: register of the access.
    data : in, 32 bits: value to be written.
    halted : in, the channel of the access is halted.
    shown : in, its registers, by name.
    setting : in, 32 bits: stored value of `word`.
    keep : in, `value` does not change from this cycle to the next.
    value : out, 32 bits: data of a read; one cycle after its source, two after `word`.
    clears : out, writing `data` clears the error; one cycle after `shown` and `halted`.
    """

    def __init__(self) -> None:
        super().__init__({
            "word": In(6),
            "data": In(32),
            "halted": In(1),
            "shown": In(SHOWN),
            "setting": In(32),
            "keep": In(1),
            "value": Out(32),
            "clears": Out(1),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        stored = Signal(init=1)
        chosen = []
        m.d.sync += stored.eq(~self.word.matches(*map(channel_word, SHOWN.members)))
        for name in SHOWN.members:
            here = Signal(name=f"reads_{name.lower()}")
            m.d.sync += here.eq(self.word == channel_word(name))
            gate = here & self.halted if name in _OF_ERRORS else here
            chosen.append(Mux(gate, self.shown[name], 0))
        cleared = [
            (self.word == channel_word(name)) & (self.shown[name] & self.data).any()
            for name in ("INTR_0", "INTR_1")
        ]
        m.d.sync += self.clears.eq(self.halted & (cleared[0] | cleared[1]))
        with m.If(~self.keep):
            m.d.sync += self.value.eq(reduce(or_, chosen) | Mux(stored, self.setting, 0))
        return m
