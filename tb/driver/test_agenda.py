"""Order of submission of a workload's work."""

import asyncio
from functools import partial
from random import Random

from signalbox.driver.workload.agenda import Action, Agenda
from signalbox.driver.workload.reader import parse
from signalbox.tb.driver.test_kernel_workload import kernel, play


class Work:
    """Work that takes time, represented by the event after it. `begun` : cycle of its submission;
    -1 before."""

    def __init__(self, world: "World", length: int) -> None:
        self._world, self.begun, self.length = world, -1, length

    @property
    def recorded(self) -> bool:
        return self.begun >= 0

    @property
    def cycle(self) -> int:
        assert self.query()
        return self.begun + self.length

    def query(self) -> bool:
        return self.recorded and self._world.now >= self.begun + self.length


class World:
    """Time, and actions in order of execution."""

    def __init__(self) -> None:
        self.now = 0
        self.order: list[str] = []

    async def wait_until(self, cycle: int) -> None:
        self.now = max(self.now, cycle)

    async def act(self, name: str, work: Work | None) -> None:
        self.order.append(name)
        if work is not None:
            work.begun = self.now
        self.now += 3

    def action(self, name: str, at: int, length: int = 0, **more) -> Action:
        work = Work(self, length) if more.get("stream") else None
        return Action(at=at, act=partial(self.act, name, work), done=work, **more)

    def run(self, *actions: Action) -> None:
        asyncio.run(Agenda(actions, self.wait_until, lambda: self.now).run())


def begun(action: Action) -> int:
    assert isinstance(action.done, Work)
    return action.done.begun


def test_times_then_order() -> None:
    """Actions are carried out at their times; those with equal times in the given order."""
    world = World()
    first, second = (world.action(name, 50, stream=name) for name in "ab")
    world.run(world.action("d", 200), first, second, world.action("c", 10))
    assert world.order == ["c", "a", "b", "d"]
    assert begun(first) == 50 and begun(second) == 53


def test_later() -> None:
    """An action that is not possible yet is tried again; others keep their times meanwhile."""
    world = World()

    async def possible() -> bool:
        await world.act("try", None)
        return world.now >= 150

    b, c = (world.action(name, at, stream=name) for name, at in (("b", 105), ("c", 200)))
    world.run(Action(at=100, act=possible), b, c)
    assert world.order == ["try", "b", "try", "try", "try", "c"]
    assert begun(b) == 105 and begun(c) == 200


def test_delay() -> None:
    """A delay counts from the end of the stream's work. Later work of the stream keeps its place;
    work of other streams continues."""
    world = World()
    a = world.action("a", 0, 1000, stream="s")
    b = world.action("b", 10, 5, stream="s", delay=300)
    c = world.action("c", 20, stream="s")
    d = world.action("d", 600, stream="t")
    world.run(a, b, c, d)
    assert world.order == ["a", "d", "b", "c"]
    assert begun(b) == 1300 and begun(d) == 600 and begun(c) == 1303


def test_delay_of_the_first() -> None:
    """A delay has no effect without earlier work of the stream, or if that work ended long ago."""
    world = World()
    a, b = (world.action(name, 500 * n, 10, stream="s", delay=40) for n, name in enumerate("ab", 1))
    world.run(a, b)
    assert begun(a) == 500 and begun(b) == 1000


def test_needs() -> None:
    """Work that needs other work is submitted after it, however late that is."""
    world = World()
    a = world.action("a", 0, 400, stream="s")
    b = world.action("b", 0, stream="s", delay=100)
    assert b.done is not None
    c = world.action("c", 0, stream="t", needs=[b.done])
    world.run(a, b, c, world.action("d", 450))
    assert world.order == ["a", "d", "b", "c"] and begun(b) == 500


def test_random_order() -> None:
    """Every action is carried out once and not too early; actions of a stream are in order."""
    numbers = Random(5)
    for _ in range(50):
        world = World()
        actions: list[Action] = []
        for number in range(12):
            needs = [one.done for one in numbers.sample(actions, min(len(actions), 2)) if one.done]
            delay = numbers.choice((None, 0, 70))
            actions.append(
                world.action(
                    str(number),
                    10 * number,
                    numbers.choice((1, 30, 500)),
                    stream=numbers.choice("stu"),
                    delay=delay,
                    needs=needs,
                )
            )
        world.run(*actions)
        assert sorted(world.order, key=int) == [str(number) for number in range(12)]
        last: dict[str, Work] = {}
        for action in actions:
            assert isinstance(action.done, Work)
            earliest = action.at
            if action.stream in last:
                assert action.done.begun > last[action.stream].begun
                if action.delay is not None:
                    earliest = max(earliest, last[action.stream].cycle + action.delay)
            assert action.done.begun >= earliest
            assert all(
                one.begun < action.done.begun for one in action.needs if isinstance(one, Work)
            )
            last[action.stream] = action.done


def test_delayed_kernels() -> None:
    """A kernel with a delay is submitted at least that long after the end of the previous one."""
    head = "[machine]\ntiming_core = true\n[[stream]]\nname = 's'\n"
    text = kernel("a", "timing", 2, 32, {"CYCLES": 5})
    text += kernel("b", "timing", 2, 32, {"CYCLES": 5}, delay=700, count=2)
    a, *others = play(parse(head + text)).kernels
    for earlier, later in zip((a, others[0]), others, strict=True):
        assert later.submitted >= earlier.completed + 700
