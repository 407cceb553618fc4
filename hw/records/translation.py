"""Ports for binds, invalidations and the fault buffer."""

from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import PA_BITS, VA_BITS, Config
from signalbox.hw.page_tables import FaultRecord
from signalbox.hw.registers import MmuOperation

__all__ = ["FaultPort", "MmuPort", "fault_status", "mmu_command"]


def mmu_command(config: Config) -> data.StructLayout:
    """A bind or an invalidation. `page` is a virtual address, `base` a page directory base, `limit`
    the last virtual address, all >> 12; `asid` and `base` are as wide as the registers.

    `by_base`: invalidate all address spaces with page directory `base` instead of `asid` (MEM_OP
    has no ASIDs).
    """
    return data.StructLayout({
        "operation": MmuOperation,
        "asid": 10,
        "by_base": 1,
        "page": VA_BITS - 12,
        "base": PA_BITS - 12,
        "limit": VA_BITS - 12,
    })


fault_status = data.StructLayout({"fault": 1, "overflow": 1, "bus": 1})
"""Fields of FAULT_STATUS."""


class MmuPort(wiring.Signature):
    """Binds and invalidations, seen from the requester: one outstanding command.

    Members
    -------
    command : out, stream of `mmu_command`: binds and invalidations.
    done : in, strobe: the command is complete and older translations are no longer used; or it was
        `refused`, without effect.
    """

    def __init__(self, config: Config) -> None:
        super().__init__({
            "command": Out(stream.Signature(mmu_command(config))),
            "done": In(data.StructLayout({"valid": 1, "refused": 1})),
        })


class FaultPort(wiring.Signature):
    """The fault buffer, seen from its registers; members are named after them.

    Members
    -------
    base : out, 28 bits: address of the buffer >> 12.
    records : out, 20 bits: number of records of the buffer.
    enable : out, faults are recorded in the buffer.
    get : out, 20 bits: number of the next record that software reads.
    put : in, 20 bits: number of the next record to be written.
    status : in, FAULT_STATUS, see `fault_status`.
    clear : out, strobes for bits of `status`.
    dropped : in, 32 bits: number of faults that are not in the buffer; wraps.
    record : in, first `FaultRecord` since `status.fault` was cleared.
    fault : in, strobe: a fault was reported.
    busy : in, a record may still be written to the buffer, even after it was disabled.
    """

    def __init__(self, config: Config) -> None:
        super().__init__({
            "base": Out(PA_BITS - 12),
            "records": Out(20),
            "enable": Out(1),
            "get": Out(20),
            "put": In(20),
            "status": In(fault_status),
            "clear": Out(fault_status),
            "dropped": In(32),
            "record": In(FaultRecord),
            "fault": In(1),
            "busy": In(1),
        })
