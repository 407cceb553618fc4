"""One application: its memory, address spaces, channels and queue (SHARE-3)."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from signalbox.driver.channel.channel import Channel
from signalbox.driver.channel.interleave import GroupSettings
from signalbox.driver.compute.contexts import Context
from signalbox.driver.compute.tasks import Tasks
from signalbox.driver.faults.task_error import TaskError
from signalbox.driver.memory.address_space import AddressSpace
from signalbox.driver.platform.fair_lock import FairLock
from signalbox.driver.platform.info import DeviceError
from signalbox.driver.protocol.errors import report
from signalbox.driver.protocol.messages import Answer, Event, Failed, News, Result, encode
from signalbox.driver.server.issue_policy import Pointer
from signalbox.driver.server.memory_portions import Portion
from signalbox.driver.server.settings import OwnLimits

__all__ = ["Application", "Peer", "ServedChannel"]


class Peer(Protocol):
    """The server's end of a connection to one client. No method waits."""

    def send(self, message: bytes) -> None:
        """Send a message; nothing happens once the connection has ended."""
        ...

    def share(self, address: int, size: int) -> None:
        """Give the client access to a range of the machine's memory, zero from now on. Raises
        `OSError`."""
        ...

    def withdraw(self, address: int, size: int) -> None:
        """End the access, and clear the range. Raises `OSError`."""
        ...

    def close(self) -> None:
        """End the connection."""
        ...


class _ReportedTasks(Tasks):
    """Tasks of an application's channel. The client keeps track of them; it is told of failures."""

    def __init__(self, tell: Callable[[TaskError], None]) -> None:
        super().__init__()
        self._tell = tell

    def failed(self, error: TaskError) -> None:
        """See `Tasks.failed`."""
        self._tell(error)


@dataclass(eq=False)
class ServedChannel:
    """A channel of an application, and the pointers queued for it.

    Members
    -------
    waiting : pointers on the queue, oldest first, each with its place in the application's order.
    checked : commands of the oldest pointer and their number of launches, once they are checked.
    taken : number of pointers that the server has read.
    running : whether the machine may still execute something.
    refused : whether its next command waits for a place that others may hold.
    delayed : whether it waits for a copy engine that others may hold, or for semaphores.
    tasks : number of tasks in progress, when last read.
    unseen : number of tasks of pointers that may not have been launched when `tasks` was read.
    copies : number of copies in progress, when last read.
    ended, copied : numbers of tasks and copies that had ended when last read, in cycle `counted`.
    told : whether the client knows of the channel's failure.
    resumes : number of calls that have resumed it.
    """

    channel: Channel
    waiting: deque[tuple[int, Pointer]] = field(default_factory=deque)
    checked: tuple[list[int], int] | None = None
    taken: int = 0
    running: bool = True
    refused: bool = False
    delayed: bool = False
    tasks: int = 0
    unseen: int = 0
    copies: int = 0
    ended: int = 0
    copied: int = 0
    counted: int = 0
    told: bool = False
    resumes: int = 0


