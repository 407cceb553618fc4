"""Chooses between the original and the mutants at each place of a changed source, as it runs.

The environment selects the active mutant, once per process. In hardware, the plusarg `+mutant=N` of
the simulation selects it. 0 selects none.
"""

import os
from collections.abc import Callable
from typing import Any

from amaranth.hdl import Module, Mux, Shape, ShapeCastable, ShapeLike, Signal, Value, ValueCastable

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
    "wider",
]

ALIVE = int(os.environ.get("SIGNALBOX_MUTANT", "0"))
"""Number of the active mutant."""

BUILT = os.environ.get("SIGNALBOX_MUTANT_BUILT", "0") == "1"
"""Whether hardware is elaborated with the mutant only, without a switch; for proofs."""

NUMBER = Signal(24, name="mutant")
"""Number of the active mutant, in hardware."""

PORT = "number"
MODULE = """
module mutant (output reg [23:0] number);
  initial if (!$value$plusargs("mutant=%d", number)) number = 0;
endmodule
"""
"""SystemVerilog that drives `NUMBER`."""

reached: dict[str, set[int]] = {"hardware": set(), "invalid": set(), "python": set()}
"""Mutants of which the place was executed, in hardware and in Python. "invalid": in hardware, but
the mutant is not valid hardware."""


def pick(
    original: Callable[..., Any],
    operands: tuple[Any, ...],
    *variants: tuple[int, Callable[..., Any]],
) -> Any:
    """Result of `original`, or of the active one of `variants` (number, function), for these
    operands."""
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
    """A constant in an assignment in hardware: that of `original`, or of `variant` if it is
    active."""
    number, make = variant
    if BUILT:
        return pick(original, operands, variant)
    reached["hardware"].add(number)
    return Mux(NUMBER == number, make(), original())


def wider(shape: ShapeLike, more: int) -> int | Shape:
    """A shape with `more` additional bits. `shape` : a number of bits or a range."""
    if isinstance(shape, int):
        return shape + more
    plain = Shape.cast(shape)
    return Shape(plain.width + more, plain.signed)


def held(number: int, target: Any, given: Any) -> Any:
    """`given`, or the current value of `target` if mutant `number` is active."""
    return _kept(number, given, target)


def unassigned(number: int, target: Any, given: Any) -> Any:
    """`given`, or the value of `target` without an assignment if mutant `number` is active."""
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


def unless(number: int, m: Module) -> Any:
    """Context for statements that mutant `number` omits."""
    if BUILT:
        return m.If(number != ALIVE)
    reached["hardware"].add(number)
    return m.If(NUMBER != number)


def _switched(number: int, original: Any, make: Callable[[], Any]) -> Any:
    """A choice between `original` and the result of `make`, with the shape of `original`. Returns
    only `original` if the result is not valid hardware."""
    shape, whole = original.shape(), Value.cast(original)
    try:
        mutated = Value.cast(make())
    except Exception:  # any kind, if the variant is not valid hardware
        reached["invalid"].add(number)
        return original
    reached["hardware"].add(number)
    chosen: Any = Mux(NUMBER == number, mutated, whole)[: len(whole)]
    if isinstance(shape, ShapeCastable):
        return shape(chosen)
    return chosen.as_signed() if whole.shape().signed else chosen
