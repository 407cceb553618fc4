"""Performance counters: one per entry of `PERFORMANCE` in the register description."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.registers import PERFORMANCE

__all__ = ["EventPort", "PerformanceCounters", "max_events"]


def max_events(config: Config, name: str) -> int:
    """Largest number of events of a counter in one cycle."""
    several = {
        "SEMAPHORE_OPS": 1 + config.copy_engines,
        "WAKES": config.channels,
        "READ_BEATS": config.copy_engines,
        "WRITE_BEATS": config.copy_engines,
        "L1_HITS": config.memory_clients,
        "L1_MISSES": config.memory_clients,
        "WARPS": config.sms,
        "SM_CYCLES": config.sms,
    }
    return several.get(name, 1)


_OWN = ("DOORBELLS", "FAULTS")
"""Counters of events in the control port itself."""


class EventPort(wiring.Signature):
    """Events to count, from the units' side: one member per counter, in lower case.

    Each member is the number of events in one cycle, at most `max_events`; it may be some cycles
    late. Doorbells and faults are not members: the control port counts them itself.
    """

    def __init__(self, config: Config) -> None:
        super().__init__({
            name.lower(): Out(range(max_events(config, name) + 1))
            for name in PERFORMANCE
            if name not in _OWN
        })


class PerformanceCounters(wiring.Component):
    """Counts events, in 32-bit counters that wrap. An event appears in `values` 2 cycles later.

    Members
    -------
    events : in, number of events of each kind in this cycle.
    doorbell : in, strobe: a valid doorbell was accepted.
    fault : in, strobe: a fault was reported.
    values : out, all counters, 32 bits each, by their names in the register description.
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
            # Registered, as events come from distant units.
            count = Signal(event.shape(), name=f"event_{name.lower()}")
            m.d.sync += [count.eq(event), self.values[name].eq(self.values[name] + count)]
        return m
