"""Simulation top: the design, its memory, the trace monitor, reset and a cycle counter.

No Python runs per cycle if the clock is started with `Clock(dut.clk, 10, unit="ns",
impl="gpi").start(start_high=False)`. A test can access these names of module `sim`:

    clk                 input
    rst                 1 for the first 8 cycles, and for 8 more after `reset_request` was 1
    cycle               clock edges since the start, 64 bits
    irq, control__*     ports of the design (AXI4-Lite: `tb.testbench.bus.axi4lite(dut, "control")`)
    memory              memory model (`tb.simulation.backdoor`)
    monitor.flush       1 to flush the trace file
"""

import hashlib
import os
from pathlib import Path
from typing import Any, Protocol

from signalbox.hw import export
from signalbox.hw.config import Config, ConfigError
from signalbox.hw.lib.amaranth_private import PortDirection
from signalbox.tb.folders import SIM_BUILD
from signalbox.tb.simulation import backdoor
from signalbox.tb.simulation.monitor import monitor
from signalbox.tb.simulation.runner import COVERAGE, DESIGN, simulate, waves_wanted

__all__ = [
    "FEW_VISIBLE_SMS",
    "LARGEST_MEMORY",
    "MEMORY_BYTES",
    "TRACE",
    "check_memory",
    "instance",
    "save",
    "simulate_top",
    "top",
]

MEMORY_BYTES = 1 << 24
"""Bytes of memory of the machines in this project's tests."""

LARGEST_MEMORY = 1 << 28
"""Maximum number of bytes of simulated memory."""

TRACE = "trace.txt"
"""Name of the trace file in the run folder."""

FEW_VISIBLE_SMS = 16
"""Maximum number of SMs for which waveforms and coverage show the insides of modules."""

_MEMORY = Path(__file__).with_name("memory.sv")
_INNER = ("axi__", "trace__")
_WATCHED = {f"axi__{name}" for name in ("arvalid", "arready", "araddr", "arlen", "arid")}
"""Signals of AXI read requests. Tests may read them, although they are no ports of the top."""

_SHARED = ("valid", "ready", "id", "addr", "len", "size", "burst")
_MEMORY_PORTS = {
    *(f"{channel}{name}" for channel in ("aw", "ar") for name in _SHARED),
    *("wdata", "wstrb", "wlast", "wvalid", "wready", "bid", "bresp", "bvalid", "bready"),
    *("rid", "rdata", "rresp", "rlast", "rvalid", "rready"),
}


class Design(Protocol):
    """A component with the ports of `hw.top.Signalbox`, and its configuration."""

    config: Config


def check_memory(config: Config) -> None:
    """Raise `ConfigError` for more memory than `LARGEST_MEMORY`."""
    if config.memory_bytes > LARGEST_MEMORY:
        raise ConfigError(
            f"memory_bytes = {config.memory_bytes}: a simulation has at most {LARGEST_MEMORY} "
            f"bytes ({LARGEST_MEMORY >> 20} MiB), for it keeps all of them; give "
            "Config(memory_bytes=...) or --memory-bytes"
        )


