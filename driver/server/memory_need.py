"""Memory that a server needs, computed before its machine is built."""

import asyncio
from bisect import bisect_left
from dataclasses import replace

from signalbox.driver.channel.priority_policy import NoPriorityPolicy
from signalbox.driver.channel.settings import ChannelSettings
from signalbox.driver.memory.physical import OutOfMemory
from signalbox.driver.platform.control_port import ControlPort
from signalbox.driver.platform.info import DeviceInfo
from signalbox.driver.runtime.own_machine import OwnMachine
from signalbox.driver.server.contexts import compute_settings
from signalbox.driver.server.memory_portions import Pool
from signalbox.driver.server.settings import ServerSettings
from signalbox.hw.config import LIMITS, Config
from signalbox.hw.registers import GLOBAL

__all__ = ["least_memory"]

_PAGE = 4096


class _Unbuilt:
    """A machine of which only the build parameters can be read. Writes have no effect."""

    def __init__(self, config: Config) -> None:
        self._registers = {one.offset: one.initial(config) or 0 for one in GLOBAL.registers}

    async def read32(self, offset: int) -> int:
        """See `Machine.read32`."""
        return self._registers[offset]

    async def write32(self, offset: int, value: int) -> None:
        """See `Machine.write32`."""

    async def interrupt(self) -> None:
        """See `Machine.interrupt`."""

    def wake(self) -> None:
        """See `Machine.wake`."""

    async def wait_cycles(self, cycles: int) -> None:
        """See `Machine.wait_cycles`."""

    def memory_read(self, address: int, size: int) -> bytes:
        """See `Machine.memory_read`."""
        return bytes(size)

    def memory_write(self, address: int, data: bytes) -> None:
        """See `Machine.memory_write`."""

    def now(self) -> int:
        """See `Machine.now`."""
        return 0


def least_memory(config: Config, settings: ServerSettings) -> int:
    """Least `Config.memory_bytes` with room for the server and one application, which has
    `settings.memory_each`; that of `config` does not matter. Raises as `OwnMachine`."""
    machine = _Unbuilt(config)
    info = asyncio.run(DeviceInfo.read(ControlPort(machine)))
    parts = NoPriorityPolicy(1), ChannelSettings(), compute_settings(settings)

    def suffices(pages: int) -> bool:
        size = replace(info, memory_bytes=pages * _PAGE)
        try:
            owner = OwnMachine(machine, size, *parts, settings.scheduling)
            Pool(owner.services.memory, settings).take(0, "one application")
        except OutOfMemory:
            return False
        return True

    return bisect_left(range(LIMITS["memory_bytes"].high // _PAGE), True, key=suffices) * _PAGE
