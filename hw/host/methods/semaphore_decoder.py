"""Decoder of SEM_EXECUTE and SEMAPHORED (spec 2.1 … 2.3)."""

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.host.methods.channel_rights import channel_rights
from signalbox.hw.host.records import Step, method_settings
from signalbox.hw.methods import LegacySemaphore, SemaphoreExecute, SemOp
from signalbox.hw.records.semaphore import semaphore_request

__all__ = ["SemaphoreDecoder", "semaphore_operation"]


def semaphore_operation(config: Config) -> data.StructLayout:
    """A semaphore method, as `request` and properties.

    * `known`: the operation exists.
    * `acquires`: it is an acquire: neither a release nor a reduction.
    * `on_chip`: its semaphore is on chip.
    * `in_group`: it is a 32-bit acquire `== 0` of a counting semaphore, in a channel with a copy
      object. It joins the channel's acquire group.
    * `engine_first`: it is an acquire that is decided only when an engine can take the copy that
      follows (COPY-13).
    """
    return data.StructLayout({
        "request": semaphore_request(config),
        "known": 1,
        "acquires": 1,
        "on_chip": 1,
        "in_group": 1,
        "engine_first": 1,
    })


class SemaphoreDecoder(wiring.Component):
    """Decodes the held method. Combinational.

    Members
    -------
    step : in, a `Step`: the held method.
    settings : in, `method_settings` of its channel.
    rights : in, `channel_rights` of its channel.
    operation : out, a `semaphore_operation`; meaningless unless `step` is a semaphore method.
    """

    def __init__(self, config: Config) -> None:
        super().__init__({
            "step": In(Step),
            "settings": In(method_settings()),
            "rights": In(channel_rights(config)),
            "operation": Out(semaphore_operation(config)),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        method, traits = self.step.method, self.step.traits
        place, copies = self.settings.semaphore, self.settings.copies
        new, old = data.View(SemaphoreExecute, method.data), data.View(LegacySemaphore, method.data)
        # Address bit in which the two semaphore methods differ.
        legacy = method.address[2]
        operation, request = self.operation, self.operation.request
        on_chip = place.low & place.high
        wide = ~legacy & new.wide
        m.d.comb += [
            request.asid.eq(self.rights.asid),
            request.va.eq(place.va),
            request.operation.eq(self._code(m, legacy, new, old)),
            request.reduction.eq(Mux(legacy, old.reduction, new.reduction)),
            request.unsigned.eq(Mux(legacy, old.unsigned, new.unsigned)),
            request.wide.eq(wide),
            request.timestamp.eq(
                ~traits.acquires & Mux(legacy, ~old.one_word, new.release_timestamp)
            ),
            request.payload.eq(Mux(wide, place.payload, place.payload[:32])),
            operation.known.eq(traits.known),
            operation.acquires.eq(traits.acquires),
            operation.on_chip.eq(on_chip),
            operation.in_group.eq(on_chip & place.counter & ~place.nonzero & traits.plain & copies),
            operation.engine_first.eq(traits.acquires & copies & ~self.rights.early_waits),
        ]
        return m

    @staticmethod
    def _code(m: Module, legacy: Value, new: data.View, old: data.View) -> Signal:
        """The operation's code; of the legacy method, from its one-hot field."""
        code = Signal(3, name="code")
        codes = (
            SemOp.ACQUIRE,
            SemOp.RELEASE,
            SemOp.ACQ_CIRC_GEQ,
            SemOp.ACQ_AND,
            SemOp.REDUCTION,
        )
        with m.If(~legacy):
            m.d.comb += code.eq(new.operation)
        with m.Else():
            with m.Switch(old.operation):
                for bit, one in enumerate(codes):
                    with m.Case(1 << bit):
                        m.d.comb += code.eq(one)
        return code
