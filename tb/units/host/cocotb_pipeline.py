"""Method pipeline alone (COPY-1, HOST-2): every cycle is compared with the model; directed tests of
order, room, refusals, starts and latencies."""

from collections import deque
from typing import Any

import cocotb

from signalbox.hw.errors import Cause
from signalbox.hw.host.records import ObjectKind
from signalbox.hw.methods import CeMethod, HostMethod
from signalbox.hw.registers import Wait
from signalbox.tb.models.method_pipeline import (
    SITUATIONS,
    TOGETHER,
    Answer,
    Beat,
    Dword,
    Edit,
    Entry,
    Look,
    Outcome,
    Outputs,
    Phase,
)
from signalbox.tb.models.methods import Kind, Method
from signalbox.tb.testbench.goals import Rounds
from signalbox.tb.testbench.reset import reset
from signalbox.tb.testbench.sample import some
from signalbox.tb.units.host.pipeline_programs import (
    Program,
    beats_of,
    immediate,
    random_method,
    settings,
)
from signalbox.tb.units.host.pipeline_testbench import (
    CHANNELS,
    LIMIT,
    WIDTH,
    PipelineTestbench,
    Plan,
    at_once,
)

SEVERAL = {**LIMIT, "skip": CHANNELS < 2}

LAST = CHANNELS - 1

WFI = immediate(HostMethod.WFI)
"""A dword with a method that does more than set state."""

CHANGE = immediate(HostMethod.SEM_EXECUTE, 1)
ACQUIRE = immediate(HostMethod.SEM_EXECUTE, 0)

LOADED = 3
"""Cycles from the choice of a channel to the one that executes its first method: SELECT, LOAD, and
one that decodes it; one less if it is decoded already."""


def methods(*dwords: Dword) -> list[Method]:
    """Methods of dwords that complete one method each."""
    return [dword.method for dword in dwords if dword.method is not None]


def fill(tb: PipelineTestbench, channel: int, *dwords: Dword, low: int = 0, get: int = 0) -> None:
    """Give the channel an entry with these dwords."""
    tb.add(channel, *beats_of([*dwords], WIDTH, low, get))


def always_busy(look: Look) -> Plan:
    """Plan in which a method never completes."""
    return Plan(Answer(Outcome.DONE), busy=1 << 30)


def wait_of(out: Outputs) -> Wait | None:
    """Wait with which the served channel would be let go; None: any."""
    assert out.park is not None
    return out.park[0]


async def cycles_of(tb: PipelineTestbench, channel: int) -> list[int]:
    """Serve a channel. Returns the cycles in which it executes methods, counted from its choice."""
    found, number, tb.target = [], 0, channel
    while True:
        out = await tb.step()
        tb.target = None
        if out.executed is not None:
            assert out.executed[0] == channel
            found.append(number)
        number += 1
        if number > 1 and tb.model.phase is Phase.SELECT:
            return found


@cocotb.test(**LIMIT)
async def one_per_cycle(dut):
    """Methods that set state execute in successive cycles, the first in the fourth cycle of the
    service, wherever the entry begins in its first beat. A dword without a method also takes a
    cycle."""
    tb = await PipelineTestbench(dut).start()
    for low in range(WIDTH):
        for channel in {0, LAST}:
            tb.executed[channel].clear()
            dwords = settings(3 * WIDTH, first=low)
            fill(tb, channel, *dwords, low=low)
            assert await cycles_of(tb, channel) == [*range(LOADED, LOADED + len(dwords))]
            assert tb.executed[channel] == methods(*dwords)
    one, other = settings(2)
    fill(tb, LAST, one, Dword(0, None, 0), other)
    assert await cycles_of(tb, LAST) == [LOADED, LOADED + 2]


@cocotb.test(**LIMIT)
async def others_make_room_later(dut):
    """A method that does more than set state is followed by a cycle without a method. Meanwhile
    dwords are taken, for at most one method behind it."""
    tb = await PipelineTestbench(dut).start()
    one, two, three, four = settings(4)
    fill(tb, LAST, WFI, WFI, one, CHANGE, two, three, WFI, four)
    expected = [LOADED + after for after in (0, 2, 4, 5, 7, 8, 9, 11)]
    assert await cycles_of(tb, LAST) == expected
    tb.plan = always_busy
    fill(tb, LAST, WFI, *settings(20))
    tb.target = LAST
    await tb.steps(30)
    flow = tb.flow(LAST)
    taken = 21 - sum(len(beat.dwords) for beat in flow.beats) + flow.taken
    assert taken == 2 and flow.queued == methods(*settings(1))[0]


