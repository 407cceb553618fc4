"""Issue of work: the commands at the pointers on the queues go to the machine, in turn (SHARE-5,
SHARE-6)."""

import logging
from collections.abc import Callable, Mapping

from signalbox.driver.platform.machine import Machine
from signalbox.driver.protocol.errors import CommandsRefused, report
from signalbox.driver.protocol.messages import Halted, Taken
from signalbox.driver.server.application import Application, Peer, ServedChannel
from signalbox.driver.server.command_check import CommandError, checked_launches
from signalbox.driver.server.issue_policy import Pointer, policy
from signalbox.driver.server.journal import Kind, Note
from signalbox.driver.server.settings import ServerSettings

__all__ = ["Issue"]

LOG = logging.getLogger("signalbox.server")

_TURNS = 16
"""Turns over the queues between two polls of the machine."""


class Issue:
    """Serves the queues of the applications.

    Parameters
    ----------
    applications : present applications, by number.
    expel : ends the connection of a client, for a given reason.
    note : writes to the server's journal.

    Members
    -------
    pushed : whether a pointer has come since `serve` began.
    """

    def __init__(
        self,
        machine: Machine,
        settings: ServerSettings,
        applications: Mapping[int, Application],
        expel: Callable[[Peer, str], None],
        note: Note,
    ) -> None:
        self._machine, self._most = machine, settings.launches_each
        self._policy = policy(settings.policy)
        self._applications, self._expel, self._note = applications, expel, note
        self.pushed = False

    async def serve(self) -> None:
        """Serve the queues, turn by turn, until no pointer can be issued, or the machine must be
        polled again."""
        self.pushed = False
        stuck: set[int] = set()
        for _ in range(_TURNS):
            queues = [one for one in self._applications.values() if one.ready and not one.held]
            waiting = [one for one in queues if one.number not in stuck]
            if not waiting:
                return
            for one in self._policy.turn(waiting):
                assert isinstance(one, Application)
                if not await self._hand_on_safely(one):
                    stuck.add(one.number)

    async def _hand_on_safely(self, application: Application) -> bool:
        """See `_hand_on`. An unexpected error costs the application its connection, no more."""
        try:
            return await self._hand_on(application)
        except Exception as error:
            LOG.exception("%s: unexpected error", application)
            self._expel(application.peer, str(error))
            return False

    async def _hand_on(self, application: Application) -> bool:
        """Hand on the oldest pointer of an application that can be handed on. Returns whether there
        was one.

        Behind a pointer without room, or with more launches than there are places, later launches
        wait, too: earlier launches for which the pointer waits may need the places on the machine.
        So commands may wait for earlier submissions, but not for later launches.
        """
        blocked = False
        for served in application.heads():
            _, pointer = served.waiting[0]
            if served.channel.failure is not None:
                continue
            if not await served.channel.has_room(pointer.dwords):
                blocked = True
                continue
            if not served.waiting or served.waiting[0][1] is not pointer:
                continue  # the channel was closed meanwhile
            try:
                dwords, count = self._checked(served, pointer)
            except CommandError as error:
                self._refuse(application, served, str(error))
                return True
            if count and (blocked or application.tasks + count > self._most):
                blocked = True
                continue
            await self._submit(application, served, dwords, count)
            return True
        return False

    def _checked(self, served: ServedChannel, pointer: Pointer) -> tuple[list[int], int]:
        """The commands of a channel's oldest pointer and their number of launches: read and checked
        only once, however long they are held back. Raises `CommandError`."""
        if served.checked is None:
            dwords = self._commands(pointer)
            served.checked = dwords, self._launches(dwords)
        return served.checked

    def _launches(self, dwords: list[int]) -> int:
        """Check commands; returns the number of launches. Raises `CommandError`."""
        count, most = checked_launches(dwords), self._most
        if count > most:
            raise CommandError(f"{count} launches, more than the {most} of an application")
        return count

    async def _submit(
        self, application: Application, served: ServedChannel, dwords: list[int], count: int
    ) -> None:
        """Put the oldest pointer's commands, with `count` launches, on its channel's ring."""
        _, pointer = served.waiting.popleft()
        served.checked, served.running = None, True
        served.unseen += count
        application.issued += 1
        await served.channel.submit(dwords, sync=pointer.sync)
        self._taken(application, served)

    def _commands(self, pointer: Pointer) -> list[int]:
        """A copy of the commands at a pointer, which their owner can no longer change."""
        data = self._machine.memory_read(pointer.pa, 4 * pointer.dwords)
        return [int.from_bytes(data[at : at + 4], "little") for at in range(0, len(data), 4)]

    def _refuse(self, application: Application, served: ServedChannel, why: str) -> None:
        """Drop the oldest pointer of a channel, and tell its owner."""
        served.waiting.popleft()
        self._taken(application, served)
        index = served.channel.index
        error = report(CommandsRefused.of(index, why))
        application.tell(self._machine.now(), Halted(index, served.resumes, error))

    def _taken(self, application: Application, served: ServedChannel) -> None:
        served.taken += 1
        self._note(Kind.HANDED_ON, application, served.channel.index)
        application.tell(self._machine.now(), Taken(served.channel.index, served.taken))
