"""Exports the machine as SystemVerilog.

    python -m signalbox.hw.verilog [--output FOLDER] [configuration options]

Writes four files, identical on every machine:

signalbox.sv : SystemVerilog of `hw/top.py`, module `signalbox`, self-contained.
signalbox.md : the register map, for people.
signalbox.h : the register map, for C programs.
signalbox.json : the configuration and the ports.
"""

import argparse
import json
import os
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from signalbox.hw import export, options, register_map
from signalbox.hw.config import Config
from signalbox.hw.lib.amaranth_private import PortDirection
from signalbox.hw.registers import VERSION
from signalbox.hw.sm.port import CoreError, CoreFactory
from signalbox.hw.top import Signalbox

__all__ = ["NAME", "files", "main"]

NAME = "signalbox"
"""Name of the top module, and of the files without suffix."""


def files(config: Config, core: CoreFactory | None = None) -> dict[str, str]:
    """Name and text of every file for a machine with `config` and `core`.

    Raises `CoreError`.
    """
    design = Signalbox(config, core)
    manifest = {
        "module": NAME,
        "version": "{}.{}".format(*VERSION),
        "config": asdict(config),
        "ports": list(_ports(design)),
    }
    return {
        f"{NAME}.sv": export.verilog(design, NAME),
        f"{NAME}.md": register_map.markdown(config),
        f"{NAME}.h": register_map.header(config),
        f"{NAME}.json": json.dumps(manifest, indent=2) + "\n",
    }


def _ports(design: Signalbox) -> Iterator[dict[str, str | int]]:
    """Name, direction and width of every port; all, including `rst`, are synchronous to `clk`."""
    for name in ("clk", "rst"):
        yield {"name": name, "direction": PortDirection.Input.value, "width": 1}
    for name, (value, direction) in export.ports(design).items():
        yield {"name": name, "direction": direction.value, "width": len(value)}


def main(arguments: list[str] | None = None) -> None:
    """Writes the files and prints their names."""
    parser = argparse.ArgumentParser(
        prog=options.program("signalbox.hw.verilog"),
        description="Write SystemVerilog, the register map (Markdown, C header) and a list of "
        "the ports (JSON) of one configuration.",
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=Path(os.environ.get("SIGNALBOX_BUILD", "sim_build"), "verilog"),
        metavar="FOLDER",
        help="where to write (default: %(default)s)",
    )
    options.add_core(parser)
    options.add_options(parser)
    args = parser.parse_args(arguments)
    config = options.chosen(parser, args)
    try:
        args.output.mkdir(parents=True, exist_ok=True)
        for name, text in files(config, args.core).items():
            (args.output / name).write_text(text, encoding="utf-8")
            print(args.output / name)
    except CoreError as error:
        parser.exit(2, f"{parser.prog}: error: {error}\n")
    except OSError as error:
        parser.exit(2, f"{parser.prog}: error: cannot write to {args.output}: {error.strerror}\n")


if __name__ == "__main__":
    main()
