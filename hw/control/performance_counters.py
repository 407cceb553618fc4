"""Performance counters: one for each entry of `PERFORMANCE` in the register description."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.registers import PERFORMANCE

__all__ = ["Counters", "EventPort", "most_events"]


def most_events(config: Config, name: str) -> int:
    """How often something that a counter counts can happen in one cycle."""
    several = {
        "SEMAPHORE_OPS": 1 + config.copy_engines,
        "WAKES": config.channels,
        "READ_BEATS": config.copy_engines,
        "WRITE_BEATS": config.copy_engines,
        "L1_HITS": config.memory_clients,
        "L1_MISSES": config.memory_clients,
        "WARPS": config.sms,
    }
    return several.get(name, 1)


_OWN = ("DOORBELLS", "FAULTS")
"""Counted where their registers are."""


class EventPort(wiring.Signature):
    """What others report to be counted, seen from them: one member per counter, in lower case.

    Each says how many times it happened in this cycle, see `most_events`; or some cycles ago, for
    nobody can tell. Doorbells and faults are counted where they are seen.
    """

    def __init__(self, config: Config) -> None:
        super().__init__({
            name.lower(): Out(range(most_events(config, name) + 1))
            for name in PERFORMANCE
            if name not in _OWN
        })


class Counters(wiring.Component):
    """32-bit counters that wrap; an event is in `values` 2 cycles later.

    Members
    -------
    events : what happened.
    doorbell : strobe: a valid doorbell was taken. fault : strobe: a fault was reported.
    values : all counters, under their names in the register description.
    """

    def __init__(self, config: Config) -> None:
        super().__init__({
            "events": In(EventPort(config)),
            "doorbell": In(1),
            "fault": In(1),
            "values": Out(data.StructLayout({name: 32 for name in PERFORMANCE})),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        own = dict(zip(_OWN, (self.doorbell, self.fault), strict=True))
        for name in PERFORMANCE:
            event = own[name] if name in own else getattr(self.events, name.lower())
            # A register for the way from the other end of the machine.
            count = Signal(event.shape(), name=f"event_{name.lower()}")
            m.d.sync += [count.eq(event), self.values[name].eq(self.values[name] + count)]
        return m
