"""A second claim, for SMs that may not take the block claimed first (PLACE-5)."""

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.lib.onehot import select
from signalbox.hw.lib.tournament import tournament
from signalbox.hw.records.placement import LEVEL_BITS, block_claim, disabled_sms

__all__ = ["TURN", "SecondClaim"]

TURN = 64
"""Cycles for which a block is claimed before another one has its turn."""


class SecondClaim(wiring.Component):
    """Claims one of the blocks that wait on their SMs, for SMs that the first claim leaves alone.

    The blocks are tried in the order of their urgency: with r rounds of a binary tree among all
    SMs, one in r + 4 cycles. A block that may go to such an SM is claimed for at least `TURN`
    cycles, unless it stops waiting or no such SM is left. Then the next one has its turn; after the
    last one, the first again.

    Members
    -------
    waits : in, per SM: see `BlockRecall`.
    first : in, per SM: it belongs to the first claim, as its owner, or as one that is told.
    open : in, strobe: a row opens, with `disabled_sms`.
    seeks : in, the claim may change.
    claim : out, a `block_claim`, registered.
    owner : out, per SM, one-hot: the SM of the claimed block.
    told : out, per SM: keeps room for it.
    spares : out, per SM: keeps a slot for it; those in `told`, and its own SM, unless that belongs
        to the first claim.
    """

    def __init__(self, config: Config) -> None:
        self._config, sms = config, config.sms
        row = {"valid": 1, "row": config.row_bits, **disabled_sms(config)}
        super().__init__({
            "waits": In(block_claim(config)).array(sms),
            "first": In(sms),
            "open": In(data.StructLayout(row)),
            "seeks": In(1),
            "claim": Out(block_claim(config)),
            "owner": Out(sms),
            "told": Out(sms),
            "spares": Out(sms),
        })
        self._tried = Signal(sms, name="tried")
        """Per SM: its block has been tried in this round."""
        self._candidate = Signal(block_claim(config), name="candidate")
        self._source = Signal(sms, name="source")
        """`_candidate`: the block being tried. `_source`: its SM."""
        self._disabled = Signal(sms, name="disabled")
        """SMs that may not take the candidate."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        self._read(m)
        takes, barred = Signal.like(self.told, name="takes"), Signal.like(self.told, name="barred")
        left = Signal(range(TURN + 1), name="cycles_left")
        claims = Signal(name="claims")
        m.d.comb += [
            takes.eq(~(self._disabled | self._source | self.first)),
            self.spares.eq(Mux(self.claim.valid, ~(barred | self.first), 0)),
            self.told.eq(self.spares & ~self.owner),
        ]
        self._try(m, takes, claims, ~self.told.any() | (left == 0))
        self._stay(m)
        m.d.sync += left.eq(left - (left != 0))
        with m.If(claims):
            m.d.sync += [
                self.claim.eq(self._candidate),
                self.owner.eq(self._source),
                barred.eq(self._disabled),
                left.eq(TURN),
            ]
        with m.If(self.open.valid & (self.open.row == self.claim.row)):
            m.d.sync += self.claim.valid.eq(0)  # the block is gone, the mask is another task's
        return m

    def _read(self, m: Module) -> None:
        """Read the mask of the block being tried."""
        opens = self.open
        m.submodules.masks = masks = Memory(
            shape=self._config.masked_sms, depth=1 << self._config.row_bits, init=[]
        )
        write, read = masks.write_port(), masks.read_port()
        m.d.comb += [
            write.en.eq(opens.valid),
            write.addr.eq(opens.row),
            write.data.eq(opens.disabled),
            read.addr.eq(self._candidate.row),
            self._disabled.eq(read.data),
        ]

    def _stay(self, m: Module) -> None:
        """Follow the block that waits on the owner: one of the same row updates the claim, another
        one ends it."""
        block = Signal(block_claim(self._config), name="block")
        m.d.comb += block.eq(select(self.owner, [one.as_value() for one in self.waits]))
        with m.If(self.seeks):
            m.d.sync += self.claim.eq(block)
            with m.If(~self.claim.valid | (block.row != self.claim.row)):
                m.d.sync += self.claim.valid.eq(0)

    def _try(self, m: Module, takes: Value, claims: Value, may: Value) -> None:
        """Try the most urgent of the other blocks. `may` : another one may be claimed."""
        tried, source, candidate = self._tried, self._source, self._candidate
        best, rounds = self._most_urgent(m)
        wait = Signal(range(rounds + 1), init=rounds, name="rounds_left")
        opens = Signal(name="candidate_opens")
        m.d.comb += opens.eq(self.open.valid & (self.open.row == candidate.row))
        with m.If(opens):
            m.d.sync += candidate.valid.eq(0)  # that block is gone, too
        with m.FSM(name="second"):
            with m.State("SEEK"):
                m.d.sync += [wait.eq(wait - 1), source.eq(1 << best.sm)]
                with m.If(wait == 0):
                    m.d.sync += wait.eq(rounds)
                    m.next = "SELECT"
                    with m.If(~best.valid):
                        m.d.sync += tried.eq(0)
                        m.next = "SEEK"
            with m.State("SELECT"):
                m.d.sync += candidate.eq(select(source, [one.as_value() for one in self.waits]))
                m.next = "READ"
            with m.State("READ"):
                m.next = "DECIDE"
            with m.State("DECIDE"):
                m.next = "SEEK"
                with m.If(~(candidate.valid & takes.any()) | opens):
                    m.d.sync += tried.eq(tried | source)
                with m.Elif(self.seeks & may):
                    m.d.comb += claims.eq(1)
                    m.d.sync += tried.eq(tried | source)

    def _most_urgent(self, m: Module) -> tuple[data.View, int]:
        """The most urgent of the blocks that have not been tried, and the cycles it takes."""
        shape = data.StructLayout({"valid": 1, "level": LEVEL_BITS, "sm": self._config.sm_bits})
        owner = Signal.like(self.owner, name="owner_now")
        m.d.comb += owner.eq(Mux(self.claim.valid, self.owner, 0))
        nodes = [Signal(shape, name=f"waiting_{number}") for number in range(len(self.waits))]
        for number, (node, block) in enumerate(zip(nodes, self.waits, strict=True)):
            m.d.comb += [
                node.valid.eq(block.valid & ~(self._tried | owner)[number]),
                node.level.eq(block.level),
                node.sm.eq(number),
            ]
        return tournament(m, nodes, _higher)


def _higher(one: data.View, other: data.View) -> Value:
    """Whether the first one is valid and, if both are, of no lower level."""
    return one.valid & (~other.valid | (one.level >= other.level))
