"""Testbench of the contexts: instance blocks, and a slow MMU."""

from dataclasses import replace
from typing import Any

from signalbox.hw.front_end.contexts import Contexts
from signalbox.hw.qmd import Placement
from signalbox.hw.registers import MmuOperation
from signalbox.tb.testbench.clocked import Testbench, component
from signalbox.tb.testbench.configs import SAVING
from signalbox.tb.testbench.contents import Contents
from signalbox.tb.testbench.ends import Sink
from signalbox.tb.testbench.masks import mask
from signalbox.tb.testbench.servers import ReadServer
from signalbox.tb.testbench.strobe import Strobe

__all__ = ["ALL", "CONFIG", "PHYSICAL", "ContextsTestbench"]

CONFIG = replace(SAVING, contexts=4, asids=64, sms=1)
PHYSICAL = (0, 1)
ALL = (1 << 49) - 1
"""Last address of a space without a limit."""


class ContextsTestbench(Testbench):
    """The unit with instance blocks and a slow MMU; the task unit is driven by the test.

    Members
    -------
    contents : memory with the instance blocks.
    limits : contents of the blocks' limits, by ASID; others have none.
    bound : page directory bases >> 12 and last addresses by ASID.
    refuse : ASIDs whose binds are refused.
    takes : cycles from a bind to its answer.
    order : contexts, in the order in which they became active.
    active : whether tasks may run.
    """

    timeout = 3000

    def __init__(self, dut: Any, slice_cycles: int = 400) -> None:
        super().__init__(dut, component(Contexts, CONFIG))
        self.drive(slice=slice_cycles, empty=1, placed=1)
        self.contents = Contents()
        ReadServer(self, self.contents, self.share(0.8), self.between(1, 6))
        Sink(self, "mmu__command", self.share(0.5), self._bind)
        self._done = Strobe(self, "mmu__done")
        self._spaces: dict[int, dict[int, int]] = {}
        self.limits: dict[int, int] = {}
        self.bound: dict[int, tuple[int, int]] = {}
        self.refuse: set[int] = set()
        self.takes = self.between(1, 10)
        self._due = self._broken = 0
        self._asid: int | None = None
        self.order: list[int] = []
        self.active = 0
        for number in range(CONFIG.contexts):
            self.context(number, {number: 0x100 + number})

    def context(
        self, number: int, spaces: dict[int, int], placement: Placement = Placement.CONTEXT
    ) -> None:
        """Write an instance block with page directory bases >> 12 by ASID."""
        self._spaces[number] = spaces
        instance = 0x7_0000 + number
        self.drive(**{f"settings__{number}": {"instance": instance, "placement": placement}})
        block = bytearray(4096)
        block[664:672] = mask(spaces).to_bytes(8, "little")
        for asid, base in spaces.items():
            word = base << 12 | 3 << 10
            block[672 + 16 * asid : 680 + 16 * asid] = word.to_bytes(8, "little")
            limit = self.limits.get(asid, self.random.getrandbits(49))
            block[1704 + 8 * asid : 1712 + 8 * asid] = limit.to_bytes(8, "little")
        block[1696:1704] = mask(self.limits).to_bytes(8, "little")
        self.contents.write(PHYSICAL, instance << 12, bytes(block))

    def wait_for(self, contexts: set[int]) -> None:
        """Only these contexts have waiting tasks from now on."""
        self.drive(waiting=mask(contexts))

    async def step(self) -> None:
        if self._asid is not None and self.cycle >= self._due:
            self._done.send(refused=self._asid in self.refuse)
            self._asid = None
        await super().step()
        active = self.get("active")
        if active and not self.active:
            number = self.get("context")
            self.order.append(number)
            assert self._asid is None, "active before the last bind was acknowledged"
            for asid, base in self._spaces[number].items():
                assert self.bound[asid][0] == base, "active while a space is not bound"
        self.active = active
        broken = self.get("broken")
        assert self._asid is None or not broken & ~self._broken, "given up during a bind"
        self._broken = broken

    def _bind(self, command: dict[str, Any]) -> None:
        assert command["operation"] is MmuOperation.BIND and self._asid is None
        assert not self.get("active"), "bound while tasks may run"
        self._asid, self._due = command["asid"], self.cycle + self.takes()
        if self._asid not in self.refuse:
            self.bound[self._asid] = command["base"], command["limit"] << 12 | 0xFFF
