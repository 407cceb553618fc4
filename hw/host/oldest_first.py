"""Choice of the channel whose head command was received least recently (COPY-5)."""

from collections.abc import Sequence

from amaranth.hdl import Cat, Module, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.lib.onehot import encode, select

__all__ = ["STAMP_BITS", "OldestFirst"]

STAMP_BITS = 12
"""Width of an arrival stamp. Comparison is circular; `Arrivals` keeps ages below half the range."""

_ONE_STEP = 16
"""Up to this number of channels, all are compared in one step."""

_GROUP = 8
"""Channels per group in the first of two steps."""


class OldestFirst(wiring.Component):
    """Selects the oldest candidate; among equal stamps, the lowest channel.

    All pairs of stamps are compared in parallel, so the depth is one comparison and two small
    trees. Above 16 channels, the comparison is first within groups of 8, then among their winners,
    so the number of comparators grows with the number of channels, not with its square.

    Latency: 1 cycle; 2 with more than 16 channels.

    Members
    -------
    candidates : in, per channel, may be selected.
    stamps : in, per channel, arrival of the head command.
    found : out, there is a candidate.
    choice : out, the selected channel, one-hot.
    channel : out, its number.
    """

    def __init__(self, config: Config, stamp_bits: int = STAMP_BITS) -> None:
        self._config = config
        self._stamp_bits = stamp_bits
        super().__init__({
            "candidates": In(config.channels),
            "stamps": In(data.ArrayLayout(stamp_bits, config.channels)),
            "found": Out(1),
            "choice": Out(config.channels),
            "channel": Out(config.channel_bits),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        channels = self._config.channels
        m.d.comb += self.channel.eq(encode(self.choice))
        stamps = [self.stamps[channel] for channel in range(channels)]
        if channels <= _ONE_STEP:
            first = _first(m, "first", self.candidates, stamps)
            m.d.sync += [self.found.eq(self.candidates.any()), self.choice.eq(first)]
            return m

        groups = [slice(low, low + _GROUP) for low in range(0, channels, _GROUP)]
        winners = [
            self._winner(m, number, self.candidates[group], stamps[group])
            for number, group in enumerate(groups)
        ]
        valid = Cat(one.valid for one in winners)
        first = _first(m, "first", valid, [one.stamp for one in winners])
        chosen = [one.first & first[i].replicate(_GROUP) for i, one in enumerate(winners)]
        m.d.sync += [self.found.eq(valid.any()), self.choice.eq(Cat(chosen))]
        return m

    def _winner(self, m: Module, number: int, valid: Value, stamps: Sequence[Value]) -> data.View:
        """Oldest of one group, one cycle later; `first` is one-hot within the group."""
        layout = data.StructLayout({"valid": 1, "first": _GROUP, "stamp": self._stamp_bits})
        winner = Signal(layout, name=f"winner_{number}")
        first = _first(m, f"first_{number}", valid, stamps)
        m.d.sync += [
            winner.valid.eq(valid.any()),
            winner.first.eq(first),
            winner.stamp.eq(select(first, stamps)),
        ]
        return winner


def _first(m: Module, name: str, valid: Value, stamps: Sequence[Value]) -> Signal:
    """One-hot: the valid one with the oldest stamp, the lowest among equals; 0 if none is valid."""
    count = len(stamps)
    first = Signal(count, name=name)
    behind = Signal(data.ArrayLayout(count, count), name=f"{name}_behind")
    for low in range(count):
        for high in range(low + 1, count):
            # Circular: the sign of the difference.
            later = (stamps[high] - stamps[low])[len(stamps[low]) - 1]
            m.d.comb += [behind[low][high].eq(later), behind[high][low].eq(~later)]
    for one in range(count):
        m.d.comb += first[one].eq(valid[one] & ~(behind[one] & valid).any())
    return first
