"""Command line of a server: `python -m signalbox.tb.reports.serve`.

    signalbox serve [--socket PATH] [limits] [configuration options]
    signalbox status [--socket PATH]

The server listens on a local socket, by default `sim_build/server/socket`, until it is interrupted,
or its last application has gone. Applications use it with `Device.open(path)` or
`driver.blocking.connect(path)`.
"""

import argparse
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import get_args

from signalbox.driver.channel.interleave import GroupSettings, Interleave
from signalbox.driver.compute.preemption import LEVELS
from signalbox.driver.runtime.own_machine import Scheduling
from signalbox.driver.server.issue_policy import Policy
from signalbox.driver.server.memory_need import least_memory
from signalbox.driver.server.settings import ServerSettings
from signalbox.driver.text_table import counted
from signalbox.hw import options
from signalbox.hw.config import Config, ConfigError
from signalbox.tb.folders import shown
from signalbox.tb.reports.served import write
from signalbox.tb.simulation.served_machine import SOCKET, serve
from signalbox.tb.simulation.top import LARGEST_MEMORY
from signalbox.tb.simulation.trace import parse

__all__ = ["add_socket", "main"]

_MEMORY_BYTES = 1 << 26

_INTERLEAVE = [level.name.lower() for level in Interleave]


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line of `serve`; returns its exit status."""
    parser = argparse.ArgumentParser(
        prog=options.program("signalbox.tb.reports.serve"),
        description="Serve a simulated machine to other processes, until interrupted.",
    )
    add_socket(parser)
    parser.add_argument(
        "--until-left", action="store_true", help="end when the last application has gone"
    )
    parser.add_argument(
        "--timeline", type=Path, metavar="FILE", help="write a timeline for Perfetto at the end"
    )
    _add_limits(parser)
    options.add_options(parser)
    args = parser.parse_args(arguments)
    config = options.chosen(parser, args)
    if args.memory_bytes is None:
        config = replace(config, memory_bytes=min(_MEMORY_BYTES, LARGEST_MEMORY))
    names = (
        "applications",
        "memory_each",
        "channels_each",
        "launches_each",
        "queue_each",
        "streams_each",
    )
    try:
        settings = ServerSettings(
            **{name: getattr(args, name) for name in names},
            policy=args.policy,
            weights=dict(args.weight),
            priorities=dict(args.priority),
            scheduling=args.scheduling,
            turns=dict(args.turn),
            interleave=dict(args.interleave),
            depth=args.depth,
            greatest=dict(args.greatest),
            sm_sets=dict(args.sm_set),
            context_each=args.context_each,
            level=args.level,
            slice_cycles=args.slice,
            patience_cycles=args.patience,
        )
        _check(config, settings)
        if args.timeline:
            args.timeline.touch()
        print(f"building, then listening at {shown(args.socket)}", file=sys.stderr, flush=True)
        outcome = serve(
            config,
            settings,
            args.socket,
            until_left=args.until_left,
            journal=args.timeline is not None,
        )
        if args.timeline:
            with outcome.trace.open() as lines:
                write(args.timeline, outcome.journal, parse(lines), sms=config.sms)
    except (ConfigError, ValueError, RuntimeError, OSError) as error:
        parser.exit(2, f"{parser.prog}: error: {error}\n")
    except AssertionError as error:
        parser.exit(1, f"FAILED: {error}\n")
    except KeyboardInterrupt:
        return 130
    if args.timeline:
        print(f"timeline: {shown(args.timeline)} (ui.perfetto.dev)")
    print(f"{counted(outcome.served, 'application')} in {outcome.cycle:,} cycles")
    if outcome.kept:
        left = ", ".join(f"{number:,} {name}" for name, number in outcome.kept.items())
        print(f"not returned by the applications: {left}", file=sys.stderr)
    return int(bool(outcome.kept))


def _named(text: str) -> tuple[str, int]:
    """Application name and number of an argument NAME=N. Raises `ArgumentTypeError`."""
    name, equals, value = text.rpartition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form NAME=N")
    return name, options.number(value)


def _sm_set(text: str) -> tuple[str, list[int]]:
    """Application name and SMs of an argument NAME=0-3,6. Raises `ArgumentTypeError`."""
    name, equals, value = text.rpartition("=")
    parts = [re.fullmatch(r"(\d{1,4})(?:-(\d{1,4}))?", part) for part in value.split(",")]
    if not equals or not all(parts):
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form NAME=0-3,6")
    pairs = [(int(part[1]), int(part[2] or part[1])) for part in parts if part]
    return name, [sm for low, high in pairs for sm in range(low, high + 1)]


def _level(text: str) -> tuple[str, str]:
    """Application name and interleave level of an argument NAME=LEVEL. Raises
    `ArgumentTypeError`."""
    name, equals, value = text.rpartition("=")
    if not equals or value not in _INTERLEAVE:
        levels = "|".join(_INTERLEAVE)
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form NAME={levels}")
    return name, value


def _check(config: Config, settings: ServerSettings) -> None:
    """Check that the machine can serve applications with these settings.

    Raises `ConfigError` if it cannot run their contexts and channels, or has no memory for one of
    them; `ValueError` if it cannot keep blocks on the SMs of their applications.
    """
    if settings.context_each and settings.level == "cilp" and not config.save_places:
        raise ConfigError(
            "--context-each, level = cilp: the machine cannot save blocks; give it "
            "--save-places N, or choose another level"
        )
    if settings.scheduling == "runlist" and not config.runlist_entries:
        raise ConfigError("--scheduling runlist: give the machine --runlist-entries N")
    settings.check(config)
    if config.memory_bytes < (least := least_memory(config, settings)):
        raise ConfigError(
            f"--memory-bytes {config.memory_bytes}: the server and one application with "
            f"--memory-each {settings.memory_each} need {least} at least"
        )


def add_socket(parser: argparse.ArgumentParser) -> None:
    """Add the option `--socket PATH`."""
    parser.add_argument("--socket", type=Path, default=SOCKET, help=f"default: {shown(SOCKET)}")


def _add_limits(parser: argparse.ArgumentParser) -> None:
    """Add options for the members of `ServerSettings`."""
    limits = ServerSettings()
    group = parser.add_argument_group("limits", "Of each application; in brackets the defaults.")
    for name, text in (
        ("applications", "at a time"),
        ("memory_each", "bytes of memory"),
        ("channels_each", "channels"),
        ("launches_each", "tasks on the machine"),
        ("queue_each", "pointers on its queue"),
        ("streams_each", "streams; 0: any number"),
    ):
        flag, default = "--" + name.replace("_", "-"), getattr(limits, name)
        group.add_argument(
            flag, type=options.number, metavar="N", default=default, help=f"{text} [{default}]"
        )
    group.add_argument("--policy", choices=[*Policy], default=limits.policy)
    for name, text in (
        ("weight", "pointers per turn, with --policy weighted [1]"),
        ("priority", "a higher one goes first, with --policy priority [0]"),
        ("greatest", "greatest stream priority, 0 … -5; name *: of all others [-5]"),
        ("turn", f"ns of the host, with --scheduling runlist [{GroupSettings().slice_ns}]"),
    ):
        group.add_argument(
            f"--{name}", type=_named, action="append", metavar="NAME=N", default=[], help=text
        )
    group.add_argument(
        "--sm-set",
        type=_sm_set,
        action="append",
        metavar="NAME=SMS",
        default=[],
        help="SMs that take its blocks, such as 0-3,6, with --sm-masks; name *: of others [all]",
    )
    group.add_argument(
        "--scheduling",
        choices=get_args(Scheduling),
        default=limits.scheduling,
        help=f"of channels: by their own slices, or by a runlist [{limits.scheduling}]",
    )
    group.add_argument(
        "--interleave",
        type=_level,
        action="append",
        metavar="NAME=LEVEL",
        default=[],
        help=f"{', '.join(_INTERLEAVE)}, with --scheduling runlist [{_INTERLEAVE[0]}]",
    )
    group.add_argument(
        "--depth", type=options.number, default=limits.depth, help="nesting depth of kernels"
    )
    group.add_argument(
        "--context-each",
        action="store_true",
        help="each application has a context of its own, and they run in turn",
    )
    group.add_argument(
        "--level",
        choices=[*LEVELS],
        default=limits.level,
        help="how tasks leave the SMs at the end of the slice, with --context-each [cilp]",
    )
    group.add_argument(
        "--slice",
        type=options.number,
        metavar="CYCLES",
        default=limits.slice_cycles,
        help=f"of a context, with --context-each [{limits.slice_cycles}]",
    )
    group.add_argument(
        "--patience",
        type=options.number,
        metavar="CYCLES",
        default=limits.patience_cycles,
        help="after which tasks without an end are killed, if others wait "
        f"[{limits.patience_cycles}]; 0: never",
    )


if __name__ == "__main__":
    sys.exit(main())
