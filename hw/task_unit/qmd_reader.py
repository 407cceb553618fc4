"""Task metadata, read and checked (HOST-10, ASID-20)."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from signalbox.hw.config import Config
from signalbox.hw.qmd import QMD, SkedCheck
from signalbox.hw.records.launch import Refusal, task_verdict
from signalbox.hw.records.memory import MemoryStatus, ReadPort
from signalbox.hw.records.placement import BLOCK_COUNT_BITS, coordinates, kernel_needs
from signalbox.hw.task_unit.qmd_check import Check
from signalbox.hw.task_unit.qmd_fetch import QmdReader, qmd_address

__all__ = ["Metadata"]


class Metadata(wiring.Component):
    """Reads a record and tells what it asks for, one at a time.

    A record of 256 bytes takes a cycle, the memory's answer, as many cycles as it has beats, and 3
    more, or 13 from the beat with dword 23 on where that is later.

    Members
    -------
    request : where the record is; taken when the one before has been read.
    resumed, entered, decrements : see `Check`.
    read : the memory.
    done : everything below counts, until the next request is taken.
    verdict : whether it is refused.
    record : all of it. needs, grid, first, blocks : see `Check`.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        super().__init__({
            "request": In(stream.Signature(qmd_address(config))),
            "resumed": In(1),
            "entered": In(1),
            "decrements": In(1),
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
        m.submodules.reader = reader = QmdReader(self._config)
        m.submodules.check = check = Check(self._config)
        failed = Signal()
        connect(m, reader.read, flipped(self.read))
        connect(m, flipped(self.request), reader.request)
        m.d.comb += [
            failed.eq(reader.ended & (reader.status != MemoryStatus.OK)),
            check.start.eq(self.request.valid & self.request.ready),
            check.record.eq(reader.record),
            [
                getattr(check, name).eq(getattr(self, name))
                for name in ("resumed", "entered", "decrements")
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
