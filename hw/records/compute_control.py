"""Software interface of the compute engine, apart from launches."""

from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import VA_BITS, Config
from signalbox.hw.errors import CoreCause
from signalbox.hw.records.launch import task_refused
from signalbox.hw.records.placement import INDEX_BITS, coordinates
from signalbox.hw.registers import GLOBAL, KillScope

__all__ = [
    "MOST_LOG_SIZE",
    "ComputeControl",
    "kill_request",
    "list_area",
    "warp_fault",
]

MOST_LOG_SIZE = 20
"""Log2 of the largest list capacity: 2^20 tasks."""


def list_area(config: Config) -> data.StructLayout:
    """Memory of the task lists: starts at virtual address `base` << 12 of address space `asid`.
    Each list has room for 1 << `log_size` tasks; lists are ordered by context, then level."""
    return data.StructLayout({
        "asid": config.asid_bits,
        "base": VA_BITS - 12,
        "log_size": range(MOST_LOG_SIZE + 1),
    })


def warp_fault(config: Config) -> data.StructLayout:
    """Strobe: warp number `index` of block `block` of kernel row `row`, address space `asid`,
    faulted on SM `sm`. See `hw.sm.port.core_fault`."""
    return data.StructLayout({
        "valid": 1,
        "row": config.row_bits,
        "index": INDEX_BITS,
        "block": coordinates,
        "cause": CoreCause,
        "at": VA_BITS,
        "va": VA_BITS,
        "asid": config.asid_bits,
        "sm": config.sm_bits,
    })


def kill_request(config: Config) -> data.StructLayout:
    """A request to end tasks early. `scope` selects the tasks: all of `context`, all of address
    space `asid`, or the one with its record at virtual address `page` << 8 of `asid`."""
    return data.StructLayout({
        "scope": KillScope,
        "context": 4,
        "asid": 10,
        "page": 32,
    })


class ComputeControl(wiring.Signature):
    """Register interface of the compute engine, seen from the registers.

    Members
    -------
    area : out, a `list_area`: memory of the task lists.
    slice : out, 32 bits: time slice of a context in cycles, while others wait.
    timeout : out, 32 bits: cycles in which a leaving context ends its blocks; 0: no limit.
    mend : out, strobe per context: allow a broken context to run again.
    broken : in, per context: the context cannot run.
    starting : in, a context is being bound, even if its tasks have been killed.
    active : in, a context is running.
    context : in, `context_bits` bits: the running context, or the last one.
    child_limit : out, 12 bits: maximum number of incomplete children; 0: no limit.
    kill : out, stream of `kill_request`: tasks to be ended; accepted when they have ended.
    idle : in, the engine holds no task.
    lost : in, strobe: a task was lost.
    fault : in, strobe, a `warp_fault`: a warp faulted.
    refused : in, strobe, a `task_refused`: a kernel's launch of this task was refused.
    """

    def __init__(self, config: Config) -> None:
        super().__init__({
            "area": Out(list_area(config)),
            "slice": Out(32),
            "timeout": Out(32),
            "mend": Out(config.contexts),
            "kill": Out(stream.Signature(kill_request(config))),
            "broken": In(config.contexts),
            "starting": In(1),
            "active": In(1),
            "context": In(config.context_bits),
            "idle": In(1),
            "lost": In(1),
            "fault": In(warp_fault(config)),
            "child_limit": Out(GLOBAL["CHILD_LIMIT"].field("COUNT").width),
            "refused": In(task_refused),
        })
