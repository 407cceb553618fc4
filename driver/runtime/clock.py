"""The machine's cycles and PTIMER's nanoseconds, related."""

from signalbox.driver.platform.control_port import Control
from signalbox.driver.platform.info import DeviceInfo

__all__ = ["Clock"]


class Clock:
    """Converts PTIMER values to cycles of the machine, once calibrated."""

    def __init__(self, control: Control, info: DeviceInfo) -> None:
        self._control = control
        self.cycle_ns = info.cycle_ns
        self._epoch = 0

    async def calibrate(self) -> None:
        """Find the machine's cycle at which PTIMER was 0, to within one register access."""
        machine = self._control.machine
        before = machine.now()
        time = await self._control.time_ns()
        middle = (before + machine.now()) // 2
        self._epoch = middle - time // self.cycle_ns

    def cycle_of(self, time_ns: int) -> int:
        """The machine's cycle (`Machine.now`) at a PTIMER value, such as an event's."""
        return time_ns // self.cycle_ns + self._epoch
