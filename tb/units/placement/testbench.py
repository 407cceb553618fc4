"""Testbench of a `GlobalController`: requests for its rows, SMs, and a check of every block."""

from collections import deque
from typing import Any

from signalbox.hw.config import Config
from signalbox.hw.placement.controller import GlobalController
from signalbox.tb.testbench.clocked import Testbench, component
from signalbox.tb.testbench.ends import Sink, Source
from signalbox.tb.units.placement.blocks import Blocks, place
from signalbox.tb.units.placement.kernel import Kernel, Place
from signalbox.tb.units.placement.sm import Sm

__all__ = ["PlacementTestbench"]


class PlacementTestbench(Testbench):
    """A `GlobalController`, its SMs, and the requests for its rows.

    Members
    -------
    add, stop, close : requests; rows are opened by `open`.
    kernels : open rows, in the order of their opening.
    answers : row, blocks and position of each answer to `stop`.
    keeps_answers : no answer is accepted.
    sms : models of the SMs.
    eager : fraction of cycles in which an SM accepts a block.
    slow : SMs that accept none.
    blocks : all placed blocks.
    """

    timeout = 5000

    def __init__(self, dut: Any, config: Config) -> None:
        super().__init__(dut, component(GlobalController, config))
        self.eager = 1.0
        self.slow: set[int] = set()
        self.keeps_answers = self._answered = False
        self.kernels: dict[int, Kernel] = {}
        self.answers: list[tuple[int, int, Place]] = []
        self.sms: list[Sm] = []
        self.blocks = Blocks(self, config, self.kernels, self.sms)
        for n in range(config.sms):
            self.sms.append(Sm(self, n, config, lambda n=n: self._accepts(n)))
        self._opening: deque[Kernel] = deque()
        self._open = Source(self, "port__open", then=self._on_open)
        self.add = Source(self, "port__add", then=self._on_add)
        self.stop = Source(self, "port__stop")
        self.close = Source(self, "port__close", then=self._on_close)
        self._stopped = Sink(self, "port__stopped", lambda: not self.keeps_answers)

    # Requests

    def open(self, kernel: Kernel) -> None:
        """Open a row."""
        self._opening.append(kernel)
        self._open.put(kernel.request())

    async def opened(self, kernel: Kernel) -> None:
        """Open a row, and wait until the request was taken."""
        self.open(kernel)
        await self.until(lambda: kernel.opened >= 0, "the row is open")

    async def closed(self, *rows: int) -> None:
        """Close rows, and wait until the requests were taken."""
        for row in rows:
            self.close.put(row)
        await self.until(lambda: not self.close.pending, "the rows are closed")

    def _on_open(self, _: dict[str, Any]) -> None:
        kernel = self._opening.popleft()
        assert kernel.row not in self.kernels
        kernel.left, kernel.at = kernel.blocks, kernel.first
        kernel.opened = kernel.filled = self.cycle
        self.kernels[kernel.row] = kernel
        self.blocks.last.pop(kernel.row, None)

    def _on_add(self, request: dict[str, int]) -> None:
        kernel = self.kernels[request["row"]]
        kernel.filled = kernel.filled if kernel.left else self.cycle
        kernel.left += request["blocks"]

    def _on_close(self, row: int) -> None:
        del self.kernels[row]

    # SMs

    def _accepts(self, sm: int) -> bool:
        return sm not in self.slow and self.random.random() < self.eager

    def end_all(self, sm: int) -> None:
        """Let all running warps of an SM end as soon as possible."""
        for block in self.sms[sm].blocks:
            block.running = [self.cycle] * len(block.running)

    def end_one(self, sm: int) -> None:
        """Let one warp of an SM end."""
        block = next(block for block in self.sms[sm].blocks if block.running)
        block.running[0] = self.cycle

    # Cycles

    async def step(self) -> None:
        await super().step()
        if self._stopped.offered and not self._answered:
            self._check_answer(self.get("port__stopped__payload"))
        self._answered = self._stopped.offered and not self._stopped.open
        for row, kernel in self.kernels.items():
            if self.drained(row):
                assert not kernel.left and not kernel.on_sms, f"row {row} is not drained"
                assert not any(row == one for sm in self.sms for one, _ in sm.told), "ends missing"
        if (ended := self.get("port__ended"))["valid"]:
            end = ended["row"], ended["number"]
            # Numbers wrap, so several SMs may report the same block; any of them will do.
            waiting = [sm.told for sm in self.sms if end in sm.told]
            assert waiting, f"{end} has not ended"
            waiting[0].remove(end)

    def _check_answer(self, answer: dict[str, Any]) -> None:
        kernel, at = self.kernels[answer["row"]], place(answer["next"])
        assert (answer["blocks"], at) == (kernel.left, kernel.at), "wrong answer to stop"
        kernel.left = 0
        self.answers.append((kernel.row, answer["blocks"], at))

    def drained(self, row: int) -> bool:
        """Whether the design reported the row as drained in the last cycle, with all requests taken
        into account."""
        said = self.get("port__drained") >> row & 1
        return bool(said) and self.cycle > self.kernels[row].filled + 1
