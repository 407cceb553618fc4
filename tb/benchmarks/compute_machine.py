"""The machines for benchmarks of the compute engine: four SMs with timing cores."""

from dataclasses import replace

from signalbox.hw.config import Config
from signalbox.tb.simulation.top import MEMORY_BYTES

__all__ = ["LOG_SIZE", "MACHINE", "MOST_TASKS", "PAIR", "SAVE_AREA", "SAVING"]

MOST_TASKS = 32
"""Number of channels, of slots, and of blocks that fit on the SMs."""

LOG_SIZE = 7
"""log2 of the 128 places of a list. Of these, one per row is reserved for a returning task."""

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
"""Machine with 16 hardware warps and 8 block slots per SM, and with TLBs of the default size."""

PAIR = replace(MACHINE, sms=2)
"""The same machine with two SMs."""

SAVING = replace(MACHINE, save_places=2 * MACHINE.sms * MACHINE.sm_blocks)
"""The same machine with preemption of blocks, and with save places for all blocks of two
contexts."""

SAVE_AREA = SAVING.save_places * SAVING.place_bytes
"""Bytes of memory for the saved blocks of `SAVING`."""
