"""Completion of a copy: semaphore release and report."""

from amaranth import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import VA_BITS, Config
from signalbox.hw.copy import records
from signalbox.hw.methods import LaunchSemaphore, SemOp
from signalbox.hw.records.copy import CopyError, copy_done
from signalbox.hw.records.semaphore import SemaphoreError, SemaphorePort

__all__ = ["Retire", "completion"]


def completion(config: Config) -> data.StructLayout:
    """Completion actions of a copy: the fields of `copy_command` for its semaphore and its
    report."""
    return data.StructLayout({
        "channel": config.channel_bits,
        "subchannel": 3,
        "data": 32,
        "asid": config.asid_bits,
        "semaphore": LaunchSemaphore,
        "semaphore_va": VA_BITS,
        "payload": 64,
        "wide": 1,
        "reduction_enable": 1,
        "reduction": 4,
        "reduction_unsigned": 1,
    })


class Retire(wiring.Component):
    """Releases the semaphores of successful copies and reports every copy, in order.

    `done` follows 2 cycles after the outcome, or 1 cycle after the semaphore's response.

    Members
    -------
    ending : in, stream of `completion`: copies, in order.
    outcome : in, stream of `outcome`, one per copy.
    stop : in, level: suppresses semaphore releases.
    semaphore : out, port of the semaphore unit.
    done : out, stream of `copy_done`, to the host.
    """

    def __init__(self, config: Config) -> None:
        super().__init__({
            "ending": In(stream.Signature(completion(config))),
            "outcome": In(stream.Signature(records.outcome())),
            "stop": In(1),
            "semaphore": Out(SemaphorePort(config)),
            "done": Out(stream.Signature(copy_done(config))),
        })

    def elaborate(self, platform) -> Module:
        m = Module()
        copy, done, request = self.ending.p, self.done, self.semaphore.request
        response = self.semaphore.response
        releases = Signal()
        m.d.comb += releases.eq(
            (copy.semaphore != LaunchSemaphore.NONE)
            & (self.outcome.p.error == CopyError.NONE)
            & ~self.stop
        )
        self._describe(m)
        with m.FSM() as fsm:
            m.d.comb += [
                request.valid.eq(fsm.ongoing("RELEASE")),
                response.ready.eq(fsm.ongoing("RESPONSE")),
                done.valid.eq(fsm.ongoing("DONE")),
                self.ending.ready.eq(done.valid & done.ready),
                self.outcome.ready.eq(fsm.ongoing("WAIT") & self.ending.valid),
            ]
            with m.State("WAIT"):
                m.d.sync += [
                    done.p.channel.eq(copy.channel),
                    done.p.subchannel.eq(copy.subchannel),
                    done.p.data.eq(copy.data),
                    done.p.error.eq(self.outcome.p.error),
                    done.p.va.eq(self.outcome.p.va),
                ]
                with m.If(self.ending.valid & self.outcome.valid):
                    m.next = "DONE"
                    with m.If(releases):
                        m.next = "RELEASE"
            with m.State("RELEASE"), m.If(request.ready):
                m.next = "RESPONSE"
            with m.State("RESPONSE"):
                with m.If(response.valid):
                    with m.If(response.p.error != SemaphoreError.NONE):
                        m.d.sync += [
                            done.p.error.eq(CopyError.SEMAPHORE),
                            done.p.va.eq(copy.semaphore_va),
                        ]
                    m.next = "DONE"
            with m.State("DONE"), m.If(done.ready):
                m.next = "WAIT"
        return m

    def _describe(self, m: Module) -> None:
        copy, request = self.ending.p, self.semaphore.request
        m.d.comb += [
            request.p.asid.eq(copy.asid),
            request.p.va.eq(copy.semaphore_va),
            request.p.operation.eq(Mux(copy.reduction_enable, SemOp.REDUCTION, SemOp.RELEASE)),
            request.p.reduction.eq(copy.reduction),
            request.p.unsigned.eq(copy.reduction_unsigned),
            request.p.wide.eq(copy.wide),
            request.p.timestamp.eq(copy.semaphore == LaunchSemaphore.FOUR_WORDS),
            request.p.payload.eq(copy.payload),
        ]
