"""Model of an SM behind the global controller."""

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from signalbox.hw.config import Config
from signalbox.tb.testbench.clocked import Participant, Testbench
from signalbox.tb.testbench.ends import Pace, Sink, Source
from signalbox.tb.units.placement.kernel import Kernel, Place

__all__ = ["Block", "Sm"]

ENDS_WAITING = 8
"""Maximum number of pending ends of blocks on an SM."""


@dataclass(eq=False)
class Block:
    """A block on an SM, or on its way there. `running` : cycles in which its running warps end."""

    kernel: Kernel
    at: Place
    unstarted: int
    begun: bool = False
    running: list[int] = field(default_factory=list)

    @property
    def takes(self) -> tuple[int, int, int]:
        """Resources that its next warp needs."""
        if self.begun:
            return (self.kernel.registers, 1, 0)
        return self.kernel.whole if self.kernel.barrier else self.kernel.warp


class Sm(Participant):
    """Accepts blocks, starts their warps when they fit, and reports freed resources.

    Members
    -------
    link : takes the blocks.
    tardy : it reports ends only when the maximum number is pending.
    coming : block at the link.
    blocks : accepted blocks with warps that have not ended.
    ended : kernels of ended blocks whose end has not been reported.
    told : rows and numbers of blocks whose end has been reported to the controller, but not passed
        on by it.
    freed : resources freed in this cycle: registers, warps, shared memory, block; None if there are
        none.
    report, heard : highest level and number of received blocks as reported in this cycle, and in
        the last one.
    waiting : the block reported as waiting.
    masks : whether there are SM masks, so that a claim names the row of the block.
    room : whether it keeps room for the claimed block.
    returned : block that was returned, and has not been sent to another SM.
    """

    def __init__(self, tb: Testbench, number: int, config: Config, pace: Pace) -> None:
        self._tb, port = tb, f"sm__{number}"
        self._freed, self._highest, self._count = (
            tb.ports[f"{port}__{name}"] for name in ("freed", "highest", "received")
        )
        self._slots, self.masks = config.sm_blocks, config.sm_masks
        self._outputs = {
            name: tb.ports[f"{port}__{name}"] for name in ("waits", "room", "returned")
        }
        self._inputs = f"{port}__claim", f"{port}__recall"
        self._recalled: int | None = None
        self._claim: tuple[int, int, int, int] | None = None
        self.waiting: Block | None = None
        self.returned: Block | None = None
        self.room = self._keeps = False
        self._free = [config.register_units, config.sm_warps, config.shared_units]
        self._received = 0
        self.tardy = False
        self.coming: Block | None = None
        self.blocks: list[Block] = []
        self.ended: deque[Kernel] = deque()
        self.told: deque[tuple[int, int]] = deque()
        self._numbers = 2 * config.queue_window
        self.freed: tuple[int, int, int, int] | None = None
        self.report = self.heard = (0, 0)
        tb.join(self)
        self.link = Sink(tb, f"{port}__block", pace, self._take)
        self._ends = Source(tb, f"{port}__ended", self._tells, self._told)

    def drive(self, cycle: int) -> None:
        self.freed = self._finish(cycle)
        kept, self._keeps = self._keeps, self._outranked()
        recalled = self._recalled is not None
        self._answer(cycle)
        starts = not recalled and self._start(cycle)
        self.room = kept and self._keeps and not starts and self._fits_claim()
        self._report_waiting()
        highest = max((block.kernel.priority + 1 for block in self.blocks), default=0)
        self.heard, self.report = self.report, (highest, self._received % 64)
        names = ("registers", "warps", "shared", "block")
        self._freed.set(dict(zip(names, self.freed, strict=True)) if self.freed else 0)
        self._highest.set(self.report[0])
        self._count.set(self.report[1])

    def sample(self, cycle: int) -> None:
        claim, recall = (self._tb.get(name) for name in self._inputs)
        amounts = claim["registers"], claim["warps"], claim["shared"]
        self._claim = (claim["level"], *amounts) if claim["valid"] else None
        if recall:
            assert self._recalled is None, "recalled again"
            self._recalled = cycle + self._tb.random.choice((0, 0, 1, 5))
            self._wanted = (claim["level"], *amounts)
            self._row = claim["row"] if self.masks else None

    def _outranked(self) -> bool:
        """Whether the claimed block is more urgent than all blocks with warps to start."""
        top = max((one.kernel.priority + 1 for one in self.blocks if one.unstarted), default=0)
        return self._claim is not None and top < self._claim[0]

    def _spares(self, block: Block) -> bool:
        """Whether the block may start warps although room is kept."""
        assert self._claim is not None
        return block.begun and (block.kernel.barrier or self._free[2] < self._claim[3])

    def _fits_claim(self) -> bool:
        assert self._claim is not None
        return all(have >= need for have, need in zip(self._free, self._claim[1:], strict=True))

    def _answer(self, cycle: int) -> None:
        """Answer a recall."""
        if self._recalled is None or cycle <= self._recalled:
            self._outputs["returned"].set(0)
            return
        self._recalled = None
        block = self._first()
        gives = (
            block is not None
            and not block.begun
            and (block.kernel.priority + 1, *block.takes) == self._wanted
            and self._row in {None, block.kernel.row}
        )
        answer: dict[str, Any] = {"valid": 1, "some": int(gives)}
        if block is not None and gives:
            assert self.returned is None
            self.returned = block
            self.blocks.remove(block)
            request = block.kernel.request()
            answer |= {"row": block.kernel.row, "needs": request["needs"]}
            answer |= {"at": dict(zip("xyz", block.at, strict=True))}
        self._outputs["returned"].set(answer)

    def _report_waiting(self) -> None:
        """Report the most urgent block if it waits, and whether room is kept."""
        block = self._first()
        self.waiting = None
        if block and not block.begun and not self._fits(block.takes):
            self.waiting = block
        report = {"valid": 0}
        if self.waiting:
            amounts = dict(zip(("registers", "warps", "shared"), self.waiting.takes, strict=True))
            report = {"valid": 1, "level": self.waiting.kernel.priority + 1, **amounts}
            report |= {"row": self.waiting.kernel.row} if self.masks else {}
        self._outputs["waits"].set(report)
        self._outputs["room"].set(self.room)

    def _fits(self, needs: tuple[int, int, int]) -> bool:
        return all(have >= need for have, need in zip(self._free, needs, strict=True))

    def _first(self) -> Block | None:
        """The most urgent block with warps to start."""
        return next(iter(self._in_order()), None)

    def _in_order(self) -> list[Block]:
        return sorted(
            (block for block in self.blocks if block.unstarted),
            key=lambda block: -block.kernel.priority,
        )

    def _take(self, _: dict[str, Any]) -> None:
        assert self.coming is not None
        self.blocks.append(self.coming)
        assert len(self.blocks) <= self._slots, "more blocks than slots"
        self.coming = None
        self._received += 1

    def _tells(self) -> bool:
        return len(self.ended) >= (ENDS_WAITING if self.tardy else 1)

    def _told(self, end: dict[str, int]) -> None:
        self.ended.popleft().on_sms -= 1
        self.told.append((end["row"], end["number"]))

    def _finish(self, cycle: int) -> tuple[int, int, int, int] | None:
        """End at most one warp. Returns the freed resources."""
        for block in self.blocks:
            over = [end for end in block.running if end <= cycle]
            if over:
                block.running.remove(over[0])
                done = not block.running and not block.unstarted
                kernel = block.kernel
                freed = (kernel.registers, 1, kernel.shared * done, int(done))
                self._free = [have + back for have, back in zip(self._free, freed, strict=False)]
                if done:
                    self.blocks.remove(block)
                    self.ended.append(kernel)
                    self._ends.put({"row": kernel.row, "number": block.at[0] % self._numbers})
                return freed
        return None

    def _start(self, cycle: int) -> bool:
        """Start one warp, of the most urgent block that fits. Returns whether one has started."""
        for n, block in enumerate(self._in_order()):
            kernel = block.kernel
            if (n and not block.begun) or (self._keeps and not self._spares(block)):
                continue
            if self._fits(block.takes):
                shared = 0 if block.begun else kernel.shared
                taken = (kernel.registers, 1, shared)
                self._free = [have - need for have, need in zip(self._free, taken, strict=True)]
                block.begun = True
                block.unstarted -= 1
                block.running.append(cycle + self._tb.random.randint(*kernel.runs))
                return True
        return False
