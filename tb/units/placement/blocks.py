"""Checks every placed or moved block, and every decision without an SM (PLACE-1 … 10).

The model has its own tables, derived from requests and freed resources, with one state per cycle.
It relies on two properties of the design: the number of cycles of a decision, and `HELD`.
"""

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from signalbox.hw.config import Config
from signalbox.hw.placement.controller import Step
from signalbox.tb.testbench.clocked import Participant, Testbench
from signalbox.tb.testbench.masks import mask
from signalbox.tb.units.placement.kernel import AFFINITY, DEEP, WIDE, Kernel, Place
from signalbox.tb.units.placement.sm import Block, Sm

__all__ = ["LOWER", "WARP", "WHOLE", "Blocks", "place", "rounds"]

WHOLE, WARP, LOWER, MOVED = Step
STEPS = (WHOLE, WARP, LOWER)

HELD = 128
"""Maximum number of cycles for which the SMs of a kernel that was passed over stay held after its
last block was sent: a turn of the kernels behind, with the patience of one of them."""


def rounds(sms: int) -> int:
    """Cycles of a choice among `sms` SMs."""
    return next(n for n in range(9) if 3**n >= sms)


def place(word: Mapping[str, int]) -> Place:
    """A position in a grid, from its record."""
    return word["x"], word["y"], word["z"]


@dataclass
class Left:
    """The model's row of an SM: available resources, blocks, and the spaces served last.

    `number` is the number of the SM, `sent` the number of blocks sent. `top` is the highest level
    (priority + 1) in the SM's last complete report and among the blocks sent since. `claimed` is
    the level of the claimed block: one slot is kept free of lower ones.
    """

    number: int
    amounts: list[int]
    slots: int
    kernels: list[Kernel] = field(default_factory=list)
    spaces: list[int] = field(default_factory=list)
    sent: int = 0
    top: int = 0
    claimed: int = 0

    def copy(self) -> "Left":
        return replace(
            self,
            amounts=list(self.amounts),
            kernels=list(self.kernels),
            spaces=list(self.spaces),
        )

    def has(self, needs: tuple[int, int, int]) -> bool:
        return all(left >= need for left, need in zip(self.amounts, needs, strict=True))

    def open_to(self, kernel: Kernel) -> bool:
        """Whether there is a block slot for the kernel."""
        return kernel.allows(self.number) and len(self.kernels) < self.slots - (
            kernel.priority + 1 < self.claimed
        )

    def qualifies(self, kernel: Kernel, step: Step) -> bool:
        if not self.open_to(kernel):
            return False
        if step is WHOLE:
            return self.has(kernel.whole)
        if step is WARP:
            return not kernel.barrier and self.has(kernel.warp)
        return all(other.priority < kernel.priority for other in self.kernels)

    def refuses(self, kernel: Kernel) -> bool:
        """Whether the SM qualifies by no step, as far as its current work is known."""
        whole, warp = self.qualifies(kernel, WHOLE), self.qualifies(kernel, WARP)
        lower = self.open_to(kernel) and self.top <= kernel.priority
        return not (whole or warp or lower)


