"""Records of nested launches (NEST-10 … NEST-15)."""

from amaranth.lib import data

from signalbox.hw.config import Config

__all__ = ["block_families", "block_family", "kernel_kin"]


def kernel_kin(config: Config) -> data.StructLayout:
    """Number `kernel` of a kernel in the kernel tree, once it is `known` there: it is a child, or
    has launched one."""
    return data.StructLayout({"known": 1, "kernel": config.nested_bits})


def block_family(config: Config) -> data.StructLayout:
    """Number `family` of the children of a block in the kernel tree, once it is `related`: it has
    launched one."""
    return data.StructLayout({"related": 1, "family": config.nested_bits})


def block_families(config: Config) -> data.ArrayLayout:
    """`block_family` of each block slot of an SM."""
    return data.ArrayLayout(block_family(config), config.sm_blocks)
