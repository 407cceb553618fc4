"""Noise on payload inputs of a design under test while their `valid` is 0.

Testbenches leave the old payload on the wires when they deassert `valid`, so a design that still
reads it appears to work. Here, each input that belongs to a `valid` reaches the design through a
multiplexer, whatever drives it.
"""

from amaranth.hdl import Cat, Fragment, Mux, Signal, Value
from amaranth.lib import wiring

from signalbox.hw.lib.amaranth_private import PortDirection
from signalbox.hw.lib.flat_ports import Ports, ports

__all__ = ["Noisy", "payloads"]

_VALID, _READY = "valid", "ready"
_SEED = 0x9E37_79B9_7F4A_7C15


class Noisy(wiring.Component):
    """`design` with the same ports. Each input in `payloads` is random in every cycle in which its
    `valid` is 0. Names inside the design do not change."""

    def __init__(self, design: wiring.Component) -> None:
        self._design = design
        super().__init__(design.signature)

    def elaborate(self, platform: object) -> Fragment:
        inner, outer = ports(self._design), ports(self)
        fragment = Fragment.get(self._design, platform)
        state = Signal(64, init=_SEED, reset_less=True, name="noise")
        fragment.add_statements("sync", state.eq(_following(state)))
        valids = payloads(inner)
        for number, (name, (value, way)) in enumerate(inner.items()):
            port = outer[name][0]
            if way != PortDirection.Input:
                fragment.add_statements("comb", port.eq(value))
            elif name in valids:
                noise = _wide(state, len(value), number)
                given = Mux(outer[valids[name]][0], port, noise)
                fragment.add_statements("comb", value.eq(given))
            else:
                fragment.add_statements("comb", value.eq(port))
        return fragment


def payloads(flat: Ports) -> dict[str, str]:
    """Maps each payload input to its `valid` input.

    They share the prefix before `valid` (`request__valid`, `axi__wvalid`); the longest prefix
    applies.
    """
    inputs = [name for name, (_, way) in flat.items() if way == PortDirection.Input]
    stems = sorted(name.removesuffix(_VALID) for name in inputs if name.endswith(_VALID))
    found = {}
    for name in inputs:
        of = [stem for stem in stems if stem and name.startswith(stem)]
        if of and name[len(of[-1]) :] not in {_VALID, _READY}:
            found[name] = f"{of[-1]}{_VALID}"
    return found


def _following(state: Value) -> Value:
    """The next number of George Marsaglia's xorshift64 (Journal of Statistical Software 8(14))."""
    for amount in (13, -7, 17):
        state = state ^ ((state << amount)[:64] if amount > 0 else state >> -amount)
    return state


def _wide(state: Value, width: int, number: int) -> Value:
    """`width` bits derived from `state`, different for each `number`."""
    words = range(-(-width // len(state)))
    return Cat(state.rotate_left(11 * number + 23 * word) for word in words)[:width]
