"""Contexts of the applications: one for all of them, or one for each (SHARE-2, SHARE-11)."""

from signalbox.driver.compute.contexts import Context
from signalbox.driver.compute.engine import ComputeEngine, ComputeSettings
from signalbox.driver.device import Device
from signalbox.driver.platform.fair_lock import FairLock
from signalbox.driver.runtime.limits import Limit
from signalbox.driver.server.application import Application
from signalbox.driver.server.settings import ServerSettings
from signalbox.hw.qmd import Placement

__all__ = ["ServedContexts", "compute_settings"]

_LEAST_WAITING = 64

_LONGEST = (1 << 32) - 1


def compute_settings(settings: ServerSettings) -> ComputeSettings:
    """Settings of the compute engine, with room in a context for all tasks of its applications.
    Without `context_each`, only the server ends endless work (`driver.server.watchdog`)."""
    tasks = settings.launches_each * (1 if settings.context_each else settings.applications)
    waiting = max(_LEAST_WAITING, 1 << (tasks - 1).bit_length())
    if not settings.context_each:
        return ComputeSettings(waiting=waiting)
    return ComputeSettings(
        waiting=waiting,
        slice_cycles=settings.slice_cycles,
        timeout_cycles=min(settings.patience_cycles, _LONGEST),
        level=settings.level,
    )


class ServedContexts:
    """Provides contexts.

    Parameters
    ----------
    engine : compute engine of the machine; None without SMs: there are no contexts then.

    Members
    -------
    universal : the universal context, once there is one.
    """

    def __init__(
        self, device: Device, engine: ComputeEngine | None, settings: ServerSettings
    ) -> None:
        self._device, self._engine = device, engine
        self._each = settings.context_each
        self.universal: Context | None = None
        self._changes = FairLock(device.machine)

    async def provide(self, application: Application) -> None:
        """Give an application its context, unless it has one. The universal context is created for
        the first application. Raises `OutOfContexts`."""
        if self._engine is None or application.context is not None:
            return
        async with self._changes:
            if application.context is not None:
                return
            if self._device.info.nested_kernels:
                await self._engine.limit_children(self._device.limit(Limit.PENDING_LAUNCHES))
            contexts = self._engine.contexts
            if self._each:
                application.context = await contexts.create(str(application))
                return
            if self.universal is None:
                self.universal = await contexts.create("universal", wanted=Placement.DEEP)
            application.context = self.universal

    async def withdraw(self, application: Application) -> None:
        """Take back the context of an application without address spaces. Raises
        `ContextError`."""
        context = application.context
        if self._engine is not None and context is not None and context is not self.universal:
            await self._engine.contexts.end(context)
        application.context = None
