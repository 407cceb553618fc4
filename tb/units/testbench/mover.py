"""A small client of memory, for tests of the servers of memory ports."""

from amaranth import Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.records.memory import (
    MemoryStatus,
    ReadPort,
    WritePort,
    memory_request,
    read_beat,
)

__all__ = ["AWAY", "Mover"]

AWAY = 1 << 20
"""Distance from the source to the destination."""


class Mover(wiring.Component):
    """Copies one beat from the address of a command to the address with bit 20 inverted.

    Members
    -------
    command : in, the read request; `beats` must be 0.
    moved : out, status of the read, and of the write.
    read, write : memory.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        outcome = data.StructLayout({"read": MemoryStatus, "write": MemoryStatus})
        super().__init__({
            "command": In(stream.Signature(memory_request(config))),
            "moved": Out(stream.Signature(outcome)),
            "read": Out(ReadPort(config)),
            "write": Out(WritePort(config)),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        request, beat = Signal(memory_request(self._config)), Signal(read_beat(self._config))
        done = Signal(MemoryStatus)
        read, write, moved = self.read, self.write, self.moved
        m.d.comb += [
            read.request.payload.eq(request),
            write.request.payload.eq(request),
            write.request.payload.va.eq(request.va ^ AWAY),
            write.beat.payload.data.eq(beat.data),
            write.beat.payload.strobe.eq(~0),
            write.beat.payload.last.eq(1),
            moved.payload.read.eq(beat.status),
            moved.payload.write.eq(done),
        ]
        with m.FSM():
            with m.State("COMMAND"):
                m.d.comb += self.command.ready.eq(1)
                m.d.sync += request.eq(self.command.payload)
                with m.If(self.command.valid):
                    m.next = "ASK"
            with m.State("ASK"):
                m.d.comb += read.request.valid.eq(1)
                with m.If(read.request.ready):
                    m.next = "READ"
            with m.State("READ"):
                m.d.comb += read.beat.ready.eq(1)
                m.d.sync += beat.eq(read.beat.payload)
                with m.If(read.beat.valid):
                    m.next = "SEND"
            with m.State("SEND"):
                m.d.comb += write.request.valid.eq(1)
                with m.If(write.request.ready):
                    m.next = "WRITE"
            with m.State("WRITE"):
                m.d.comb += write.beat.valid.eq(1)
                with m.If(write.beat.ready):
                    m.next = "DONE"
            with m.State("DONE"):
                m.d.comb += write.done.ready.eq(1)
                m.d.sync += done.eq(write.done.payload.status)
                with m.If(write.done.valid):
                    m.next = "TELL"
            with m.State("TELL"):
                m.d.comb += moved.valid.eq(1)
                with m.If(moved.ready):
                    m.next = "COMMAND"
        return m