@cocotb.test(**LIMIT)
async def busy_for_any_time(dut):
    """A method that is busy for some cycles completes in the next cycle, and its successor follows
    as usual; the channel is not let go meanwhile."""
    tb = await PipelineTestbench(dut).start()
    for busy in (0, 1, 2, 3, 7):
        for leaves in (False, True):
            done = len(tb.executed[0])

            def plan(_: Look, busy: int = busy) -> Plan:
                return Plan(Answer(Outcome.DONE), busy)

            tb.plan = plan
            fill(tb, 0, WFI, *settings(2))
            tb.target, number = 0, 0
            while len(tb.executed[0]) == done:
                tb.leave = leaves and number >= LOADED
                await tb.step()
                tb.target = None
                number += 1
            assert number == LOADED + busy + 1
            assert (tb.model.phase is Phase.SELECT) == leaves
            tb.leave = False
            if leaves:
                await tb.serve(0)
            else:
                await tb.until(lambda: tb.model.phase is Phase.SELECT, "all is executed")
            assert len(tb.executed[0]) == done + 3


@cocotb.test(**SEVERAL)
async def next_channel(dut):
    """The first method of the next channel executes in the fourth cycle after the one in which the
    served channel is blocked, or in the third if it was already decoded."""
    tb = await PipelineTestbench(dut).start()
    for decoded in (False, True):
        fill(tb, LAST, *settings(3))
        if decoded:
            tb.target, tb.leave = LAST, True
            await tb.steps(3)
            tb.target, tb.leave = None, False
            assert tb.flow(LAST).held
        tb.plan = lambda _: Plan(Answer(Outcome.PARK, Wait.COPIES))
        fill(tb, 0, WFI)
        tb.target = 0
        while (await tb.step()).released is None:
            pass
        tb.plan, tb.target = at_once, LAST
        gone = tb.cycle - 1
        number = len(tb.executed[LAST])
        while len(tb.executed[LAST]) == number:
            await tb.step()
        assert tb.cycle - 1 - gone == 4 - decoded
        tb.target = None
        await tb.until(lambda: tb.model.phase is Phase.SELECT, "all is executed")
        await tb.serve(0)


@cocotb.test(**LIMIT)
async def left_anywhere(dut):
    """A channel let go after any number of cycles, within a group and within a beat, continues
    there with its state, whether it is its own successor or another channel is served in between.
    If methods are left, it waits for its turn."""
    tb = await PipelineTestbench(dut).start()
    dwords = [*settings(3), WFI, *settings(2, 3), CHANGE, WFI, *settings(WIDTH, 5)]
    for stays in some(range(2 * len(dwords) + 4), 4):
        for between in (None, 0, LAST):
            tb.executed[LAST].clear()
            fill(tb, LAST, *dwords, low=WIDTH - 1, get=stays)
            tb.target, number, wait = LAST, 0, Wait.NONE
            await tb.steps(2)
            tb.target = None
            while tb.model.phase is not Phase.SELECT:
                tb.leave = number >= stays
                wait = wait_of(await tb.step())
                number += 1
            tb.leave = False
            if tb.flow(LAST).decoded:
                assert wait == Wait.TURN
            elif wait is not None and len(tb.executed[LAST]) == len(dwords):
                assert wait == Wait.NONE
            if between == LAST:
                await tb.steps(3)
            elif between == 0 and CHANNELS > 1:
                fill(tb, 0, *settings(2))
                await tb.serve(0)
            if tb.flow(LAST).decoded or tb.flow(LAST).beats:
                await tb.serve(LAST)
            assert tb.executed[LAST] == methods(*dwords)
            assert tb.ended.count(Entry(LAST, stays)) == 1
            tb.ended.clear()


