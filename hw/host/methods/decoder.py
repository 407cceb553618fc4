"""Method decoder: one dword in, at most one method out (HOST-2, spec 1.2).

Two parts: `HeaderCheck` checks every fetched dword as if it were a header; `Decoder` does the rest
when the dword is taken.

While the sub-device mask leaves out device 0, the only device, all methods are ignored without an
error (HOST-18), host methods and SET_OBJECT included: by the public description of
SUBDEVICE_STATUS, the host neither generates nor executes them. The data dwords of their groups are
consumed. Control entries (the masks, END_PB_SEGMENT, NOP) still work. An illegal header is still an
error, as the length of its group is unknown.
"""

from functools import reduce
from operator import or_

from amaranth.hdl import Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.data import View
from amaranth.lib.wiring import In, Out

from signalbox.hw.errors import Cause
from signalbox.hw.host.records import GroupMode, GroupState, Refusal, Step
from signalbox.hw.methods import (
    CeMethod,
    CopyLaunch,
    Header,
    HostMethod,
    LaunchSemaphore,
    LaunchTransfer,
    LegacySemaphore,
    SecOp,
    SemaphoreExecute,
    SemOp,
    SubDeviceMask,
    TertOp,
)

__all__ = ["ENGINE_METHODS", "Decoder", "HeaderCheck", "assign", "kind_of", "traits_of"]

ENGINE_METHODS = 0x100
"""First byte offset of the methods for the object of the subchannel (spec 1.2)."""

_HOST = (
    HostMethod.NOP,
    HostMethod.MEM_OP_A,
    HostMethod.MEM_OP_B,
    HostMethod.MEM_OP_C,
    HostMethod.SEM_ADDR_LO,
    HostMethod.SEM_ADDR_HI,
    HostMethod.SEM_PAYLOAD_LO,
    HostMethod.SEM_PAYLOAD_HI,
    HostMethod.SEMAPHOREA,
    HostMethod.SEMAPHOREB,
    HostMethod.SEMAPHOREC,
    HostMethod.YIELD,
)

_NOT_AT_ONCE = (CeMethod.LAUNCH_DMA, CeMethod.SET_RENDER_ENABLE_C)


_GROUPS = {
    SecOp.INC_METHOD: GroupMode.INC,
    SecOp.NON_INC_METHOD: GroupMode.NON_INC,
    SecOp.ONE_INC: GroupMode.ONE_INC,
}


def assign(m: Module, record: View, fields: dict[str, Value]) -> None:
    """Drive the named fields of a record."""
    m.d.comb += [record[name].eq(value) for name, value in fields.items()]


def _among(address: Value, methods: tuple) -> Value:
    return reduce(or_, (address == method >> 2 for method in methods))


def kind_of(address: Value) -> dict[str, Value]:
    """Fields of the `Kind` of the method at `address`, in dwords."""
    return {
        "host": _among(address, _HOST),
        "copy": _among(address, tuple(one for one in CeMethod if one not in _NOT_AT_ONCE)),
        "semaphore": _among(address, (HostMethod.SEM_EXECUTE, HostMethod.SEMAPHORED)),
        "launch": _among(address, (CeMethod.LAUNCH_DMA,)),
    }


def traits_of(value: Value, legacy: Value) -> dict[str, Value]:
    """Fields of the `Traits` of data `value`; `legacy`: of SEMAPHORED."""
    new, old = View(SemaphoreExecute, value), View(LegacySemaphore, value)
    launch = View(CopyLaunch, value)
    changes = (new.operation == SemOp.RELEASE) | (new.operation == SemOp.REDUCTION)
    old_changes = (old.operation == 1 << 1) | (old.operation == 1 << 4)
    old_known = reduce(or_, (old.operation == 1 << bit for bit in range(5)))
    pitch = launch.src_pitch & launch.dst_pitch
    idle = Mux(legacy, old_changes & ~old.release_no_wfi, changes & new.release_wfi)
    return {
        "known": Mux(legacy, old_known, Value.cast(new.operation) <= SemOp.REDUCTION),
        "acquires": ~Mux(legacy, old_changes, changes),
        "plain": Mux(legacy, old.operation == 1, (new.operation == SemOp.ACQUIRE) & ~new.wide),
        "modelled": ~(
            (launch.transfer == 3)
            | ((launch.transfer != LaunchTransfer.NONE) & ~pitch)
            | (launch.semaphore == LaunchSemaphore.CONDITIONAL_INTERRUPT)
            | (launch.interrupt == 3)
            | (launch.reduction_enable & launch.reduction[3])
            | (launch.vpr_mode != 0)
            | (launch.reserved != 0)
        ),
        "idle": idle,
    }


_CAUSES = {
    Refusal.OBSOLETE: Cause.HEADER_OBSOLETE,
    Refusal.RESERVED: Cause.HEADER_RESERVED,
    Refusal.RANGE: Cause.HEADER_RANGE,
}