class Application:
    """A client of the server, from its `Hello` until nothing of it is left.

    Members
    -------
    number : its number, unique.
    name : name given by the client.
    process : its process id.
    peer : its connection.
    portion : its memory.
    spaces : its address spaces, by its numbers.
    channels : its channels, by the machine's numbers.
    weight, priority : for the issue policy.
    limits : limits of its launches.
    group : settings of its time-slice groups, if there is a runlist.
    calls : number of calls in progress.
    issued : number of pointers handed to the machine.
    since : machine cycle of the last end of one of its tasks or copies, or the cycle from which it
        has been busy, `refused` or `delayed` without a break, if that is later.
    busy_since : machine cycle since which it has had tasks or copies without a break; 0: it has
        none.
    held : machine cycle since which it is held back: none of its pointers is issued until it has no
        tasks and copies, or no application waits for it any more; 0: it is not held back.
    waits : machine cycle in which others were last held back or ended for it, and its patience
        started again; it still waits for them as long as `since` has this value.
    leaving : whether no more calls are accepted.
    ending : whether its work is being ended, or has ended.
    lost : whether it has gone but could not be stopped.
    context : context of its tasks, from its first call on.
    changes : held by calls that change spaces and channels.
    """

    def __init__(self, number: int, name: str, process: int, peer: Peer, portion: Portion) -> None:
        self.number, self.name, self.process, self.peer = number, name, process, peer
        self.portion = portion
        self.changes = FairLock(portion.memory.memory.machine)
        self.spaces: dict[int, AddressSpace] = {}
        self.channels: dict[int, ServedChannel] = {}
        self.weight, self.priority, self.group = 1, 0, GroupSettings()
        self.limits = OwnLimits()
        self.calls = self.since = self.busy_since = self.held = self.waits = self.issued = 0
        self.leaving = self.ending = self.lost = False
        self.context: Context | None = None
        self._arrived = 0

    def __str__(self) -> str:
        return f"application {self.number} {self.name!r} (process {self.process})"

    # -- messages ----------------------------------------------------------------------------------

    def answer(self, number: int, cycle: int, result: Result) -> None:
        """Answer a call."""
        self.peer.send(encode(Answer(number, cycle, result)))

    def tell(self, cycle: int, event: Event) -> None:
        """Send news."""
        self.peer.send(encode(News(cycle, event)))

    def reported(self, index: int, now: Callable[[], int]) -> Tasks:
        """Tasks of one of its channels."""
        return _ReportedTasks(lambda error: self.tell(now(), Failed(index, report(error))))

    # -- what it owns ------------------------------------------------------------------------------

    def space(self, number: int) -> AddressSpace:
        """One of its spaces. Raises `DeviceError`."""
        if number not in self.spaces:
            raise DeviceError(f"{self} has no address space {number}")
        return self.spaces[number]

    def channel(self, index: int) -> ServedChannel:
        """One of its channels. Raises `DeviceError`."""
        if index not in self.channels:
            raise DeviceError(f"{self} has no channel {index}")
        return self.channels[index]

    def owns(self, address: int, size: int) -> bool:
        """Whether a range of physical memory is its own."""
        memory = self.portion.memory
        return memory.address <= address and address + size <= memory.address + memory.room

    # -- queue -------------------------------------------------------------------------------------

    @property
    def queued(self) -> int:
        """Number of pointers on its queue."""
        return sum(len(one.waiting) for one in self.channels.values())

    @property
    def tasks(self) -> int:
        """Upper bound of the number of tasks in progress that the host has launched."""
        channels = self.channels.values()
        unseen = sum(one.unseen for one in channels if one.channel.failure is None)
        return unseen + sum(one.tasks for one in channels)

    @property
    def ready(self) -> bool:
        """Whether a pointer on its queue is for a channel that is not halted."""
        channels = self.channels.values()
        return any(one.waiting and one.channel.failure is None for one in channels)

    @property
    def refused(self) -> bool:
        """Whether one of its channels waits for a place that others may hold."""
        return any(one.refused for one in self.channels.values())

    @property
    def delayed(self) -> bool:
        """Whether one of its channels waits for a copy engine, or for semaphores."""
        return any(one.delayed for one in self.channels.values())

    @property
    def copying(self) -> bool:
        """Whether one of its channels has copies in progress."""
        return any(one.copies for one in self.channels.values())

    @property
    def busy(self) -> bool:
        """Whether simulated time must pass for it."""
        return bool(self.calls) or any(one.running for one in self.channels.values())

    def push(self, pointer: Pointer) -> None:
        """Put a pointer on the queue."""
        self.channel(pointer.channel).waiting.append((self._arrived, pointer))
        self._arrived += 1

    def heads(self) -> list[ServedChannel]:
        """Channels with work, in the order of their oldest pointers."""
        waiting = [one for one in self.channels.values() if one.waiting]
        return sorted(waiting, key=lambda one: one.waiting[0][0])
