"""Methods that only set state of the channel, or do nothing (HOST-4, spec 4)."""

from amaranth.hdl import Cat, Module, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import WINDOW_BASE, Config
from signalbox.hw.host.records import Method, ObjectKind, method_settings
from signalbox.hw.methods import CeMethod, HostMethod, RemapComponents, RemapSource, YieldOp

__all__ = ["StateMethods", "object_binding"]

PEER = 3
"""Physical-mode target that is not modelled: memory of another device."""

_PHYSICAL_MODES = {
    CeMethod.SET_SRC_PHYS_MODE: "src_refused",
    CeMethod.SET_DST_PHYS_MODE: "dst_refused",
}
"""Per mode, flag for a value that is not modelled."""

_COPY_FIELDS = {
    CeMethod.SET_SEMAPHORE_A: ("semaphore_va", 32, 17),
    CeMethod.SET_SEMAPHORE_B: ("semaphore_va", 0, 32),
    CeMethod.SET_SEMAPHORE_PAYLOAD: ("payload", 0, 32),
    CeMethod.SET_SEMAPHORE_PAYLOAD_UPPER: ("payload", 32, 32),
    CeMethod.OFFSET_IN_UPPER: ("src", 32, 17),
    CeMethod.OFFSET_IN_LOWER: ("src", 0, 32),
    CeMethod.OFFSET_OUT_UPPER: ("dst", 32, 17),
    CeMethod.OFFSET_OUT_LOWER: ("dst", 0, 32),
    CeMethod.PITCH_IN: ("pitch_in", 0, 32),
    CeMethod.PITCH_OUT: ("pitch_out", 0, 32),
    CeMethod.LINE_LENGTH_IN: ("line_length", 0, 32),
    CeMethod.LINE_COUNT: ("line_count", 0, 32),
    CeMethod.SET_REMAP_CONST_A: ("const_a", 0, 32),
    CeMethod.SET_REMAP_CONST_B: ("const_b", 0, 32),
}
"""Copy-class methods that set state: field, lowest bit, width."""

_NONZERO = {CeMethod.LINE_LENGTH_IN: "bytes", CeMethod.LINE_COUNT: "lines"}
"""Per setting, flag for a value that is not 0."""

object_binding = data.StructLayout({"valid": 1, "subchannel": 3, "object": ObjectKind})
"""Strobe: `object` is bound to `subchannel`."""


class StateMethods(wiring.Component):
    """Owns the settings of the served channel. A method takes one cycle.

    Members
    -------
    method : in, the held `Method`.
    host : in, execute it as a host method.
    copy : in, execute it as a method of the copy class.
    bind : in, strobe: SET_OBJECT, an `object_binding`.
    load : in, strobe: the settings become `loaded`.
    loaded : in, `method_settings`, see `load`.
    reset : in, strobe: the settings are cleared.
    counting : in, 0 … `counters`: number of counting semaphores.
    settings : out, `method_settings`, registered.
    yields : out, strobe: the method is YIELD with an effect on the channel's slice.
    expires : out, strobe: the method is YIELD of RUNLIST_TIMESLICE.
    """

    def __init__(self, config: Config) -> None:
        super().__init__({
            "method": In(Method),
            "host": In(1),
            "copy": In(1),
            "bind": In(object_binding),
            "load": In(1),
            "loaded": In(method_settings()),
            "reset": In(1),
            "counting": In(range(config.counters + 1)),
            "settings": Out(method_settings()),
            "yields": Out(1),
            "expires": Out(1),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        place = self.settings.semaphore
        # In every cycle, as the number of counting semaphores may change.
        m.d.sync += place.counter.eq(self._is_counter(place.va))
        with m.If(self.host):
            self._host(m)
        with m.If(self.copy):
            self._copy(m)
        with m.If(self.bind.valid):
            self._bind(m)
        with m.If(self.load):
            m.d.sync += self.settings.eq(self.loaded)
        with m.If(self.reset):
            m.d.sync += self.settings.eq(0)
        return m

    def _host(self, m: Module) -> None:
        value, place = self.method.data, self.settings.semaphore
        with m.Switch(self.method.address[:6]):
            with m.Case(HostMethod.SEM_ADDR_LO >> 2, HostMethod.SEMAPHOREB >> 2):
                m.d.sync += [
                    place.va[:32].eq(value & ~3),
                    place.low.eq(value[16:] == (WINDOW_BASE >> 16) & 0xFFFF),
                    place.counter.eq(self._is_counter(value)),
                ]
            with m.Case(HostMethod.SEM_ADDR_HI >> 2, HostMethod.SEMAPHOREA >> 2):
                m.d.sync += [
                    place.va[32:].eq(value),
                    place.high.eq(value[:8] == WINDOW_BASE >> 32),
                ]
            with m.Case(HostMethod.SEM_PAYLOAD_LO >> 2, HostMethod.SEMAPHOREC >> 2):
                m.d.sync += [place.payload[:32].eq(value), place.nonzero.eq(value != 0)]
            with m.Case(HostMethod.SEM_PAYLOAD_HI >> 2):
                m.d.sync += place.payload[32:].eq(value)
            with m.Case(HostMethod.YIELD >> 2):
                m.d.comb += [
                    self.yields.eq(value[1]),
                    self.expires.eq(value[:2] == YieldOp.RUNLIST_TIMESLICE),
                ]

    def _is_counter(self, va: Value) -> Value:
        """Whether the low half of a semaphore's address is that of an on-chip counting
        semaphore."""
        window = va[16:32] == (WINDOW_BASE >> 16) & 0xFFFF
        return window & (va[2:4] == 0) & (va[4:16] < self.counting)

    def _copy(self, m: Module) -> None:
        value, copy = self.method.data, self.settings.copy
        with m.Switch(self.method.address):
            for name, (field, low, width) in _COPY_FIELDS.items():
                with m.Case(name >> 2):
                    m.d.sync += copy[field][low : low + width].eq(value)
                    if name in _NONZERO:
                        m.d.sync += copy[_NONZERO[name]].eq(value != 0)
            for name, field in _PHYSICAL_MODES.items():
                with m.Case(name >> 2):
                    target, kind = value[:2], value[2:6]
                    m.d.sync += copy[field].eq((target == PEER) | (kind != 0))
            with m.Case(CeMethod.SET_REMAP_COMPONENTS >> 2):
                self._components(m, data.View(RemapComponents, value))

    def _components(self, m: Module, value: data.View) -> None:
        """Stores the components, and whether one of them has a missing source (HOST-16)."""
        copy = self.settings.copy
        targets = (value.dst_x, value.dst_y, value.dst_z, value.dst_w)
        refused = Signal(len(targets))
        for number, target in enumerate(targets):
            reserved = target > RemapSource.NO_WRITE
            beyond = ~target[2] & (target[:2] > value.num_src)
            m.d.comb += refused[number].eq((number <= value.num_dst) & (reserved | beyond))
            m.d.sync += copy.components.dst[number].eq(target)
        m.d.sync += [
            copy.components.size.eq(value.component_size),
            copy.components.sources.eq(value.num_src),
            copy.components.targets.eq(value.num_dst),
            copy.remap_refused.eq(refused.any()),
        ]

    def _bind(self, m: Module) -> None:
        objects = Signal.like(self.settings.objects)
        m.d.comb += [
            objects.eq(self.settings.objects),
            objects[self.bind.subchannel].eq(self.bind.object),
        ]
        m.d.sync += [
            self.settings.objects.eq(objects),
            self.settings.copies.eq(Cat(one == ObjectKind.COPY for one in objects).any()),
        ]