def top(design: Design) -> str:
    """SystemVerilog of module `sim` around `design`.

    The design's `axi` is connected to a memory of `design.config.memory_bytes`, and its `trace`, if
    it has one, to the monitor. All other ports become ports of the top.

    Raises `ConfigError` for more memory than `LARGEST_MEMORY`.
    """
    check_memory(design.config)
    ports = {name: (len(signal), way.value) for name, (signal, way) in export.ports(design).items()}
    inner = {name: width for name, (width, _) in ports.items() if name.startswith(_INNER)}
    outer = {name: port for name, port in ports.items() if not name.startswith(_INNER)}
    members = {name.removeprefix("axi__") for name in inner if name.startswith("axi__")}
    lines = [
        "module sim (",
        ",\n".join([
            "    input wire clk",
            *(f"    {way} wire [{width - 1}:0] {name}" for name, (width, way) in outer.items()),
        ]),
        ");",
        "    reg [63:0] cycle = 0;",
        "    reg [3:0] reset_count = 0;",
        "    reg reset_request = 0;",
        "    wire rst = !reset_count[3];",
        "    always @(posedge clk) begin",
        "        cycle <= cycle + 1;",
        "        if (reset_request) reset_count <= 0;",
        "        else if (rst) reset_count <= reset_count + 1;",
        "    end",
        *(f"    wire [{width - 1}:0] {name};" for name, width in inner.items()),
        instance(DESIGN, "signalbox", {name: name for name in ("clk", "rst", *ports)}),
        instance(
            f"memory #(.DATA_WIDTH({inner['axi__wdata']}), .ADDR_WIDTH({inner['axi__awaddr']}), "
            f".ID_WIDTH({inner['axi__awid']}), .BYTES({design.config.memory_bytes}))",
            "memory",
            {
                "clk": "clk",
                "rst": "rst",
                **{f"s_axi_{name}": f"axi__{name}" for name in sorted(members & _MEMORY_PORTS)},
            },
        ),
    ]
    traced = [name.removeprefix("trace__") for name in inner if name.startswith("trace__")]
    if traced:
        wires = {name: f"trace__{name}" for name in traced}
        lines.append(instance("monitor", "monitor", {"clk": "clk", "cycle": "cycle", **wires}))
    return "\n".join([*lines, "endmodule", ""])


def simulate_top(design: Design, tests: str, *, simulator: str, name: str, **options: Any) -> Path:
    """Run cocotb tests on `design` in its simulation top. Returns the run folder; the trace is the
    file `TRACE` in it.

    Parameters
    ----------
    design : design under test. The simulated memory has `design.config.memory_bytes` bytes.
    tests, simulator, name : as for `tb.simulation.runner.simulate`.
    options : other parameters of `tb.simulation.runner.simulate`. The top's ports and the memory's
        settings are visible to cocotb in any case.

    Raises `ConfigError` for more memory than `LARGEST_MEMORY`, and the errors of
    `tb.simulation.runner.simulate`.
    """
    text = top(design)
    trace = getattr(design, "trace", None)
    public = ["sim.clk", "sim.reset_request", *backdoor.public()]
    watched = ["sim.rst", "sim.cycle"]
    for port, (_, way) in export.ports(design).items():
        if port in _WATCHED or not port.startswith(_INNER):
            driven = way == PortDirection.Input and port not in _WATCHED
            (public if driven else watched).append(f"sim.{port}")
    if trace is not None:
        text += monitor(trace.signature)
        public.append("monitor.flush")
    return simulate(
        design,
        tests,
        simulator=simulator,
        name=name,
        sources=[_MEMORY, save(text), *options.pop("sources", ())],
        top="sim",
        public=[*public, *options.pop("public", ())],
        watched=watched,
        apart=design.config.sms > FEW_VISIBLE_SMS or not _visible(options.get("waves", False)),
        process_memory=simulator == "verilator",
        plusargs=[f"+trace={TRACE}", *options.pop("plusargs", ())],
        **options,
    )


def _visible(waves: bool) -> bool:
    """Whether the insides of modules must be visible, so that `tb.simulation.apart`, which hides
    them, is not used."""
    return waves or waves_wanted() or bool(os.environ.get(COVERAGE))


def instance(module: str, name: str, connections: dict[str, str]) -> str:
    """Verilog of an instance of `module`. `connections` maps ports to wires."""
    wires = ",\n".join(f"        .{port}({wire})" for port, wire in connections.items())
    return f"    {module} {name} (\n{wires}\n    );"


def save(text: str) -> Path:
    """Write generated Verilog to a file named after its contents. Returns the file."""
    key = hashlib.sha256(text.encode()).hexdigest()[:16]
    file = SIM_BUILD / "builds" / f"sim-{key}.sv"
    file.parent.mkdir(parents=True, exist_ok=True)
    fresh = file.with_suffix(f".{os.getpid()}")
    fresh.write_text(text)
    fresh.replace(file)
    return file
