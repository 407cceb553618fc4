"""Method decoder: one dword in, at most one method out (HOST-2, spec 1.2)."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.data import View
from amaranth.lib.wiring import In, Out

from hw.errors import Cause
from hw.host.context import GroupMode, GroupState, Method
from hw.methods import Header, SecOp, TertOp

__all__ = ["Decoder"]


class Decoder(wiring.Component):
    """Combinational step of the decoder.

    Members
    -------
    group, dword : the open method group, and the next dword of the pushbuffer.
    next_group, method : the group after it, and the method that it makes, if any.

    A header that is not legal gives a method with cause HEADER_* and the header as `data`.
    """

    group: In(GroupState)
    dword: In(32)
    next_group: Out(GroupState)
    method: Out(Method)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.d.comb += self.next_group.eq(self.group)
        with m.If(self.group.skip):
            pass
        with m.Elif(self.group.count != 0):
            self._data(m)
        with m.Elif(self.dword != 0):
            self._header(m, View(Header, self.dword))
        return m

    def _data(self, m: Module) -> None:
        m.d.comb += [
            self.method.valid.eq(1),
            self.method.subchannel.eq(self.group.subchannel),
            self.method.address.eq(self.group.address),
            self.method.data.eq(self.dword),
            self.next_group.count.eq(self.group.count - 1),
        ]
        with m.If(self.group.mode != GroupMode.NON_INC):
            m.d.comb += self.next_group.address.eq(self.group.address + 1)
        with m.If(self.group.mode == GroupMode.ONE_INC):
            m.d.comb += self.next_group.mode.eq(GroupMode.NON_INC)

    def _header(self, m: Module, header: View) -> None:
        last = Signal(14)
        refuse = Signal(Cause)
        m.d.comb += [
            self.next_group.subchannel.eq(header.subchannel),
            self.next_group.address.eq(header.address),
            self.method.subchannel.eq(header.subchannel),
            self.method.address.eq(header.address),
            self.method.data.eq(header.count),
        ]
        with m.Switch(header.sec_op):
            with m.Case(SecOp.GRP0_USE_TERT):
                self._sub_device(m, refuse)
            with m.Case(SecOp.INC_METHOD):
                m.d.comb += last.eq(header.address + header.count)
                self._open(m, header, GroupMode.INC)
                with m.If(last > 1 << 12):
                    m.d.comb += refuse.eq(Cause.HEADER_RANGE)
            with m.Case(SecOp.NON_INC_METHOD):
                self._open(m, header, GroupMode.NON_INC)
            with m.Case(SecOp.ONE_INC):
                self._open(m, header, GroupMode.ONE_INC)
                with m.If(header.address.all() & (header.count > 1)):
                    m.d.comb += refuse.eq(Cause.HEADER_RANGE)
            with m.Case(SecOp.IMMD_DATA_METHOD):
                m.d.comb += self.method.valid.eq(1)
            with m.Case(SecOp.END_PB_SEGMENT):
                m.d.comb += self.next_group.skip.eq(1)
            with m.Case(SecOp.GRP2_USE_TERT):
                m.d.comb += refuse.eq(Cause.HEADER_OBSOLETE)
            with m.Case(SecOp.RESERVED6):
                m.d.comb += refuse.eq(Cause.HEADER_RESERVED)
        grouped = (header.sec_op != SecOp.GRP0_USE_TERT) & (header.sec_op != SecOp.GRP2_USE_TERT)
        with m.If(grouped & (header.sec_op != SecOp.END_PB_SEGMENT) & header.reserved):
            m.d.comb += refuse.eq(Cause.HEADER_RESERVED)
        with m.If(refuse != Cause.NONE):
            m.d.comb += [
                self.next_group.eq(self.group),
                self.method.valid.eq(1),
                self.method.cause.eq(refuse),
                self.method.data.eq(self.dword),
            ]

    def _open(self, m: Module, header: View, mode: GroupMode) -> None:
        m.d.comb += [self.next_group.mode.eq(mode), self.next_group.count.eq(header.count)]

    def _sub_device(self, m: Module, refuse: Signal) -> None:
        """Sub-device masks: there is one device, number 0, and a mask must include it."""
        tert, mask = self.dword[16:18], self.dword[4:16]
        with m.If(tert == TertOp.LEGACY_INC):
            m.d.comb += refuse.eq(Cause.HEADER_OBSOLETE)
        with m.Elif((tert != TertOp.USE_SUB_DEV_MASK) & ~mask[0]):
            m.d.comb += refuse.eq(Cause.HEADER_RESERVED)
