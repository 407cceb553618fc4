"""Choice of the channel with the head command that was received first (COPY-5, HOST-9)."""

from collections.abc import Mapping, Sequence

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

_Age = Mapping[str, Value]
"""Stamp, and level if there are levels, of one channel."""


class OldestFirst(wiring.Component):
    """Selects the oldest candidate of the highest level; among equal stamps, the lowest channel.

    All pairs of candidates are compared in parallel, so the depth is one comparison and two small
    trees. Above 16 channels, the comparison is first within groups of 8, then among their winners,
    so the number of comparators grows with the number of channels, not with its square.

    Latency: `steps` cycles, which is 1, or 2 with more than 16 channels.

    Parameters
    ----------
    stamp_bits : width of a stamp.
    level_bits : width of a level; 0 for none.

    Members
    -------
    candidates : in, per channel, may be selected.
    levels : in, per channel, `level_bits` bits: its level.
    stamps : in, per channel, `stamp_bits` bits: arrival of the head command.
    found : out, there is a candidate.
    choice : out, per channel, one-hot: the selected one; 0 without a candidate.
    channel : out, `channel_bits` bits: its number.
    """

    def __init__(
        self, config: Config, stamp_bits: int = STAMP_BITS, *, level_bits: int = 0
    ) -> None:
        self._config = config
        self.steps = 1 if config.channels <= _ONE_STEP else 2
        self._age = {"stamp": stamp_bits} | ({"level": level_bits} if level_bits else {})
        super().__init__({
            "candidates": In(config.channels),
            **{
                f"{name}s": In(data.ArrayLayout(bits, config.channels))
                for name, bits in self._age.items()
            },
            "found": Out(1),
            "choice": Out(config.channels),
            "channel": Out(config.channel_bits),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        channels = self._config.channels
        m.d.comb += self.channel.eq(encode(self.choice))
        ages = [
            {name: getattr(self, f"{name}s")[channel] for name in self._age}
            for channel in range(channels)
        ]
        if self.steps == 1:
            first = _first(m, "first", self.candidates, ages)
            m.d.sync += [self.found.eq(self.candidates.any()), self.choice.eq(first)]
            return m

        groups = [slice(low, low + _GROUP) for low in range(0, channels, _GROUP)]
        winners = [
            self._winner(m, number, self.candidates[group], ages[group])
            for number, group in enumerate(groups)
        ]
        valid = Cat(one.valid for one in winners)
        won = [{name: one[name] for name in self._age} for one in winners]
        first = _first(m, "first", valid, won)
        chosen = [one.first & first[i].replicate(_GROUP) for i, one in enumerate(winners)]
        m.d.sync += [self.found.eq(valid.any()), self.choice.eq(Cat(chosen))]
        return m

    def _winner(self, m: Module, number: int, valid: Value, ages: Sequence[_Age]) -> data.View:
        """First of one group, one cycle later; `first` is one-hot within the group."""
        layout = data.StructLayout({"valid": 1, "first": _GROUP, **self._age})
        winner = Signal(layout, name=f"winner_{number}")
        first = _first(m, f"first_{number}", valid, ages)
        m.d.sync += [
            winner.valid.eq(valid.any()),
            winner.first.eq(first),
            [winner[name].eq(select(first, [age[name] for age in ages])) for name in self._age],
        ]
        return winner


def _first(m: Module, name: str, valid: Value, ages: Sequence[_Age]) -> Signal:
    """One-hot: the valid entry with the oldest stamp of the highest level; among equal ones, the
    lowest; 0 if none is valid."""
    count = len(ages)
    first = Signal(count, name=name)
    behind = Signal(data.ArrayLayout(count, count), name=f"{name}_behind")
    for low in range(count):
        for high in range(low + 1, count):
            one, other = ages[low], ages[high]
            # Circular: the sign of the difference.
            later = (other["stamp"] - one["stamp"])[len(one["stamp"]) - 1]
            if "level" in one:
                lower, same = one["level"] < other["level"], one["level"] == other["level"]
                later = lower | (same & later)
            m.d.comb += [behind[low][high].eq(later), behind[high][low].eq(~later)]
    for one in range(count):
        m.d.comb += first[one].eq(valid[one] & ~(behind[one] & valid).any())
    return first
