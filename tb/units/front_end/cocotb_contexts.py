"""Contexts: choice of the active context, and its binds."""

from typing import Any

import cocotb

from signalbox.hw.config import CONFIGS
from signalbox.hw.front_end.contexts import Contexts
from signalbox.hw.qmd import Placement
from signalbox.hw.records.memory import MemoryStatus
from signalbox.hw.records.placement import Policy
from signalbox.hw.registers import MmuOperation
from signalbox.tb.testbench.clocked import Testbench, component
from signalbox.tb.testbench.contents import Contents, Failing
from signalbox.tb.testbench.ends import Sink
from signalbox.tb.testbench.masks import mask
from signalbox.tb.testbench.servers import ReadServer
from signalbox.tb.testbench.strobe import Strobe

CONFIG = CONFIGS["default"]
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
        self.drive(slice=slice_cycles, empty=1)
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


@cocotb.test()
async def binds_before_it_runs(dut: Any) -> None:
    """Every address space of a context is bound and acknowledged before its tasks run (ASID-21)."""
    tb = ContextsTestbench(dut)
    spaces = {0: 0xABC_DEF0, 5: 1, 17: 0xFFF_FFFF, 62: 7, 63: 8}
    tb.context(2, spaces)
    await tb.start()
    await tb.steps(50)
    assert not tb.active and not tb.bound and tb.get("leave")
    tb.wait_for({2})
    await tb.until(lambda: tb.active, "context runs")
    assert tb.bound == {asid: (base, ALL) for asid, base in spaces.items()}
    assert tb.order == [2] and not tb.get("leave")


@cocotb.test()
async def limits(dut: Any) -> None:
    """A space is bound with the last page given by its instance block, if any. A value beyond the
    last virtual address is no limit (ASID-5)."""
    tb = ContextsTestbench(dut)
    tb.limits = {asid: tb.random.getrandbits(tb.random.randint(1, 49)) for asid in range(0, 59, 2)}
    tb.limits |= {59: 0, 60: 1, 61: ALL + 1, 62: 0xFFF, 63: (1 << 41) - 1}
    tb.context(1, dict.fromkeys(range(64), 3))
    await tb.start()
    tb.wait_for({1})
    await tb.until(lambda: tb.active, "context runs", 10_000)
    for asid in range(64):
        given = tb.limits.get(asid, ALL)
        assert tb.bound[asid] == (3, given | 0xFFF if given <= ALL else ALL), asid


@cocotb.test()
async def takes_turns(dut: Any) -> None:
    """While others wait, each context runs for its slice; a context without tasks leaves at
    once."""
    tb = await ContextsTestbench(dut, slice_cycles=300).start()
    tb.drive(empty=0)
    tb.wait_for({0, 1, 3})
    began = []
    for turn in range(7):
        await tb.until(lambda t=turn: len(tb.order) == t + 1, "next context")
        began.append(tb.cycle)
        await tb.until(lambda: tb.get("leave"), "slice over")
        ran = tb.cycle - began[-1]
        assert 300 <= ran <= 304, ran
        await tb.steps(20)
        assert tb.active, "left before its tasks were over"
        tb.drive(empty=1)
        await tb.until(lambda: not tb.active, "left")
        tb.drive(empty=0)
    assert tb.order == [0, 1, 3, 0, 1, 3, 0]
    await tb.until(lambda: len(tb.order) == 8, "context 1 runs")
    tb.drive(empty=1)
    tb.wait_for({3})
    began.append(tb.cycle)
    await tb.until(lambda: len(tb.order) == 9, "context 3 runs")
    assert tb.cycle - began[-1] < 200


@cocotb.test()
async def overdue(dut: Any) -> None:
    """A context whose blocks have not ended `timeout` cycles after its slice is overdue until it
    has left; with a time-out of 0, no context is (PREEMPT-1)."""
    tb = await ContextsTestbench(dut, slice_cycles=30).start()
    tb.wait_for({0, 1})
    for turn, limit in enumerate((1, 2, 100, 300, 0, 50)):
        tb.drive(timeout=limit, empty=0)
        await tb.until(lambda t=turn: len(tb.order) == t + 1, "next context")
        await tb.until(lambda: tb.get("leave"), "slice over")
        began = tb.cycle
        for _ in range(400):
            late = tb.cycle - began
            assert tb.get("overdue") == (limit > 0 and late >= limit), (limit, late)
            await tb.step()
        tb.drive(empty=1)
        await tb.until(lambda: not tb.active, "left")
        await tb.step()
        assert not tb.get("overdue")
    tb.drive(timeout=20, empty=1)
    for turn in range(7, 10):
        await tb.until(lambda t=turn: len(tb.order) == t, "next context")
        assert not tb.get("overdue"), "it left in time"


