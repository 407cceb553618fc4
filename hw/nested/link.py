"""Nested launches of an SM, seen from the engine."""

from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.records.launch import child_answer, child_launch

__all__ = ["NestedLink", "family_joined", "family_notice"]


def family_joined(config: Config) -> data.StructLayout:
    """Strobe: all children that the block of `family` has launched so far are complete; `failed`:
    one of them, or of their descendants, has failed."""
    return data.StructLayout({"valid": 1, "family": config.nested_bits, "failed": 1})


def family_notice(config: Config) -> data.StructLayout:
    """The block of `family` is over; or, if it `asks`, it is on an SM again, and asks for
    `joined`."""
    return data.StructLayout({"asks": 1, "family": config.nested_bits})


class NestedLink(wiring.Signature):
    """Launches by the blocks of an SM.

    Members
    -------
    launch : in, stream of `child_launch`; the next one comes after the answer.
    answer : out, a `child_answer`: response to the launch.
    notice : in, stream of `family_notice`. A block that asks gets `joined`, at once if all its
        children are complete, otherwise when the last one is.
    joined : out, strobe to all SMs, a `family_joined`: all children of this family so far are
        complete.
    """

    def __init__(self, config: Config) -> None:
        super().__init__({
            "launch": In(stream.Signature(child_launch(config))),
            "answer": Out(child_answer(config)),
            "notice": In(stream.Signature(family_notice(config))),
            "joined": Out(family_joined(config)),
        })
