"""Access to a machine's registers by name, through its control port."""

from collections.abc import Mapping

from signalbox.driver.platform.machine import Machine
from signalbox.driver.platform.whole import whole
from signalbox.hw.registers import (
    CHANNEL,
    GLOBAL,
    Register,
    address,
    channel_address,
    context_address,
    semaphore_address,
)

__all__ = ["ControlPort"]


def _word(register: Register, value: int, fields: Mapping[str, int]) -> int:
    """Word to write. Raises `TypeError` for fractions."""
    name = register.name
    if not fields:
        return whole(value, name)
    return register.pack(**{field: whole(one, f"{name}.{field}") for field, one in fields.items()})


class ControlPort:
    """Control port of one machine. Register and field names are those of `hw.registers`. Writes
    raise `TypeError` for fractions."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    async def read(self, name: str) -> int:
        """Value of a global register."""
        return await self.machine.read32(address(name))

    async def read_fields(self, name: str) -> dict[str, int]:
        """Fields of a global register."""
        return GLOBAL[name].unpack(await self.read(name))

    async def write(self, name: str, value: int = 0, **fields: int) -> None:
        """Write a global register with `value`, or with `fields` packed by name."""
        await self.machine.write32(address(name), _word(GLOBAL[name], value, fields))

    async def read64(self, name: str) -> int:
        """64-bit value of the global registers `name`_LO and `name`_HI."""
        low = await self.read(f"{name}_LO")
        return await self.read(f"{name}_HI") << 32 | low

    async def write64(self, name: str, value: int) -> None:
        """Write the global registers `name`_LO and `name`_HI, skipping a half that is 0.

        Meant for masks whose bits are cleared by writing 1.
        """
        for suffix, half in (("LO", value & 0xFFFF_FFFF), ("HI", value >> 32)):
            if half:
                await self.write(f"{name}_{suffix}", half)

    async def time_ns(self) -> int:
        """Current PTIMER value, in ns."""
        while True:
            high = await self.read("TIME_1")
            low = await self.read("TIME_0")
            if await self.read("TIME_1") == high:
                return high << 32 | low

    async def read_channel(self, channel: int, name: str) -> int:
        """Value of a channel's register."""
        return await self.machine.read32(channel_address(channel, name))

    async def read_channel_fields(self, channel: int, name: str) -> dict[str, int]:
        """Fields of a channel's register."""
        return CHANNEL[name].unpack(await self.read_channel(channel, name))

    async def write_channel(self, channel: int, name: str, value: int = 0, **fields: int) -> None:
        """Write a channel's register with `value`, or with `fields` packed by name."""
        word = _word(CHANNEL[name], value, fields)
        await self.machine.write32(channel_address(channel, name), word)

    async def write_context(self, context: int, name: str, value: int) -> None:
        """Write a context's register."""
        await self.machine.write32(context_address(context, name), whole(value, name))

    async def read_semaphore(self, slot: int) -> int:
        """64-bit payload of an on-chip semaphore."""
        low = await self.machine.read32(semaphore_address(slot, "PAYLOAD_LO"))
        return await self.machine.read32(semaphore_address(slot, "PAYLOAD_HI")) << 32 | low

    async def write_semaphore(self, slot: int, value: int) -> None:
        """Write the 64-bit payload of an on-chip semaphore, high half first."""
        await self.machine.write32(semaphore_address(slot, "PAYLOAD_HI"), value >> 32)
        await self.machine.write32(semaphore_address(slot, "PAYLOAD_LO"), value & 0xFFFF_FFFF)
