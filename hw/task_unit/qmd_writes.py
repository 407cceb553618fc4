"""Writes to QMDs (ASID-25, ASID-26, HOST-10, NEST-10)."""

from amaranth.hdl import Cat, Module, Signal, Value
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from signalbox.hw.config import Config
from signalbox.hw.qmd import QMD
from signalbox.hw.records.memory import MemoryStatus, WritePort
from signalbox.hw.records.placement import coordinates
from signalbox.hw.task_unit.qmd_fields import (
    DEPENDENCE_COUNTER,
    OUTER_GET,
    PARENT,
    RESUME,
    QmdField,
)
from signalbox.hw.task_unit.word_access import WORD_BYTES, WordAccess

__all__ = ["QmdWrites", "Stored", "qmd_write"]


class Stored(enum.Enum, shape=3):
    """Field to write."""

    PLACE = 0
    """The resume position."""
    COUNTER = 1
    """The dependence counter, decremented."""
    RESTORE = 2
    """The dependence counter as it was read, to undo COUNTER."""
    GET = 3
    """The number of processed queue entries."""
    PARENT = 4
    """Page of the parent's QMD; with nested launches."""


def qmd_write(config: Config) -> data.StructLayout:
    """A write to the QMD at `page` << 8 of an address space."""
    return data.StructLayout({"what": Stored, "asid": config.asid_bits, "page": 32})


class QmdWrites(wiring.Component):
    """Writes one field at a time, as a `WordAccess` with only the bytes of the field enabled.

    Members
    -------
    request : in, stream of `qmd_write`.
    place : in, resume position; stable until `answer`.
    record : in, the QMD as read before; stable until `answer`.
    got : in, 31 bits: number of processed queue entries; stable until `answer`.
    answer : out, strobe: status of the write; `last`: the dependence counter, if written, is 0 now.
    write : out, memory client.
    parent : in, 32 bits, with nested launches; with `request`: page of the QMD of the launching
        kernel.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        super().__init__({
            "request": In(stream.Signature(qmd_write(config))),
            "place": In(coordinates),
            "record": In(QMD),
            "got": In(31),
            **({"parent": In(32)} if config.nested else {}),
            "answer": Out(data.StructLayout({"valid": 1, "status": MemoryStatus, "last": 1})),
            "write": Out(WritePort(config)),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.word = word = WordAccess(self._config)
        connect(m, word.write, flipped(self.write))
        asked, access = self.request.p, word.request.p
        offset = Signal(8)
        m.d.comb += [
            word.request.valid.eq(self.request.valid),
            self.request.ready.eq(word.request.ready),
            access.asid.eq(asked.asid),
            access.va.eq(Cat(offset, asked.page)),
            access.write.eq(1),
            self.answer.valid.eq(word.answer.valid),
            self.answer.status.eq(word.answer.status),
        ]
        counter = self._counter(m)

        def put(field: QmdField, value: Value) -> list:
            return [offset.eq(field.offset), access.strobe.eq(field.strobe), access.data.eq(value)]

        with m.Switch(asked.what):
            with m.Case(Stored.PLACE):
                m.d.comb += put(RESUME, self.place.as_value())
            with m.Case(Stored.GET):
                m.d.comb += put(OUTER_GET, self.got << OUTER_GET.bits.start)
            if self._config.nested:
                with m.Case(Stored.PARENT):
                    m.d.comb += put(PARENT, self.parent << PARENT.bits.start)
            with m.Default():
                m.d.comb += put(DEPENDENCE_COUNTER, counter)
        return m

    def _counter(self, m: Module) -> Signal:
        """The word with the dependence counter."""
        bits, first = DEPENDENCE_COUNTER.bits, 8 * DEPENDENCE_COUNTER.offset
        counter = Signal(8 * WORD_BYTES)
        before = self.record.as_value()[first:][: 8 * WORD_BYTES]
        m.d.comb += [counter.eq(before), self.answer.last.eq(before[bits] == 1)]
        with m.If(self.request.p.what == Stored.COUNTER):
            m.d.comb += counter[bits].eq(before[bits] - 1)
        return counter
