"""Kernels that have blocks stopped, and whose blocks some SMs do not take (PLACE-6, PREEMPT-5)."""

from typing import Any

import cocotb

from signalbox.hw.placement.passed_kernels import TURN, least_turn, patience
from signalbox.tb.testbench.clocked import Participant
from signalbox.tb.testbench.ends import Source
from signalbox.tb.units.placement.blocks import rounds
from signalbox.tb.units.placement.cocotb_placement import (
    CONFIG,
    LIMIT,
    LONG,
    SETTLED,
    SLOTS,
    SMS,
    WARPS,
    placed,
    start,
)
from signalbox.tb.units.placement.kernel import Kernel
from signalbox.tb.units.placement.testbench import PlacementTestbench

LAST = SMS - 1
OTHERS = (1 << LAST) - 1
ONE = 1 << LAST
"""The last SM: all others, and this one, as masks."""

DECIDED = rounds(SMS) + 8
"""Maximum cycles from the opening of a row, or from a pass, until a decision for its kernel
fails."""

PLACED = rounds(SMS) + 8 + 8
"""Maximum cycles from an answer until the next block is stopped: the lists change, and a block may
be placed in the new room."""

ASKED = DECIDED + patience(CONFIG)
"""Maximum cycles until the kernel has a block stopped, or is passed over."""


BUSY = 6 * ASKED
"""Cycles for which an SM stops a block in `while_others_stop`."""


class Stops(Participant):
    """SMs with victims of the lowest level. When ordered to stop its block, an SM ends one instead,
    and answers that it had none to stop.

    Members
    -------
    told : SMs that were told, in order.
    busy : SMs that endlessly stop one block after the other for an urgent block, with the cycles
        until the answer and from there until the next victim.
    """

    def __init__(self, tb: PlacementTestbench) -> None:
        self._tb = tb
        self.told: list[int] = []
        self.busy: dict[int, tuple[int, int]] = {}
        self._due = [0 for _ in range(SMS)]
        self._answers = [
            Source(tb, f"sm__{sm}__stopped", lambda sm=sm: tb.cycle > self._due[sm])
            for sm in range(SMS)
        ]
        tb.join(self)

    def victims(self, *sms: int) -> None:
        """SMs with a block that can be stopped, from now on."""
        for sm in range(SMS):
            victim = {"valid": int(sm in sms), "level": 1}
            self._tb.drive(**{f"sm__{sm}__victim": victim})

    def sample(self, cycle: int) -> None:
        for sm in range(SMS):
            stop = self._tb.get(f"sm__{sm}__stop")
            if stop["valid"]:
                self._tb.drive(**{f"sm__{sm}__victim": 0})
                answer = {"given": stop["given"], "save_place": stop["save_place"]}
                self._answers[sm].put(answer)
                if sm in self.busy:
                    self._due[sm] = cycle + self.busy[sm][0]
                else:
                    self.told.append(sm)
                    self._tb.end_one(sm)
            elif sm in self.busy and cycle == self._due[sm] + self.busy[sm][1]:
                self._tb.drive(**{f"sm__{sm}__victim": {"valid": 1, "level": 1}})

    def stop_on(self, sm: int, answer: int, gap: int) -> None:
        """The SM is `busy` from now on."""
        self.busy[sm] = answer, gap
        lacks, victim = {"valid": 1, "level": 9}, {"valid": 1, "level": 1}
        self._tb.drive(**{f"sm__{sm}__lacks": lacks, f"sm__{sm}__victim": victim})


async def begin(dut: Any) -> tuple[PlacementTestbench, Stops]:
    tb = await start(dut)
    stops = Stops(tb)
    await tb.steps(4)
    return tb, stops


async def fill(tb: PlacementTestbench, row: int, priority: int, disabled: int = 0) -> None:
    """Fill all block slots of the SMs that are not disabled."""
    sms = SMS - disabled.bit_count()
    kernel = Kernel(row, priority, sms * SLOTS, 1, 1, runs=LONG, disabled=disabled)
    await tb.opened(kernel)
    await tb.until(lambda: not kernel.left, "all slots are full")
    await tb.steps(SETTLED)


@cocotb.test(**LIMIT)
async def behind_one_passed_over(dut: Any) -> None:
    """A kernel has a block stopped although a kernel before it waits for its SM."""
    tb, stops = await begin(dut)
    await fill(tb, 0, 0)
    first = Kernel(1, 5, disabled=OTHERS)
    await tb.opened(first)
    await tb.steps(SETTLED)
    stops.victims(*range(SMS))
    second = Kernel(2, 3, saves=True)
    await tb.opened(second)
    await tb.until(lambda: stops.told, "a block is stopped", 2 * ASKED)
    assert stops.told == [0]
    await tb.until(lambda: not second.left, "it has room")
    assert placed(tb, second)[0][0] == 0 and first.left


