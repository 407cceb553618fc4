"""Global registers for state and errors of the runlist."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.control.register_fields import register_of
from signalbox.hw.records.runlist import runlist_acquire, runlist_refused, runlist_state
from signalbox.hw.registers import GLOBAL

__all__ = ["RunlistRegisters"]

_REGISTERS = ("RUNLIST_INFO", "RUNLIST_STATE", "RUNLIST_STATUS", "RUNLIST_ERROR")

_STATUS = data.StructLayout({"error": 1, "reserved": 5, "acquire": 1, "acquire_idle": 1})
"""Fields of RUNLIST_STATUS."""


class RunlistRegisters(wiring.Component):
    """Registers of the runlist: state, sticky status bits, and the first refusal. An event appears
    1 cycle later and stays until it is cleared. An event in the cycle of a clear is kept.

    Members
    -------
    state : in, see `runlist_state`.
    refused : in, strobe: a runlist was refused, see `runlist_refused`.
    acquire : in, strobe: see `runlist_acquire`.
    clear : in, RUNLIST_STATUS bits to clear.
    values : out, the registers, 32 bits each.
    attention : out, registered: a bit of RUNLIST_STATUS is 1; raises INTR.RUNLIST.
    """

    def __init__(self) -> None:
        super().__init__({
            "state": In(runlist_state),
            "refused": In(runlist_refused),
            "acquire": In(runlist_acquire),
            "clear": In(_STATUS),
            "values": Out(data.StructLayout(dict.fromkeys(_REGISTERS, 32))),
            "attention": Out(1),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        status, first = Signal(_STATUS, name="status"), Signal(runlist_refused, name="first")
        events = {
            "error": self.refused.valid,
            "acquire": self.acquire.valid,
            "acquire_idle": self.acquire.idle,
        }
        for name, event in events.items():
            m.d.sync += status[name].eq((status[name] & ~self.clear[name]) | event)
        m.d.sync += self.attention.eq(status.as_value().any())
        with m.If(self.refused.valid & (~status.error | self.clear.error)):
            m.d.sync += first.eq(self.refused)
        state = self.state
        info = {
            "READING": state.reading,
            "PENDING": state.pending,
            "GROUPS": state.groups,
        }
        turn = {"TSGID": state.tsgid, "RUNNING": state.running}
        refusal = {"CODE": first.error, "ENTRY": first.entry}
        shown = {
            "RUNLIST_INFO": register_of(GLOBAL["RUNLIST_INFO"], info),
            "RUNLIST_STATE": register_of(GLOBAL["RUNLIST_STATE"], turn),
            "RUNLIST_STATUS": status.as_value(),
            "RUNLIST_ERROR": register_of(GLOBAL["RUNLIST_ERROR"], refusal),
        }
        m.d.comb += [self.values[name].eq(value) for name, value in shown.items()]
        return m
