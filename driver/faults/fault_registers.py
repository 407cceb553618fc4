"""Registers of the fault buffer (spec 6.4): the `FaultPointers` of a machine."""

from signalbox.driver.faults.fault_buffer import FaultBufferError
from signalbox.driver.memory.physical import Buffer
from signalbox.driver.platform.control_port import ControlPort
from signalbox.hw.page_tables import FAULT_RECORD_BYTES

__all__ = ["FaultRegisters"]

_POLL_CYCLES = 8
"""Cycles between two polls while a record is written."""

_PATIENCE_CYCLES = 200_000
"""Cycles after which the write of a record counts as hung."""


class FaultRegisters:
    """Location, size, pointers and status of the fault buffer. Implements `FaultPointers`."""

    def __init__(self, control: ControlPort) -> None:
        self._control = control

    async def enable(self, buffer: Buffer) -> None:
        """Record faults in `buffer`, whole pages of physical memory, starting empty. Raises as
        `disable`."""
        await self.disable()
        await self._control.write("FAULT_BUFFER_LO", buffer.address & 0xFFFF_FFFF)
        await self._control.write("FAULT_BUFFER_HI", buffer.address >> 32)
        await self._control.write("FAULT_GET", 0)
        records = buffer.size // FAULT_RECORD_BYTES
        await self._control.write("FAULT_SIZE", RECORDS=records, ENABLE=1)

    async def disable(self) -> None:
        """Stop recording and clear the interrupt. Waits for a record that is being written, which
        is lost; afterwards the buffer's memory is no longer written.

        Raises `FaultBufferError` if the write of that record does not end.
        """
        await self._control.write("FAULT_SIZE", 0)
        waited = 0
        while (await self._control.read_fields("FAULT_SIZE"))["ENABLE"]:
            if waited >= _PATIENCE_CYCLES:
                raise FaultBufferError(f"a fault record has not ended for {waited} cycles")
            await self._control.machine.wait_cycles(_POLL_CYCLES)
            waited += _POLL_CYCLES
        await self._control.write("FAULT_STATUS", FAULT=1, OVERFLOW=1, BUS=1)

    async def acknowledge(self) -> bool:
        """Clear the interrupt, except for an overflow; later records raise it again. Returns
        whether a record could not be written."""
        status = await self._control.read_fields("FAULT_STATUS")
        if status["FAULT"] or status["BUS"]:
            await self._control.write("FAULT_STATUS", FAULT=status["FAULT"], BUS=status["BUS"])
        return bool(status["BUS"])

    async def get(self) -> int:
        """See `FaultPointers.get`."""
        return (await self._control.read_fields("FAULT_GET"))["RECORD"]

    async def put(self) -> int:
        """See `FaultPointers.put`."""
        return (await self._control.read_fields("FAULT_PUT"))["RECORD"]

    async def set_get(self, index: int) -> None:
        """See `FaultPointers.set_get`."""
        await self._control.write("FAULT_GET", RECORD=index)

    async def overflowed(self) -> bool:
        """See `FaultPointers.overflowed`."""
        return bool((await self._control.read_fields("FAULT_STATUS"))["OVERFLOW"])

    async def clear_overflow(self) -> None:
        """See `FaultPointers.clear_overflow`."""
        await self._control.write("FAULT_STATUS", OVERFLOW=1)