class HeaderCheck(wiring.Component):
    """Checks a dword as a method header.

    Members
    -------
    dword : in, 32 bits.
    refusal : out, a `Refusal`, NONE for a legal header; combinational.
    """

    dword: In(32)
    refusal: Out(Refusal)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        header, last = View(Header, self.dword), Signal(14)
        m.d.comb += last.eq(header.address + header.count)
        with m.Switch(header.sec_op):
            with m.Case(SecOp.GRP0_USE_TERT):
                # The universal NOP, all zeros, is one of the obsolete forms.
                tertiary = View(SubDeviceMask, self.dword).operation
                with m.If((tertiary == TertOp.LEGACY_INC) & (self.dword != 0)):
                    m.d.comb += self.refusal.eq(Refusal.OBSOLETE)
            with m.Case(SecOp.INC_METHOD):
                with m.If(last > 1 << 12):
                    m.d.comb += self.refusal.eq(Refusal.RANGE)
            with m.Case(SecOp.ONE_INC):
                with m.If(header.address.all() & (header.count > 1)):
                    m.d.comb += self.refusal.eq(Refusal.RANGE)
            with m.Case(SecOp.GRP2_USE_TERT):
                m.d.comb += self.refusal.eq(Refusal.OBSOLETE)
            with m.Case(SecOp.RESERVED6):
                m.d.comb += self.refusal.eq(Refusal.RESERVED)
        with m.Switch(header.sec_op):
            with m.Case(*_GROUPS, SecOp.IMMD_DATA_METHOD):
                with m.If(header.reserved):
                    m.d.comb += self.refusal.eq(Refusal.RESERVED)
        return m


class Decoder(wiring.Component):
    """Combinational step of the decoder.

    A header that is not legal gives a method with cause HEADER_* and the header as `data`.

    Members
    -------
    group : in, the open method group, a `GroupState`.
    dword : in, pushbuffer dword, 32 bits.
    refusal : in, the `Refusal` of the dword as a header.
    next_group : out, the `GroupState` after the dword; combinational.
    step : out, a `Step`: the method completed by the dword, if any; combinational.
    """

    group: In(GroupState)
    dword: In(32)
    refusal: In(Refusal)
    next_group: Out(GroupState)
    step: Out(Step)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        group, following, method = self.group, self.next_group, self.step.method
        m.d.comb += [
            following.skip.eq(group.skip),
            following.ignores.eq(group.ignores),
            following.stored_ignores.eq(group.stored_ignores),
            following.subchannel.eq(method.subchannel),
        ]
        with m.If(group.open):
            self._data(m)
        with m.Else():
            self._header(m, View(Header, self.dword))
        with m.If(group.skip):
            m.d.comb += [
                method.valid.eq(0),
                following.open.eq(0),
                following.ignores.eq(group.ignores),
                following.stored_ignores.eq(group.stored_ignores),
            ]
        return m

    def _data(self, m: Module) -> None:
        group, following, method = self.group, self.next_group, self.step.method
        m.d.comb += [
            method.valid.eq(~group.ignores),
            method.subchannel.eq(group.subchannel),
            method.address.eq(group.address),
            method.data.eq(self.dword),
            following.mode.eq(group.mode),
            following.open.eq(group.count != 1),
            following.count.eq(group.count - 1),
            following.address.eq(group.address + (group.mode != GroupMode.NON_INC)),
        ]
        assign(m, self.step.kind, kind_of(group.address))
        assign(m, self.step.traits, traits_of(self.dword, group.address[2]))
        with m.If(group.mode == GroupMode.ONE_INC):
            m.d.comb += following.mode.eq(GroupMode.NON_INC)

    def _header(self, m: Module, header: View) -> None:
        following, method = self.next_group, self.step.method
        refused = Signal()
        immediate = Signal()
        m.d.comb += [
            refused.eq(self.refusal != Refusal.NONE),
            immediate.eq(header.sec_op == SecOp.IMMD_DATA_METHOD),
            method.valid.eq(refused | (immediate & ~self.group.ignores)),
            method.subchannel.eq(header.subchannel),
            method.address.eq(header.address),
            method.data.eq(Mux(immediate & ~refused, header.count, self.dword)),
            following.count.eq(header.count),
            following.address.eq(header.address),
        ]
        assign(m, self.step.traits, traits_of(header.count | Const(0, 32), header.address[2]))
        with m.If(~refused):
            assign(m, self.step.kind, kind_of(header.address))
            with m.Switch(header.sec_op):
                with m.Case(SecOp.GRP0_USE_TERT):
                    self._sub_device(m)
                with m.Case(SecOp.END_PB_SEGMENT):
                    m.d.comb += following.skip.eq(1)
                for sec_op, mode in _GROUPS.items():
                    with m.Case(sec_op):
                        m.d.comb += [following.open.eq(header.count != 0), following.mode.eq(mode)]
        with m.Switch(self.refusal):
            for refusal, cause in _CAUSES.items():
                with m.Case(refusal):
                    m.d.comb += method.cause.eq(cause)

    def _sub_device(self, m: Module) -> None:
        """Sub-device masks."""
        following, entry = self.next_group, View(SubDeviceMask, self.dword)
        without_device_0 = ~entry.mask[0]
        with m.Switch(entry.operation):
            with m.Case(TertOp.SET_SUB_DEV_MASK):
                m.d.comb += following.ignores.eq(without_device_0)
            with m.Case(TertOp.STORE_SUB_DEV_MASK):
                m.d.comb += following.stored_ignores.eq(without_device_0)
            with m.Case(TertOp.USE_SUB_DEV_MASK):
                m.d.comb += following.ignores.eq(self.group.stored_ignores)