@cocotb.test(**LIMIT)
async def waits_for_dwords(dut):
    """A channel with fetched beats is not let go while its head is not offered. A channel without
    beats is let go in the same cycle, without a wait, but only once its methods are complete."""
    tb = await PipelineTestbench(dut).start()
    tb.pace = lambda: False
    fill(tb, LAST, *settings(1))
    tb.target = LAST
    await tb.steps(2)
    tb.target = None
    for _ in range(20):
        out = await tb.step()
        assert tb.model.phase is Phase.RUN and not tb.executed[LAST] and wait_of(out) == Wait.NONE
    tb.pace = lambda: True
    await tb.until(lambda: tb.model.phase is Phase.SELECT, "all is executed")
    assert len(tb.executed[LAST]) == 1
    assert await cycles_of(tb, LAST) == []
    # The rest of the entry is not fetched yet.
    tb.add(LAST, Beat((WFI, *settings(1)), first=True))
    assert await cycles_of(tb, LAST) == [LOADED, LOADED + 2]
    tb.add(LAST, Beat((WFI,), end=True, get=5))
    assert await cycles_of(tb, LAST) == [LOADED]
    assert tb.ended[-1] == Entry(LAST, 5)


@cocotb.test(**LIMIT)
async def ends_of_entries(dut):
    """The end of an entry is reported once, after its last method is complete and before any dword
    of the next entry is taken. The same holds for an entry without dwords."""
    tb = await PipelineTestbench(dut).start()
    fill(tb, 0, WFI, *settings(1), get=1)
    tb.add(0, Beat(empty=True, first=True, end=True, get=2))
    fill(tb, 0, Dword(0, None, 0), get=3)
    fill(tb, 0, *settings(2), CHANGE, get=4)
    events: list[Any] = []
    tb.target = 0
    while len(tb.ended) < 4:
        out = await tb.step()
        tb.target = None
        events += [("starts", out.started.get)] if out.started else []
        events += ["method"] if out.executed else []
        events += [("ends", out.finished.get)] if out.finished else []
    first = [("starts", 1), "method", "method", ("ends", 1)]
    middle = [("starts", 2), ("ends", 2), ("starts", 3), ("ends", 3)]
    assert events == [*first, *middle, ("starts", 4), *["method"] * 3, ("ends", 4)]
    # A channel that is blocked by the last method has not ended the entry.
    tb.plan = lambda _: Plan(Answer(Outcome.PARK, Wait.TASKS))
    fill(tb, 0, WFI, get=5)
    await tb.until(lambda: tb.model.phase is Phase.SELECT, "the channel is let go")
    await tb.serve(0)
    await tb.serve(0)
    assert len(tb.ended) == 4
    tb.plan = at_once
    await tb.serve(0)
    assert tb.ended[4:] == [Entry(0, 5)]


@cocotb.test(**LIMIT)
async def parked(dut):
    """A method that parks its channel is executed again at each service until it completes. It
    releases the channel's engine unless it keeps it. The method behind it waits."""
    tb = await PipelineTestbench(dut).start()
    waits = [wait for wait in Wait if wait is not Wait.NONE]
    for keep in (False, True):
        done = len(tb.executed[LAST])
        fill(tb, LAST, CHANGE, *settings(2))
        for wait in waits:
            answer = Answer(Outcome.PARK, wait, keep=keep)
            tb.plan = lambda _, answer=answer: Plan(answer, busy=1)
            tb.target = LAST
            out = await tb.step()
            tb.target = None
            while tb.model.phase is not Phase.SELECT:
                out = await tb.step()
            assert out.park == (wait, False)
            assert out.released == (None if keep else LAST)
        assert len(tb.executed[LAST]) == done
        tb.plan = at_once
        await tb.serve(LAST)
        assert len(tb.executed[LAST]) == done + 3


async def refuse(tb: PipelineTestbench, channel: int, *dwords: Dword) -> None:
    """Plan that refuses the first of these methods."""
    tb.plan = lambda look: Plan(
        Answer(Outcome.REFUSE if look.method == dwords[0].method else Outcome.DONE)
    )
    fill(tb, channel, *dwords)
    await tb.serve(channel)
    assert channel in tb.refused and channel not in tb.alive


