"""Records of nested launches (NEST-10 … NEST-15)."""

from amaranth.lib import data

from signalbox.hw.config import Config

__all__ = ["block_families", "block_family", "kernel_kin"]


def kernel_kin(config: Config) -> data.StructLayout:
    """Node of a kernel in the kernel tree. `known`: it has one, as it is a child or has launched
    one. `kernel`: number of the node."""
    return data.StructLayout({"known": 1, "kernel": config.nested_bits})


def block_family(config: Config) -> data.StructLayout:
    """Family of a block: its children in the kernel tree. `related`: it has one, as it has launched
    a child. `family`: number of the family."""
    return data.StructLayout({"related": 1, "family": config.nested_bits})


def block_families(config: Config) -> data.ArrayLayout:
    """`block_family` of each block slot of an SM."""
    return data.ArrayLayout(block_family(config), config.sm_blocks)
