"""What asks for the interrupt line, channel by channel."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["Interrupts"]


class Interrupts(wiring.Component):
    """Sticky bits of the two kinds of events, and the interrupt line.

    An event is seen in `notified` or `finished` 1 cycle after its strobe, in `irq` after 2; clears
    alike. An event in the very cycle of its clear is kept.

    Members
    -------
    error : per channel, level: halted by an error.
    notify, copied : per channel, strobes: NON_STALL_INTERRUPT, a copy with an interrupt completed.
    clear_notified, clear_finished : per channel, strobes.
    fault : level: accesses could not be translated.
    task : level: a context cannot run, or a task was lost.
    enable : ERROR, NOTIFY, COPY, FAULT, TASK.
    notified, finished : per channel, event not yet cleared.
    summary : ERROR, NOTIFY, COPY: any channel; FAULT; TASK; 1 cycle behind.
    irq : any of them that is enabled; registered.
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
            "enable": In(5),
            "notified": Out(channels),
            "finished": Out(channels),
            "summary": Out(5),
            "irq": Out(1),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        now = Signal(5)
        events = (self.error, self.notified, self.finished, self.fault, self.task)
        m.d.comb += now.eq(Cat(event.any() for event in events))
        m.d.sync += [
            self.notified.eq((self.notified & ~self.clear_notified) | self.notify),
            self.finished.eq((self.finished & ~self.clear_finished) | self.copied),
            self.summary.eq(now),
            self.irq.eq((now & self.enable).any()),
        ]
        return m
