"""Waits for compute methods, and outstanding tasks (HOST-9): every cycle against the model; order,
results of methods, drops and the limit of tasks individually."""

import os
from typing import Any, Self

import cocotb

from signalbox.hw.config import CONFIGS, VA_BITS
from signalbox.hw.errors import Cause, Refusal
from signalbox.hw.host.oldest_first import STAMP_BITS
from signalbox.hw.host.waits.compute_waits import ComputeWaits
from signalbox.hw.qmd import SkedCheck
from signalbox.hw.registers import CHANNEL, channel_word
from signalbox.tb.models.compute_waits import (
    AGAIN,
    FAIR_TURN,
    MOST_TASKS,
    OFFERED,
    Answer,
    Ended,
    Failure,
    Inputs,
    Method,
    Offer,
    Outputs,
    Result,
    Task,
    WaitsModel,
)
from signalbox.tb.testbench.clocked import Testbench, component
from signalbox.tb.testbench.ends import Sink, Source
from signalbox.tb.testbench.goals import Rounds
from signalbox.tb.testbench.masks import members
from signalbox.tb.testbench.sample import some
from signalbox.tb.testbench.strobe import Strobe

LIMIT = {"timeout_time": 20, "timeout_unit": "ms"}

CONFIG = CONFIGS[os.environ.get("SIZE", "default")]

CHANNELS, LAST = CONFIG.channels, CONFIG.channels - 1

STEPS = 1 if CHANNELS <= 16 else 2
"""Cycles of a choice among the channels."""

STAMPS = 1 << STAMP_BITS

PRIORITY = CHANNEL["CONFIG"].field("PRIORITY")

OVER = 2
"""Cycles from an answer to the end of the wait."""

STROBES = {
    "ask": "client__ask",
    "drop": "client__drop",
    "setting": "client__setting",
    "config": "control__setting",
    "clear": "methods__cleared",
    "skip": "client__skip",
    "answer": "port__answer",
    "began": "port__began",
}

CHILDREN = Refusal.DEPTH, Refusal.ROOM
"""Refusals of nested launches, which are not reported to the host."""
GOOD = (Refusal.NONE,)
BAD = tuple(one for one in Refusal if one not in (*GOOD, *CHILDREN))
"""Results of tasks."""

COMPLETE = Answer(Result(Cause.NONE, 0, 0, 1, 62), False, False)


def offer_of(payload: dict[str, Any]) -> Offer:
    """The offer with this payload."""
    fields = {**payload}
    return Offer(fields.pop("channel"), fields.pop("epoch"), Method(**fields))


