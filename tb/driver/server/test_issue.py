"""Issue of work with random arrivals, lack of room and failures: nothing is lost, doubled or
overtaken, and the policies hold (SHARE-5, SHARE-6)."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import count
from random import Random
from typing import Any

import pytest

from signalbox.driver.channel.channel import Channel
from signalbox.driver.commands.pushbuffer import Pushbuffer
from signalbox.driver.server.application import Application, ServedChannel
from signalbox.driver.server.issue import Issue
from signalbox.driver.server.issue_policy import Pointer, Policy
from signalbox.driver.server.settings import ServerSettings
from signalbox.hw.methods import ComputeMethod, HostMethod
from signalbox.tb.simulation.runner import choose_seed

ROUNDS = 80
TURNS = 16
"""Least turns over the queues per call."""

MOST = 3
"""Tasks of an application on the machine."""


class Memory:
    """The machine, as far as `Issue` uses it: commands in memory, by address."""

    def __init__(self) -> None:
        self._commands: dict[int, bytes] = {}
        self._next = count(0, 1 << 16)

    def write(self, dwords: Sequence[int]) -> int:
        """Write commands. Returns their address."""
        at = next(self._next)
        self._commands[at] = b"".join(dword.to_bytes(4, "little") for dword in dwords)
        return at

    def memory_read(self, address: int, size: int) -> bytes:
        assert len(self._commands[address]) == size
        return self._commands[address]

    def now(self) -> int:
        return 0


class Ring:
    """A channel with room for some dwords; reports submissions."""

    def __init__(self, index: int, submitted: Callable[["Ring", int], None]) -> None:
        self.index, self.room, self._submitted = index, 0, submitted
        self.failure: object = None

    async def has_room(self, dwords: int) -> bool:
        return dwords <= self.room

    async def submit(self, dwords: Sequence[int], *, sync: bool) -> None:
        self.room -= len(dwords)
        assert self.room >= 0 and self.failure is None
        self._submitted(self, dwords[1])


class Silent:
    """A client that does not listen."""

    def send(self, message: bytes) -> None:
        assert message


class Scene:
    """Applications with channels, and an `Issue` that serves them.

    Members
    -------
    pushed, handed : serial numbers of commands, by channel, in order.
    log : applications in the order in which their commands were handed on, in the last call.
    running : tasks on the machine, by channel.
    """

    def __init__(self, numbers: Random, name: Policy) -> None:
        self._numbers, self._memory, self._serial = numbers, Memory(), count()
        self.rings: dict[int, Ring] = {}
        self.owner: dict[int, Application] = {}
        self.pushed: dict[int, list[int]] = {}
        self.handed: dict[int, list[int]] = {}
        self.launches: set[int] = set()
        self.log: list[int] = []
        self.running = Counter[int]()
        self.applications = {n: self._application(n) for n in range(numbers.randint(1, 5))}
        settings = ServerSettings(policy=name, launches_each=MOST)
        machine: Any = self._memory
        self.issue = Issue(machine, settings, self.applications, self._expel, lambda *_: None)

    def _application(self, number: int) -> Application:
        peer: Any = Silent()
        portion: Any = _Portion()
        one = Application(number, "any", 1, peer, portion)
        one.weight, one.priority = self._numbers.randint(1, 3), self._numbers.randint(0, 1)
        for _ in range(self._numbers.randint(1, 3)):
            index = len(self.rings)
            ring: Any = Ring(index, self._submitted)
            channel: Channel = ring
            self.rings[index], self.owner[index] = ring, one
            self.pushed[index], self.handed[index] = [], []
            one.channels[index] = ServedChannel(channel)
        return one

    def _expel(self, peer: object, why: str) -> None:
        raise AssertionError(why)

    def _submitted(self, ring: Ring, serial: int) -> None:
        """A command is handed on. Launches overtake no command that could go but for lack of
        room."""
        self.handed[ring.index].append(serial)
        if serial in self.launches:
            others = [one for one in self.owner[ring.index].channels if not self.rings[one].failure]
            heads = [self.pushed[one][len(self.handed[one]) :][:1] for one in others]
            assert all(head[0] > serial for head in heads if head)
        self.log.append(self.owner[ring.index].number)
        self.running[ring.index] += serial in self.launches

    def served(self, index: int) -> ServedChannel:
        """The channel, as the server knows it."""
        return self.owner[index].channels[index]

    def push(self, index: int) -> None:
        """Push a command with a number of its own, in one case of three a launch."""
        serial = next(self._serial)
        commands = Pushbuffer().non_inc(0, HostMethod.NOP, serial)
        if self._numbers.random() < 0.3:
            commands.inc(1, ComputeMethod.SEND_SIGNALING_PCAS_B, 3)
            self.launches.add(serial)
        self.pushed[index].append(serial)
        at = self._memory.write(commands.dwords)
        self.owner[index].push(Pointer(index, at, len(commands.dwords)))

    def happen(self, *, free: float, fail: float) -> None:
        """Rings get room, channels fail and are resumed, tasks end, and the server is told."""
        numbers = self._numbers
        for index, ring in self.rings.items():
            if numbers.random() < free:
                ring.room = 40
            ring.failure = "failed" if numbers.random() < fail else None
            while self.running[index] and numbers.random() < free:
                self.running[index] -= 1
            served = self.served(index)
            served.tasks, served.unseen = self.running[index], 0

    def serve(self) -> None:
        """Serve the queues once."""
        self.log.clear()
        asyncio.run(self.issue.serve())

    def check(self) -> None:
        """Commands of each channel were handed on in order, and no application has too many
        tasks."""
        for index, pushed in self.pushed.items():
            handed = self.handed[index]
            assert handed == pushed[: len(handed)], f"channel {index}"
            assert len(self.served(index).waiting) == len(pushed) - len(handed)
        for one in self.applications.values():
            assert sum(self.running[index] for index in one.channels) <= MOST

    def left(self) -> int:
        """Number of commands that are not handed on yet."""
        return sum(one.queued for one in self.applications.values())

    def able(self) -> list[int]:
        """Channels whose oldest command the machine could take."""
        return [
            index
            for index, ring in self.rings.items()
            if len(self.handed[index]) < len(self.pushed[index])
            and ring.failure is None
            and ring.room >= self.served(index).waiting[0][1].dwords
            and self.pushed[index][len(self.handed[index])] not in self.launches
        ]


class _Portion:
    """Memory of an application without any."""

    def __init__(self) -> None:
        self.memory = self
        self.machine = None


def fair(scene: Scene, name: Policy) -> None:
    """In the last call, whoever was served later was never behind by more than a turn."""
    for number, last in {number: at for at, number in enumerate(scene.log)}.items():
        mine = scene.applications[number]
        before = Counter(scene.log[:last])
        for other, served in before.items():
            theirs = scene.applications[other]
            if name is Policy.PRIORITY and mine.priority != theirs.priority:
                # An application of lower priority comes after all of this one's.
                assert theirs.priority > mine.priority, scene.log
                continue
            weighted = name is Policy.WEIGHTED
            weight, its = (mine.weight, theirs.weight) if weighted else (1, 1)
            assert served <= (before[number] // weight + 1) * its, scene.log


@pytest.mark.parametrize("name", Policy)
@pytest.mark.parametrize("number", range(10))
def test_random_work(name: Policy, number: int):
    seed = choose_seed()
    print(f"SIGNALBOX_SEED={seed}")
    scene = Scene(numbers := Random(f"{seed} {number}"), name)
    rate, free, fail = (
        numbers.choice((0.2, 1)),
        numbers.choice((0.1, 0.5)),
        numbers.choice((0, 0.2)),
    )
    for _ in range(ROUNDS):
        for index in scene.rings:
            for _ in range(numbers.choice((1, 1, 8))):
                if numbers.random() < rate:
                    scene.push(index)
        scene.happen(free=free, fail=fail)
        scene.serve()
        scene.check()
        fair(scene, name)
        # Each turn hands something on, or finds that an application cannot go on. If there were
        # turns to spare, nothing is left that could go.
        spare = TURNS - len(scene.log) - len(scene.applications)
        assert spare <= 0 or not scene.able()
    while scene.left():
        scene.happen(free=1, fail=0)
        scene.serve()
        assert scene.log, "work is left, but none was handed on"
        scene.check()
        fair(scene, name)
    assert scene.handed == scene.pushed
    assert sum(map(len, scene.handed.values())) > 20
