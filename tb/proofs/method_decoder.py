"""Proof of the decoder of method headers."""

from typing import Any

from amaranth import Cat, Elaboratable, Module, Mux, Signal, Value

from signalbox.hw.errors import Cause
from signalbox.hw.host.methods.decoder import Decoder, HeaderCheck, kind_of, traits_of
from signalbox.hw.host.records import GroupMode, GroupState
from signalbox.hw.methods import HostMethod
from signalbox.tb.proofs.formal import (
    Assert,
    Cover,
    Proof,
    Wrap,
    anything,
)

__all__ = ["PROOFS", "described"]


def described(step: Any, copies: Any = 1) -> Value:
    """The predecoded properties of a method without a header error are correct. `copies`: its
    subchannel has a copy object, or has not been checked yet."""
    refused = Value.cast(step.method.cause) != 0
    kind = [
        step.kind[name] == (is_it & ~refused & (copies if name in ("copy", "launch") else 1))
        for name, is_it in kind_of(step.method.address).items()
    ]
    legacy = step.method.address == HostMethod.SEMAPHORED >> 2
    traits = traits_of(step.method.data, legacy)
    ours = Mux(
        step.kind.semaphore,
        Cat(step.traits[name] == traits[name] for name in ("known", "acquires", "plain")).all(),
        1,
    )
    return Cat(*kind, ours, ~step.kind.launch | (step.traits.modelled == traits["modelled"])).all()


class _Decoding(Elaboratable):
    """Decoder and open group, as in the pipeline."""

    def __init__(self) -> None:
        self.decoder = Decoder()
        self.group = Signal(GroupState)
        self.step = Signal()
        self.segment_ends = Signal()

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.decoder = self.decoder
        m.submodules.refusals = refusals = HeaderCheck()
        m.d.comb += [
            self.decoder.group.eq(self.group),
            refusals.dword.eq(self.decoder.dword),
            self.decoder.refusal.eq(refusals.refusal),
        ]
        with m.If(self.step):
            m.d.sync += self.group.eq(self.decoder.next_group)
            with m.If(self.segment_ends):
                m.d.sync += self.group.skip.eq(0)
        return m


