"""Configurations that random programs run on."""

from hw.config import Config

__all__ = ["SIZES"]

SIZES = {
    "default": Config(memory_bytes=1 << 21, trace=True),
    "two-engines": Config(memory_bytes=1 << 21, trace=True, copy_engines=2),
    "narrow": Config(
        memory_bytes=1 << 20,
        trace=True,
        channels=3,
        data_width=64,
        semaphores=16,
        copy_engines=2,
        prefetch_beats=8,
    ),
}
