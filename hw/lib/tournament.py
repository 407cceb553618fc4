"""Pipelined choice of the best among many records."""

from collections.abc import Callable, Sequence

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data

__all__ = ["tournament"]


def tournament(
    m: Module, nodes: Sequence[data.View], first: Callable[[data.View, data.View], Value]
) -> tuple[data.View, int]:
    """Selects one of `nodes`, all of one layout, by a binary tree with a register after each round.
    Returns the winner and the latency in cycles, which is 0 for a single node.

    `first`: whether the first of two nodes wins.
    """
    level, rounds = list(nodes), 0
    while len(level) > 1:
        pairs = [level[n : n + 2] for n in range(0, len(level), 2)]
        level, rounds = [_winner(m, pair[0], pair[-1], first) for pair in pairs], rounds + 1
    return level[0], rounds


def _winner(
    m: Module,
    one: data.View,
    other: data.View,
    first: Callable[[data.View, data.View], Value],
) -> data.View:
    winner, wins = Signal(one.shape(), name="winner"), Signal(name="wins")
    m.d.comb += wins.eq(first(one, other))
    m.d.sync += winner.eq(Mux(wins, one, other))
    return winner