class DecoderProof(Proof):
    name = "host.decoder"
    shows = (
        "every header form makes the methods of spec 1.2, with its number of data dwords and their "
        "addresses; illegal headers, and no others, are refused; END_PB_SEGMENT skips the rest; "
        "while the sub-device mask leaves out device 0, there are no methods (HOST-18)"
    )
    induction = 2
    cover = 6

    def build(self, m: Module, wrap: Wrap) -> None:
        decoding = _Decoding()
        m.submodules.dut = wrap(decoding)
        dut, group = decoding.decoder, decoding.group
        step, rest = anything(m, 1, "step"), anything(m, 1, "segment_ends")
        dword = anything(m, 32, "dword")
        m.d.comb += [dut.dword.eq(dword), decoding.step.eq(step), decoding.segment_ends.eq(rest)]

        # The open group: form, first address, count, and number of data dwords so far.
        form, first, subchannel = Signal(3), Signal(12), Signal(3)
        count, position = Signal(13), Signal(13)
        skip = Signal()
        # The sub-device mask leaves out device 0; so does the stored mask.
        masked, stored = Signal(), Signal()
        sec_op, length, address = dword[29:], dword[16:29], dword[:12]
        opens = (sec_op == 1) | (sec_op == 3) | (sec_op == 5)
        inside = position != count
        header = ~skip & ~inside & (dword != 0)
        cause = self._cause(m, dword)
        m.d.comb += Assert(position <= count)
        with m.If(step):
            with m.If(header & (cause == 0)):
                with m.If(opens):
                    m.d.sync += [form.eq(sec_op), first.eq(address), subchannel.eq(dword[13:16])]
                    m.d.sync += [count.eq(length), position.eq(0)]
                with m.Elif(sec_op == 7):
                    m.d.sync += skip.eq(1)
                with m.Elif((sec_op == 0) & (dword[16:18] == 2)):
                    m.d.sync += stored.eq(~dword[4])
                with m.Elif(sec_op == 0):
                    m.d.sync += masked.eq(Mux(dword[16:18] == 3, stored, ~dword[4]))
            with m.Elif(inside & ~skip):
                m.d.sync += position.eq(position + 1)
            with m.If(rest):
                m.d.sync += skip.eq(0)

        expected = Signal(12)
        with m.Switch(form):
            with m.Case(1):
                m.d.comb += expected.eq(first + position)
            with m.Case(3):
                m.d.comb += expected.eq(first)
            with m.Case(5):
                m.d.comb += expected.eq(first + (position != 0))
        method, executes = dut.step.method, inside | (header & (cause == 0) & (sec_op == 4))
        m.d.comb += [
            Assert(group.skip == skip),
            Assert(group.ignores == masked),
            Assert(group.stored_ignores == stored),
            Assert(~(skip & inside)),
            Assert(group.open == inside),
            Assert(~inside | (group.count == count - position)),
            Assert(method.valid == (~skip & ((executes & ~masked) | (header & (cause != 0))))),
            Cover(inside & masked & stored),
            Cover(inside & (position == 2) & (form == 1)),
            Cover(inside & (position == 2) & (form == 5)),
        ]
        with m.If(inside):
            modes = {1: GroupMode.INC, 3: GroupMode.NON_INC, 5: GroupMode.ONE_INC}
            for number, mode in modes.items():
                later = (form == 5) & (position != 0)
                with m.If((form == number) & ~later):
                    m.d.comb += Assert(group.mode == mode)
                with m.If(later):
                    m.d.comb += Assert(group.mode == GroupMode.NON_INC)
            m.d.comb += [
                Assert((form == 1) | (form == 3) | (form == 5)),
                Assert(group.subchannel == subchannel),
                Assert(group.address == expected),
            ]
            # The last address of a group is valid, as its header was not refused.
            m.d.comb += Assert((form != 1) | (first + count <= 1 << 12))
        with m.If(method.valid):
            m.d.comb += Assert(Value.cast(method.cause) == Mux(header, cause, 0))
            m.d.comb += Assert(described(dut.step))
            with m.If(inside):
                m.d.comb += [
                    Assert(method.address == expected),
                    Assert(method.subchannel == subchannel),
                    Assert(method.data == dword),
                ]
            with m.Elif(cause == 0):
                m.d.comb += [
                    Assert(method.address == address),
                    Assert(method.subchannel == dword[13:16]),
                    Assert(method.data == length),
                ]
            with m.Else():
                m.d.comb += Assert(method.data == dword)

    def _cause(self, m: Module, dword: Value) -> Signal:
        """The cause for refusing a dword in the position of a header; 0 if it is legal."""
        cause = Signal(5, name="spec_cause")
        sec_op, length, address = dword[29:], dword[16:29], dword[:12]
        tert, reserved = dword[16:18], dword[12]
        with m.If(sec_op == 0):
            with m.If(tert == 0):
                m.d.comb += cause.eq(Cause.HEADER_OBSOLETE)
        with m.Elif(sec_op == 2):
            m.d.comb += cause.eq(Cause.HEADER_OBSOLETE)
        with m.Elif((sec_op == 6) | (reserved & (sec_op != 7))):
            m.d.comb += cause.eq(Cause.HEADER_RESERVED)
        with m.Elif((sec_op == 1) & (length != 0) & (address + length - 1 > 0xFFF)):
            m.d.comb += cause.eq(Cause.HEADER_RANGE)
        with m.Elif((sec_op == 5) & (length > 1) & (address + 1 > 0xFFF)):
            m.d.comb += cause.eq(Cause.HEADER_RANGE)
        return cause


PROOFS = (DecoderProof(),)
