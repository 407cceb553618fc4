"""Which SM gets the next block: the choice among all of them (PLACE-9)."""

from functools import reduce
from operator import and_, or_

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.placement.sm_table import candidate

__all__ = ["Choice", "Gather", "fan_ins"]


def fan_ins(count: int) -> list[int]:
    """How many nodes come together in each round of a choice among `count`: the fewest rounds of
    two or three; those of two, which are smaller, first, and never last: where three come together
    there is still one when the winners of the last two choices are left out."""
    rounds = 0
    while 3**rounds < count:
        rounds += 1
    twos = 0
    while twos + 1 < rounds and 2 ** (twos + 1) * 3 ** (rounds - twos - 1) >= count:
        twos += 1
    return [2] * twos + [3] * (rounds - twos)


class Choice(wiring.Component):
    """The best candidate, in as many cycles as there are rounds, one choice per cycle; of equals
    the one of the lowest number.

    A candidate that is taken is left out of all choices that are under way: in the last round of
    the same cycle, in every other round of the next one. What it had beaten before in such a choice
    is out of it, too; so a choice may find none, or not the best. The candidates themselves leave
    it out in the next cycle, and then know better.

    Of one candidate there is no round: it is the best.

    Members
    -------
    candidates : of all SMs. taken : one that is taken in this cycle, as a bit. found : its number,
        known before it is sure that it is taken; if `valid`, it is left out of the choices.
    best, number : the best candidate, rank NONE if none was found, and its number.
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
        """The best of several nodes, in a register; `out` if it was struck meanwhile."""
        out = Signal(self._node, name=name)
        # Who is out loses against all others.
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
    """Of up to three, by who is at least as good as whom behind it: whether the second wins over
    the first, and the third over both; those that do not stay are beaten by all."""
    return [
        reduce(and_, (~stays[one] | ~better[one, other] for one in range(other)), stays[other])
        for other in range(1, len(stays))
    ]


def _winner(wins: list[Value], words: list[Value]) -> Value:
    """What is the winner's; the last that wins is it."""
    return reduce(
        lambda word, last: Mux(last[0], last[1], word), zip(wins, words[1:], strict=True), words[0]
    )


class Gather(wiring.Component):
    """Whether a bit is set in any of several words, for each bit, as many cycles later as a
    `Choice` takes.

    Members
    -------
    words : the words. any : their OR.
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
