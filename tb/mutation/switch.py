"""Both versions of a place, at run time of a changed source.

Which mutant is alive says the environment, once for a process; or, in hardware, the plusarg
`+mutant=N` of the simulation. 0 is none.
"""

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from amaranth.hdl import Module, Mux, ShapeCastable, Signal, Value, ValueCastable

__all__ = [
    "ALIVE",
    "BUILT",
    "MODULE",
    "NUMBER",
    "PORT",
    "held",
    "pick",
    "reached",
    "unassigned",
    "unless",
    "value",
]

ALIVE = int(os.environ.get("SIGNALBOX_MUTANT", "0"))
"""Number of the mutant that is alive."""

BUILT = os.environ.get("SIGNALBOX_MUTANT_BUILT", "0") == "1"
"""Hardware is elaborated with the mutant in it, without a switch: for proofs."""

NUMBER = Signal(24, name="mutant")
"""In hardware: number of the mutant that is alive."""

PORT = "number"
MODULE = """
module mutant (output reg [23:0] number);
  initial if (!$value$plusargs("mutant=%d", number)) number = 0;
endmodule
"""
"""SystemVerilog that drives `NUMBER`."""

reached: dict[str, set[int]] = {"hardware": set(), "python": set()}
"""Mutants whose place was executed, by what it is there."""


def pick(
    original: Callable[..., Any],
    operands: tuple[Any, ...],
    *variants: tuple[int, Callable[..., Any]],
) -> Any:
    """`original` of the operands, or the variant that is alive."""
    result = original(*operands)
    hardware = isinstance(result, Value | ValueCastable)
    for number, make in variants:
        if not hardware or BUILT:
            reached["python"].add(number)
            if number == ALIVE:
                return make(*operands)
        else:
            result = _switched(number, result, lambda make=make: make(*operands))
    return result


def value(
    original: Callable[[], int], operands: tuple[()], variant: tuple[int, Callable[[], int]]
) -> Any:
    """A constant that is assigned."""
    number, make = variant
    if BUILT:
        return pick(original, operands, variant)
    reached["hardware"].add(number)
    return Mux(NUMBER == number, make(), original())


def held(number: int, target: Any, given: Any) -> Any:
    """`given`, or what `target` is."""
    return _kept(number, given, target)


def unassigned(number: int, target: Any, given: Any) -> Any:
    """`given`, or what `target` is when nothing is assigned."""
    return _kept(number, given, target.init if isinstance(target, Signal) else 0)


def _kept(number: int, given: Any, other: Any) -> Any:
    if BUILT:
        return other if number == ALIVE else given
    try:
        old, new = Value.cast(other), Value.cast(given)
    except TypeError:  # a dictionary or list of fields
        return given
    reached["hardware"].add(number)
    return Mux(NUMBER == number, old, new)


def unless(number: int, m: Module) -> AbstractContextManager[None]:
    """Statements that the mutant leaves out."""
    if BUILT:
        return m.If(number != ALIVE)
    reached["hardware"].add(number)
    return m.If(NUMBER != number)


def _switched(number: int, original: Any, make: Callable[[], Any]) -> Any:
    """Of the shape of `original`; itself if the variant makes no sense."""
    shape, whole = original.shape(), Value.cast(original)
    try:
        mutated = Value.cast(make())
    except Exception:  # of whatever kind: no hardware can be made of it
        return original
    reached["hardware"].add(number)
    chosen = Mux(NUMBER == number, mutated, whole)[: len(whole)]
    if isinstance(shape, ShapeCastable):
        return shape(chosen)
    return chosen.as_signed() if whole.shape().signed else chosen
