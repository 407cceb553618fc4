"""Sizes for tests of the semaphore unit: every bus width, one or more engines, slots in distributed
and in block RAM."""

from signalbox.hw.config import CONFIGS, Config

__all__ = ["SIZES"]

SIZES = {
    "tiny": CONFIGS["tiny"],
    "default": CONFIGS["default"],
    "odd": Config(copy_engines=3, semaphores=67, counters=9, data_width=256, asids=3, trace=True),
    "large": CONFIGS["large"],
}
