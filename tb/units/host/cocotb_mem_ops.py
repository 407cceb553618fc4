"""Invalidations by methods (HOST-3, ASID-9): commands are correct, take turns, and end their own
wait each."""

import os
from typing import Any, Self

import cocotb

from signalbox.hw.config import CONFIGS
from signalbox.hw.host.waits.mem_ops import MemOps
from signalbox.hw.registers import MmuOperation
from signalbox.tb.testbench.clocked import Participant, Testbench, component
from signalbox.tb.testbench.ends import Sink
from signalbox.tb.testbench.goals import Rounds
from signalbox.tb.testbench.strobe import Strobe

LIMIT = {"timeout_time": 20, "timeout_unit": "ms"}

CONFIG = CONFIGS[os.environ.get("SIZE", "default")]

MEM_OP_A, MEM_OP_B, MEM_OP_C = 0x28, 0x2C, 0x30
ALL_VA, TARGETED = 0x09, 0x0A
PDB_ALL = 1

SETTLED = 7
"""Cycles from `ask` to its command, if no other comes first."""

Command = tuple[MmuOperation, int, int]
"""Operation, base, page; unused ones are 0."""


def command_of(a: int, b: int, c: int, d: int) -> Command | None:
    """The command for MEM_OP_A … D (spec 2.5); None if refused."""
    page, base = (b << 32 | a) & ((1 << 49) - 1), (d << 32 | c) & ((1 << 40) - 1)
    if c & PDB_ALL:
        return MmuOperation.INVALIDATE_ALL, 0, 0
    if c >> 10 & 3:
        return None
    if d >> 27 == TARGETED and not a & 0x3F:
        return MmuOperation.INVALIDATE_PAGE, base >> 12, page >> 12
    return MmuOperation.INVALIDATE_ASID, base >> 12, 0


class Mmu(Participant):
    """Model of the MMU, which takes a command if `ready`, and acknowledges it `delay` cycles later.
    Checks that no other is offered before then.

    Members
    -------
    taken : the commands taken, oldest first.
    left : cycles until the acknowledgement of the last one.
    refuses : whether the acknowledgement is a refusal.
    """

    def __init__(self, tb: Testbench) -> None:
        self.ready, self.delay, self.refuses = True, 1, False
        self.taken: list[Command] = []
        self.left = 0
        self._tb = tb
        tb.join(self)
        self._commands = Sink(tb, "mmu__command", lambda: self.ready and not self.left, self._take)

    def drive(self, cycle: int) -> None:
        done = self.left == 1
        self._tb.drive(mmu__done={"valid": done, "refused": done and self.refuses})

    def sample(self, cycle: int) -> None:
        if self.left:
            assert not self._tb.get("mmu__command__valid"), "a command before the acknowledgement"
            self.left -= 1

    def _take(self, command: dict[str, Any]) -> None:
        operation = command["operation"]
        assert command["by_base"] == (operation is not MmuOperation.INVALIDATE_ALL)
        base = command["base"] if command["by_base"] else 0
        page = command["page"] if operation is MmuOperation.INVALIDATE_PAGE else 0
        self.taken.append((operation, base, page))
        self.left = self.delay