class ComputeWaitsTestbench(Testbench):
    """Requests like the execution of methods, models the compute engine, and compares every cycle
    with the model.

    Members
    -------
    ready : the engine takes a method; effective from the next `step`.
    takes_failures : `failed` is accepted; likewise.
    select : channel selected; likewise.
    on : enabled channels; None: random.
    time : number of doorbells; newer stamps are greater.
    arrivals : doorbell of each channel's head command; likewise.
    tasks : tasks that run, oldest first.
    launched : the task begun by the method in execution.
    methods : the method of each waiting channel.
    dropped : cycle in which each channel last dropped an incomplete wait.
    """

    def __init__(self, dut: Any) -> None:
        super().__init__(dut, component(ComputeWaits, CONFIG))
        self.model = WaitsModel(CHANNELS, STEPS)
        self.time = self.random.randrange(STAMPS)
        self.arrivals = [self.time] * CHANNELS
        self.ready, self.takes_failures, self.select = True, True, 0
        self.on: int | None = None
        self.tasks: list[Task] = []
        self.launched: Task | None = None
        self.methods: dict[int, Method] = {}
        self.dropped = dict.fromkeys(range(CHANNELS), -AGAIN)
        self._strobes = {name: Strobe(self, port) for name, port in STROBES.items()}
        self._sink = Sink(self, "port__method", lambda: self.ready)
        self._ends: list[Ended] = []
        self._source = Source(self, "port__over", self.share(0.7))
        self._through: dict[str, Any] = {}

    async def start(self) -> Self:
        await super().start()
        await self.step()
        return self

    # -- events ------------------------------------------------------------------------------------

    def ask(self, channel: int) -> tuple[int, Method]:
        """A method of the channel waits: a new one, unless one waits already."""
        if channel not in self.methods:
            self.methods[channel] = self.method()
        return channel, self.methods[channel]

    def receive(self, *channels: int) -> None:
        """Doorbells announce new head commands of these channels. Stamps reach back by less than
        half of their range."""
        for channel in channels:
            self.time += 1
            self.arrivals[channel] = self.time
        oldest = self.time - STAMPS // 2 + 1
        self.arrivals = [max(arrival, oldest) for arrival in self.arrivals]

    async def prioritise(self, priorities: list[int]) -> None:
        """Write the priority of each channel."""
        for channel, priority in enumerate(priorities):
            await self.step(setting=(channel, priority))

    def method(self) -> Method:
        """A random method."""
        fields = self.ports["port__method__payload"].record.fields
        return Method(*(self.random.getrandbits(fields[one][1].width) for one in Method._fields))

    def refusal(self, *, trap: bool = False, unlaunched: bool = False) -> Answer:
        """A refusal with a random result."""
        numbers = self.random
        cause = numbers.choice([cause for cause in Cause if cause is not Cause.NONE])
        inline = numbers.getrandbits(1), numbers.getrandbits(6)
        check, va = numbers.choice([*SkedCheck]), numbers.getrandbits(VA_BITS)
        return Answer(Result(cause, check, va, *inline), trap, unlaunched)

    def completion(self, *, trap: bool = False, unlaunched: bool = False) -> Answer:
        """A complete method, with a random inline transfer."""
        result = self.refusal().result._replace(cause=Cause.NONE)
        return Answer(result, trap, unlaunched)

    def drop(self, channel: int) -> int:
        """The channel's wait ends."""
        self.methods.pop(channel, None)
        if channel in self.model.waits and not self.model.waits[channel].over:
            self.dropped[channel] = self.cycle
        return channel

    def may_ask(self, channel: int) -> bool:
        """The channel may ask in the cycle that begins."""
        return self.cycle >= self.dropped[channel] + AGAIN

    def end(self, task: Task, *refusals: Refusal) -> None:
        """Task `task` ends, with one of these results, once the design accepts its end."""
        numbers = self.random
        refusal, check = numbers.choice(refusals), numbers.choice([*SkedCheck])
        ended = Ended(task, numbers.getrandbits(32), refusal, check, numbers.random() < 0.5)
        self.tasks.remove(task)
        self._ends.append(ended)
        pointer = {"page": ended.page, **task._asdict(), "asid": numbers.getrandbits(10)}
        verdict = {"refusal": refusal, "check": check}
        self._source.put({"task": pointer, "verdict": verdict, "trap": ended.trap})

    @property
    def ending(self) -> int:
        """Number of tasks whose end has not been accepted yet."""
        return len(self._ends)

    # -- one cycle ---------------------------------------------------------------------------------

    async def step(self, **events: Any) -> Outputs:
        """One cycle with these members of `Inputs`."""
        on = self.random.getrandbits(CHANNELS) if self.on is None else self.on
        now = Inputs(
            stamps=tuple(arrival % STAMPS for arrival in self.arrivals),
            select=self.select,
            failed_taken=self.takes_failures,
            on=on,
            **events,
        )
        passed = self._drive(now)
        self._end_launch(now.answer)
        await super().step()
        heard = bool(self._source.sent) and self._source.sent[-1] == self.cycle - 1
        ended = self._ends.pop(0) if heard else None
        expected, shown = self.model.show(answered=now.answer is not None), self._shown()
        assert shown == expected, f"cycle {self.model.now}: {now}:\n{shown}\n{expected}"
        self._check_through()
        self._through = passed
        self.model.step(Inputs(**{**vars(now), "taken": self.ready, "ended": ended}))
        return shown

    def _end_launch(self, answer: Answer | None) -> None:
        """The task of the answered method runs, unless it was not launched."""
        if answer is not None:
            if self.launched is not None and not answer.unlaunched:
                self.tasks.append(self.launched)
            self.launched = None

    def _drive(self, now: Inputs) -> dict[str, Any]:
        """Drive all inputs. Returns the inputs that pass through."""
        send = {name: strobe.send for name, strobe in self._strobes.items()}
        if now.ask is not None:
            send["ask"](channel=now.ask[0], **now.ask[1]._asdict())
        if now.drop is not None:
            send["drop"](channel=now.drop)
        if now.answer is not None:
            result, trap, unlaunched = now.answer
            fields = result._asdict()
            fields["inline"] = {name: fields.pop(name) for name in ("open", "room")}
            send["answer"](**fields, trap=trap, unlaunched=unlaunched)
        if now.began is not None:
            send["began"](**now.began._asdict())
        if now.setting is not None:
            channel, priority = now.setting
            other = self.random.getrandbits(32) & ~PRIORITY.mask
            value = other | priority << PRIORITY.lo
            send["config"](channel=channel, word=channel_word("CONFIG"), value=value)
        elif self.random.random() < 0.3:
            word = channel_word(self.random.choice(("SLICE", "USERD", "ACQUIRE")))
            self._strobes["config"].send(
                channel=self.random.randrange(CHANNELS),
                word=word,
                value=self.random.getrandbits(32),
            )
        self.drive(
            arrivals__stamps=now.stamps,
            served__select=now.select,
            reports__taken=now.failed_taken,
            epochs__begins=now.begins,
        )
        numbers = self.random
        passed: dict[str, Any] = {"on": now.on}
        self.drive(control__enabled=now.on)
        if numbers.random() < 0.3:
            words = {"address": numbers.getrandbits(12), "data": numbers.getrandbits(32)}
            passed["setting"] = {"channel": numbers.randrange(CHANNELS), **words}
        for name in ("clear", "skip"):
            if numbers.random() < 0.3:
                passed[name] = {"channel": numbers.randrange(CHANNELS)}
        for name in passed.keys() - {"on"}:
            send[name](**passed[name])
        return passed

    def _check_through(self) -> None:
        """Settings, starts, skipped methods and enables reach the engine in the next cycle."""
        assert self.get("port__on") == self._through.get("on", 0)
        for name in ("setting", "clear", "skip"):
            event = self.get(f"port__{name}")
            shown = event if event.pop("valid") else None
            assert shown == self._through.get(name), f"cycle {self.cycle}: {name}"

    def _shown(self) -> Outputs:
        over, refused = (members(self.get(f"client__{name}")) for name in ("over", "refused"))
        ended, failed = self.get("reports__ended"), self.get("reports__failed")
        selected, why = self.model.selected, self.get("client__why")
        offers = self.get("port__method__valid")
        return Outputs(
            over=over,
            refused=refused,
            why=Result(**why.pop("inline"), **why) if selected in over else None,
            busy=members(self.get("outstanding__busy")),
            offer=offer_of(self.get("port__method__payload")) if offers else None,
            counts=tuple(self.get("outstanding__counts")),
            tasks=members(self.get("outstanding__some")),
            hears=bool(self.get("port__over__ready")),
            ended=(ended["channel"], bool(ended["failed"])) if ended["valid"] else None,
            failed=Failure(**failed) if failed.pop("valid") else None,
            notify=members(self.get("notify")),
            before=bool(self.get("epochs__before")),
        )

    # -- whole actions -----------------------------------------------------------------------------

    async def until_taken(self) -> Offer:
        """Let the engine take the next method, and return it."""
        taken, self.ready = len(self._sink.taken), True
        await self.until(lambda: len(self._sink.taken) > taken, "a method is taken", 2 * OFFERED)
        return offer_of(self._sink.taken[-1][1])

    async def answer(self, answer: Answer = COMPLETE) -> Outputs:
        """The engine answers; returns the outputs when the wait is over."""
        await self.step(answer=answer)
        await self.steps(OVER - 1)
        return await self.step()

    async def launch(self, channel: int, count: int) -> None:
        """`count` tasks of the channel begin, launched by other tasks."""
        for _ in range(count):
            self.tasks.append(task := Task(channel, self.random.getrandbits(1)))
            await self.step(began=task)


