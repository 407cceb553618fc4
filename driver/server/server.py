"""The server: a queue per application, work handed on in turn (SHARE-2 … SHARE-9).

    server = await Server.open(machine, settings, spawn=asyncio.create_task)
    await server.run()

The server runs on any machine and any event loop. Connections put received messages into `inbox`,
and `run` carries them out. Nothing that a client sends, or does not send, makes the server wait:
calls that take time run as separate coroutines. Simulated time passes while something is in
progress, and stands still otherwise.
"""

import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

from signalbox.driver.channel.priority_policy import NoPriorityPolicy
from signalbox.driver.channel.settings import ChannelSettings
from signalbox.driver.device import Device
from signalbox.driver.platform.info import DeviceError
from signalbox.driver.platform.machine import Machine
from signalbox.driver.protocol.errors import refusal
from signalbox.driver.protocol.messages import (
    MOST_CALLS,
    PROTOCOL,
    Answer,
    Call,
    Done,
    Hello,
    Leave,
    MessageError,
    Refused,
    Report,
    Result,
    Status,
    Welcome,
    decode_call,
    encode,
)
from signalbox.driver.runtime.own_machine import STREAM_PRIORITIES, OwnMachine
from signalbox.driver.server.application import Application, Peer
from signalbox.driver.server.calls import Calls
from signalbox.driver.server.contexts import ServedContexts, compute_settings
from signalbox.driver.server.issue import Issue
from signalbox.driver.server.journal import Journal, Kind
from signalbox.driver.server.memory_portions import Pool
from signalbox.driver.server.progress import Progress
from signalbox.driver.server.settings import ServerSettings
from signalbox.driver.server.sm_use import SmUse
from signalbox.driver.server.status import status
from signalbox.driver.server.watchdog import intervene
from signalbox.driver.text_table import counted
from signalbox.hw.registers import KillScope

__all__ = ["Inbox", "Lost", "Received", "Server", "Stop"]

LOG = logging.getLogger("signalbox.server")

POLL_CYCLES = 64
"""Cycles between two polls of the machine and the inbox while something is in progress."""

_CHANNELS = ChannelSettings(ring_entries=64, pushbuffer_bytes=1 << 13)
"""Settings of channels: the system memory of an application has room for several."""

_MOST_CALLS = 2 * MOST_CALLS
"""Maximum number of calls of an application in progress; one that makes more is ended. The server
adds calls of its own."""

_STOP_TRIES = 10
"""Attempts to stop the channels of an application that has gone."""


@dataclass(frozen=True)
class Received:
    """A message of a client."""

    peer: Peer
    data: bytes


@dataclass(frozen=True)
class Lost:
    """A connection has ended, whatever the reason."""

    peer: Peer
    why: str


@dataclass(frozen=True)
class Stop:
    """Request to end the server."""


class Inbox(Protocol):
    """Queue of messages received on all connections."""

    def take(self) -> list[Received | Lost | Stop]:
        """Everything since the last call."""
        ...

    async def wait(self) -> None:
        """Wait until the inbox is not empty, while nothing is in progress."""
        ...


