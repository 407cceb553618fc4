"""Moves blocks that have not begun to SMs that can begin them (PLACE-5)."""

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.lib.onehot import lowest_number, select
from signalbox.hw.lib.tournament import tournament
from signalbox.hw.placement.second_claim import SecondClaim
from signalbox.hw.records.placement import (
    LEVEL_BITS,
    block_claim,
    block_record,
    disabled_sms,
    kernel_needs,
    returned_block,
)

__all__ = ["BlockRecall", "block_move", "two_claims"]

_SETTLE = 3
"""Cycles from the beginning of a pause until the SM table reflects all blocks sent, and from a
change of the claim until `room` reflects it."""


def two_claims(config: Config) -> bool:
    """Whether the machine has a second claim: with SM masks and more than two SMs. The first claim
    covers at least two, the owner and another SM."""
    return config.masked_sms > 0 and config.sms > 2


def block_move(config: Config) -> data.StructLayout:
    """Strobe: a block moves from SM `source` to SM `target`, both one-hot; `sm`: number of the
    target; `asid`: its address space."""
    return data.StructLayout({
        "valid": 1,
        "source": config.sms,
        "target": config.sms,
        "sm": config.sm_bits,
        **block_record(config).members,
        "needs": kernel_needs,
        "asid": config.asid_bits,
    })


