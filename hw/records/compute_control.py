"""What software has to do with the compute engine, besides launches."""

from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import VA_BITS, Config
from signalbox.hw.errors import CoreCause

__all__ = ["MOST_LOG_SIZE", "ComputeControl", "list_area", "warp_fault"]

MOST_LOG_SIZE = 20
"""A list has room for 2^20 tasks at most."""


def list_area(config: Config) -> data.StructLayout:
    """Where the lists lie: from virtual address `base` << 12 of address space `asid` on. Each has
    room for 1 << `log_size` tasks; they follow each other by level, and by context."""
    return data.StructLayout({
        "asid": config.asid_bits,
        "base": VA_BITS - 12,
        "log_size": range(MOST_LOG_SIZE + 1),
    })


def warp_fault(config: Config) -> data.StructLayout:
    """A warp of kernel row `row`, of address space `asid`, cannot go on, on `sm`: see
    `hw.sm.port.core_fault`."""
    return data.StructLayout({
        "valid": 1,
        "row": config.row_bits,
        "cause": CoreCause,
        "at": VA_BITS,
        "va": VA_BITS,
        "asid": config.asid_bits,
        "sm": config.sm_bits,
    })


class ComputeControl(wiring.Signature):
    """The compute engine, seen from its registers.

    Members
    -------
    area : where the task lists lie. slice : cycles of a context while others wait.
    broken, mend : per context, it cannot run; strobe that lets it be tried again.
    active, context : a context runs; which, or the last one.
    idle : no task is held anywhere.
    lost, fault : strobes; a task was lost, a warp cannot go on.
    """

    def __init__(self, config: Config) -> None:
        super().__init__({
            "area": Out(list_area(config)),
            "slice": Out(32),
            "mend": Out(config.contexts),
            "broken": In(config.contexts),
            "active": In(1),
            "context": In(config.context_bits),
            "idle": In(1),
            "lost": In(1),
            "fault": In(warp_fault(config)),
        })
