"""The machine whose compute engine is measured: four SMs with cores that only take time."""

from signalbox.hw.config import Config
from signalbox.tb.sim.top import MEMORY_BYTES

__all__ = ["LOG_SIZE", "MACHINE", "MOST_TASKS"]

MOST_TASKS = 32
"""Channels, slots, and blocks that can be on SMs at once."""

LOG_SIZE = 7
"""Lists of 128 places: as many as there are rows are kept for tasks that come back."""

MACHINE = Config(
    channels=MOST_TASKS,
    semaphores=16,
    counters=4,
    contexts=16,
    slots=MOST_TASKS,
    sms=4,
    sm_shared=8192,
    timing_core=True,
    memory_bytes=MEMORY_BYTES,
    trace=True,
)
"""16 hardware warps and 8 block slots in each SM; TLBs of default size."""
