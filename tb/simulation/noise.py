"""Noise on payload inputs of a design under test while their `valid` is 0.

When a testbench deasserts `valid`, it leaves the old payload on the wires, or drives 0. A design
that still reads the payload then appears to work. Here, a multiplexer in front of the design
replaces such inputs by noise, whatever drives them: payloads with a `valid` of their own, and
records with a field `valid`.
"""

from amaranth.hdl import Cat, Fragment, Mux, Signal, Value
from amaranth.lib import data, wiring

from signalbox.hw.lib.amaranth_private import PortDirection
from signalbox.hw.lib.flat_ports import Ports, ports

__all__ = ["Noisy", "payloads", "records"]

_VALID, _READY = "valid", "ready"
_ALWAYS = {"pipeline__unpark", "runlist__acquire"}
"""Records with fields that have a meaning whatever their `valid`: the served channel (`ParkPort`);
a strobe of its own (`runlist_acquire`)."""

_ALSO = {"link__claim": "link__recall"}
"""Records with fields that have a meaning also while another input is 1, and the name of that
input: the recalled block (`SmLink`)."""

_SEED = 0x9E37_79B9_7F4A_7C15


class Noisy(wiring.Component):
    """`design` behind the same ports, with noise. In each cycle, the inputs in `payloads` are
    random if their `valid` is 0, and so are the fields of the inputs in `records`, except `valid`
    itself. Names inside the design do not change."""

    def __init__(self, design: wiring.Component) -> None:
        self._design = design
        super().__init__(design.signature)

    def elaborate(self, platform: object) -> Fragment:
        inner, outer = ports(self._design), ports(self)
        fragment = Fragment.get(self._design, platform)
        state = Signal(64, init=_SEED, reset_less=True, name="noise")
        fragment.add_statements("sync", state.eq(_following(state)))
        valids, places = payloads(inner), records(self._design)
        for number, (name, (value, way)) in enumerate(inner.items()):
            port = outer[name][0]
            if way != PortDirection.Input:
                fragment.add_statements("comb", port.eq(value))
            elif name in valids:
                noise = _wide(state, len(value), number)
                given = Mux(outer[valids[name]][0], port, noise)
                fragment.add_statements("comb", value.eq(given))
            elif name in places:
                noise = _wide(state, len(value), number) & ~(1 << places[name])
                also = outer[_ALSO[name]][0] if name in _ALSO else 0
                given = Mux(port[places[name]] | also, port, noise)
                fragment.add_statements("comb", value.eq(given))
            else:
                fragment.add_statements("comb", value.eq(port))
        return fragment


def payloads(flat: Ports) -> dict[str, str]:
    """Maps each payload input to its `valid` input.

    The payload begins with the part of the name before `valid`, as in `request__valid` and
    `axi__wvalid`. If several `valid` inputs match, the one with the longest name applies.
    """
    inputs = [name for name, (_, way) in flat.items() if way == PortDirection.Input]
    stems = sorted(name.removesuffix(_VALID) for name in inputs if name.endswith(_VALID))
    found = {}
    for name in inputs:
        of = [stem for stem in stems if stem and name.startswith(stem)]
        if of and name[len(of[-1]) :] not in {_VALID, _READY}:
            found[name] = f"{of[-1]}{_VALID}"
    return found


def records(design: wiring.Component) -> dict[str, int]:
    """Maps each port that is a record with the field `valid` to the place of this bit. Ports with
    fields that always have a meaning are left out."""
    found = {}
    for path, member, _ in design.signature.flatten(design):
        if isinstance(member.shape, data.StructLayout) and _VALID in member.shape.members:
            found["__".join(map(str, path))] = member.shape[_VALID].offset
    return {name: place for name, place in found.items() if name not in _ALWAYS}


def _following(state: Value) -> Value:
    """The next number of George Marsaglia's xorshift64 (Journal of Statistical Software 8(14))."""
    for amount in (13, -7, 17):
        state = state ^ ((state << amount)[:64] if amount > 0 else state >> -amount)
    return state


def _wide(state: Value, width: int, number: int) -> Value:
    """`width` bits derived from `state`, different for each `number`."""
    words = range(-(-width // len(state)))
    return Cat(state.rotate_left(11 * number + 23 * word) for word in words)[:width]
