"""Combinational paths from the inputs of a component to its outputs."""

from signalbox.hw.lib.amaranth_private import FlipFlop, Net, Netlist, NetlistInstance

__all__ = ["follows"]

_CLOCKED = {"clk", "rst"}
"""Inputs of an instance without a combinational path to its outputs."""


def follows(netlist: Netlist) -> dict[str, list[str]]:
    """For every output, the inputs with a combinational path to it, in port order; none for a
    registered output.

    `netlist` is that of the component with its ports. Paths are traced bit by bit. In an instance,
    every input but clock and reset is assumed to have a path to every output.
    """
    reached = _Reached(netlist)
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

    def __init__(self, netlist: Netlist) -> None:
        self._netlist = netlist
        self._known: dict[Net, int] = {}
        for number, (start, width) in enumerate(netlist.top.ports_i.values()):
            for bit in range(start, start + width):
                self._known[Net.from_cell(0, bit)] = 1 << number

    def inputs(self, net: Net) -> int:
        """Depth-first search without recursion: paths are longer than Python's stack."""
        known, waiting = self._known, [net]
        while waiting:
            top = waiting[-1]
            before = [] if top in known else self._before(top)
            unknown = [one for one in before if one not in known]
            if unknown:
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
            given = (value for name, value in cell.ports_i.items() if name not in _CLOCKED)
            return [net for value in given for net in value]
        return [one for one, _ in cell.comb_edges_to(net.bit)]
