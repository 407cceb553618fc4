"""Simulation top for a translation: its clients, its commands and its page tables in memory.

Clients and commands are read from files, memory answers after a fixed number of cycles, and events
are written to a trace; no Python runs per cycle. A test can access these names of module `stage`:

    clk         input
    load        1: reset, and read all files; when it returns to 0, a run begins and `now` counts
    latency     cycles from a read of memory to its beat, at least 1
    idle        everything was answered and acknowledged; the trace is complete one cycle later
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from amaranth.lib import data

from signalbox.hw import export
from signalbox.hw.config import VA_BITS, Config
from signalbox.hw.mmu.records import answer, lookup
from signalbox.hw.mmu.translation import Mmu, miss_tag
from signalbox.hw.records.memory import memory_request, read_beat
from signalbox.tb.simulation.runner import DESIGN, simulate
from signalbox.tb.simulation.top import instance, save

__all__ = ["ASIDS", "MEMORY_BYTES", "TAG", "TRACE", "Sizes", "simulate_stage"]

TAG = data.StructLayout({"number": 16})
"""Tag of a look-up: its position in the stream of its client."""

ASIDS, MEMORY_BYTES = 64, 1 << 25

TRACE = "trace.txt"

_PLAYERS = Path(__file__).with_name("players.sv")


@dataclass(frozen=True)
class Sizes:
    """Sizes of the translation to be measured; members as in `Config`."""

    clients: int = 1
    l1_entries: int = 16
    l1_misses: int = 4
    l2_entries: int = 512
    l2_ways: int = 4
    walks: int = 4

    @property
    def config(self) -> Config:
        """The configuration."""
        members = {name: value for name, value in vars(self).items() if name != "clients"}
        return Config(asids=ASIDS, sms=0, memory_bytes=MEMORY_BYTES, **members)

    def environment(self) -> dict[str, str]:
        """Environment variables for the tests of a simulation; see `of_environment`."""
        return {name.upper(): str(value) for name, value in vars(self).items()}

    @classmethod
    def of_environment(cls) -> "Sizes":
        """Sizes of this simulation, from its environment."""
        return cls(**{field.name: int(os.environ[field.name.upper()]) for field in fields(cls)})


class Measured(Mmu):
    """A translation of these sizes."""

    def __init__(self, config: Sizes) -> None:
        super().__init__(config.config, config.clients, TAG)
        self.config = config


def simulate_stage(sizes: Sizes, tests: str, *, name: str, **options: Any) -> Path:
    """Run cocotb tests on a translation in its stage, on Verilator. `options` : as for
    `tb.simulation.runner.simulate`. Tests read the sizes from the environment
    (`Sizes.environment`)."""
    design = Measured(sizes)
    return simulate(
        design,
        tests,
        simulator="verilator",
        name=name,
        env=sizes.environment(),
        sources=[_PLAYERS, save(_stage(design))],
        top="stage",
        public=[f"stage.{port}" for port in ("clk", "load", "latency", "idle")],
        **options,
    )


def _stage(design: Measured) -> str:
    """SystemVerilog of module `stage`."""
    sizes = design.config
    clients = range(sizes.clients)
    players = [_player(f"client_{n}", f"request__{n}", f"answer__{n}__valid") for n in clients]
    return "\n".join([
        "module stage (input wire clk, input wire load, input wire [15:0] latency,",
        "              output wire idle);",
        "    reg [29:0] now = 0;",
        "    always @(posedge clk) now <= load ? 0 : now + 1;",
        *_wires(design),
        *(f"    assign answer__{n}__ready = 1;" for n in clients),
        "    assign read__request__ready = 1;",
        *players,
        _player("commands", "command", "done"),
        _tables(sizes.config),
        _translation(design),
        *_recorder(sizes),
        "endmodule",
        "",
    ])


def _wires(design: Measured) -> list[str]:
    """A wire for each port of the design, and an idle flag for each player."""
    players = [f"idle_client_{n}" for n in range(design.config.clients)] + ["idle_commands"]
    return [
        *(
            f"    wire [{len(signal) - 1}:0] {name};"
            for name, (signal, _) in export.ports(design).items()
        ),
        *(f"    wire {name};" for name in players),
        f"    assign idle = {' && '.join(players)};",
    ]


def _player(name: str, stream: str, answered: str) -> str:
    return instance(
        f'player #(.WIDTH($bits({stream}__payload)), .NAME("{name}"))',
        name,
        {
            **{wire: wire for wire in ("clk", "load", "now")},
            **{wire: f"{stream}__{wire}" for wire in ("valid", "ready", "payload")},
            "answered": answered,
            "idle": f"idle_{name}",
        },
    )


def _tables(config: Config) -> str:
    """Memory, and the other members of its beats."""
    request = memory_request(config)
    address = f"read__request__payload[{request['va'].offset} +: {VA_BITS}]"
    beat = read_beat(config)
    width = config.data_width
    last = beat.const({"last": 1}).as_bits() >> width
    return f"    wire [{width - 1}:0] beat;\n" + "\n".join([
        instance(
            f"tables #(.WIDTH({width}), .ADDRESS({VA_BITS}), .BYTES({config.memory_bytes}))",
            "memory",
            {
                **{wire: wire for wire in ("clk", "load", "now", "latency")},
                "asked": "read__request__valid",
                "address": address,
                "valid": "read__beat__valid",
                "data": "beat",
            },
        ),
        f"    assign read__beat__payload = {{{beat.size - width}'d{last}, beat}};",
    ])


def _translation(design: Measured) -> str:
    names = export.ports(design)
    return instance(DESIGN, "mmu", {"clk": "clk", "rst": "load", **{name: name for name in names}})


def _recorder(sizes: Sizes) -> list[str]:
    """Write one line per event: cycle, kind, and decimal numbers."""
    lines = [
        "    integer file = 0;",
        "    reg loaded = 0;",
        "    always @(posedge clk) begin",
        "        loaded <= load;",
        "        if (load && !loaded) begin",
        "            if (file != 0) $fclose(file);",
        f'            file = $fopen("{TRACE}", "w");',
        "        end",
        "        if (idle) $fflush(file);",
    ]
    for when, kind, values in _events(sizes):
        form = " ".join(["%0d", kind, *["%0d"] * len(values)])
        arguments = ", ".join(["file", f'"{form}\\n"', "now", *values])
        lines.append(f"        if (!load && {when}) $fwrite({arguments});")
    return [*lines, "    end"]


def _events(sizes: Sizes) -> Iterator[tuple[str, str, list[str]]]:
    """Condition, kind and numbers of each event."""
    config = sizes.config
    request, given = lookup(config, TAG), answer(config, TAG)
    for n in range(sizes.clients):
        tag = _field(f"request__{n}__payload", request, "tag")
        yield f"request__{n}__valid && request__{n}__ready", "take", [str(n), tag]
        fields = [_field(f"answer__{n}__payload", given, name) for name in ("tag", "outcome", "pa")]
        yield f"answer__{n}__valid", "answer", [str(n), *fields]
        yield f"hit__{n}[0]", "hit", [str(n), f"hit__{n}[{config.asid_bits}:1]"]
        yield f"missed__{n}[0]", "miss", [str(n), f"missed__{n}[{config.asid_bits}:1]"]
    bits, asid = miss_tag(config, sizes.clients).size, f"[{config.asid_bits}:1]"
    probe, found = f"mmu.l2.probe__payload[{bits - 1}:0]", f"mmu.l2.result[{bits}:1]"
    yield "mmu.l2.probe__valid && mmu.l2.probe__ready", "probe", [probe]
    yield "found[0]", "found", [f"found{asid}", found]
    for kind in ("walks", "walked"):
        yield f"{kind}[0]", kind, [f"{kind}{asid}"]
    yield "read__request__valid", "read", []
    yield "read__beat__valid", "beat", []
    yield "command__valid && command__ready", "command", []
    yield "done", "done", []


def _field(word: str, layout: data.StructLayout, name: str) -> str:
    field = layout[name]
    return f"{word}[{field.offset} +: {field.width}]"
