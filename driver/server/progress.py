"""Progress of the applications, as far as the machine shows it."""

from signalbox.driver.platform.control_port import ControlPort
from signalbox.driver.protocol.errors import report
from signalbox.driver.protocol.messages import Halted, Notified
from signalbox.driver.server.application import Application, ServedChannel
from signalbox.driver.server.settings import ServerSettings
from signalbox.hw.registers import Wait

__all__ = ["Progress"]

_FOR_OTHERS = {Wait.ENGINE_ONLY, Wait.ALL_IDLE, Wait.TURN, Wait.COMPUTE}
"""Waits of a channel that end with work of other channels, or with its own."""

_FOR_ENGINE = {Wait.ENGINE, Wait.ENGINE_TIMED}
"""Waits for a copy engine, which others may hold, or for semaphores of an acquire group."""

_COUNTING_CYCLES = 4096
"""Minimum number of cycles between two reads of the counters of a busy channel."""


class Progress:
    """Observes the progress of applications on the machine, and reports it to them."""

    def __init__(self, control: ControlPort, settings: ServerSettings) -> None:
        self._control = control
        patience = settings.patience_cycles or 4 * _COUNTING_CYCLES
        self._counting = min(_COUNTING_CYCLES, patience // 4)

    async def inspect(self, application: Application, notified: int) -> None:
        """Read the progress of an application, and report it. `notified` : mask of channels with an
        interrupt."""
        heard = False
        for index, served in list(application.channels.items()):
            stopped = served.running and not await self._runs(application, served)
            heard |= stopped or bool(notified >> index & 1)
            self._tell_failure(application, served)
        self._see_work(application)
        if heard:
            application.tell(self._control.machine.now(), Notified())

    def _see_work(self, application: Application) -> None:
        """Note since when the application has work on the machine, or waits for a place on it."""
        cycle = self._control.machine.now()
        busy = application.copying or any(one.tasks for one in application.channels.values())
        application.busy_since = (application.busy_since or cycle) if busy else 0
        application.held = application.held if busy else 0
        if not (busy or application.refused or application.delayed):
            application.since = cycle

    async def _runs(self, application: Application, served: ServedChannel) -> bool:
        """Read the progress of a channel. Returns whether it may still execute something."""
        channel = served.channel
        state = await self._control.read_channel_fields(channel.index, "STATUS")
        served.tasks, served.copies = state["TASKS"], state["COPIES"]
        pending = state["PENDING"] or await channel.update() != channel.submitted
        if not pending:
            served.unseen = 0
        halted = state["HALTED"] and channel.failure is not None
        served.running = bool(state["ACTIVE"] or (pending and not halted))
        wait = Wait(state["WAIT"]) if served.running else Wait.NONE
        served.refused, served.delayed = wait in _FOR_OTHERS, wait in _FOR_ENGINE
        if not served.running or self._control.machine.now() - served.counted >= self._counting:
            await self._count(application, served)
        return served.running

    async def _count(self, application: Application, served: ServedChannel) -> None:
        """Read the numbers of tasks and copies of a channel that have ended."""
        control, index, cycle = self._control, served.channel.index, self._control.machine.now()
        served.counted = cycle
        ended = await control.read_channel(index, "TASKS")
        copied = await control.read_channel(index, "COPIES")
        if (ended, copied) != (served.ended, served.copied):
            served.ended, served.copied, application.since = ended, copied, cycle

    def _tell_failure(self, application: Application, served: ServedChannel) -> None:
        failure = served.channel.failure
        if failure is None:
            served.told = False
        elif not served.told:
            served.told = True
            index = served.channel.index
            application.tell(
                self._control.machine.now(), Halted(index, served.resumes, report(failure))
            )
