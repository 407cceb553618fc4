"""Command-line options for a configuration, derived from the members of `Config`."""

import argparse
import inspect
import pkgutil
import sys
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

from signalbox.hw.config import CONFIGS, LIMITS, Config, ConfigError

__all__ = ["add_core", "add_options", "chosen", "count", "number", "program"]

_FLAGS = {
    "sm_masks": "tasks that can disable SMs",
    "timing_core": "SMs that take time and compute nothing",
    "trace": "a trace port",
}
"""Help text of each bool member."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds `--config NAME`, and one option per member of `Config` that overrides it. The help shows
    the limits."""
    group = parser.add_argument_group("configuration", "Limits, and in brackets the default one.")
    group.add_argument(
        "--config",
        choices=CONFIGS,
        default="default",
        help="start from this one (default: default)",
    )
    for field in fields(Config):
        name = "--" + field.name.replace("_", "-")
        if field.type is bool:
            group.add_argument(
                name,
                action=argparse.BooleanOptionalAction,
                default=None,
                help=_FLAGS[field.name],
            )
        else:
            text = f"{LIMITS[field.name]} [{getattr(CONFIGS['default'], field.name)}]"
            group.add_argument(name, type=number, metavar="N", default=None, help=text)


def chosen(parser: argparse.ArgumentParser, args: argparse.Namespace) -> Config:
    """Configuration given by `args`; one outside its limits exits the program with its message."""
    given = {field.name: getattr(args, field.name) for field in fields(Config)}
    try:
        return replace(CONFIGS[args.config], **{k: v for k, v in given.items() if v is not None})
    except ConfigError as error:
        parser.exit(2, f"{parser.prog}: error: {error}\n")


def number(text: str) -> int:
    """Number of an option, in base 0: sizes can be hexadecimal. Raises `ArgumentTypeError`."""
    try:
        value = int(text, 0)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
    if value.bit_length() > 64:
        raise argparse.ArgumentTypeError(f"{text!r} does not fit 64 bits")
    return value


def count(text: str) -> int:
    """Number of an option that is not negative. Raises `ArgumentTypeError`."""
    value = number(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is negative")
    return value


def add_core(parser: argparse.ArgumentParser) -> None:
    """Adds `--core MODULE:CLASS`; the parsed value is the class, None without the option."""
    parser.add_argument(
        "--core",
        type=_class,
        metavar="MODULE:CLASS",
        help="core of the SMs in place of the supplied one: a component with the SM port, made "
        "from a Config",
    )


def _class(text: str) -> Callable[..., Any]:
    """Resolves a class or function by module and name."""
    if ":" not in text:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form MODULE:CLASS")
    try:
        found = pkgutil.resolve_name(text)
    except (ImportError, AttributeError, ValueError) as error:
        raise argparse.ArgumentTypeError(f"{text!r} cannot be imported: {error}") from error
    if not callable(found):
        raise argparse.ArgumentTypeError(f"{text!r} is no class")
    try:
        inspect.signature(found).bind(Config())
    except (TypeError, ValueError) as error:
        message = f"{text!r} cannot be made from a Config: {error}"
        raise argparse.ArgumentTypeError(message) from error
    return found


def program(module: str) -> str:
    """Name of a command in its messages: that of the command line `signalbox`, else of its
    module."""
    return sys.argv[0] if sys.argv[0].startswith("signalbox ") else f"python -m {module}"