@cocotb.test(**LIMIT)
async def refused_again(dut):
    """A refused method is held, and not executed while its channel is halted. After an edit, the
    same method is executed again, or another one in its place, or none; then the methods behind it.
    An edit right after the service has the same effect as a later one."""
    tb = await PipelineTestbench(dut).start()
    same, other = Method(WFI.method.place, 0x1234, 0), Method(HostMethod.YIELD, 2, 5)
    edits: list[tuple[Edit, list[Method], bool]] = [
        (Edit(LAST), methods(WFI), False),
        (Edit(LAST, replace=True, method=same), [same], True),
        (Edit(LAST, replace=True, method=other), [other], False),
        (Edit(LAST, replace=True), [], False),
    ]
    behind = settings(3)
    for edit, instead, again in edits:
        for pause in (0, 1, 5):
            tb.executed[LAST].clear()
            await refuse(tb, LAST, WFI, *behind)
            await tb.steps(pause)
            tb.edit = edit
            await tb.step()
            out = await tb.step()
            assert (out.replace, out.again) == (edit.replace, again)
            assert out.park == (Wait.TURN, True) and not out.reset
            tb.alive.add(LAST)
            tb.plan = at_once
            await tb.serve(LAST)
            assert tb.executed[LAST] == [*instead, *methods(*behind)]


@cocotb.test(**LIMIT)
async def replaced_elsewhere(dut):
    """A method with another address or subchannel in place of a refused one does not count as the
    same method. Its kind follows from the objects bound in its own channel, even if another channel
    was served meanwhile."""
    tb = await PipelineTestbench(dut).start()
    bound, elsewhere = 3, 4
    tb.random.choice = _choose(ObjectKind.COPY, tb.random.choice)
    for channel, subchannel in {0: elsewhere, LAST: bound}.items():
        fill(tb, channel, immediate(HostMethod.SET_OBJECT, 0, subchannel))
        await tb.serve(channel)
        assert tb.objects[channel][subchannel] == ObjectKind.COPY
    places = (CeMethod.LINE_COUNT, CeMethod.LAUNCH_DMA, HostMethod.SEM_EXECUTE, HostMethod.NOP)
    for place in places:
        for subchannel in (bound, elsewhere, 7):
            for between in (None, LAST, 0):
                await refuse(tb, LAST, WFI)
                if between == LAST:
                    await tb.steps(3)
                elif between == 0 and CHANNELS > 1:
                    fill(tb, 0, *settings(1))
                    await tb.serve(0)
                method = Method(int(place), 0x180, subchannel)
                await tb.change(Edit(LAST, replace=True, method=method))
                tb.alive.add(LAST)
                tb.plan = at_once
                await tb.serve(LAST)
                assert tb.executed[LAST][-1] == method
    for subchannel in range(8):
        await refuse(tb, LAST, immediate(HostMethod.WFI, 0, 1))
        tb.edit = Edit(LAST, replace=True, method=Method(HostMethod.WFI, 0, subchannel))
        await tb.step()
        assert (await tb.step()).again == (subchannel == 1)
        tb.alive.add(LAST)
        tb.plan = at_once
        await tb.serve(LAST)


def _choose(kind: ObjectKind, otherwise: Any) -> Any:
    """`choice` of random numbers that returns `kind` wherever it is offered."""

    def choice(values: Any) -> Any:
        return kind if isinstance(values, tuple) and kind in values else otherwise(values)

    return choice


@cocotb.test(**LIMIT)
async def started_anew(dut):
    """A start drops the channel's held method, the method behind it, the rest of a beat and of a
    group, the end of an entry and all state, whether the channel is served or not. Other channels
    keep theirs."""
    tb = await PipelineTestbench(dut).start()
    group = Dword(3 << 29 | 9 << 16 | HostMethod.NOP >> 2, None, 0)
    data = [Dword(value, Method(HostMethod.NOP, value, 0)) for value in range(9)]
    for taken in some(range(10), 3):
        for other in {0, LAST}:
            fill(tb, LAST, group, *data[:taken], *([WFI, WFI] if taken == 9 else []), get=7)
            if CHANNELS > 1 and other != LAST:
                fill(tb, other, *settings(2), get=3)
            tb.plan = lambda _: Plan(Answer(Outcome.PARK, Wait.TASKS))
            await tb.serve(LAST)
            if CHANNELS > 1 and other != LAST:
                await tb.serve(other)
            tb.alive.discard(LAST)
            tb.flow(LAST).beats.clear()
            await tb.change(Edit(LAST, reset=True))
            tb.alive.add(LAST)
            tb.plan = at_once
            tb.executed[LAST].clear()
            ended = len(tb.ended)
            fill(tb, LAST, *settings(2), low=WIDTH - 1, get=8)
            await tb.serve(LAST)
            assert tb.executed[LAST] == methods(*settings(2))
            assert tb.ended[ended:] == [Entry(LAST, 8)]