@cocotb.test(**LIMIT)
async def latency(dut):
    """If no other method is before it, a method is offered 7 cycles after `ask`, and stays until it
    is taken; the wait is over 2 cycles after the answer."""
    tb = await ComputeWaitsTestbench(dut).start()
    for channel in range(CHANNELS):
        for patience in (0, 1, 7):
            tb.ready = False
            _, method = ask = tb.ask(channel)
            await tb.step(ask=ask)
            for _ in range(OFFERED - 1):
                shown = await tb.step()
                assert shown.offer is None and shown.busy == {channel}
            for _ in range(patience):
                assert (await tb.step()).offer == Offer(channel, 0, method)
            tb.ready = True
            assert (await tb.step()).offer == Offer(channel, 0, method)
            await tb.steps(patience)
            await tb.step(answer=COMPLETE)
            for _ in range(OVER - 1):
                shown = await tb.step()
                assert not shown.over and shown.busy == {channel}
            shown = await tb.step(drop=tb.drop(channel))
            assert shown.over == {channel} and not shown.refused and not shown.busy
            assert not (await tb.step()).over


async def wait_all(tb: ComputeWaitsTestbench, first: int) -> list[int]:
    """All channels wait while the method of `first` is in execution. The other channels receive
    commands and begin to wait in random orders. Returns them, oldest command first."""
    order = tb.random.sample(range(CHANNELS), CHANNELS)
    tb.receive(*order)
    await tb.step(ask=tb.ask(first))
    assert (await tb.until_taken()).channel == first
    tb.ready = False
    others = [channel for channel in order if channel != first]
    for channel in tb.random.sample(others, len(others)):
        await tb.step(ask=tb.ask(channel))
    await tb.steps(STEPS)  # until the last channel takes part in the choice
    return others