class MemOpsTestbench(Testbench):
    """Drives the unit.

    Members
    -------
    mmu : model of the MMU.
    """

    def __init__(self, dut: Any) -> None:
        super().__init__(dut, component(MemOps, CONFIG))
        ports = {
            "executed": "methods__executed",
            "clear": "methods__cleared",
            "ask": "client__ask",
            "drop": "client__drop",
        }
        self._strobes = {name: Strobe(self, port) for name, port in ports.items()}
        self.mmu = Mmu(self)

    async def start(self) -> Self:
        await super().start()
        # After a reset, the RAMs' contents belong to no channel.
        for channel in range(CONFIG.channels):
            await self.step(clear={"channel": channel})
        return self

    async def step(self, **events: dict[str, Any]) -> tuple[int, int]:
        """One cycle with these events. Returns the waits that are over, and the refused ones."""
        for name, fields in events.items():
            self._strobes[name].send(**fields)
        await super().step()
        over, refused = self.get("client__over"), self.get("client__refused")
        assert not refused & ~over
        return over, refused

    async def execute(self, channel: int, *words: int, first: int = MEM_OP_A) -> None:
        """Execute methods with these data: MEM_OP_A, B and C, or as many from `first` on."""
        for number, word in enumerate(words):
            method = {"valid": 1, "address": first // 4 + number, "data": word}
            await self.step(executed={"channel": channel, "method": method})

    async def ask(self, channel: int, d: int = ALL_VA << 27) -> None:
        """Request the execution of MEM_OP_D."""
        fields = {"pdb_addr_hi": d & 0x7FF_FFFF, "operation": d >> 27}
        await self.step(ask={"channel": channel, "data": fields})

    async def until_over(self, channel: int, limit: int = 1000) -> bool:
        """Wait until the channel's wait is over and drop it. Returns whether it was refused."""
        for _ in range(limit):
            over, refused = await self.step()
            if over >> channel & 1:
                await self.step(drop={"channel": channel})
                assert not (await self.step())[0] >> channel & 1
                return bool(refused >> channel & 1)
        raise AssertionError(f"channel {channel} waits forever")


@cocotb.test(**LIMIT)
async def every_scope(dut):
    """With random operations and arguments, the command is the specified one, or none; its wait is
    over exactly when it is acknowledged."""
    tb = await MemOpsTestbench(dut).start()
    numbers, mmu, seen = tb.random, tb.mmu, set()
    for turn in range(400):
        channel = numbers.randrange(CONFIG.channels)
        a, b, c = (numbers.getrandbits(32) for _ in range(3))
        d = numbers.choice((ALL_VA, TARGETED)) << 27 | numbers.getrandbits(27)
        if numbers.random() < 0.5:
            a &= ~0x3F
        if numbers.random() < 0.7:
            c &= ~0xC00
        await tb.execute(channel, a, b, c)
        # Other methods, and those of an object, are not arguments.
        for address in (0x34, 0x1028, 0x830, 0x24):
            await tb.execute(channel, numbers.getrandbits(32), first=address)
        wanted, before = command_of(a, b, c, d), len(mmu.taken)
        mmu.delay, mmu.refuses = numbers.choice((1, 1, 2, 50)), turn % 10 == 0
        await tb.ask(channel, d)
        for _ in range(SETTLED - 1):
            over, _ = await tb.step()
            assert not over or not wanted
        if wanted:
            for _ in range(mmu.delay + 1):
                assert not (await tb.step())[0]
        refused = await tb.until_over(channel, 1 if wanted else SETTLED)
        assert mmu.taken[before:] == ([wanted] if wanted else []), (a, b, c, d)
        assert refused == (wanted is None or mmu.refuses)
        seen.add(wanted and wanted[0])
    assert len(seen) == 4


@cocotb.test(**LIMIT)
async def in_turn(dut):
    """All channels invalidate repeatedly, with back-pressure and long acknowledgements: each gets
    its command, after about one of each other channel at most."""
    tb = await MemOpsTestbench(dut).start()
    numbers, mmu = tb.random, tb.mmu
    asked, rounds = {}, [0] * CONFIG.channels
    for channel in range(CONFIG.channels):
        await tb.execute(channel, 0, channel, channel << 12)
    over = 0
    steps = Rounds(300 * CONFIG.channels)
    while steps.more(min(rounds) > 3, rounds):
        mmu.ready, mmu.delay = numbers.random() < 0.3, numbers.choice((1, 2, 40))
        events: dict[str, Any] = {}
        free = [channel for channel in range(CONFIG.channels) if channel not in asked]
        ended = [channel for channel in asked if over >> channel & 1]
        if free and numbers.random() < 0.9:
            channel = numbers.choice(free)
            asked[channel] = len(mmu.taken)
            data = {"pdb_addr_hi": channel, "operation": TARGETED}
            events["ask"] = {"channel": channel, "data": data}
        elif ended:
            channel = numbers.choice(ended)
            events["drop"] = {"channel": channel}
            base = channel << 20 | channel
            mine = (MmuOperation.INVALIDATE_PAGE, base & ((1 << 28) - 1), channel << 20)
            passed = mmu.taken[asked.pop(channel) :]
            assert passed.count(mine) == 1
            # One may have been taken before this request, and another before it became visible.
            behind = passed[: passed.index(mine)]
            assert all(behind.count(other) <= 2 for other in behind)
            assert sum(behind.count(other) - 1 for other in set(behind)) <= 2
            rounds[channel] += 1
        over, refused = await tb.step(**events)
        over &= ~(1 << events["drop"]["channel"]) if "drop" in events else -1
        assert not refused


@cocotb.test(**LIMIT)
async def dropped(dut):
    """A dropped wait does not end, whenever it is dropped. The channel's next command has its own
    arguments, and its wait does not end with the old one."""
    tb = await MemOpsTestbench(dut).start()
    mmu, last = tb.mmu, CONFIG.channels - 1
    for ready in (False, True):
        for delay in range(1, 40):
            for pause in (0, 1, 5, 60):
                await tb.execute(last, 0, 0, 0x1000)
                mmu.taken, mmu.ready, mmu.delay = [], ready, 30
                await tb.ask(last)
                for _ in range(delay):
                    over, _ = await tb.step()
                    assert not over or len(mmu.taken) == 1
                await tb.step(drop={"channel": last})
                for _ in range(pause):
                    assert not (await tb.step())[0]
                await tb.step(clear={"channel": last})
                await tb.execute(last, 0x7000, 3, 0x5000)
                await tb.ask(last, TARGETED << 27 | 2)
                mmu.ready = True
                mine = (MmuOperation.INVALIDATE_PAGE, 2 << 20 | 5, 3 << 20 | 7)
                while not (await tb.step())[0]:
                    assert len(mmu.taken) <= 2
                assert mmu.taken[-1] == mine and mmu.left == 0
                await tb.step(drop={"channel": last})


@cocotb.test(**LIMIT)
async def asked_again(dut):
    """A repeated request, during or at the end of a wait, has no effect: the wait ends once."""
    tb = await MemOpsTestbench(dut).start()
    mmu, last = tb.mmu, CONFIG.channels - 1
    mmu.delay = 10
    for pause in range(30):
        mmu.taken = []
        await tb.execute(last, 0, 0, 0x1000)
        await tb.ask(last)
        await tb.steps(pause)
        await tb.ask(last)
        await tb.until_over(last)
        for _ in range(40):
            assert not (await tb.step())[0]
        assert len(mmu.taken) == 1


@cocotb.test(**LIMIT)
async def started_anew(dut):
    """A channel that starts again has no arguments set; others keep theirs."""
    tb = await MemOpsTestbench(dut).start()
    for channel in range(CONFIG.channels):
        await tb.execute(channel, 0xABCD_E000, 0x1_2345, 0x8765_4000)
    for channel in range(CONFIG.channels):
        set_before = command_of(0xABCD_E000, 0x1_2345, 0x8765_4000, TARGETED << 27)
        await tb.ask(channel, TARGETED << 27)
        await tb.until_over(channel)
        assert tb.mmu.taken[-1] == set_before
        await tb.step(clear={"channel": channel})
        await tb.ask(channel, TARGETED << 27)
        await tb.until_over(channel)
        assert tb.mmu.taken[-1] == (MmuOperation.INVALIDATE_PAGE, 0, 0)