@cocotb.test(**LIMIT)
async def dies(dut):
    """A channel that is disabled or halted in any cycle of its service is let go in that cycle, or
    once its method is no longer busy. No method is lost or executed twice; at most one dword is
    taken, and at most one method executed, in that cycle."""
    tb = await PipelineTestbench(dut).start()
    dwords = [*settings(3), WFI, *settings(2, 3), CHANGE, WFI, *settings(WIDTH, 5)]
    for when in some(range(len(dwords) + 10), 4):
        for busy in (0, 2):
            tb.executed[LAST].clear()
            tb.plan = lambda _, busy=busy: Plan(Answer(Outcome.DONE), busy)
            fill(tb, LAST, *dwords, get=when)
            tb.target, number = LAST, 0
            await tb.step()
            tb.target = None
            while tb.model.phase is not Phase.SELECT:
                if number == when:
                    tb.alive.discard(LAST)
                await tb.step()
                number += 1
            before = len(tb.executed[LAST])
            if LAST not in tb.alive:
                # The first cycle is LOAD; a cycle in which the method is busy is followed by one in
                # which nothing executes.
                assert number <= max(when, 1) + 2
                await tb.change(Edit(LAST))
                tb.alive.add(LAST)
                assert len(tb.executed[LAST]) == before
            if tb.flow(LAST).decoded or tb.flow(LAST).beats:
                await tb.serve(LAST)
            assert tb.executed[LAST] == methods(*dwords)
            assert tb.ended.pop() == Entry(LAST, when)


@cocotb.test(**LIMIT)
async def asked(dut):
    """A channel that has asked the semaphore unit accepts the response, even if it has died or must
    let go."""
    tb = await PipelineTestbench(dut).start()
    for outcome in (Outcome.DONE, Outcome.PARK):
        for event in ("dies", "leaves", "edit"):
            for when in range(1, 8):
                tb.plan = lambda _, outcome=outcome: Plan(
                    Answer(outcome, Wait.ONCHIP), busy=5, asks=True
                )
                fill(tb, LAST, ACQUIRE)
                done, number, wait = len(tb.executed[LAST]), 0, None
                tb.target = LAST
                await tb.steps(2)
                tb.target = None
                while tb.model.phase is not Phase.SELECT:
                    number += 1
                    if number == when + 2:
                        if event == "dies":
                            tb.alive.discard(LAST)
                        elif event == "edit":
                            tb.edit = Edit(LAST)
                        tb.leave = event == "leaves"
                    wait = wait_of(await tb.step())
                tb.leave = False
                if outcome is Outcome.PARK:
                    assert wait == Wait.ONCHIP
                if LAST not in tb.alive:
                    await tb.change(Edit(LAST))
                    tb.alive.add(LAST)
                await tb.until(lambda: tb.edit is None, "the edit is taken")
                await tb.until(lambda: tb.model.phase is Phase.SELECT, "the edit has its effect")
                tb.plan = at_once
                if tb.flow(LAST).decoded:
                    await tb.serve(LAST)
                assert len(tb.executed[LAST]) == done + 1


@cocotb.test(**LIMIT)
async def must_let_go(dut):
    """A channel that must let go executes no acquire, and the acquire is not lost. A channel that
    stays, because it has an engine, executes all methods but acquires."""
    tb = await PipelineTestbench(dut).start()
    for stays in (False, True):
        fill(tb, LAST, *settings(4), CHANGE, ACQUIRE, *settings(1))
        done = len(tb.executed[LAST])
        tb.target = LAST
        await tb.steps(2)
        tb.target = None
        tb.leave, tb.stay = True, stays
        wait = None
        while tb.model.phase is not Phase.SELECT:
            wait = wait_of(await tb.step())
        assert wait == Wait.TURN or not stays
        assert len(tb.executed[LAST]) == done + (5 if stays else 0)
        tb.leave = tb.stay = False
        await tb.serve(LAST)
        assert len(tb.executed[LAST]) == done + 7


