"""Conversion of PTIMER nanoseconds to machine cycles."""

from signalbox.driver.platform.control_port import ControlPort
from signalbox.driver.platform.info import DeviceInfo

__all__ = ["Clock"]


class Clock:
    """Converts PTIMER values to machine cycles, once calibrated."""

    def __init__(self, control: ControlPort, info: DeviceInfo) -> None:
        self._control = control
        self.cycle_ns = info.cycle_ns
        self._epoch = 0

    async def calibrate(self) -> None:
        """Find the machine cycle at which PTIMER was 0, to within one register access."""
        machine = self._control.machine
        before = machine.now()
        time = await self._control.time_ns()
        middle = (before + machine.now()) // 2
        self._epoch = middle - time // self.cycle_ns

    def cycle_of(self, time_ns: int) -> int:
        """Machine cycle (as `Machine.now`) at a PTIMER value in ns, such as that of an event."""
        return time_ns // self.cycle_ns + self._epoch