async def next_turn(tb: ComputeWaitsTestbench) -> int:
    """Answer the method in execution. Returns the channel of the next one."""
    (last,) = (await tb.answer()).over
    await tb.step(drop=tb.drop(last))
    taken = await tb.until_taken()
    assert taken == Offer(taken.channel, 0, tb.methods[taken.channel])
    return taken.channel


@cocotb.test(**LIMIT)
async def by_age(dut):
    """The next turn goes to the channel whose command was received least recently, whatever the
    order in which channels began to wait and had earlier turns; with equal stamps, to the lowest
    channel."""
    tb = await ComputeWaitsTestbench(dut).start()
    for first in (LAST, 0, LAST // 2):
        order = await wait_all(tb, first)
        assert [await next_turn(tb) for _ in order] == order
        await tb.step(drop=tb.drop(*(await tb.answer()).over))
    others = await wait_all(tb, LAST)
    tb.receive(LAST)
    tb.arrivals = [tb.time] * CHANNELS
    await tb.steps(STEPS)
    assert [await next_turn(tb) for _ in others] == sorted(others)


@cocotb.test(**LIMIT)
async def by_priority(dut):
    """A channel of higher priority comes first, however late its command; in every 16th turn, the
    oldest command comes first."""
    tb = await ComputeWaitsTestbench(dut).start()
    priorities = [tb.random.randrange(64) for _ in range(CHANNELS)]
    await tb.prioritise(priorities)
    turns = 0
    for _ in range(2 * FAIR_TURN // CHANNELS + 3):
        waiting = await wait_all(tb, LAST)
        turns += 1
        while waiting:
            best = max(priorities[channel] for channel in waiting)
            fair = turns % FAIR_TURN == FAIR_TURN - 1
            expected = next(one for one in waiting if fair or priorities[one] == best)
            assert await next_turn(tb) == expected, (turns, waiting, priorities)
            waiting.remove(expected)
            turns += 1
        await tb.step(drop=tb.drop(*(await tb.answer()).over))


@cocotb.test(**LIMIT, skip=CHANNELS < 2)
async def never_passed_for_ever(dut):
    """The oldest method has its turn after at most 16 others, although it has the lowest priority
    and these ask again at once."""
    tb = await ComputeWaitsTestbench(dut).start()
    low = 0
    await tb.prioritise([0] + [63] * LAST)
    await wait_all(tb, LAST)
    tb.arrivals[low] = tb.time - CHANNELS
    for _ in range(FAIR_TURN + 1):
        (last,) = (await tb.answer()).over
        tb.receive(last)
        await tb.step(drop=tb.drop(last), ask=tb.ask(last))
        if (await tb.until_taken()).channel == low:
            break
    else:
        raise AssertionError("it waits forever")


@cocotb.test(**LIMIT)
async def results(dut):
    """The result of a method, complete or refused, is shown from the first cycle of `over` until
    the wait is dropped, if its channel was selected in the previous cycle."""
    tb = await ComputeWaitsTestbench(dut).start()
    answers: dict[int, Answer] = {}
    for throughout in (False, True):
        for channel in tb.random.sample(range(CHANNELS), CHANNELS):
            await tb.step(ask=tb.ask(channel))
            await tb.until_taken()
            answers[channel] = tb.random.choice((tb.refusal, tb.completion))()
            tb.select = channel if throughout else (channel + 1) % CHANNELS
            await tb.step()
            await tb.step(answer=answers[channel])
            tb.select = channel
            for _ in range(OVER - 1):
                assert channel not in (await tb.step()).over
            shown = await tb.step()
            assert channel in shown.over and shown.why == answers[channel].result
        for channel in range(CHANNELS):
            tb.select = channel
            await tb.step()
            assert (await tb.step()).why == answers[channel].result
        for channel in range(CHANNELS):
            await tb.step(drop=tb.drop(channel))
        assert not (await tb.step()).over


@cocotb.test(**LIMIT)
async def dropped(dut):
    """A wait dropped at any time never becomes over. Its method is completed if it had the turn;
    the channel's next method gets its own turn."""
    tb = await ComputeWaitsTestbench(dut).start()
    sweep = [(delay, pause) for delay in range(1, 16) for pause in (AGAIN, 3, 4, 5, 12)]
    for delay, pause in some(sweep, 8):
        _, old = ask = tb.ask(LAST)
        await tb.step(ask=ask)
        taken, number = [], 0
        while True:
            number += 1
            events: dict[str, Any] = {}
            if number == delay:
                events["drop"] = tb.drop(LAST)
            if number == delay + pause:
                events["ask"] = tb.ask(LAST)
            if tb.model.executes and number == taken[-1][0] + 5:
                events["answer"] = COMPLETE if taken[-1][1] != old else tb.refusal()
            tb.ready = number >= OFFERED + 2
            shown = await tb.step(**events)
            if shown.offer is not None and tb.ready:
                taken.append((number, shown.offer.method))
            if shown.over:
                break
            assert number < 60, "waits forever"
        assert not shown.refused and number == taken[-1][0] + 5 + OVER
        # `ask` counts a cycle late, and a choice takes `STEPS`: before that, no turn begins.
        completed = [old] if delay > STEPS else []
        assert [method for _, method in taken] == [*completed, tb.methods[LAST]], (delay, pause)
        await tb.step(drop=tb.drop(LAST))


@cocotb.test(**LIMIT)
async def full(dut):
    """A channel's method waits while the channel has 4,032 tasks; methods of other channels do not.
    Random behaviour near this limit equals that of the model."""
    tb = await ComputeWaitsTestbench(dut).start()
    await tb.launch(LAST, MOST_TASKS - 1)
    await tb.step(ask=tb.ask(LAST))
    assert (await tb.until_taken()).channel == LAST
    assert (await tb.answer()).over == {LAST}
    await tb.step(drop=tb.drop(LAST))
    await tb.launch(LAST, 1)
    await tb.step(ask=tb.ask(LAST))
    for other in range(LAST):
        await tb.step(ask=tb.ask(other))
        assert (await tb.until_taken()).channel == other
        assert (await tb.answer()).over == {other}
        await tb.step(drop=tb.drop(other))
    for _ in range(3 * OFFERED):
        shown = await tb.step()
        assert shown.offer is None and shown.busy == {LAST}
        assert shown.counts[LAST] == MOST_TASKS
    tb.end(tb.tasks[0], *GOOD)
    assert (await tb.until_taken()).channel == LAST
    await tb.answer()
    await tb.step(drop=tb.drop(LAST))
    met, rounds = tb.model.met, Rounds(10)
    while rounds.more(met["held"] > 10 and met["held no longer"] > 10, met):
        missing = MOST_TASKS - len(tb.tasks) - tb.ending
        await tb.launch(LAST, max(0, missing + tb.random.randint(-3, 3)))
        await some_time(tb, [LAST])


@cocotb.test(**LIMIT)
async def epochs(dut):
    """Tasks launched before the present epoch are outstanding until the last of them has ended;
    later ones do not count."""
    tb = await ComputeWaitsTestbench(dut).start()
    for epoch in (0, 1, 0):
        for channel in (0, LAST):
            await tb.step(ask=tb.ask(channel))
            offer = await tb.until_taken()
            assert offer.epoch == epoch
            tb.launched = Task(channel, epoch)
            await tb.step(began=tb.launched)
            assert not (await tb.answer()).before
            await tb.step(drop=tb.drop(channel))
        await tb.step(begins=True)
        assert (await tb.step()).before
        await tb.step(ask=tb.ask(0))
        later = await tb.until_taken()
        assert later.epoch == 1 - epoch
        tb.launched = Task(0, later.epoch)
        await tb.step(began=tb.launched)
        assert (await tb.answer()).before
        await tb.step(drop=tb.drop(0))
        for _ in range(2):
            assert (await tb.step()).before
            tb.end(tb.tasks[0], *GOOD)
            await tb.until(lambda: not tb.ending, "the end is heard")
            await tb.step()
        assert not (await tb.step()).before
        tb.end(tb.tasks[0], *GOOD)
        await tb.until(lambda: not tb.ending, "the end is heard")
        await tb.step()
        assert not (await tb.step()).tasks


@cocotb.test(**LIMIT)
async def epochs_of_methods(dut):
    """A method of the previous epoch is outstanding from its offer to its answer, and then its
    task, if it launches one: if the epoch could end meanwhile, the next one would get the tag of
    the task."""
    tb = await ComputeWaitsTestbench(dut).start()
    for epoch, launches in ((0, True), (1, True), (0, False)):
        tb.ready = False
        await tb.step(ask=tb.ask(LAST))
        await tb.steps(OFFERED)
        await tb.step(begins=True)
        for _ in range(5):
            assert (await tb.step()).before
        assert (await tb.until_taken()).epoch == epoch
        assert (await tb.step()).before
        if launches:
            tb.launched = Task(LAST, epoch)
            await tb.step(began=tb.launched)
        await tb.step(answer=COMPLETE)
        for _ in range(OVER - 1):
            assert (await tb.step()).before
        assert (await tb.step()).before == launches
        await tb.step(drop=tb.drop(LAST))
        if launches:
            assert (await tb.step()).before
            tb.end(tb.tasks[0], *GOOD)
            await tb.until(lambda: not tb.ending, "the end is heard")
            await tb.step()
        assert not (await tb.step()).before


@cocotb.test(**LIMIT)
async def failures(dut):
    """A failed task, with each cause, is shown until it is taken; no other end is accepted
    meanwhile."""
    tb = await ComputeWaitsTestbench(dut).start()
    tb.on = 1 << LAST
    for refusal in BAD:
        for patience in (0, 1, 9):
            await tb.launch(LAST, 2)
            tb.takes_failures = False
            tb.end(tb.tasks[0], refusal)
            tb.end(tb.tasks[0], *GOOD)
            await tb.until(lambda: tb.ending == 1, "the end is heard")
            shown = await tb.step()
            assert shown.ended == (LAST, True)
            for _ in range(patience):
                assert tb.ending == 1 and shown.failed is not None
                assert shown.failed.cause is Cause[f"TASK_{refusal.name}"]
                shown = await tb.step()
            tb.takes_failures = True
            assert (await tb.step()).failed is not None
            assert (await tb.step()).failed is None
            await tb.until(lambda: not tb.ending, "the next end is heard")
            await tb.steps(2)


@cocotb.test(**LIMIT)
async def killed(dut):
    """A task that was killed because its channel is disabled has ended, but not failed; for any
    other reason, it has failed (PREEMPT-7)."""
    tb = await ComputeWaitsTestbench(dut).start()
    tb.on = 0
    for refusal in BAD:
        await tb.launch(LAST, 1)
        tb.end(tb.tasks[0], refusal)
        await tb.until(lambda: not tb.ending, "the end is heard")
        shown = await tb.step()
        fails = refusal is not Refusal.KILLED
        assert shown.ended == (LAST, fails) and (shown.failed is not None) == fails
        await tb.steps(2)


MANY = CHANNELS > 16
"""Whether a choice takes two cycles."""

SITUATIONS = [
    "complete",
    "refused",
    "refused while selected",
    "unlaunched",
    "answer with a trap",
    "asks again",
    "asks behind its dropped method",
    "chosen after a drop",
    "dropped before its turn",
    "dropped before its offer",
    "dropped while offered",
    "dropped in execution",
    "dropped as it ends",
    "dropped complete",
    "dropped as it asks",
    "task with a trap",
    "task fails",
    "killed with its channel",
    "task ends as another begins",
    "failure waits",
    "epoch with tasks before it",
    "epoch with a method before it",
]

TOGETHER = ["chosen before others", "chosen before an older one", "chosen before a higher one"]
"""Situations with several channels."""


@cocotb.test(**LIMIT)
async def as_the_model(dut):
    """Random behaviour of all channels and of the engine equals the model in every cycle, until
    each situation was met many times."""
    tb = await ComputeWaitsTestbench(dut).start()
    met, goals = tb.model.met, [*SITUATIONS, *(TOGETHER if CHANNELS > 1 else ())]
    goals += ["dropped while it is chosen"] if MANY else []
    rounds = Rounds(40)
    while rounds.more(all(met[one] >= 10 for one in goals), met):
        count = min(CHANNELS, tb.random.choice((1, 2, CHANNELS)))
        await some_time(tb, tb.random.sample(range(CHANNELS), count))
    cocotb.log.info("met: %s", dict(met))


async def some_time(tb: ComputeWaitsTestbench, channels: list[int]) -> None:
    """Some hundred cycles of random behaviour of these channels and of the engine."""
    numbers = tb.random
    client = {"ask": numbers.choice((0.05, 0.3, 1.0)), "drop": numbers.choice((0.01, 0.3, 1.0))}
    client["cancel"] = numbers.choice((0.0, 0.02, 0.2))
    takes, takes_failures = numbers.choice((0.1, 0.5, 1.0)), numbers.choice((0.05, 0.5, 1.0))
    engine = {"answer": numbers.choice((0.1, 0.5, 1.0)), "end": numbers.choice((0.05, 0.3))}
    for _ in range(300):
        events: dict[str, Any] = {}
        if numbers.random() < 0.1:
            tb.receive(numbers.choice(channels))
        if numbers.random() < 0.05:
            events["setting"] = numbers.choice(channels), numbers.choice((0, 1, 63))
        act_as_client(tb, channels, events, **client)
        act_as_engine(tb, events, **engine)
        tb.ready = numbers.random() < takes
        tb.takes_failures = numbers.random() < takes_failures
        turn, near = tb.model.turn, numbers.random() < 0.7
        tb.select = turn.wait.channel if turn and near else numbers.randrange(CHANNELS)
        await tb.step(**events, begins=numbers.random() < 0.03)


def act_as_client(
    tb: ComputeWaitsTestbench,
    channels: list[int],
    events: dict[str, Any],
    ask: float,
    drop: float,
    cancel: float,
) -> None:
    """Channels ask, drop complete waits, and cancel others, with these probabilities."""
    numbers, waits = tb.random, tb.model.waits
    over = [channel for channel in channels if channel in waits and waits[channel].over]
    rest = [channel for channel in channels if channel in waits and not waits[channel].over]
    if over and numbers.random() < drop:
        events["drop"] = tb.drop(numbers.choice(over))
    elif rest and numbers.random() < cancel:
        events["drop"] = tb.drop(numbers.choice(rest))
    ready = [channel for channel in channels if tb.may_ask(channel)]
    if ready and numbers.random() < ask:
        events["ask"] = tb.ask(numbers.choice(ready))


def act_as_engine(
    tb: ComputeWaitsTestbench, events: dict[str, Any], answer: float, end: float
) -> None:
    """The engine launches tasks, answers, and ends tasks, with these probabilities."""
    numbers, turn = tb.random, tb.model.turn
    if tb.model.executes and numbers.random() < answer:
        if tb.launched is None and numbers.random() < 0.5:
            tb.launched = events["began"] = Task(turn.wait.channel, turn.epoch)
        else:
            trap = numbers.random() < 0.3
            unlaunched = tb.launched is not None and numbers.random() < 0.5
            good = tb.completion(trap=trap, unlaunched=unlaunched)
            bad = tb.refusal(trap=trap, unlaunched=unlaunched)
            events["answer"] = numbers.choice((good, bad))
    if tb.tasks and tb.ending < 4 and numbers.random() < end:
        task = numbers.choice(tb.tasks)
        tb.end(task, *numbers.choice((GOOD, BAD)))
        if not events.keys() & {"answer", "began"} and numbers.random() < 0.7:
            # Launched by a task that is about to end.
            events["began"] = task
            tb.tasks.append(task)