class Server:
    """One machine and its applications. Created by `open`.

    Members
    -------
    inbox : inbox of all connections.
    applications : present applications, by number.
    contexts : contexts of the applications.
    served : number of applications so far.
    visited : whether any client has asked to become an application.
    sm_use : use of the SMs.
    """

    def __init__(
        self,
        owner: OwnMachine,
        settings: ServerSettings,
        inbox: Inbox,
        spawn: Callable[[Coroutine[Any, Any, None]], object],
        journal: Journal | None = None,
    ) -> None:
        self.owner, self.device, self.settings = owner, Device(owner), settings
        self.inbox, self._spawn = inbox, spawn
        self.applications: dict[int, Application] = {}
        self._ended = False
        self.served, self.visited = 0, False
        self._pool = Pool(self.device.memory, settings)
        self._by_peer: dict[Peer, Application] = {}
        self._expelled: set[Peer] = set()
        self._journal = journal
        parts = self.device.machine, settings, self.applications, self._expel, self._note
        self._issue, self._progress = Issue(*parts), Progress(owner.control, settings)
        calls = self.applications, self._owed, self._note
        self._calls = Calls(self.device, owner, settings, *calls)
        self.contexts = ServedContexts(self.device, owner.compute, settings)
        self.sm_use = SmUse(owner.control, self.device.info.sms)
        self._asking: list[tuple[Peer, int]] = []
        """Status calls to be answered."""
        self._running = self._looks = 0

    @classmethod
    async def open(
        cls,
        machine: Machine,
        settings: ServerSettings,
        inbox: Inbox,
        spawn: Callable[[Coroutine[Any, Any, None]], object],
        journal: Journal | None = None,
    ) -> Self:
        """Open the machine. Raises as `Device.open`, and as `ServerSettings.check`.

        Parameters
        ----------
        spawn : runs a coroutine beside the others, on the event loop of the machine.
        journal : written while the server runs.
        """
        compute = compute_settings(settings)
        owner = await OwnMachine.open(
            machine,
            NoPriorityPolicy(1, stream_priorities=STREAM_PRIORITIES),
            _CHANNELS,
            compute,
            settings.scheduling,
        )
        settings.check(owner.services.info)
        return cls(owner, settings, inbox, spawn, journal)

    @property
    def cycle(self) -> int:
        """Current machine cycle."""
        return self.device.machine.now()

    def _note(self, kind: Kind, application: Application, channel: int = -1) -> None:
        """Handle an application event, and record it in the journal, if there is one."""
        self._issue.pushed |= kind is Kind.PUSHED
        if self._journal is not None:
            self._journal.note(kind, application, channel)

    # -- main loop ---------------------------------------------------------------------------------

    async def run(self, *, until_left: bool = False) -> None:
        """Serve until a `Stop` comes; then end the applications. `until_left` : also stop once
        there has been at least one application, or a request to become one, and none is left."""
        while not self._ended:
            if self._idle and not (until_left and self._deserted):
                await self.inbox.wait()
            self._take_in()
            await self._tell_status()
            if until_left and self._deserted:
                break
            await self._issue.serve()
            await self.device.machine.wait_cycles(POLL_CYCLES)
            await self._look()
        for application in list(self.applications.values()):
            application.peer.close()
            await self._end(application, "the server ends")
        while self._running:
            await self.device.machine.wait_cycles(POLL_CYCLES)

    def _take_in(self) -> None:
        """Accept the items of the inbox."""
        for item in self.inbox.take():
            self._accept(item)

    @property
    def _deserted(self) -> bool:
        """Whether no applications are left, except those that cannot be stopped."""
        left = any(not one.lost for one in self.applications.values())
        return self.visited and not left and not self._running

    @property
    def _idle(self) -> bool:
        busy = any(one.busy or one.ready for one in self.applications.values())
        return not (busy or self._running or self._asking)

    def _accept(self, item: Received | Lost | Stop) -> None:
        if isinstance(item, Stop):
            self._ended = True
            return
        if isinstance(item, Lost):
            self._expelled.discard(item.peer)
            application = self._by_peer.pop(item.peer, None)
            if application is not None:
                self._start(self._end(application, item.why))
            return
        application = self._by_peer.get(item.peer)
        if item.peer in self._expelled:
            return
        try:
            call = decode_call(item.data)
        except MessageError as error:
            self._expel(item.peer, str(error))
            return
        if isinstance(call.request, Status):
            self._asking.append((item.peer, call.number))
        elif application is None:
            self._first(item.peer, call)
        elif application.leaving:
            why = f"{type(call.request).__name__}: {application} is leaving"
            application.answer(call.number, self.cycle, Refused("ServerError", why))
        elif isinstance(call.request, Leave):
            self._start(self._leave(application, call))
        elif application.calls >= _MOST_CALLS:
            self._expel(item.peer, f"{application} has {_MOST_CALLS} calls in progress")
        else:
            application.calls += 1
            self._start(self._carry_out(application, call))

    async def _tell_status(self) -> None:
        """Answer all Status calls that have come, with one look at the machine."""
        asking, self._asking = self._asking, []
        if asking:
            await self.sm_use.look()
            result = Report(status(self))
            for peer, number in asking:
                peer.send(encode(Answer(number, self.cycle, result)))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine concurrently; simulated time passes until it has ended."""

        async def counted() -> None:
            try:
                await work
            except Exception:  # the server continues, whatever happens to one of its clients
                LOG.exception("unexpected error")
            finally:
                self._running -= 1

        self._running += 1
        self._spawn(counted())

    def _expel(self, peer: Peer, why: str) -> None:
        """End the connection of a client that breaks the rules."""
        LOG.warning("connection ended: %s", why)
        application = self._by_peer.get(peer)
        peer.close()
        if application is not None:
            self._expelled.add(peer)
            self._start(self._end(application, why))

    # -- applications ------------------------------------------------------------------------------

    def _first(self, peer: Peer, call: Call) -> None:
        """Carry out a call of a connection that is not an application's yet. Does not wait: no
        other message of the connection, nor its end, is handled before this call is done."""
        match call.request:
            case Hello():
                self.visited = True
                result = self._welcome(peer, call.request)
            case _:
                name = type(call.request).__name__
                result = Refused("ServerError", f"{name} came before Hello, the first call")
        peer.send(encode(Answer(call.number, self.cycle, result)))

    def _welcome(self, peer: Peer, hello: Hello) -> Result:
        """Make the client of a connection an application."""
        if hello.version != PROTOCOL:
            return Refused(
                "ServerError", f"the server speaks version {PROTOCOL}, not {hello.version}"
            )
        try:
            application = self._enter(peer, hello)
        except Exception as error:  # the sender is told of any error
            return refusal(error)
        memory = application.portion.memory
        LOG.info("%s has come", application)
        return Welcome(
            client=application.number,
            info=replace(self.device.info, semaphores=0, counters=0),
            base=memory.address,
            size=memory.room,
            channels=self.settings.channels_each,
            queue=self.settings.queue_each,
            dwords=_CHANNELS.largest_segment,
            levels=1 - application.limits.greatest,
            depth=self.settings.depth,
            streams=self.settings.streams_each,
            priority=application.limits.priority,
            sms=[*application.limits.sms],
            shared=not self.settings.context_each,
            epoch=self.device.clock.epoch,
        )

    def _enter(self, peer: Peer, hello: Hello) -> Application:
        """A new application, with its memory. Raises `DeviceError`, `OutOfMemory`, `ValueError`,
        `OSError`."""
        self._admit()
        portion = self._pool.take(hello.memory, hello.name)
        application = Application(self.served, hello.name, hello.process, peer, portion)
        try:
            peer.share(portion.memory.address, portion.memory.room)
        except OSError:
            self._pool.give(portion)
            raise
        self.served += 1
        application.since = self.cycle
        application.weight = self.settings.weights.get(hello.name, 1)
        application.priority = self.settings.priorities.get(hello.name, 0)
        application.group = self.settings.group(hello.name)
        application.limits = self.settings.limits(hello.name)
        self.applications[application.number] = self._by_peer[peer] = application
        self._note(Kind.CAME, application)
        return application

    def _admit(self) -> None:
        """Raise `DeviceError` if no further application can come."""
        if len(self.applications) >= self.most:
            raise DeviceError(f"the server has {counted(self.most, 'application')}, and no more")

    @property
    def most(self) -> int:
        """Maximum number of applications at a time: each needs a channel and an ASID, and with
        `context_each` a context."""
        info = self.device.info
        most = min(self.settings.applications, info.channels, max(1, info.asids - 1))
        if self.owner.compute is not None and self.settings.context_each:
            return min(most, info.contexts)
        return most

    def _owed(self) -> int:
        """Number of channels kept for applications that have none, or have not come yet."""
        return self.most - sum(bool(one.channels) for one in self.applications.values())

    @property
    def free_bytes(self) -> int:
        """Bytes of memory not given to any application."""
        return self.device.memory.free_bytes

    async def _carry_out(self, application: Application, call: Call) -> None:
        try:
            await self.contexts.provide(application)
            result = await self._result(application, call)
        except Exception as error:
            result = refusal(error)
            if result.kind == "ServerError":
                LOG.warning("%s: %s", application, result.message)
        finally:
            application.calls -= 1
        application.answer(call.number, self.cycle, result)

    async def _result(self, application: Application, call: Call) -> Result:
        match call.request:
            case Hello():
                return Refused("ServerError", f"Hello came again: this is {application} already")
            case _:
                return await self._calls.carry_out(application, call.request)

    async def _leave(self, application: Application, call: Call) -> None:
        assert isinstance(call.request, Leave)
        application.leaving = True
        if call.request.drain:
            channels = application.channels
            while application.queued or any(c.running for c in channels.values()):
                if application.ending or any(c.channel.failure for c in channels.values()):
                    break
                await self.device.machine.wait_cycles(POLL_CYCLES)
        await self._end(application, "it left")
        application.answer(call.number, self.cycle, Done())

    async def _end(self, application: Application, why: str) -> None:
        """End all work of an application (SHARE-8). Work that cannot be stopped keeps its
        memory."""
        if application.ending:
            return
        application.leaving = application.ending = True
        for one in application.channels.values():
            self._calls.drop(application, one)
        while application.calls:
            await self.device.machine.wait_cycles(POLL_CYCLES)
        for attempt in range(_STOP_TRIES):
            try:
                await self._close(application)
                break
            except Exception as error:  # ChannelActive in most cases
                LOG.warning("%s: attempt %d: %s", application, attempt, error)
        else:
            application.lost = True
            LOG.error("%s cannot be stopped: its memory stays reserved", application)
            return
        del self.applications[application.number]
        self._pool.give(application.portion)
        self._note(Kind.GONE, application)
        LOG.info("%s has gone: %s", application, why)

    async def _close(self, application: Application) -> None:
        """Close channels and spaces, then end the client's access to its memory. Raises
        `ChannelActive`, `ContextError`, `OSError`; a failed call can be repeated."""
        await self._kill(application)
        for index in list(application.channels):
            await self._calls.close(application, index)
        for number, space in list(application.spaces.items()):
            await self.device.close_space(space)
            del application.spaces[number]
        await self.contexts.withdraw(application)
        memory = application.portion.memory
        application.peer.withdraw(memory.address, memory.room)

    async def _kill(self, application: Application) -> None:
        """Kill all tasks of an application."""
        compute = self.owner.compute
        for space in list(application.spaces.values()):
            if compute is not None and space.asid is not None and self.owner.spaces.users(space):
                await compute.kill(KillScope.SPACE, asid=space.asid)

    # -- progress ----------------------------------------------------------------------------------

    async def _look(self) -> None:
        """Serve interrupts, and report progress to the applications."""
        notified = 0
        try:
            notified = await self.owner.completion.serve()
        except Exception:  # an error of the machine, not of one application: logged once
            LOG.exception("interrupt not served")
        # The last one inspected finds most places free, so they take turns in being first.
        order = list(self.applications.values())
        self._looks += 1
        first = self._looks % max(1, len(order))
        for application in [*order[first:], *order[:first]]:
            try:
                await self._progress.inspect(application, notified)
            except Exception as error:
                LOG.exception("%s: unexpected error", application)
                self._expel(application.peer, str(error))
            self._take_in()
            if self._issue.pushed:
                await self._issue.serve()
        if self.sm_use.due:
            await self.sm_use.read()
        self._watch()

    def _watch(self) -> None:
        """End endless work (`intervene`), except of applications whose work is already being ended:
        their ASIDs may soon belong to others."""
        every = self.applications.values()
        there = [one for one in every if one.lost or not one.ending]
        found = intervene(there, self.cycle, self.settings)
        if found is None:
            return
        LOG.warning("%s: its work is ended, others have waited for too long", found)
        if found.copying:
            self._expel(found.peer, "a copy without an end")
        else:
            self._start(self._kill_tasks(found))

    async def _kill_tasks(self, application: Application) -> None:
        """Kill the tasks of an application, which continues."""
        application.calls += 1
        try:
            async with application.changes:
                await self._kill(application)
        finally:
            application.calls -= 1
