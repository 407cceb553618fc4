"""Large designs: each module shared by several instances becomes its own Verilator model.

Verilator compiles such a module (`hw.lib.shared`) once, regardless of the number of instances. In
the design, a stub with the same ports replaces it. The stub calls the model at the clock edge, and
after a change of an input with a combinational path to an output (`hw.lib.comb_paths`). Instances
in which nothing can change are skipped (`apart.h`). Results are the same as without the split, but
the inside of a model appears in no waveform and in no coverage.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Container, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from signalbox.hw.export import FOLLOWS
from signalbox.tb.simulation import verilator

__all__ = ["GLUE", "Part", "compile_parts", "split"]

GLUE = (Path(__file__), Path(__file__).with_suffix(".h"))
"""Sources of the glue code between stubs and models."""

_CLOCK = "clk"

_TOLD = re.compile(rf'^\(\* {FOLLOWS} = "(.*)" \*\)\nmodule (\w+)', re.MULTILINE)
_PORT = re.compile(
    r"^  (?P<way>input|output) (?:\[(?P<high>\d+):0\] )?(?P<name>\w+) ?;", re.MULTILINE
)


@dataclass(frozen=True)
class _Port:
    """A port of `width` bits, with its Verilog and C++ declarations. `valid` : for the payload of a
    stream, name of the stream's valid port. While that port is 0, the payload is not updated."""

    name: str
    width: int
    out: bool
    valid: str | None

    @property
    def wide(self) -> bool:
        return self.width > 64

    @property
    def declared(self) -> str:
        """Type of the argument in Verilog."""
        if self.wide:
            return f"bit [{self.width - 1}:0]"
        sizes = {8: "byte", 16: "shortint", 32: "int", 64: "longint"}
        return next(kind for size, kind in sizes.items() if self.width <= size) + " unsigned"

    @property
    def argument(self) -> str:
        """Declaration of the argument in C++."""
        if self.wide:
            return f"{'' if self.out else 'const '}svBitVecVal* {self.name}"
        size = next(size for size in (8, 16, 32, 64) if self.width <= size)
        # Types as in `svdpi.h`.
        kinds = {8: "unsigned char", 16: "unsigned short", 32: "unsigned int"}
        return f"{kinds.get(size, 'unsigned long long')}{'*' if self.out else ''} {self.name}"

    @property
    def put(self) -> str:
        """C++ statement that updates an input of the model from the DPI argument."""
        return f"{self._when}changed |= apart::put({_member(self.name)}, {self.name});"

    @property
    def kept(self) -> str:
        """C++ declaration of a member of `outputs` that holds the value of an output."""
        if self.wide:
            return f"VlWide<{-(-self.width // 32)}> {self.name}{{}};"
        sizes = {8: "CData", 16: "SData", 32: "IData", 64: "QData"}
        kind = next(kind for size, kind in sizes.items() if self.width <= size)
        return f"{kind} {self.name} = 0;"

    @property
    def take(self) -> str:
        """C++ statement that updates the member `kept` from the model."""
        return f"{self._when}changed |= apart::put({self.name}, {_member(self.name)});"

    @property
    def get(self) -> str:
        """C++ statement that copies the member `kept` to the DPI argument."""
        if self.wide:
            return f"apart::get({self.name}, outputs.{self.name});"
        return f"*{self.name} = outputs.{self.name};"

    @property
    def _when(self) -> str:
        return f"if ({_member(self.valid)}) " if self.valid else ""


def _member(port: str) -> str:
    """C++ name of a port of the model."""
    return f"model.{port.replace('__', '___05F')}"


