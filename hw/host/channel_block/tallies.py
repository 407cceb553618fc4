"""Tallies of each channel: METHODS, COPIES, TASKS and REFERENCE."""

from amaranth.hdl import Module
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.host.channel_block.event_count import EventCount
from signalbox.hw.host.channel_block.tally import Tally
from signalbox.hw.lib.delayed import delayed
from signalbox.hw.records.channel import channel_event

__all__ = ["Tallies"]

_WORDS = data.StructLayout({"METHODS": 32, "COPIES": 32, "TASKS": 32, "REFERENCE": 32})


class Tallies(wiring.Component):
    """Counts and the last reference of each channel, all 0 from a start on. Each is owned by a part
    of its own.

    Members
    -------
    executed : in, strobe: a method of `channel` was executed.
    ended : in, strobe: a copy of `channel` has ended.
    task_ended : in, strobe: a task of `channel` has ended.
    referenced : in, strobe: `value` of SET_REFERENCE is in memory.
    started : in, strobe: `channel` starts.
    channel : in, channel of the access.
    words : out, its registers, by name; two cycles later.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        event = channel_event(config)
        super().__init__({
            "executed": In(event),
            "ended": In(event),
            "task_ended": In(event),
            "referenced": In(channel_event(config, value=32)),
            "started": In(1),
            "channel": In(config.channel_bits),
            "words": Out(_WORDS),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        events = {"METHODS": self.executed, "COPIES": self.ended, "TASKS": self.task_ended}
        for name, event in events.items():
            m.submodules[name.lower()] = count = EventCount(self._config)
            m.d.comb += [count.event.eq(event), self.words[name].eq(count.value)]
            self._connect(m, count)
        m.submodules.reference = reference = Tally(self._config)
        m.d.comb += [
            reference.write.eq(delayed(m, self.referenced, "referenced_before")),
            self.words["REFERENCE"].eq(reference.value),
        ]
        self._connect(m, reference)
        return m

    def _connect(self, m: Module, part: EventCount | Tally) -> None:
        m.d.comb += [part.started.eq(self.started), part.channel.eq(self.channel)]
