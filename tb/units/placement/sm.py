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
    """A block on an SM, or on its way there. `running` : cycles in which its warps end."""

    kernel: Kernel
    at: Place
    unstarted: int
    begun: bool = False
    running: list[int] = field(default_factory=list)


class Sm(Participant):
    """Accepts blocks, starts their warps when they fit, and reports freed resources.

    Members
    -------
    link : takes the blocks.
    tardy : it reports ends only when the maximum number is pending.
    coming : block at the link.
    blocks : accepted blocks with warps that have not ended.
    ended : kernels of ended blocks whose end has not been reported.
    told : rows and numbers of blocks whose end has been reported to the controller, but not by it.
    freed : resources freed in this cycle: registers, warps, shared memory, block; None if there are
        none.
    report, heard : highest level and number of received blocks as reported in this cycle, and in
        the last one.
    """

    def __init__(self, tb: Testbench, number: int, config: Config, pace: Pace) -> None:
        self._tb, port = tb, f"sm__{number}"
        self._freed, self._highest, self._count = (
            tb.ports[f"{port}__{name}"] for name in ("freed", "highest", "received")
        )
        self._slots = config.sm_blocks
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
        self._start(cycle)
        highest = max((block.kernel.priority + 1 for block in self.blocks), default=0)
        self.heard, self.report = self.report, (highest, self._received % 64)
        names = ("registers", "warps", "shared", "block")
        self._freed.set(dict(zip(names, self.freed, strict=True)) if self.freed else 0)
        self._highest.set(self.report[0])
        self._count.set(self.report[1])

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

    def _start(self, cycle: int) -> None:
        """Start one warp, of the most urgent block that fits."""
        waiting = sorted(
            (block for block in self.blocks if block.unstarted),
            key=lambda block: -block.kernel.priority,
        )
        for n, block in enumerate(waiting):
            kernel = block.kernel
            if n and not block.begun:
                continue
            needs = kernel.whole if kernel.barrier and not block.begun else kernel.warp
            if block.begun:
                needs = (needs[0], 1, 0)
            if all(have >= need for have, need in zip(self._free, needs, strict=True)):
                shared = 0 if block.begun else kernel.shared
                taken = (kernel.registers, 1, shared)
                self._free = [have - need for have, need in zip(self._free, taken, strict=True)]
                block.begun = True
                block.unstarted -= 1
                block.running.append(cycle + self._tb.random.randint(*kernel.runs))
                return
