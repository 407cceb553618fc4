"""Order of errors on their way to the records."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.errors import Cause
from signalbox.hw.host.channel_block.records import error_record, error_row
from signalbox.hw.host.copy_launcher import copy_failed
from signalbox.hw.host.records import method_refused
from signalbox.hw.host.waits.compute_waits import task_failed
from signalbox.hw.methods import CeMethod, ComputeMethod
from signalbox.hw.qmd import SkedCheck
from signalbox.hw.records.channel import channel_event

__all__ = ["SOURCES", "ErrorIntake"]

SOURCES = 3
"""Sources of errors, by precedence: methods, copies, tasks."""


class ErrorIntake(wiring.Component):
    """Forms the records of errors, one at a time. Owns the record in progress.

    Members
    -------
    refused : in, strobe: error of a method, which is always taken.
    failed : in, a copy has failed; until `failed_taken`.
    failed_taken : out, accepts `failed`, when neither another error is in progress nor `hold`.
    task_failed : in, a task has failed; until `task_failed_taken`.
    task_failed_taken : out, accepts `task_failed`, on the same conditions and without `failed`.
    hold : in, no failure is taken in this cycle.
    taken : out, per source, strobe: its error is taken.
    rows : in, per source, the row of its error, in the same cycle.
    noted : out, strobe: the record, one cycle after its error was taken.
    recording : out, `refused` or `noted`: an error is on its way to its row.
    """

    def __init__(self, config: Config) -> None:
        super().__init__({
            "refused": In(method_refused(config)),
            "failed": In(copy_failed(config)),
            "failed_taken": Out(1),
            "task_failed": In(task_failed(config)),
            "task_failed_taken": Out(1),
            "hold": In(1),
            "taken": Out(data.ArrayLayout(channel_event(config), SOURCES)),
            "rows": In(data.ArrayLayout(error_row, SOURCES)),
            "noted": Out(error_record(config)),
            "recording": Out(1),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        noted, free = self.noted, Signal()
        sources = (self.refused, self.failed, self.task_failed)
        accepted = (self.refused.valid, self.failed_taken, self.task_failed_taken)
        m.d.comb += [
            # The choice of a row depends on the previous error, which must be in its row first.
            self.recording.eq(self.refused.valid | noted.valid),
            free.eq(~self.recording & ~self.hold),
            self.failed_taken.eq(free & self.failed.valid),
            self.task_failed_taken.eq(free & ~self.failed.valid & self.task_failed.valid),
        ]
        for number, (source, strobe) in enumerate(zip(sources, accepted, strict=True)):
            m.d.comb += [
                self.taken[number].valid.eq(strobe),
                self.taken[number].channel.eq(source.channel),
            ]
        m.d.sync += noted.valid.eq(self.refused.valid | self.failed_taken | self.task_failed_taken)
        with m.If(self.refused.valid):
            self._note(m, 0, self.refused)
            self._method(m)
        with m.Elif(self.failed.valid):
            self._note(m, 1, self.failed)
            self._copy(m)
        with m.Else():
            self._note(m, 2, self.task_failed)
            self._task(m)
        return m

    def _note(self, m: Module, number: int, source: data.View) -> None:
        """The fields common to all sources."""
        noted = self.noted
        m.d.sync += [
            noted.channel.eq(source.channel),
            noted.row.eq(self.rows[number]),
            noted.contents.why.cause.eq(source.cause),
            noted.contents.why.asynchronous.eq(number > 0),
        ]

    def _method(self, m: Module) -> None:
        refused, method = self.refused, self.refused.method
        why, head = self.noted.contents.why, self.noted.contents.head
        m.d.sync += [
            why.check.eq(refused.check),
            why.va.eq(refused.va),
            head.address.eq(method.address),
            head.subchannel.eq(method.subchannel),
            # A bad header or entry has no method: resumption continues after it.
            head.valid.eq(method.cause == Cause.NONE),
            self.noted.contents.data.eq(method.data),
        ]

    def _copy(self, m: Module) -> None:
        failed = self.failed
        why, head = self.noted.contents.why, self.noted.contents.head
        m.d.sync += [
            why.check.eq(SkedCheck.NONE),
            why.va.eq(failed.va),
            head.address.eq(CeMethod.LAUNCH_DMA >> 2),
            head.subchannel.eq(failed.subchannel),
            head.valid.eq(0),
            self.noted.contents.data.eq(failed.data),
        ]

    def _task(self, m: Module) -> None:
        task = self.task_failed
        why, head = self.noted.contents.why, self.noted.contents.head
        m.d.sync += [
            why.check.eq(task.check),
            why.va.eq(task.page << 8),
            head.address.eq(ComputeMethod.SEND_PCAS_A >> 2),
            head.subchannel.eq(0),
            head.valid.eq(0),
            self.noted.contents.data.eq(task.page),
        ]