class Blocks(Participant):
    """Checks blocks and decisions in the cycle after their commit.

    It must join before the SMs and the sources of requests: blocks are checked before the events of
    the same cycle take effect.

    Members
    -------
    table : the model's rows of the SMs.
    last : SM of the last block, by kernel row.
    log : (cycle, row, SM, step) of every block. The cycle is that of the commit, one before the
        SM's link is valid.
    refused : flags of each decision without an SM: registers, warps, shared, slots, lower.
    masked : number of placed blocks of kernels that some SM does not take, by step.
    """

    def __init__(
        self, tb: Testbench, config: Config, kernels: Mapping[int, Kernel], sms: Sequence[Sm]
    ) -> None:
        """`kernels` : open rows. `sms` : models of the SMs. Both may be filled later."""
        self._tb, self._kernels, self._sms = tb, kernels, sms
        full = [config.register_units, config.sm_warps, config.shared_units]
        self.table = [Left(n, list(full), config.sm_blocks) for n in range(config.sms)]
        self.masked: Counter[Step] = Counter()
        self.last: dict[int, int] = {}
        self.log: list[tuple[int, int, int, Step]] = []
        self.refused: list[tuple[int, ...]] = []
        self._decision = rounds(config.sms) + 1
        self._depth = self._decision + 1
        # SM table, free links, `last` and holding kernels at the beginning of recent cycles.
        self._waited: dict[Kernel, int] = {}
        """Kernels that may hold SMs, and the last cycle in which each had blocks left."""
        self._history: deque[tuple[list[Left], list[bool], dict[int, int], list[Kernel]]] = deque(
            maxlen=self._depth
        )
        tb.join(self)

    def sample(self, cycle: int) -> None:
        placed, refused = self._tb.get("placed"), self._tb.get("refused")
        self._hear(placed["sm"] if placed["valid"] else None)
        if placed["valid"]:
            assert not refused["valid"], "a block is placed by a decision that found no SM"
            if placed["step"] is MOVED:
                self._check_move(placed, cycle - 1)
            else:
                self._check_block(placed, cycle - 1)
        if refused["valid"]:
            self._check_refusal(refused)
        # The state of this cycle's registers, as used by a decision that begins now.
        ready = [sm.coming is None or sm.link.open for sm in self._sms]
        self._claim([self._tb.get(f"sm__{n}__claim") for n in range(len(self._sms))])
        self._waited |= {kernel: cycle for kernel in self._kernels.values() if kernel.left}
        self._waited = {one: last for one, last in self._waited.items() if last + HELD >= cycle}
        table = [row.copy() for row in self.table]
        self._history.append((table, ready, dict(self.last), [*self._waited]))
        occupied = mask(row.number for row in table if row.kernels)
        assert self._tb.get("occupied") == occupied, f"not the occupied SMs, {occupied:b}"
        for row in self.table:
            row.claimed = 0  # a decision in flight may be older than the claim
        for row, sm in zip(self.table, self._sms, strict=True):
            if sm.freed:
                row.amounts = [
                    have + more for have, more in zip(row.amounts, sm.freed, strict=False)
                ]
                if sm.freed[3]:
                    row.kernels.remove(sm.ended[-1])

    def _claim(self, claims: Sequence[Mapping[str, int]]) -> None:
        """Apply the claims. Each is told to all SMs that take the block except its own, which also
        keeps a slot; a second claim is not told to SMs of the first. Without masks, there is at
        most one."""
        told = {n: claim for n, claim in enumerate(claims) if claim["valid"]}
        for n, claim in told.items():
            if not self._sms[n].masks:
                for row in self.table:
                    row.claimed = claim["level"]
                continue
            kernel = self._kernels.get(claim["row"])
            takes = kernel is None or kernel.allows(n)
            assert takes, f"a claim for SM {n}, which does not take the block"
            self.table[n].claimed = claim["level"]
            for row in self.table:
                if row.number not in told and kernel and kernel.allows(row.number):
                    row.claimed = max(row.claimed, claim["level"])

    def _hear(self, taken: int | None) -> None:
        """Apply the reports of the last cycle, except the report of SM `taken`: it does not include
        the block that was sent there in that cycle."""
        for n, (row, sm) in enumerate(zip(self.table, self._sms, strict=True)):
            highest, received = sm.heard
            if n != taken and row.sent % 64 == received:
                row.top = highest

    # Every decision without an SM

    def _check_refusal(self, refused: dict[str, int]) -> None:
        """Check a refusal in the last cycle: the kernel has undistributed blocks, no SM qualified
        when the decision began, and the reported resources were lacking."""
        told = tuple(refused[name] for name in ("registers", "warps", "shared", "slots", "lower"))
        self.refused.append(told)
        if len(self._history) < self._depth:
            return
        table, ready, _, holding = self._history[0]
        reasons = [
            self._lacks(kernel, rows)
            for kernel in self._kernels.values()
            if kernel.left
            for held in self._held(kernel, holding)
            for rows in [[row for row in table if not held >> row.number & 1]]
            if all(not ready[row.number] or row.refuses(kernel) for row in rows)
        ]
        assert told in reasons, f"refused for {told}, expected one of {reasons}"

    @staticmethod
    def _held(kernel: Kernel, holding: Sequence[Kernel]) -> set[int]:
        """Possible sets of SMs, one bit each, held for earlier kernels that wait, or have waited:
        any of these kernels may be holding its SMs."""
        sets = {0}
        for other in holding:
            if other.disabled and _goes_before(other, kernel):
                sets |= {held | ~other.disabled for held in sets}
        return sets

    @staticmethod
    def _lacks(kernel: Kernel, table: list[Left]) -> tuple[bool, ...]:
        """Resources that no SM for the kernel has: registers, warps, shared memory, a block slot;
        lower work."""
        rows = [row for row in table if kernel.allows(row.number)]
        amounts = [
            all(row.amounts[n] < need for row in rows) for n, need in enumerate(kernel.whole)
        ]
        slots = not any(row.open_to(kernel) for row in rows)
        return (*amounts, slots, all(row.top > kernel.priority for row in rows))

    # Every block

    def _check_block(self, placed: dict[str, Any], commit: int) -> None:
        """Check the block of the last cycle's commit."""
        sm, row, step, at = placed["sm"], placed["row"], placed["step"], place(placed["at"])
        kernel, target = self._kernels[row], self._sms[sm]
        assert self._tb.get(f"sm__{sm}__block__valid"), "not offered"
        self._check_record(placed)
        assert target.coming is None, "the link was not free"
        assert kernel.left > 0, f"row {row} has no block left"
        assert at == kernel.at, f"block {at} of row {row}, expected {kernel.at}"
        before = [
            other
            for other in self._kernels.values()
            if other.left
            and other.filled < commit
            and _goes_before(other, kernel)
            and other.allows(sm)
        ]
        assert not before, f"row {row} is served before row {before[0].row}"
        assert self.table[sm].qualifies(kernel, step), f"SM {sm} does not qualify: {step}"
        if step is not WHOLE or kernel.policy is WIDE or not self._follows(row, sm):
            self._check_decision(kernel, sm, step, commit)
        kernel.left -= 1
        kernel.at = kernel.after()
        kernel.on_sms += 1
        kernel.placed.append(at)
        self.last[row] = sm
        self._send(Block(kernel, at, kernel.warps), sm, step, commit)

    def _check_record(self, placed: dict[str, Any]) -> None:
        record = self._tb.get(f"sm__{placed['sm']}__block__payload")
        assert record == {name: placed[name] for name in record}

    def _send(self, block: Block, sm: int, step: Step, commit: int) -> None:
        """A block is on its way to an SM."""
        kernel, entry = block.kernel, self.table[sm]
        assert kernel.allows(sm), f"SM {sm} is disabled for row {kernel.row}"
        self.masked[step] += kernel.disabled != 0
        self.log.append((commit, kernel.row, sm, step))
        entry.amounts = [
            have - need for have, need in zip(entry.amounts, kernel.whole, strict=True)
        ]
        entry.kernels.append(kernel)
        entry.sent += 1
        entry.top = max(entry.top, kernel.priority + 1)
        if kernel.asid not in entry.spaces[:1]:
            entry.spaces = [kernel.asid, *entry.spaces[:1]]
        self._sms[sm].coming = block

    def _check_move(self, placed: dict[str, Any], commit: int) -> None:
        """Check a block that its SM has returned, and that goes to another SM."""
        sm, row, at = placed["sm"], placed["row"], place(placed["at"])
        (source,) = (n for n, one in enumerate(self._sms) if one.returned)
        block, target = self._sms[source].returned, self._sms[sm]
        assert block and (block.kernel.row, block.at) == (row, at), "not the returned block"
        assert self._tb.get(f"sm__{sm}__block__valid"), "not offered"
        self._check_record(placed)
        assert sm != source and target.coming is None
        entry = self.table[source]
        entry.amounts = [
            have + need for have, need in zip(entry.amounts, block.kernel.whole, strict=True)
        ]
        entry.kernels.remove(block.kernel)
        self._sms[source].returned = None
        assert target.room, "no room there"
        self._send(block, sm, MOVED, commit)

    def _follows(self, row: int, sm: int) -> bool:
        """Whether the block may follow the previous one to its SM without a decision."""
        return bool(self.log) and self.log[-1][1:3] == (row, sm)

    def _check_decision(self, kernel: Kernel, sm: int, step: Step, commit: int) -> None:
        """Check the decision against the state when it began."""
        _, ready, _, holding = self._history[0]
        if len(self._history) < self._depth:
            return
        able = [n for n, free in enumerate(ready) if free]
        wrong = [
            self._wrong(kernel, sm, step, commit, [n for n in able if not held >> n & 1])
            for held in sorted(self._held(kernel, holding))
        ]
        assert "" in wrong, wrong[0]

    def _wrong(self, kernel: Kernel, sm: int, step: Step, commit: int, open_: list[int]) -> str:
        """Error of a decision among the SMs `open_`; "" if it is right."""
        table, _, last, _ = self._history[0]
        qualified = {
            n: next(s for s in STEPS if table[n].qualifies(kernel, s))
            for n in open_
            if any(table[n].qualifies(kernel, s) for s in STEPS)
        }
        if sm not in qualified:
            return f"SM {sm} did not qualify when the decision began"
        best = next(s for s in STEPS if s in qualified.values())
        if not step is best is qualified[sm]:
            return f"step {step}, while step {best} had an SM"
        recent = [one for one in self.log if one[0] >= commit - self._decision]
        if not recent and step is not LOWER:
            order = [
                self._order(kernel, table[n], n, last) for n in qualified if qualified[n] is best
            ]
            if self._order(kernel, table[sm], sm, last) != min(order):
                return "not the policy's choice"
        return ""

    def _order(self, kernel: Kernel, row: Left, n: int, last: dict[int, int]) -> tuple[int, ...]:
        """Sort key; the smallest is best."""
        warps = max(0, row.amounts[1])
        if kernel.policy is DEEP:
            return (last.get(kernel.row) != n, -warps, n)
        strange = kernel.policy is AFFINITY and kernel.asid not in row.spaces
        return (int(strange), len(row.kernels), -warps, n)


def _goes_before(one: Kernel, other: Kernel) -> bool:
    """PLACE-1."""
    return (-one.priority, one.opened) < (-other.priority, other.opened)
