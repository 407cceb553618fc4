"""Interrupt service, and waiting for fences and other conditions."""

from collections.abc import Callable, Mapping, Sequence

from signalbox.driver.channel.channel import Channel
from signalbox.driver.channel.command_channel import CommandChannel
from signalbox.driver.compute.contexts import ContextBroken
from signalbox.driver.compute.engine import ComputeEngine
from signalbox.driver.faults.channel_error import ChannelError
from signalbox.driver.faults.fault_log import FaultLog
from signalbox.driver.memory.fence import Fence
from signalbox.driver.platform.control_port import ControlPort
from signalbox.driver.platform.info import DeviceInfo
from signalbox.driver.runtime.services import released
from signalbox.hw.registers import GLOBAL

__all__ = ["Completion"]

_HALTED_POLL_CYCLES = 1000
"""Cycles between two polls of the interrupt status while a channel stays halted."""

_HALTED_PATIENCE = 100
"""Polls without progress after which a wait fails with the error of another halted channel."""

_SERVED_ELSEWHERE_CYCLES = 4
"""Cycles between two checks while another coroutine serves the interrupt."""


class Completion:
    """Serves the interrupts of one device, and wakes waiting coroutines.

    Parameters
    ----------
    channels : open channels, by number.
    faults : log of translation faults.
    compute : compute engine, or None.
    """

    def __init__(
        self,
        control: ControlPort,
        info: DeviceInfo,
        channels: Mapping[int, Channel],
        faults: FaultLog,
        compute: ComputeEngine | None,
    ) -> None:
        self._control, self._machine, self._info = control, control.machine, info
        self._channels, self._faults, self._compute = channels, faults, compute
        self._serving = False
        self._errors_enabled: bool | None = None  # None: unknown

    # -- waiting -----------------------------------------------------------------------------------

    async def wait_fence(
        self, fence: Fence, value: int, channels: Sequence[CommandChannel]
    ) -> None:
        """Wait until `fence` is released with `value` or a later value.

        Raises the `ChannelError` of any of `channels`, on which the release depends; `DeviceError`
        if one of them is closed; otherwise as `wait_for`.
        """
        await self.wait_for(lambda: released(fence, value, channels), channels)

    async def wait_for(self, done: Callable[[], bool], channels: Sequence[CommandChannel]) -> None:
        """Wait until `done()`, which is evaluated after every interrupt, and when a channel closes.

        Raises the `ChannelError` of any of `channels`, and `ContextBroken` if their tasks cannot
        run. An error of another channel may block this wait for ever, for example through a
        semaphore; it is raised once `channels` have made no progress for 100,000 cycles. Lost fault
        records (`FaultBufferOverflow`, `FaultBufferError`) and lost tasks (`TaskListError`) are
        raised once, in the first wait that notices them.
        """
        patience, seen = _HALTED_PATIENCE, []
        for channel in list(self._channels.values()):
            await channel.ring_again()
        while not done():
            for channel in channels:
                if channel.failure is not None:
                    raise channel.failure
            self._tell(channels)
            elsewhere = self.first_failure()
            if self._serving:
                await self._machine.wait_cycles(_SERVED_ELSEWHERE_CYCLES)
            elif self._errors_enabled != (elsewhere is None):
                await self.enable(errors=elsewhere is None)
            elif elsewhere is None:
                await self._machine.interrupt()
                await self.serve()
            elif patience:
                before, seen = seen, [await channel.progress() for channel in channels]
                patience = _HALTED_PATIENCE if before != seen else patience - 1
                await self._machine.wait_cycles(_HALTED_POLL_CYCLES)
                await self.serve()
            else:
                raise elsewhere
        self._tell(())

    def _tell(self, channels: Sequence[CommandChannel]) -> None:
        """Raise errors for losses, once; and `ContextBroken` while tasks of `channels` cannot
        run."""
        self._faults.tell()
        if self._compute is None:
            return
        self._compute.tell()
        if broken := self._compute.broken([channel.space for channel in channels]):
            raise broken

    def first_failure(self) -> ChannelError | ContextBroken | None:
        """Known error that halts an open channel or its tasks, or None."""
        channels = self._channels.values()
        failures = (channel.failure for channel in channels)
        halted = next((failure for failure in failures if failure is not None), None)
        if halted is None and self._compute is not None:
            return self._compute.broken([channel.space for channel in channels])
        return halted

    # -- serving -----------------------------------------------------------------------------------

    async def serve(self) -> int:
        """Handle and clear pending interrupts, in one coroutine at a time. Returns the mask of
        channels with a notification or copy interrupt.

        The machine writes a fence before it raises the interrupt, and the driver reads it after
        clearing the interrupt, so no release is missed.
        """
        if self._serving:
            return 0
        self._serving = True
        try:
            pending, notified = GLOBAL["INTR"].unpack(await self._control.read("INTR")), 0
            for name in ("NOTIFY", "COPY"):
                if pending[name]:
                    mask = await self._mask(f"INTR_{name}")
                    await self._control.write64(f"INTR_{name}", mask)
                    notified |= mask
            halted = await self.halted() if pending["ERROR"] else 0
            if pending["FAULT"]:
                await self._faults.read()
            if pending["TASK"] and self._compute is not None:
                await self._compute.serve()
            for index, channel in list(self._channels.items()):
                if halted >> index & 1 and channel.failure is None:
                    await channel.check()
            return notified
        finally:
            self._serving = False

    # -- registers ---------------------------------------------------------------------------------

    async def enable(self, *, errors: bool = True) -> None:
        """Enable interrupts; error interrupts only if `errors`, because a halted channel or a
        broken context keeps the line at 1. In one coroutine at a time, as `serve`."""
        self._serving, self._errors_enabled = True, None
        wanted = {"ERROR": int(errors), "TASK": int(errors)}
        try:
            await self._control.write("INTR_ENABLE", NOTIFY=1, COPY=1, FAULT=1, **wanted)
            self._errors_enabled = errors
        finally:
            self._serving = False

    async def disable(self) -> None:
        """Disable all interrupts."""
        await self._control.write("INTR_ENABLE", 0)

    async def clear(self) -> None:
        """Clear the interrupts of all channels, except errors."""
        for name in ("INTR_NOTIFY", "INTR_COPY"):
            await self._control.write64(name, (1 << 64) - 1)

    async def halted(self) -> int:
        """Mask of halted channels."""
        return await self._mask("INTR_ERROR")

    async def _mask(self, name: str) -> int:
        """Read a mask of channels; the upper half only if there are such channels."""
        if self._info.channels > 32:
            return await self._control.read64(name)
        return await self._control.read(f"{name}_LO")