@cocotb.test(**LIMIT)
async def yields(dut):
    """After a YIELD with an effect, no further method of the channel is executed in its service."""
    tb = await PipelineTestbench(dut).start()
    for effect in (False, True):
        tb.yields = lambda effect=effect: effect
        fill(tb, LAST, *settings(2), immediate(HostMethod.YIELD, 2), *settings(2))
        done = len(tb.executed[LAST])
        await tb.serve(LAST)
        assert len(tb.executed[LAST]) == done + (3 if effect else 5)
        if effect:
            await tb.serve(LAST)
        assert len(tb.executed[LAST]) == done + 5


@cocotb.test(**LIMIT)
async def edits_first(dut):
    """An edit precedes the scheduler's target, which is not taken; a served channel lets go for an
    edit of any channel."""
    tb = await PipelineTestbench(dut).start()
    fill(tb, 0, *settings(40))
    tb.edit, tb.target = Edit(LAST), 0
    out = await tb.step()
    assert out.edited and not out.take
    await tb.steps(6)
    assert tb.executed[0] and tb.model.phase is Phase.RUN
    done = len(tb.executed[0])
    tb.edit = Edit(LAST)
    await tb.step()
    assert tb.model.phase is Phase.SELECT
    assert (await tb.step()).edited
    tb.target = None
    await tb.step()
    await tb.serve(0)
    assert len(tb.executed[0]) == 40 > done + 1


@cocotb.test(**LIMIT)
async def reset_anywhere(dut):
    """After a reset in any cycle of a service or of an edit, no channel is served, and nothing is
    executed before the next service."""
    for cycles in some(range(1, 9), 3):
        for edits in (False, True):
            tb = await PipelineTestbench(dut).start()
            fill(tb, LAST, *settings(2), WFI, *settings(2))
            tb.plan = always_busy
            tb.edit, tb.target = Edit(LAST) if edits else None, LAST
            await tb.steps(cycles)
            tb = PipelineTestbench(dut)
            await reset(dut)
            assert not tb.get("served__active")
            for _ in range(3):
                await tb.step()
            await tb.start()
            fill(tb, LAST, *settings(3))
            await tb.serve(LAST)
            assert tb.executed[LAST] == methods(*settings(3))