@dataclass(frozen=True)
class Part:
    """A module that is compiled separately.

    Members
    -------
    name : name of the module.
    text : Verilog of the module, without the modules of other parts.
    follow : for each output, the inputs on which it depends combinationally.
    inside : names of the parts that the module instantiates.
    """

    name: str
    text: str
    follow: Mapping[str, tuple[str, ...]]
    inside: tuple[str, ...]

    @cached_property
    def _ports(self) -> dict[str, _Port]:
        found = [*_PORT.finditer(self.text[: self.text.index("endmodule")])]
        names = {port["name"] for port in found}
        ports = {}
        for port in found:
            name, width = port["name"], int(port["high"] or 0) + 1
            valid = _valid(name, names)
            ports[name] = _Port(name, width, port["way"] == "output", valid)
        # Payloads are updated depending on their `valid`, so they come after it.
        return dict(sorted(ports.items(), key=lambda named: (named[1].valid is not None, named[0])))

    @cached_property
    def _groups(self) -> list[tuple[list[_Port], list[_Port]]]:
        """(inputs, outputs) of each group of outputs that depend combinationally on the same
        inputs."""
        groups: dict[frozenset[str], list[_Port]] = {}
        for port in self._ports.values():
            if port.out and (behind := self._behind(port)):
                groups.setdefault(behind, []).append(port)
        return [
            ([port for name, port in self._ports.items() if name in names], outputs)
            for names, outputs in groups.items()
        ]

    def _behind(self, output: _Port) -> frozenset[str]:
        """Inputs on which an output depends combinationally. For each payload among them, the
        `valid` of its stream is included, as it decides whether the payload is updated."""
        outputs = {output.name, output.valid} - {None}
        inputs = {name for one in outputs for name in self.follow.get(one, ())}
        valids = {valid for name in inputs if (valid := self._ports[name].valid)}
        return frozenset(inputs | valids)

    @cached_property
    def _inputs(self) -> list[_Port]:
        """Inputs passed at the clock edge: all but the clock. So the model uses their values from
        before the edge, whatever the order of the simulator's processes."""
        return [port for port in self._ports.values() if not port.out and port.name != _CLOCK]

    @cached_property
    def _state(self) -> list[_Port]:
        """Outputs that depend on no input combinationally."""
        return [port for port in self._ports.values() if port.out and not self._behind(port)]

    def stub(self) -> str:
        """Verilog of the stub."""
        name = self.name
        lines = [
            f"module {name}({', '.join(self._ports)});",
            *(self._declared(port) for port in self._ports.values()),
            f'  import "DPI-C" function chandle {name}_new();',
            self._imported("bit", "edge", self._inputs),
            self._imported("void", "state", self._state),
            *(
                self._imported("void", f"group_{number}", [*inputs, *outputs], "input bit tick")
                for number, (inputs, outputs) in enumerate(self._groups)
            ),
            "  chandle model;",
            "  bit tick = 0;",
            *(f"  {port.declared} {port.name}_;" for port in self._ports.values() if port.out),
            *(
                f"  assign {port.name} = {port.name}_[{port.width - 1}:0];"
                for port in self._ports.values()
                if port.out
            ),
            *(f"  {port.declared} {port.name}_new;" for port in self._state),
            "  initial begin",
            f"    model = {name}_new();",
            f"    {self._call('state', self._state, '_')};",
            "  end",
            f"  always @(posedge {_CLOCK})",
            f"    if ({self._call('edge', self._inputs)}) begin",
            "      tick <= !tick;",
            f"      {self._call('state', self._state, '_new')};",
            *(f"      {port.name}_ <= {port.name}_new;" for port in self._state),
            "    end",
        ]
        for number, (inputs, outputs) in enumerate(self._groups):
            given = ", ".join([
                "model",
                "tick",
                *(port.name for port in inputs),
                *(f"{port.name}_" for port in outputs),
            ])
            lines.append(f"  always_comb {name}_group_{number}({given});")
        return "\n".join([*lines, "endmodule", ""])

    @staticmethod
    def _declared(port: _Port) -> str:
        return f"  {'output' if port.out else 'input'} wire [{port.width - 1}:0] {port.name};"

    def _imported(self, kind: str, suffix: str, ports: Sequence[_Port], more: str = "") -> str:
        given = (
            f"{'output' if port.out else 'input'} {port.declared} {port.name}" for port in ports
        )
        listed = ", ".join(["input chandle model", *([more] if more else []), *given])
        return f'  import "DPI-C" function {kind} {self.name}_{suffix}({listed});'

    def _call(self, suffix: str, ports: Sequence[_Port], ending: str = "") -> str:
        given = ", ".join(["model", *(f"{port.name}{ending}" for port in ports)])
        return f"{self.name}_{suffix}({given})"

    def glue(self, previous: str) -> str:
        """C++ between stub and model. `previous` : the model's variable with the previous clock
        value."""
        name = self.name
        model, root = f"V{name}", f"V{name}___024root"
        lines = [
            f'#include "../{GLUE[1].name}"',
            f'#include "{model}.h"',
            f'#include "{root}.h"',
            "namespace {",
            "struct Outputs {",
            *(f"    {port.kept}" for port in self._ports.values() if port.out),
            f"    bool take(const {model}& model) {{",
            "        bool changed = false;",
            *(f"        {port.take}" for port in self._ports.values() if port.out),
            "        return changed;",
            "    }",
            "};",
            f"using Instance = apart::Instance<{model}, {root}, &{root}::{previous}, Outputs>;",
            "}",
            f'extern "C" void* {name}_new() {{ return new Instance; }}',
            *self._function(
                "unsigned char",
                "edge",
                self._inputs,
                ["bool changed = false;", *(port.put for port in self._inputs)],
                "return instance.edge(changed);",
            ),
            *self._function("void", "state", self._state, [port.get for port in self._state]),
        ]
        for number, (inputs, outputs) in enumerate(self._groups):
            lines += self._function(
                "void",
                f"group_{number}",
                [*inputs, *outputs],
                [
                    "bool changed = false;",
                    *(port.put for port in inputs),
                    "instance.settle(changed);",
                    *(port.get for port in outputs),
                ],
                more="svBit tick",
            )
        return "\n".join([*lines, ""])

    def _function(
        self,
        kind: str,
        suffix: str,
        ports: Sequence[_Port],
        body: Sequence[str],
        result: str = "",
        more: str = "",
    ) -> list[str]:
        given = ", ".join([
            "void* handle",
            *([more] if more else []),
            *(port.argument for port in ports),
        ])
        return [
            f'extern "C" {kind} {self.name}_{suffix}({given}) {{',
            "    Instance& instance = *static_cast<Instance*>(handle);",
            "    auto& model = instance.model;",
            "    auto& outputs = instance.outputs;",
            *(f"    {line}" for line in body if line),
            *([f"    {result}"] if result else []),
            "}",
        ]