@cocotb.test()
async def alone_it_keeps_running(dut: Any) -> None:
    """The end of a slice has no effect while no context waits, and binds are not repeated."""
    tb = await ContextsTestbench(dut, slice_cycles=50).start()
    tb.wait_for({1})
    await tb.until(lambda: tb.active, "context runs")
    tb.wait_for(set())
    await tb.steps(300)
    tb.wait_for({1})
    for _ in range(300):
        await tb.step()
        assert tb.active and not tb.get("leave")
    assert tb.order == [1]


@cocotb.test()
async def placement(dut: Any) -> None:
    """Placement is deep for several address spaces, else wide, unless set by the context
    (ASID-32)."""
    tb = ContextsTestbench(dut, slice_cycles=0)
    tb.context(0, {1: 1})
    tb.context(1, {1: 1, 2: 2})
    tb.context(2, {1: 1, 2: 2}, Placement.AFFINITY)
    tb.context(3, {1: 1}, Placement.DEEP)
    await tb.start()
    expected = [Policy.WIDE, Policy.DEEP, Policy.AFFINITY, Policy.DEEP]
    tb.wait_for({0, 1, 2, 3})
    for turn in range(8):
        await tb.until(lambda t=turn: len(tb.order) == t + 1, "next context")
        assert tb.order[-1] == turn % 4
        assert tb.get("automatic") is expected[turn % 4]


@cocotb.test()
async def broken(dut: Any) -> None:
    """A context that cannot be bound, as its block, its mask of limits or one of its spaces fails,
    does not run, and does not prevent others from running."""
    tb = ContextsTestbench(dut, slice_cycles=0)
    block, limited = (0x7_0000 + 1) << 12, (0x7_0000 << 12) + 1696
    tb.contents.failing = [
        Failing(PHYSICAL, place, MemoryStatus.BUS, write=False)
        for place in (range(block, block + 4096), range(limited, limited + 8))
    ]
    tb.context(2, {9: 9, 10: 10})
    tb.refuse = {10}
    await tb.start()
    tb.wait_for({0, 1, 2, 3})
    await tb.until(lambda: tb.get("broken") == 0b0111, "all broken ones are known")
    await tb.until(lambda: tb.active, "the other runs")
    assert set(tb.order) == {3}
    tb.refuse = set()
    tb.contents.failing = []
    tb.drive(mend=0b0111)
    await tb.step()
    tb.drive(mend=0)
    await tb.until(lambda: {0, 1, 2} <= set(tb.order), "mended ones run")
    assert tb.get("broken") == 0


@cocotb.test()
async def stays_broken(dut: Any) -> None:
    """A broken context is not tried again before it is mended, even if no other has tasks and its
    block could be read again at once."""
    tb = ContextsTestbench(dut, slice_cycles=0)
    block = (0x7_0000 + 1) << 12
    place = range(block, block + 4096)
    tb.contents.failing = [Failing(PHYSICAL, place, MemoryStatus.BUS, write=False)]
    await tb.start()
    tb.wait_for({1})
    await tb.until(lambda: tb.get("broken") == 0b10, "it is broken")
    tb.contents.failing = []
    for _ in range(200):
        assert not tb.active and not tb.get("read__request__valid")
        await tb.step()
    tb.drive(mend=0b10)
    await tb.step()
    tb.drive(mend=0)
    await tb.until(lambda: tb.active, "it runs")
    assert tb.get("broken") == 0


@cocotb.test()
@cocotb.parametrize(fails=["base", "limit", "bind"])
async def broken_while_binding(dut: Any, fails: str) -> None:
    """If a space cannot be read while the previous one is being bound, or cannot be bound while the
    next one is read, the context is given up once no bind is in progress, and binds no further
    spaces."""
    tb = ContextsTestbench(dut, slice_cycles=0)
    tb.takes = tb.between(1, 100)
    tb.limits = {5: 0xFFF}
    tb.context(0, {3: 3, 5: 5, 6: 6, 7: 7})
    block = 0x7_0000 << 12
    places = {"base": block + 672 + 16 * 5, "limit": block + 1704 + 8 * 5}
    if fails == "bind":
        tb.refuse = {5}
    else:
        place = range(places[fails], places[fails] + 8)
        tb.contents.failing = [Failing(PHYSICAL, place, MemoryStatus.BUS, write=False)]
    await tb.start()
    tb.wait_for({0, 1})
    await tb.until(lambda: tb.get("broken") == 0b01 and tb.active, "the other runs")
    assert tb.order == [1] and set(tb.bound) == {3, 1}


@cocotb.test()
async def reads_while_binding(dut: Any) -> None:
    """The next space is read while one is being bound, so binds follow each other at once."""
    tb = ContextsTestbench(dut)
    tb.takes = lambda: 100
    count = 20
    tb.context(1, {asid: asid for asid in range(count)})
    await tb.start()
    tb.wait_for({1})
    await tb.until(lambda: tb.bound, "the first bind")
    began = tb.cycle
    await tb.until(lambda: tb.active, "context runs")
    assert tb.cycle - began < count * (100 + 10)
