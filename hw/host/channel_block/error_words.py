"""Registers of an error: the record, as software reads and writes it."""

from amaranth.hdl import Cat, Const, Module, Signal, Value
from amaranth.lib import data

from signalbox.hw.errors import CODE_OF
from signalbox.hw.host.channel_block.records import error_contents

__all__ = ["HELD", "error_words", "written_head"]

HELD = ("METHOD0", "DATA0")
"""Registers of the held method, which software can write."""


def error_words(m: Module, shown: data.View, more: Value) -> dict[str, Value]:
    """The registers of an error with these contents (`error_contents`), by name."""
    why, head, codes = shown.why, shown.head, Signal(64, name="codes")
    with m.Switch(why.cause):
        for cause, code in CODE_OF.items():
            with m.Case(cause):
                m.d.comb += codes.eq(1 << code)
    return {
        "INTR_0": codes[:32],
        "INTR_1": codes[32:],
        "CAUSE": Cat(why.cause, Const(0, 2), more, Const(0, 7), why.check),
        "ERROR_VA": why.va[:32],
        "ERROR_VA_HI": why.va[32:],
        "METHOD0": Cat(
            Const(0, 2), head.address, Const(0, 2), head.subchannel, Const(0, 12), head.valid
        ),
        "DATA0": shown.data,
    }


def written_head(m: Module, value: Value) -> data.View:
    """The member `head` of the contents, when `value` is written to METHOD0."""
    head = Signal(error_contents["head"].shape, name="written_head")
    m.d.comb += [
        head.address.eq(value[2:14]),
        head.subchannel.eq(value[16:19]),
        head.valid.eq(value[31]),
    ]
    return head