def split(text: str, top: str) -> tuple[str, list[Part]]:
    """Split exported Verilog into the design without its shared modules, and a part for each of
    these modules. `top` : name of the design's top module."""
    told = {name: value for value, name in _TOLD.findall(text)}
    first, *modules = re.split(r"^(?=module )", _TOLD.sub(r"module \2", text), flags=re.MULTILINE)
    last, marker, ending = modules[-1].rpartition("endmodule\n")
    modules[-1] = f"{last}{marker}"
    texts = {top: "", **dict.fromkeys(told, "")}
    for module in modules:
        # A header is "module name(" or "module \\name.of.a.part (".
        path = re.split(r"[ (]", module, maxsplit=2)[1]
        texts[path.removeprefix("\\").partition(".")[0]] += module
    rest = texts.pop(top)
    parts = [_part(name, own, told, first, ending) for name, own in texts.items()]
    return f"{first}{rest}{ending}", parts


def _part(name: str, text: str, told: Mapping[str, str], first: str, ending: str) -> Part:
    pairs = (pair.split(":") for pair in told[name].split())
    follow = {output: tuple(inputs.split(",")) for output, inputs in pairs if inputs}
    inside = (other for other in told if re.search(rf"^  {other} ", text, re.MULTILINE))
    return Part(name, f"{first}{text}{ending}", follow, tuple(inside))


def compile_parts(build: Path, parts: Sequence[Part]) -> tuple[list[Path], list[str]]:
    """Compile each part in a subfolder of `build`. Returns the stub files, and further arguments
    for the build of the remaining design. Raises `RuntimeError` with the end of the log if a part
    does not compile."""
    stubs = {part.name: build / f"{part.name}_stub.sv" for part in parts}
    for part in parts:
        stubs[part.name].write_text(part.stub())
    shutil.copy(GLUE[1], build)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        work = [
            pool.submit(_compile, build / part.name, part, [stubs[one] for one in part.inside])
            for part in parts
        ]
        return [*stubs.values()], [argument for one in work for argument in one.result()]


def _compile(folder: Path, part: Part, stubs: Sequence[Path]) -> list[str]:
    folder.mkdir()
    env = verilator.environment()
    source, model = folder / f"{part.name}.sv", f"V{part.name}"
    source.write_text(part.text)
    program = shutil.which("verilator", path=env.get("PATH")) or "verilator"
    named = ["--cc", "--flatten", "--prefix", model, "--top-module", part.name, "--Mdir", "."]
    arguments = verilator.arguments(waves=False, coverage=False)
    verilator.restore_runtime(folder, arguments, env)
    files = [verilator.WAIVERS, source, *stubs]
    _run(folder, [program, *named, *arguments, *map(str, files)], env)
    _run(folder, ["make", "-f", f"{model}.mk", f"{model}__ALL.a"], env)
    header = (folder / f"{model}___024root.h").read_text()
    previous = re.search(rf"\bCData/\*0:0\*/ (__Vtrigprevexpr_\w*{_CLOCK}\w*);", header)
    if previous is None:
        raise RuntimeError(f"{model}: this Verilator keeps the clock's last value elsewhere")
    glue = folder / f"{part.name}_glue.cpp"
    glue.write_text(part.glue(previous[1]))
    return [str(glue), str(folder / f"{model}__ALL.a"), "-CFLAGS", f"-I{folder}"]


def _valid(name: str, names: Container[str]) -> str | None:
    """The `valid` port of a stream's payload; None for other ports."""
    stream, _, member = name.rpartition("__")
    valid = f"{stream}__valid"
    return valid if member == "payload" and valid in names else None


def _run(folder: Path, command: Sequence[str], env: Mapping[str, str]) -> None:
    with (folder / "build.log").open("a") as log:
        done = subprocess.run(
            command, cwd=folder, env={**os.environ, **env}, stdout=log, stderr=subprocess.STDOUT
        )
    if done.returncode:
        tail = "\n".join((folder / "build.log").read_text().splitlines()[-40:])
        raise RuntimeError(f"{folder.name}: {command[0]} failed\n{tail}")
