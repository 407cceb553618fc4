"""Reads and checks QMDs (HOST-10, ASID-20)."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from signalbox.hw.config import Config
from signalbox.hw.errors import Refusal
from signalbox.hw.qmd import QMD, SkedCheck
from signalbox.hw.records.launch import task_verdict
from signalbox.hw.records.memory import MemoryStatus, ReadPort
from signalbox.hw.records.placement import (
    BLOCK_COUNT_BITS,
    coordinates,
    kernel_needs,
    local_area,
)
from signalbox.hw.task_unit.qmd_check import QmdCheck
from signalbox.hw.task_unit.qmd_fetch import QmdFetch, qmd_address

__all__ = ["QmdReader"]


class QmdReader(wiring.Component):
    """Reads and checks one QMD at a time, and extracts the needs of the task.

    A QMD of 256 bytes takes one cycle, the memory latency, one cycle per beat, and 3 more; or 13
    from the beat with dword 23 on, if that is later.

    Members
    -------
    request : in, stream of `qmd_address`; accepted when the previous one has been read.
    resumed : in, the task resumes at CTA_RASTER_*_RESUME; otherwise it starts at its first block.
    entered : in, the task was accepted before, see `QmdCheck`.
    decrements : in, the dependence counter is about to be decremented; otherwise it must be 0.
    local : in, a `local_area`: area of the local memory of its channel.
    read : out, memory client.
    done : out, the outputs below are valid, until the next request is accepted.
    verdict : out, a `task_verdict`: reason of a refusal.
    record : out, the QMD.
    needs : out, a `kernel_needs`: resource needs of a block.
    grid : out, size of the grid; of a queue, a single unbounded line.
    first : out, position of the first block; undefined for a queue.
    blocks : out, 32 bits: blocks from `first` on, at least 1; undefined for a queue.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        super().__init__({
            "request": In(stream.Signature(qmd_address(config))),
            "resumed": In(1),
            "entered": In(1),
            "decrements": In(1),
            "local": In(local_area),
            "read": Out(ReadPort(config)),
            "done": Out(1),
            "verdict": Out(task_verdict),
            "record": Out(QMD),
            "needs": Out(kernel_needs),
            "grid": Out(coordinates),
            "first": Out(coordinates),
            "blocks": Out(BLOCK_COUNT_BITS),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.reader = reader = QmdFetch(self._config)
        m.submodules.check = check = QmdCheck(self._config)
        failed = Signal()
        connect(m, reader.read, flipped(self.read))
        connect(m, flipped(self.request), reader.request)
        m.d.comb += [
            failed.eq(reader.ended & (reader.status != MemoryStatus.OK)),
            check.start.eq(self.request.valid & self.request.ready),
            check.record.eq(reader.record),
            [
                getattr(check, name).eq(getattr(self, name))
                for name in ("resumed", "entered", "decrements", "local")
            ],
            check.dwords.eq(reader.dwords),
            self.record.eq(reader.record),
            self.done.eq(failed | check.done),
        ]
        m.d.comb += [
            getattr(self, name).eq(getattr(check, name))
            for name in ("needs", "grid", "first", "blocks")
        ]
        verdict = self.verdict
        with m.If(failed):
            m.d.comb += verdict.refusal.eq(Refusal.FAULT)
            with m.If(reader.status == MemoryStatus.BUS):
                m.d.comb += verdict.refusal.eq(Refusal.BUS)
        with m.Elif(check.foreign):
            m.d.comb += verdict.refusal.eq(Refusal.MODEL)
        with m.Elif(check.wrong != SkedCheck.NONE):
            m.d.comb += [verdict.refusal.eq(Refusal.CHECK), verdict.check.eq(check.wrong)]
        return m
