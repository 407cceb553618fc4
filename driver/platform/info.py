"""Build parameters of a machine, read from its registers."""

from dataclasses import dataclass

from signalbox.driver.platform.control_port import ControlPort
from signalbox.hw.registers import ID, VERSION

__all__ = ["DeviceError", "DeviceInfo"]


class DeviceError(Exception):
    """The driver does not support the machine, or the machine cannot be used as requested."""


@dataclass(frozen=True)
class DeviceInfo:
    """Build parameters of a machine; `hw.config.Config` describes them."""

    version: tuple[int, int]
    channels: int
    copy_engines: int
    semaphores: int
    counters: int
    data_width: int
    address_width: int
    memory_bytes: int
    asids: int
    cycle_ns: int
    window: int
    prefetch_beats: int
    l1_entries: int
    l2_entries: int
    l2_ways: int
    walks: int
    contexts: int
    slots: int
    spare_rows: int
    save_places: int
    save_place_bytes: int
    nested_kernels: int
    runlist_entries: int
    queues: int
    sms: int
    sm_warps: int
    sm_blocks: int
    sm_registers: int
    sm_shared: int
    masked_sms: int
    lanes: int

    @property
    def compute(self) -> bool:
        """Whether the machine has a compute engine."""
        return self.sms > 0

    @classmethod
    async def read(cls, control: ControlPort) -> "DeviceInfo":
        """Read identity, version and parameters.

        Raises `DeviceError` if the machine is not a Signalbox, or has a register map that this
        driver does not support.
        """
        found = await control.read("ID")
        if found != ID:
            raise DeviceError(f"no Signalbox here: ID is {found:#010x}, not {ID:#010x}")
        word = await control.read("VERSION")
        version = word >> 16, word & 0xFFFF
        if version[0] != VERSION[0] or version < VERSION:
            raise DeviceError(
                f"the machine has version {version[0]}.{version[1]} of the register map, "
                f"this driver needs {VERSION[0]}.{VERSION[1]}"
            )
        return cls(
            version=version,
            channels=await control.read("CHANNELS"),
            copy_engines=await control.read("COPY_ENGINES"),
            semaphores=await control.read("SEMAPHORES"),
            counters=await control.read("COUNTERS"),
            data_width=await control.read("DATA_WIDTH"),
            address_width=await control.read("ADDRESS_WIDTH"),
            memory_bytes=await control.read64("MEMORY_BYTES"),
            asids=await control.read("ASIDS"),
            cycle_ns=await control.read("CYCLE_NS"),
            window=await control.read64("SEM_WINDOW"),
            prefetch_beats=await control.read("PREFETCH_BEATS"),
            l1_entries=await control.read("L1_ENTRIES"),
            l2_entries=await control.read("L2_ENTRIES"),
            l2_ways=await control.read("L2_WAYS"),
            walks=await control.read("WALKS"),
            contexts=await control.read("CONTEXTS"),
            slots=await control.read("SLOTS"),
            spare_rows=await control.read("SPARE_ROWS"),
            save_places=(places := await control.read("SAVE_PLACES")),
            save_place_bytes=await control.read("SAVE_PLACE_BYTES") if places else 0,
            nested_kernels=await control.read("NESTED_KERNELS") if places else 0,
            runlist_entries=await control.read("RUNLIST_ENTRIES"),
            queues=await control.read("QUEUES"),
            sms=await control.read("SMS"),
            sm_warps=await control.read("SM_WARPS"),
            sm_blocks=await control.read("SM_BLOCKS"),
            sm_registers=await control.read("SM_REGISTERS"),
            sm_shared=await control.read("SM_SHARED"),
            masked_sms=await control.read("MASKED_SMS"),
            lanes=await control.read("LANES"),
        )
