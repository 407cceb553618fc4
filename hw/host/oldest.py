"""Choice of the channel whose head command was received least recently (COPY-5)."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hw.config import Config

__all__ = ["STAMP_BITS", "Oldest"]

STAMP_BITS = 12
"""Bits of an arrival stamp. Stamps are compared circularly; `Arrivals` keeps them within half."""


class Oldest(wiring.Component):
    """Oldest of the candidates, by a tree of comparisons: depth log2(channels).

    Registered: `found` and `channel` show the choice among the previous cycle's inputs; for more
    than 16 channels there is one register more in the middle. Equal stamps: the lower channel.

    Members
    -------
    candidates : per channel, whether it may be chosen.
    stamps : arrival of each channel's head command.
    found, channel : the choice.
    """

    def __init__(self, config: Config, stamp_bits: int = STAMP_BITS) -> None:
        self._config = config
        self._stamp_bits = stamp_bits
        super().__init__({
            "candidates": In(config.channels),
            "stamps": In(data.ArrayLayout(stamp_bits, config.channels)),
            "found": Out(1),
            "channel": Out(config.channel_bits),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        node = data.StructLayout({
            "valid": 1,
            "channel": self._config.channel_bits,
            "stamp": self._stamp_bits,
        })
        level = []
        for channel in range(self._config.channels):
            leaf = Signal(node, name=f"leaf_{channel}")
            m.d.comb += [
                leaf.valid.eq(self.candidates[channel]),
                leaf.channel.eq(channel),
                leaf.stamp.eq(self.stamps[channel]),
            ]
            level.append(leaf)
        depth = 0
        while len(level) > 1:
            depth += 1
            domain = m.d.sync if depth == 3 and len(level) > 2 else m.d.comb
            level = [self._older(domain, node, depth, pair) for pair in _pairs(level)]
        m.d.sync += [self.found.eq(level[0].valid), self.channel.eq(level[0].channel)]
        return m

    @staticmethod
    def _older(domain, node: data.Layout, depth: int, pair: list) -> data.View:
        if len(pair) == 1:
            left, right = pair[0], Signal(node, name="none")
        else:
            left, right = pair
        winner = Signal(node, name=f"winner_{depth}")
        newer = (left.stamp - right.stamp)[: len(left.stamp)]
        right_first = right.valid & (~left.valid | ((newer != 0) & ~newer[-1]))
        domain += winner.eq(Mux(right_first, right, left))
        return winner


def _pairs(items: list) -> list[list]:
    return [items[i : i + 2] for i in range(0, len(items), 2)]
