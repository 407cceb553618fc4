"""Interrupt controller."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["Interrupts"]


class Interrupts(wiring.Component):
    """Sticky event bits per channel, and the interrupt line.

    An event appears in `notified` or `finished` 1 cycle after its strobe, in `irq` after 2; a clear
    takes as long. An event in the cycle of its clear is kept.

    Members
    -------
    error : in, per channel, level: halted by an error.
    notify : in, strobe per channel: NON_STALL_INTERRUPT, or the interrupt of a task or a report.
    copied : in, strobe per channel: a copy with an interrupt is complete.
    clear_notified : in, strobe per channel: clears its `notified`.
    clear_finished : in, strobe per channel: clears its `finished`.
    fault : in, level: a fault was recorded or lost.
    task : in, level: a context cannot run, or a task was lost.
    runlist : in, level: a runlist was refused, or all of its TSGs wait.
    enable : in, 6 bits: mask for ERROR, NOTIFY, COPY, FAULT, TASK, RUNLIST.
    notified : out, per channel, sticky: `notify`.
    finished : out, per channel, sticky: `copied`.
    summary : out, 6 bits, registered: ERROR, NOTIFY, COPY of any channel, FAULT, TASK, RUNLIST.
    irq : out, registered, with `summary`: an enabled bit of it is 1.
    """

    def __init__(self, channels: int) -> None:
        super().__init__({
            "error": In(channels),
            "notify": In(channels),
            "copied": In(channels),
            "clear_notified": In(channels),
            "clear_finished": In(channels),
            "fault": In(1),
            "task": In(1),
            "runlist": In(1),
            "enable": In(6),
            "notified": Out(channels),
            "finished": Out(channels),
            "summary": Out(6),
            "irq": Out(1),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        now = Signal(6)
        channels = (self.error, self.notified, self.finished)
        events = (*channels, self.fault, self.task, self.runlist)
        m.d.comb += now.eq(Cat(event.any() for event in events))
        m.d.sync += [
            self.notified.eq((self.notified & ~self.clear_notified) | self.notify),
            self.finished.eq((self.finished & ~self.clear_finished) | self.copied),
            self.summary.eq(now),
            self.irq.eq((now & self.enable).any()),
        ]
        return m
