"""Configurations of the tests of this folder, by name."""

from hw.config import CONFIGS, Config

__all__ = ["LISTS", "METADATA", "TASKS"]

METADATA = {
    "tiny": CONFIGS["tiny"],
    "default": CONFIGS["default"],
    "large": Config(
        data_width=512, sm_warps=64, sm_registers=65536, sm_shared=228 * 1024, sm_blocks=32
    ),
}

LISTS = {
    "tiny": CONFIGS["tiny"],
    "default": CONFIGS["default"],
    "large": Config(data_width=512, contexts=16),
}

TASKS = {
    "tiny": CONFIGS["tiny"],
    "default": CONFIGS["default"],
}