class BlockRecall(wiring.Component):
    """Claims room for the most urgent block that waits on an SM; among equals, the one on the SM
    with the lowest number. When another SM that may take the block has room, the block is recalled
    and sent there. A block that no other SM may take is not claimed.

    With `Config.sm_masks`, SMs that may not take that block keep room for a second one that they
    may take (`SecondClaim`); it moves likewise.

    With r rounds of a binary tree among all SMs: a block is claimed r + 2 cycles after its SM has
    reported it. From the cycle in which another SM has room for the claimed block to the cycle in
    which the block is valid at that SM: 12 cycles, plus those that its old SM needs to settle;
    during the last 9 of these, no other block is placed.

    Members
    -------
    waits : in, per SM: its most urgent block with warps to start, if it has not begun and lacks
        resources, a `block_claim`.
    room : in, per SM: the first warp of the claimed block can start there, see `SmLink`.
    accepts : in, per SM: a block can be sent to it.
    heard : in, per SM: its reports cover all blocks sent to it.
    returned : in, per SM, strobe: answer to `recall`, see `returned_block`.
    open : in, strobe: a row opens, with its address space, and `disabled_sms`.
    claim : out, a `block_claim`, registered, for all SMs that may take the block but its own.
    barred : out, per SM, with `Config.sm_masks`: may not take the claimed block.
    owner : out, per SM, one-hot: the SM of the claimed block.
    second, second_told, second_spares : out, with a second claim, see `SecondClaim`: the claim, a
        `block_claim`; per SM, whether it keeps room for the block, and whether it keeps a slot.
    asked : out, strobe per SM, with a second claim: `recall` is for the second block.
    recall : out, strobe per SM: return the claimed block.
    pause : out, no block may be placed from the next cycle on.
    move : out, strobe: see `block_move`.
    """

    def __init__(self, config: Config) -> None:
        self._config, sms = config, config.sms
        second = {
            "second": Out(block_claim(config)),
            **{name: Out(sms) for name in ("second_told", "second_spares", "asked")},
        }
        super().__init__({
            "waits": In(block_claim(config)).array(sms),
            "room": In(sms),
            "accepts": In(sms),
            "heard": In(sms),
            "returned": In(returned_block(config)).array(sms),
            "open": In(
                data.StructLayout({
                    "valid": 1,
                    "row": config.row_bits,
                    "asid": config.asid_bits,
                    **disabled_sms(config),
                })
            ),
            "claim": Out(block_claim(config)),
            **({"barred": Out(sms)} if config.masked_sms else {}),
            **(second if two_claims(config) else {}),
            "owner": Out(sms),
            "recall": Out(sms),
            "pause": Out(1),
            "move": Out(block_move(config)),
        })
        self._left = Signal(range(_SETTLE + 1), name="cycles_left")
        self._chosen = Signal(block_claim(config), name="next_claim")
        self._pins = 0 < config.masked_sms and sms <= config.masked_sms + 1
        """A mask can leave a single SM."""
        self._two = two_claims(config)
        self._moves_second = Signal(name="moves_second")
        """The block that moves is the second one."""
        self._source = Signal(sms, name="source")
        """SM of the block that moves, one-hot."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        able = Signal.like(self.room, name="able")
        excluded, self._movable = self.owner, [*self.waits]
        if self._config.masked_sms:
            excluded = self.owner | self.barred
            self._movable = self._unpinned(m) if self._pins else self._movable
        told = ~excluded
        if self._two:
            told = Mux(self.claim.valid, told, 0) | self.second_told
        m.d.comb += [
            able.eq(self.room & self.accepts & self.heard & told),
            self._source.eq(self.owner),
        ]
        self._space(m)
        with m.If(self._left != 0):
            m.d.sync += self._left.eq(self._left - 1)
        with m.FSM(name="recall") as machine:
            self._claim(m, self._most_urgent(m), *lowest_number(m, able))
            self._settle(m, able)
            self._fetch(m)
            self._send(m)
        if self._config.masked_sms:
            self._bar(m, machine.ongoing("SEEK"))
        if self._two:
            self._claim_another(m, *(machine.ongoing(name) for name in ("SEEK", "SETTLE")))
        return m

    def _most_urgent(self, m: Module) -> data.View:
        """The SM with the most urgent waiting block; the lowest number among equals."""
        shape = data.StructLayout({"valid": 1, "level": LEVEL_BITS, "sm": self._config.sm_bits})
        nodes = [Signal(shape, name=f"waiting_{number}") for number in range(len(self.waits))]
        for number, (node, block) in enumerate(zip(nodes, self._movable, strict=True)):
            m.d.comb += [
                node.valid.eq(block.valid),
                node.level.eq(block.level),
                node.sm.eq(number),
            ]
        best, _ = tournament(m, nodes, _higher)
        return best

    def _space(self, m: Module) -> None:
        """Address space of the row of the block that moves."""
        config, opens = self._config, self.open
        m.submodules.asids = asids = Memory(
            shape=config.asid_bits, depth=1 << config.row_bits, init=[]
        )
        write, read = asids.write_port(), asids.read_port(domain="comb")
        m.d.comb += [
            write.en.eq(opens.valid),
            write.addr.eq(opens.row),
            write.data.eq(opens.asid),
            read.addr.eq(self.move.row),
            self.move.asid.eq(read.data),
        ]

    def _bar(self, m: Module, seeks: Value) -> None:
        """Read which SMs may not take the claimed block, in the cycles in which the claim changes.
        `seeks`: the machine is in SEEK."""
        config, opens = self._config, self.open
        m.submodules.masks = masks = Memory(
            shape=config.masked_sms, depth=1 << config.row_bits, init=[]
        )
        write, read = masks.write_port(), masks.read_port()
        m.d.comb += [
            write.en.eq(opens.valid),
            write.addr.eq(opens.row),
            write.data.eq(opens.disabled),
            read.en.eq(seeks),
            read.addr.eq(self._chosen.row),
            self.barred.eq(read.data),
        ]

    def _unpinned(self, m: Module) -> list[data.View]:
        """`waits`, without blocks of rows that a single SM takes."""
        config, opens = self._config, self.open
        pinned, allowed = Signal(config.rows, name="pinned"), Signal(config.sms, name="allowed")
        disabled = Signal(config.sms, name="disabled")
        m.d.comb += [disabled.eq(opens.disabled), allowed.eq(~disabled)]
        with m.If(opens.valid):
            m.d.sync += pinned.bit_select(opens.row, 1).eq((allowed & (allowed - 1)) == 0)
        movable = []
        for n, block in enumerate(self.waits):
            one = Signal(block_claim(config), name=f"movable_{n}")
            m.d.comb += one.eq(block)
            m.d.comb += one.valid.eq(block.valid & ~pinned.bit_select(block.row, 1))
            movable.append(one)
        return movable

    def _claim_another(self, m: Module, seeks: Value, settles: Value) -> None:
        """A second claim. `seeks`, `settles`: states of the machine."""
        m.submodules.another = another = SecondClaim(self._config)
        for one, block in zip(another.waits, self._movable, strict=True):
            m.d.comb += one.eq(block)
        m.d.comb += [
            another.first.eq(Mux(self.claim.valid, ~self.barred | self.owner, 0)),
            another.open.valid.eq(self.open.valid),
            another.open.row.eq(self.open.row),
            another.open.disabled.eq(self.open.disabled),
            another.seeks.eq(seeks),
            self.second.eq(another.claim),
            self.second_told.eq(another.told),
            self.second_spares.eq(another.spares),
            self.asked.eq(Mux(self._moves_second, self.recall, 0)),
        ]
        with m.If(self._moves_second):
            m.d.comb += self._source.eq(another.owner)
        with m.If(seeks | settles):  # known before the block is asked for, kept until it has moved
            m.d.sync += self._moves_second.eq((another.told & self.move.target).any())

    def _claim(self, m: Module, best: data.View, found: Value, sm: Value) -> None:
        """Claim the most urgent block, until SM `sm` with room is found."""
        chosen = Signal.like(self.owner, name="chosen")
        m.d.comb += self._chosen.eq(select(chosen, [one.as_value() for one in self._movable]))
        with m.State("SEEK"):
            m.d.sync += [
                chosen.eq(Mux(best.valid, 1 << best.sm, 0)),
                self.owner.eq(chosen),
                self.claim.eq(self._chosen),
                self.move.target.eq(1 << sm),
                self.move.sm.eq(sm),
            ]
            with m.If(found & (self._left == 0)):
                m.d.sync += self._left.eq(_SETTLE)
                m.next = "SETTLE"

    def _seek(self, m: Module) -> None:
        """Return to SEEK. For `_SETTLE` cycles `room` is ignored, as it may answer the last
        claim."""
        m.d.sync += self._left.eq(_SETTLE)
        m.next = "SEEK"

    def _settle(self, m: Module, able: Signal) -> None:
        """Wait until the SM table is up to date, and recall the block if there is still room."""
        with m.State("SETTLE"):
            m.d.comb += self.pause.eq(1)
            with m.If(self._left == 0):
                self._seek(m)
                claims = self.claim.valid | self._moves_second
                with m.If(claims & (able & self.move.target).any()):
                    m.d.sync += self.recall.eq(self._source)
                    m.next = "WAIT"

    def _fetch(self, m: Module) -> None:
        """Wait for the answer of the block's SM."""
        move, answers = self.move, [one.as_value() for one in self.returned]
        answer = Signal(self.returned[0].shape(), name="answer")
        m.d.sync += answer.eq(select(self._source, answers))
        with m.State("WAIT"):
            m.d.comb += self.pause.eq(1)
            m.d.sync += [
                self.recall.eq(0),
                move.source.eq(self._source),
                move.needs.eq(answer.needs),
                [move[name].eq(answer[name]) for name in block_record(self._config).members],
            ]
            with m.If(answer.valid & answer.some):
                m.next = "SEND"
            with m.Elif(answer.valid):
                self._seek(m)

    def _send(self, m: Module) -> None:
        """Send the block. Its room is kept until it is in the table of its new SM."""
        with m.State("SEND"):
            m.d.comb += [self.pause.eq(1), self.move.valid.eq(1)]
            m.d.sync += self._left.eq(1)
            m.next = "ARRIVE"
        with m.State("ARRIVE"):
            with m.If((self._left == 0) & (self.heard & self.move.target).any()):
                self._seek(m)


def _higher(one: data.View, other: data.View) -> Value:
    """Whether the first one is valid and, if both are, of no lower level."""
    return one.valid & (~other.valid | (one.level >= other.level))
