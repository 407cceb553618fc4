"""Interface of a channel to its streams, on a machine of this process or of a server."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager

from signalbox.driver.commands.pushbuffer import Pushbuffer
from signalbox.driver.compute.tasks import Tasks
from signalbox.driver.faults.channel_error import ChannelError
from signalbox.driver.memory.address_space import AddressSpace
from signalbox.driver.platform.fair_lock import FairLock
from signalbox.driver.platform.info import DeviceError
from signalbox.driver.platform.machine import Machine

__all__ = ["CommandChannel"]


class CommandChannel(ABC):
    """A channel: executes the commands of one address space in order.

    Several callers may submit. Submissions never interleave; they are served in order of arrival,
    even while there is no room.

    Members
    -------
    space : address space of all its accesses.
    index : number of the channel.
    closed : whether it takes no more submissions, as a call has begun to close it.
    failure : known error that halts it, or None.
    tasks : compute tasks that it has launched.
    kills : number of calls in progress that kill all its tasks. Meanwhile, killed tasks do not halt
        the channel, as if all were cancelled.
    """

    def __init__(self, machine: Machine, space: AddressSpace, index: int) -> None:
        self.machine, self.space, self.index = machine, space, index
        self.closed = False
        self.failure: ChannelError | None = None
        self.tasks = Tasks()
        self.kills = 0
        self._lock = FairLock(machine)

    @property
    def turn_cycles(self) -> int:
        """Cycles within which the channel gets a turn among the groups of a runlist; 0 with flat
        scheduling, or on a server's machine."""
        return 0

    # -- submission --------------------------------------------------------------------------------

    @property
    @abstractmethod
    def largest_segment(self) -> int:
        """Maximum number of dwords of one submission."""

    def turn(self) -> AbstractAsyncContextManager[None]:
        """Lock that the caller of `enqueue` must hold; granted in order of arrival."""
        return self._lock

    async def submit(self, commands: Pushbuffer | Sequence[int], *, sync: bool = False) -> None:
        """Submit a pushbuffer and ring the doorbell. Does nothing if it is empty. Otherwise as
        `enqueue`, within a `turn`."""
        dwords = commands.dwords if isinstance(commands, Pushbuffer) else list(commands)
        if not dwords:
            return
        async with self.turn():
            await self.enqueue(dwords, sync=sync)
        await self.ring_doorbell()

    @abstractmethod
    async def enqueue(self, dwords: Sequence[int], *, sync: bool = False) -> None:
        """Add a pushbuffer, within a `turn`. The machine sees it at the next doorbell at the
        latest. Waits for room.

        Parameters
        ----------
        sync : fetch the segment only after everything earlier has been executed (SYNC = WAIT).

        Raises `ChannelError` if there is no room and the channel is halted, `ValueError` for more
        dwords than `largest_segment`, `DeviceError` if the channel is closed.
        """

    def check_open(self) -> None:
        """Raise `DeviceError` if the channel is closed."""
        if self.closed:
            raise DeviceError(f"channel {self.index} is closed")

    @abstractmethod
    async def ring_doorbell(self) -> None:
        """Make the machine look for new commands."""

    @abstractmethod
    async def raise_priority(self, priority: int) -> None:
        """Raise the priority of the channel's compute methods to `priority`, that of a launch,
        unless it is already as high. It stays raised until the channel is closed. Raises
        `ValueError` for a priority out of range."""

    # -- progress and errors -----------------------------------------------------------------------

    @abstractmethod
    async def progress(self) -> int:
        """A number that keeps changing while the channel executes methods, or has copies or tasks
        running."""

    @abstractmethod
    async def executed(self) -> int:
        """Number of methods executed since the channel's start, modulo 2^32."""

    @abstractmethod
    async def waits_for(self) -> int:
        """Reason why its next method waits, a `hw.registers.Wait`."""

    @abstractmethod
    async def check(self) -> ChannelError | None:
        """The error that halts the channel, with the translation fault that caused it, if any; None
        if it is not halted. The end of a cancelled task is no error: the channel then continues."""

    @abstractmethod
    async def resume(self) -> None:
        """Retry the failed operation and resume the channel."""

    @abstractmethod
    async def skip(self) -> None:
        """Clear the error and continue after the failed operation; a held method becomes a NOP
        (spec 2.4)."""
