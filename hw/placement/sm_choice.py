"""Choice of the SM for the next block, by the ranks of `sm_table` (PLACE-9)."""

from functools import reduce
from operator import and_, or_

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.placement.sm_table import candidate

__all__ = ["PipelinedOr", "SmChoice", "fan_ins"]


def fan_ins(count: int) -> list[int]:
    """Fan-in of each round of a tournament among `count` nodes: the fewest rounds of fan-in 2 or 3.
    Rounds of 2, which are smaller, come first, and never last: a final of 3 still has a node left
    when the winners of the last two choices are struck out."""
    rounds = 0
    while 3**rounds < count:
        rounds += 1
    twos = 0
    while twos + 1 < rounds and 2 ** (twos + 1) * 3 ** (rounds - twos - 1) >= count:
        twos += 1
    return [2] * twos + [3] * (rounds - twos)


class SmChoice(wiring.Component):
    """Pipelined tournament for the best candidate: one round per cycle, one choice started per
    cycle. Ties go to the lowest number.

    A candidate that is taken is struck out of all choices in flight: in the last round in the same
    cycle, in all other rounds in the next cycle. Candidates that it has beaten in such a choice are
    lost with it, so a choice may find no candidate, or not the best. In the cycle after it was
    taken, its input has rank NONE (see `SmRow`); after that, the input is up to date.

    A single candidate needs no round.

    Members
    -------
    candidates : in, per SM: a `candidate`.
    taken : in, per SM, one-hot: the candidate taken in this cycle.
    found : in, number of the candidate about to be taken, known earlier than `taken`. With `valid`
        it is struck out, even if it is not taken after all.
    best : out, the best candidate; rank NONE if there is none.
    number : out, `sm_bits` bits: its number.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self.rounds = fan_ins(config.sms)
        node = {"key": candidate(config).size, "number": config.sm_bits, "out": 1}
        self._node = data.StructLayout(node)
        super().__init__({
            "candidates": In(candidate(config)).array(config.sms),
            "taken": In(config.sms),
            "found": In(data.StructLayout({"valid": 1, "sm": config.sm_bits})),
            "best": Out(candidate(config)),
            "number": Out(config.sm_bits),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        nodes, struck = [], list(self.taken)
        for n, one in enumerate(self.candidates):
            node = Signal(self._node, name=f"candidate_{n}")
            m.d.comb += [node.key.eq(one), node.number.eq(n)]
            nodes.append(node)
        for level, fan in enumerate(self.rounds):
            final = level == len(self.rounds) - 1
            nodes = [
                self._meet(m, nodes[n : n + fan], struck[n : n + fan], final, f"best_{level}_{n}")
                for n in range(0, len(nodes), fan)
            ]
            struck = [self.found.valid & (node.number == self.found.sm) for node in nodes]
        (root,) = nodes
        m.d.comb += [self.best.eq(root.key), self.number.eq(root.number)]
        return m

    def _meet(
        self, m: Module, nodes: list[data.View], struck: list[Value], final: bool, name: str
    ) -> data.View:
        """Registered winner of one match; `out` if it was struck out meanwhile."""
        out = Signal(self._node, name=name)
        # A struck node loses against all others.
        keys = [Cat(node.key, ~node.out) for node in nodes]
        better = {
            (one, other): keys[one] >= keys[other]
            for other in range(len(nodes))
            for one in range(other)
        }
        stays = [~node.out & ~hit for node, hit in zip(nodes, struck, strict=True)]
        wins = _wins(better, stays if final else [Const(1) for _ in nodes])
        m.d.sync += [
            out.key.eq(_winner(wins, [node.key for node in nodes])),
            out.number.eq(_winner(wins, [node.number for node in nodes])),
        ]
        if final:
            with m.If(~Cat(stays).any()):
                m.d.sync += out.key.eq(0)  # Rank.NONE
        else:
            m.d.sync += out.out.eq(~_winner(wins, stays))
        return out


def _wins(better: dict[tuple[int, int], Value], stays: list[Value]) -> list[Value]:
    """Whether the second of up to three nodes beats the first, and the third beats both. `better`:
    the first node of a pair is at least as good as the second. Nodes that do not stay lose."""
    return [
        reduce(and_, (~stays[one] | ~better[one, other] for one in range(other)), stays[other])
        for other in range(1, len(stays))
    ]


def _winner(wins: list[Value], words: list[Value]) -> Value:
    """Word of the winner: the last node that wins."""
    return reduce(
        lambda word, last: Mux(last[0], last[1], word), zip(wins, words[1:], strict=True), words[0]
    )


class PipelinedOr(wiring.Component):
    """Pipelined OR of several words, with the latency of a `SmChoice` among as many candidates.

    Members
    -------
    words : in, `count` words of `shape`.
    any : out, a word of `shape`: their OR.
    """

    def __init__(self, shape: data.Layout, count: int) -> None:
        self._rounds = len(fan_ins(count))
        super().__init__({"words": In(shape).array(count), "any": Out(shape)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        words = [Value.cast(word) for word in self.words]
        for level in range(self._rounds):
            together = min(len(words), 6)
            merged = []
            for n in range(0, len(words), together):
                word = Signal(len(words[0]), name=f"any_{level}_{n}")
                m.d.sync += word.eq(reduce(or_, words[n : n + together]))
                merged.append(word)
            words = merged
        (word,) = words
        m.d.comb += self.any.eq(word)
        return m