class Life:
    """Random activity of all channels: fetched entries, services, halts, edits and starts."""

    def __init__(self, tb: PipelineTestbench) -> None:
        self._tb, self._numbers = tb, tb.random
        self._programs = [Program(tb.random, WIDTH) for _ in range(CHANNELS)]
        # Beats of entries of which only a part was fetched.
        self._coming: list[deque[Beat]] = [deque() for _ in range(CHANNELS)]
        self._due: dict[int, int] = {}
        self._revives: dict[int, int] = {}
        self._given: Edit | None = None

    async def some_time(self, cycles: int) -> None:
        """Random activity with constant probabilities."""
        tb, numbers = self._tb, self._numbers
        busy = numbers.choice((0.0, 0.3, 0.9))
        outcomes = numbers.choice(((12, 1, 0), (8, 3, 1), (2, 1, 1)))
        tb.pace = tb.share(numbers.choice((0.3, 0.9, 1.0)))
        tb.yields = tb.share(0.5)

        def plan(look: Look) -> Plan:
            return self._plan(look, busy, outcomes)

        tb.plan = plan
        leaves, found = numbers.choice((0.0, 0.05, 0.3)), numbers.choice((0.1, 0.8, 1.0))
        stays, dies = numbers.choice((0.1, 0.9)), numbers.choice((0.0, 0.003, 0.03))
        fills = numbers.choice((0.05, 0.3, 1.0))
        self._few = numbers.sample(range(CHANNELS), min(CHANNELS, numbers.choice((1, 2, 4))))
        for _ in range(cycles):
            if numbers.random() < fills:
                self._fetch(numbers.choice(self._few))
            self._halt(dies)
            self._revive()
            self._choose(found)
            serves = tb.model.phase is Phase.RUN
            tb.leave = serves and (tb.leave or numbers.random() < leaves)
            tb.stay = tb.leave and numbers.random() < stays
            await tb.step()

    def _fetch(self, channel: int) -> None:
        flow = self._tb.flow(channel)
        starting = self._given is not None and self._given.channel == channel
        if len(flow.beats) < 8 and not starting:
            coming = self._coming[channel]
            if not coming:
                coming += self._programs[channel].entry()
            count = self._numbers.choice((1, len(coming)))
            self._tb.add(channel, *(coming.popleft() for _ in range(count)))

    def _plan(self, look: Look, busy: float, outcomes: tuple[int, int, int]) -> Plan:
        numbers = self._numbers
        kinds = (Outcome.DONE, Outcome.PARK, Outcome.REFUSE)
        (outcome,) = numbers.choices(kinds, outcomes)
        if look.method.cause != Cause.NONE:
            outcome = Outcome.REFUSE
        wait = numbers.choice([wait for wait in Wait if wait not in (Wait.NONE, Wait.TURN)])
        cycles = numbers.choice((1, 1, 2, 5)) if numbers.random() < busy else 0
        asks = look.kind is Kind.SEMAPHORE and numbers.random() < 0.7
        return Plan(Answer(outcome, wait, keep=numbers.random() < 0.5), cycles, asks)

    def _halt(self, dies: float) -> None:
        """Channels die, most often the served one."""
        tb, numbers = self._tb, self._numbers
        if numbers.random() < (10 * dies if tb.asking else dies):
            likely = numbers.random() < 0.8
            tb.alive.discard(tb.model.served if likely else numbers.randrange(CHANNELS))
        for channel in range(CHANNELS):
            given = self._given is not None and self._given.channel == channel
            known = given or channel in self._due or channel in self._revives
            if channel not in tb.alive and not known:
                self._due[channel] = tb.cycle + numbers.choice((0, 1, 3, 10))

    def _revive(self) -> None:
        """Offer an edit for a dead channel, which is alive afterwards."""
        tb, numbers = self._tb, self._numbers
        if self._given is not None and tb.edit is None:
            self._revives[self._given.channel] = tb.cycle + numbers.choice((0, 0, 1, 8))
            self._given = None
        for channel, cycle in [*self._revives.items()]:
            if tb.cycle >= cycle:
                del self._revives[channel]
                tb.alive.add(channel)
        due = [channel for channel, cycle in self._due.items() if tb.cycle >= cycle]
        if tb.edit is None and self._given is None and due:
            channel = numbers.choice(due)
            edit = self._edit(channel)
            if edit.reset:
                served = tb.model.phase is not Phase.SELECT and tb.model.served == channel
                if served:
                    return
                tb.flow(channel).beats.clear()
                self._coming[channel].clear()
                self._programs[channel] = Program(numbers, WIDTH)
            del self._due[channel]
            tb.edit = self._given = edit

    def _edit(self, channel: int) -> Edit:
        tb, numbers = self._tb, self._numbers
        if numbers.random() < 0.15:
            return Edit(channel, reset=True)
        held = tb.flow(channel).held
        if channel not in tb.refused or held is None:
            return Edit(channel)
        other = random_method(numbers)
        again = Method(held.place, numbers.getrandbits(32), held.subchannel)
        moved = Method(held.place, held.data, numbers.randrange(8))
        options = [Edit(channel, replace=True, method=one) for one in (again, other, moved)]
        if held.cause != Cause.NONE:
            options = [Edit(channel, replace=True, method=other)]
        return numbers.choice([*options, Edit(channel, replace=True), Edit(channel)])

    def _choose(self, found: float) -> None:
        """The scheduler's next target: a channel that is alive, most often one with work."""
        tb, numbers = self._tb, self._numbers
        tb.target = None
        if numbers.random() >= found:
            return
        alive = [channel for channel in self._few if channel in tb.alive]
        work = [one for one in alive if tb.flow(one).beats or tb.flow(one).decoded]
        ready = work if work and numbers.random() < 0.95 else alive
        if tb.model.served in ready and numbers.random() < 0.3:
            tb.target = tb.model.served
        elif ready:
            tb.target = numbers.choice(ready)


@cocotb.test(**LIMIT)
async def as_the_model(dut):
    """Random activity of all channels agrees with the model in every cycle, until each situation
    was met several times."""
    tb = await PipelineTestbench(dut).start()
    life, met = Life(tb), tb.model.met
    goals = [*SITUATIONS, *(TOGETHER if CHANNELS > 1 else ())]
    rounds = Rounds(20)
    while rounds.more(all(met[one] >= 5 for one in goals), {one: met[one] for one in goals}):
        await life.some_time(250)
    cocotb.log.info("met: %s", dict(met))
