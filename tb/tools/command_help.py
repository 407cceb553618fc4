"""Help texts of the commands behind make's targets."""

import importlib
import io
import sys
from contextlib import redirect_stdout
from functools import cache
from unittest.mock import patch

__all__ = ["COMMANDS", "help_text"]

COMMANDS = {
    "sim": "signalbox.tb.reports.workload",
    "raw": "signalbox.tb.simulation.raw",
    "prove": "signalbox.tb.proofs.run",
    "mutate": "signalbox.tb.tools.mutation.__main__",
    "nightly": "signalbox.tb.tools.nightly",
    "verilog": "signalbox.hw.verilog",
    "synth": "signalbox.tb.tools.synth",
    "plan": "signalbox.tb.tools.plan",
}
"""Targets with options of their own, and their modules."""


@cache
def help_text(target: str) -> str:
    """What the target's command prints for `--help`."""
    main, shown = importlib.import_module(COMMANDS[target]).main, io.StringIO()
    try:
        with redirect_stdout(shown), patch.object(sys, "argv", [target, "--help"]):
            main()
    except SystemExit as end:
        assert not end.code, f"make {target}: --help is an error"
    return shown.getvalue()
