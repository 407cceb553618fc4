"""The command `signalbox`: tools of the repository's Makefile, for use in any folder.

    signalbox sim [WORKLOAD] [options]
    signalbox serve [options]
    signalbox verilog [options]
    signalbox COMMAND --help

Builds go to the folder named by `SIGNALBOX_BUILD`; by default to `sim_build` in the current folder,
or at the top of the checkout if the current folder is inside it.
"""

import importlib
import sys

from signalbox.tb.folders import BUILD, SIM_BUILD, shown

__all__ = ["main"]

_COMMANDS = {
    "sim": ("signalbox.tb.reports.workload", "run a workload on the RTL and show its results"),
    "raw": ("signalbox.tb.simulation.raw", "run a pushbuffer of other software on the RTL"),
    "serve": ("signalbox.tb.reports.serve", "serve a machine to other processes"),
    "status": ("signalbox.tb.reports.server_status", "show the applications of a server"),
    "verilog": ("signalbox.hw.verilog", "write SystemVerilog and the register map"),
    "synth": ("signalbox.tb.tools.synth", "report size and clock on an ECP5 (extra `check`)"),
    "prove": ("signalbox.tb.proofs.run", "run proofs with SymbiYosys (extra `check`)"),
}
"""Module and description of each command."""


def main() -> int:
    """Run the command line; returns its exit status."""
    name = sys.argv[1] if len(sys.argv) > 1 else "--help"
    if name in {"-h", "--help"}:
        print(_usage())
        return 0
    if name not in _COMMANDS:
        print(
            f"signalbox: error: no command {name!r}; there are {', '.join(_COMMANDS)}",
            file=sys.stderr,
        )
        return 2
    sys.argv[:2] = [f"signalbox {name}"]
    sys.path.insert(0, "")  # for imports from the current folder, of a core, say
    module = importlib.import_module(_COMMANDS[name][0])
    return module.main() or 0


def _usage() -> str:
    lines = [f"  {name:8} {about}" for name, (_, about) in _COMMANDS.items()]
    return "\n".join([
        "usage: signalbox COMMAND [arguments]",
        "",
        *lines,
        "",
        f"signalbox COMMAND --help shows the arguments. Builds go to {shown(SIM_BUILD)} ({BUILD}).",
    ])
