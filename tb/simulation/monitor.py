"""Generates a SystemVerilog module that writes one line of text per event of the trace port.

    <cycle> served <channel or ->           <cycle> sem <index> <value>
    <cycle> floor <channel or ->            <cycle> start <engine> <channel>
    <cycle> doorbell <channel>              <cycle> done <engine> <channel> <failed>
    <cycle> acquire <channel> <passed>      <cycle> error <channel> <cause>
    <cycle> method <channel> <subchannel> <byte offset, hex> <data, hex>
    <cycle> lookup <client> <asid> <hit>    <cycle> walk <asid>
    <cycle> invalidation <asid> <scope>     <cycle> walked <asid>
    <cycle> fault <client> <asid> <va> <physical> <access> <fault>
    <cycle> launched <channel> <asid> <page>      <cycle> opened <row> <asid> <page>
    <cycle> over <channel> <page> <refusal>       <cycle> placed <row> <sm> <step> <x> <y> <z>
    <cycle> warp <sm> <warp> <row> <slot> <index> <cycle> exit <sm> <warp>
    <cycle> stop <sm> <slot>                      <cycle> stopped <sm> <row> <restores> <x> <y> <z>
    <cycle> asked <sm> <slot> <row> <page>        <cycle> answered <sm> <slot> <refusal>

`served` and `floor` are written when they change. Within a cycle, lines have the order of the
members of `TracePort`. `tb.simulation.trace` reads the file.
"""

from amaranth.lib import data

from signalbox.hw.trace import TracePort

__all__ = ["monitor"]

_WORDS = {"semaphore": "sem"}
_LEVELS = {"served", "floor"}


def monitor(port: TracePort) -> str:
    """Module `monitor`, with inputs `clk`, `cycle` and the members of `port` under their exported
    names.

    The plusarg `+trace=` names the file; without it nothing is written. While `flush` is 1, the
    file is flushed in every cycle.
    """
    inputs, state, events = [], [], []
    for path, member, _ in port.flatten(port.create()):
        layout = data.Layout.cast(member.shape)
        name = "__".join(map(str, path))
        inputs.append(f"    input wire [{layout.size - 1}:0] {name}")
        if path[0] in _LEVELS:
            state.append(f"    reg [{layout.size - 1}:0] last_{name} = 0;")
            events += _level(name, layout)
        else:
            events += _strobe(name, layout, [str(part) for part in path])
    return "\n".join([
        "module monitor (",
        "    input wire clk,",
        "    input wire [63:0] cycle,",
        ",\n".join(inputs),
        ");",
        "    string name;",
        "    integer file = 0;",
        "    reg flush = 0;",
        '    initial if ($value$plusargs("trace=%s", name)) file = $fopen(name, "w");',
        *state,
        "    always @(posedge clk) if (file != 0) begin",
        *events,
        "        if (flush) $fflush(file);",
        "    end",
        "endmodule",
        "",
    ])


def _slice(name: str, field: data.Field) -> str:
    width = field.width
    return f"{name}[{field.offset + width - 1}:{field.offset}]"


def _level(name: str, layout: data.Layout) -> list[str]:
    """Write a level when it changes; "-" if it is invalid, regardless of its channel."""
    valid, channel = _slice(name, layout["valid"]), _slice(name, layout["channel"])
    last = f"last_{name}"
    changed = f"{valid} ? {name} != {last} : {_slice(last, layout['valid'])}"
    return [
        f"        if ({changed}) begin",
        f'            if ({valid}) $fwrite(file, "%0d {name} %0d\\n", cycle, {channel});',
        f'            else $fwrite(file, "%0d {name} -\\n", cycle);',
        "        end",
        f"        {last} <= {name};",
    ]


def _strobe(name: str, layout: data.Layout, path: list[str]) -> list[str]:
    """Write the fields of a strobe; those of methods in hexadecimal, with a byte address."""
    formats, values = [_WORDS.get(path[0], path[0]), *path[1:]], []
    for key, field in layout:
        if key == "valid":
            continue
        value = _slice(name, field)
        hexadecimal = path[0] == "method" and key in {"address", "data"}
        formats.append("%0h" if hexadecimal else "%0d")
        values.append(f"{{{value}, 2'b00}}" if key == "address" else value)
    line = " ".join(formats)
    condition = _slice(name, layout["valid"])
    written = f'$fwrite(file, "%0d {line}\\n", cycle, {", ".join(values)});'
    return [f"        if ({condition}) {written}"]