@cocotb.test(**LIMIT)
async def keeps_its_sm_alone(dut: Any) -> None:
    """A kernel that may have blocks stopped, and waits for its SM, does not keep others from other
    SMs. It has a victim on its own SM stopped as soon as there is one."""
    tb, stops = await begin(dut)
    await fill(tb, 0, 9, OTHERS)
    first = Kernel(1, 5, disabled=OTHERS, saves=True)
    await tb.opened(first)
    stops.victims(*range(LAST))
    later = [Kernel(2, 1, runs=LONG), Kernel(3, 1, disabled=OTHERS), Kernel(4, 1, runs=LONG)]
    now = tb.cycle
    for kernel in later:
        await tb.opened(kernel)
    await tb.until(lambda: not later[2].left, "others have room", 2 * ASKED + DECIDED)
    dut._log.info(f"others have room after {tb.cycle - now} cycles")
    await tb.steps(SETTLED)
    assert first.left and later[1].left and not stops.told
    stops.victims(LAST)
    await tb.until(lambda: stops.told, "a block is stopped", TURN + least_turn(CONFIG) + ASKED)
    assert stops.told == [LAST]
    await tb.until(lambda: not first.left, "it has room", TURN + ASKED)
    tb.end_all(LAST)
    await tb.until(lambda: not later[1].left, "the next one has room", TURN + ASKED)
    order = [row for _, row, sm, _ in tb.blocks.log if sm == LAST and row]
    assert order == [1, 3]


@cocotb.test(**LIMIT)
async def one_after_another(dut: Any) -> None:
    """A kernel behind a passed-over one has one block stopped after the other, although blocks end
    on the first one's SM meanwhile."""
    tb, stops = await begin(dut)
    await fill(tb, 0, 0, ONE)
    await fill(tb, 1, 9, OTHERS)
    first = Kernel(2, 5, 1, WARPS, 1, barrier=True, disabled=OTHERS)
    await tb.opened(first)
    await tb.steps(SETTLED)
    second = Kernel(3, 3, 3, saves=True, runs=LONG)
    await tb.opened(second)
    for count in range(1, 4):
        stops.victims(*range(LAST))
        left = 3 - count
        await tb.until(lambda left=left: second.left == left, "it has room", TURN + 2 * ASKED)
        assert len(stops.told) == count and LAST not in stops.told
        if count < 3:
            tb.end_one(LAST)
    assert first.left


@cocotb.test(**LIMIT)
async def while_others_stop(dut: Any) -> None:
    """A kernel that comes at any time has a block stopped on its SM, although another SM stops
    blocks all the time."""
    for phase in range(0, BUSY, 3):
        tb, stops = await begin(dut)
        await fill(tb, 0, 0)
        stops.victims(LAST)
        stops.stop_on(0, BUSY, 3)
        await tb.steps(SETTLED + phase)
        kernel = Kernel(1, 5, disabled=OTHERS, saves=True)
        for one in (kernel, Kernel(2, 3, disabled=ONE)):
            await tb.opened(one)
        await tb.until(lambda told=stops.told: told, "a block is stopped", 2 * (PLACED + ASKED))
        assert stops.told == [LAST]
        await tb.until(lambda one=kernel: not one.left, "it has room", PLACED + ASKED)


@cocotb.test(**LIMIT)
async def alone(dut: Any) -> None:
    """A kernel whose only block may go to all SMs has a block stopped."""
    tb, stops = await begin(dut)
    await fill(tb, 0, 0)
    stops.victims(*range(SMS))
    kernel = Kernel(1, 5, saves=True)
    await tb.opened(kernel)
    await tb.until(lambda: stops.told, "a block is stopped", 2 * ASKED)
    await tb.until(lambda: not kernel.left, "it has room", PLACED)


@cocotb.test(**LIMIT)
async def none_if_there_is_room(dut: Any) -> None:
    """A passed-over kernel has no block stopped if its SM gets room, at any time."""
    for delay in range(ASKED):
        tb, stops = await begin(dut)
        await fill(tb, 0, 0)
        first = Kernel(1, 5, disabled=OTHERS, saves=True)
        for kernel in (first, Kernel(2, 3, disabled=ONE, saves=True)):
            await tb.opened(kernel)
            await tb.steps(SETTLED)
        await tb.steps(delay)
        tb.end_one(LAST)
        await tb.steps(rounds(SMS) + 4)  # a decision that began before may fail and be repeated
        stops.victims(LAST)
        await tb.until(lambda one=first: not one.left, "it has room")
        await tb.steps(DECIDED)
        assert not stops.told


@cocotb.test(**LIMIT)
async def never_on_held_sms(dut: Any) -> None:
    """Even if the order restarts at any time, a kernel has no block stopped on an SM that is kept
    for a kernel before it."""
    for delay in range(ASKED):
        tb, stops = await begin(dut)
        await fill(tb, 0, 0)
        first, second = Kernel(1, 5, disabled=OTHERS), Kernel(2, 3, saves=True)
        for kernel in (first, Kernel(3, 0)):
            await tb.opened(kernel)
            await tb.steps(SETTLED)
        stops.victims(*range(SMS))
        await tb.opened(second)
        await tb.steps(delay)
        tb.stop.put(3)
        await tb.until(lambda one=second: not one.left, "it has room")
        assert stops.told == [0] and first.left
