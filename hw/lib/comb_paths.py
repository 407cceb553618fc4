"""Combinational paths from the inputs of a component to its outputs."""

from collections.abc import Mapping, Sequence

from signalbox.hw.lib.amaranth_private import FlipFlop, Net, Netlist, NetlistInstance

__all__ = ["Paths", "follows"]

Paths = Mapping[str, Sequence[str]]
"""Inputs with a combinational path to each output, by the output's name."""

_CLOCKED = {"clk", "rst"}
"""Inputs of an instance without a combinational path to its outputs."""


def follows(netlist: Netlist, known: Mapping[str, Paths]) -> dict[str, list[str]]:
    """For every output, the inputs with a combinational path to it, in port order; none for a
    registered output.

    `netlist` is that of the component with its ports. Paths are traced bit by bit; through an
    instance of a module in `known`, from port to port. In other instances, every input but clock
    and reset is assumed to have a path to every output.

    Raises `ValueError` for a combinational loop through an instance.
    """
    reached = _Reached(netlist, known)
    found = {}
    for name, value in netlist.top.ports_o.items():
        bits = 0
        for net in value:
            bits |= reached.inputs(net)
        ports = enumerate(netlist.top.ports_i)
        found[name] = [port for number, port in ports if bits >> number & 1]
    return found


class _Reached:
    """Inputs with a path to each net, as a bit mask."""

    def __init__(self, netlist: Netlist, modules: Mapping[str, Paths]) -> None:
        self._netlist = netlist
        self._modules = modules
        self._known: dict[Net, int] = {}
        for number, (start, width) in enumerate(netlist.top.ports_i.values()):
            for bit in range(start, start + width):
                self._known[Net.from_cell(0, bit)] = 1 << number

    def inputs(self, net: Net) -> int:
        """Depth-first search without recursion: paths are longer than Python's stack."""
        known, waiting, opened = self._known, [net], set[Net]()
        while waiting:
            top = waiting[-1]
            before = [] if top in known else self._before(top)
            unknown = [one for one in before if one not in known]
            if unknown:
                if top in opened:
                    raise ValueError("combinational loop through an instance")
                opened.add(top)
                waiting += unknown
                continue
            waiting.pop()
            if top not in known:
                known[top] = 0
                for one in before:
                    known[top] |= known[one]
        return known[net]

    def _before(self, net: Net) -> list[Net]:
        """Nets with a direct combinational path to this net."""
        if net.is_const:
            return []
        if net.is_late:
            return [self._netlist.connections[net]]
        cell = self._netlist.cells[net.cell]
        if isinstance(cell, FlipFlop):
            return []
        if isinstance(cell, NetlistInstance):
            return [net for name in self._through(cell, net.bit) for net in cell.ports_i[name]]
        return [one for one, _ in cell.comb_edges_to(net.bit)]

    def _through(self, cell: NetlistInstance, bit: int) -> Sequence[str]:
        """Inputs of an instance with a path to this bit of its outputs."""
        if (paths := self._modules.get(cell.type)) is None:
            return [name for name in cell.ports_i if name not in _CLOCKED]
        (output,) = (
            name for name, (start, width) in cell.ports_o.items() if start <= bit < start + width
        )
        return paths[output]
