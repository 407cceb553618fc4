"""Building blocks of proofs.

`AnyConst`, `AnySeq` and `Initial` are not documented in Amaranth 0.5. Proofs import them, and the
checks, from this module.
"""

from collections.abc import Callable, Collection
from typing import Any, ClassVar

from amaranth import (
    Cat,
    Elaboratable,
    EnableInserter,
    Module,
    ResetInserter,
    Shape,
    ShapeCastable,
    ShapeLike,
    Signal,
    Value,
)
from amaranth.asserts import AnyConst, AnySeq, Initial
from amaranth.hdl import Assert, Assume, Cover
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.lib.amaranth_private import driven, state_machine

__all__ = [
    "BREAKS",
    "AnyConst",
    "AnySeq",
    "Assert",
    "Assume",
    "Cover",
    "Initial",
    "Inside",
    "Proof",
    "Wrap",
    "anything",
    "arbitrary",
    "queue_of_two",
    "stays",
    "surround",
]

Wrap = Callable[[Elaboratable], Any]
"""Returns the submodule to use for a component: the component itself, or a broken version."""


class Proof:
    """A proof: a design, its environment and its properties.

    The docstring of each proof gives its scope, such as "for any row", and its assumptions about
    the environment.

    Attributes
    ----------
    name : "unit.subject".
    shows : the theorem, one sentence for the report.
    induction : depth of k-induction, for an unbounded proof; 0 for a bounded one.
    bounded : number of cycles from reset, for a proof on which induction does not succeed.
    cover : number of cycles within which each `Cover` must be reached; 0 if there is none.
    breaks : keys of `BREAKS`. The proof must fail on designs broken in these ways.
    long : whether the proof takes more than about a minute, or is about an option. Such proofs run
        only on request.
    """

    name: ClassVar[str]
    shows: ClassVar[str]
    induction: ClassVar[int] = 0
    bounded: ClassVar[int] = 0
    cover: ClassVar[int] = 0
    breaks: ClassVar[tuple[str, ...]] = ("forget", "freeze")
    long: ClassVar[bool] = False

    def build(self, m: Module, wrap: Wrap) -> None:
        """Add the components, as `m.submodules.name = wrap(component)`, and the properties.

        There is no reset: the initial state is the state after reset.
        """
        raise NotImplementedError


class Machine:
    """A state machine of a component, for its states."""

    def __init__(self, machine: Any) -> None:
        self._machine = machine

    def ongoing(self, *states: str) -> Value:
        """Whether the state machine is in one of these states."""
        return Cat(self._machine.ongoing(state) for state in states).any()


class Inside:
    """Access to registers, wires, state machines and submodules of a component by their names in
    the RTL, for invariants; like `bind` in SystemVerilog.

    Apart from this, proofs use only public members of a component. A signal without a descriptive
    name gets one in `hw`, with `name=`.

    Create it before the component becomes a submodule.
    """

    def __init__(self, component: Elaboratable) -> None:
        self._module = module = component.elaborate("formal")
        component.elaborate = lambda platform: module
        self._signals = {}
        for signal in driven(module):
            self._signals.setdefault(signal.name, []).append(signal)

    def signal(self, name: str, shape: ShapeCastable | None = None) -> Any:
        """The signal with this name that the component drives. `shape` : layout or enumeration, for
        a view of the signal. Raises `KeyError` if there is no such signal, `ValueError` if there
        are several."""
        (signal,) = self._signals[name]
        return signal if shape is None else shape(signal)

    def machine(self, name: str) -> Machine:
        """The state machine of that name."""
        return Machine(state_machine(self._module, name))

    def submodule(self, name: str) -> Any:
        """The submodule of this name."""
        return getattr(self._module.submodules, name)

    def abstract(self, *names: str) -> None:
        """Replace the submodules of these names by their ports, with unconstrained outputs. A
        property that holds with the replacements holds for any behaviour of the submodules."""
        for name in names:
            component = self.submodule(name)
            module = _unconstrained(component)
            component.elaborate = lambda platform, module=module: module


def _unconstrained(component: wiring.Component) -> Module:
    """Gives arbitrary values to the outputs of a component."""
    m = Module()
    for path, member, signal in component.signature.flatten(component):
        if member.flow is Out:
            arbitrary(m, signal, "_".join(map(str, path)))
    return m


def anything(m: Module, shape: ShapeLike, name: str) -> Any:
    """A signal with an arbitrary value in each cycle."""
    signal = Signal(shape, name=name)
    m.d.comb += Value.cast(signal).eq(AnySeq(Shape.cast(shape)))
    return signal


def arbitrary(m: Module, target: Any, name: str) -> None:
    """Give `target` an arbitrary value in each cycle."""
    value = Value.cast(target)
    m.d.comb += value.eq(anything(m, len(value), name))


def surround(m: Module, port: Any, name: str, *, but: Collection[str] = ()) -> None:
    """Leave the inputs of `port`, a component or a stream, unconstrained, except the members
    `but`."""
    for path, member, signal in port.signature.flatten(port):
        if member.flow is In and path[0] not in but:
            arbitrary(m, signal, "_".join(map(str, (name, *path))))


def stays(m: Module, stream: Any, check: Any, name: str) -> None:
    """Check (`check` is Assert or Assume) that an offer is held until it is taken (stream rule
    2)."""
    payload = Value.cast(stream.payload)
    offered = Signal(name=f"{name}_offered")
    before = Signal(payload.shape(), name=f"{name}_before")
    m.d.sync += [offered.eq(stream.valid & ~stream.ready), before.eq(payload)]
    with m.If(offered):
        m.d.comb += check(stream.valid & (payload == before))


def queue_of_two(
    m: Module, shape: ShapeLike, push: Any, word: Any, pop: Any, name: str
) -> tuple[Any, Any, Signal]:
    """Specification of a queue. Returns its first and second word, and its level, 0 to 2.

    The level is asserted to stay within these limits.
    """
    first = Signal(shape, name=f"{name}_first")
    second = Signal(shape, name=f"{name}_second")
    level = Signal(2, name=f"{name}_level")
    m.d.sync += level.eq(level + push - pop)
    m.d.comb += Assert(level <= 2)
    with m.If(pop):
        m.d.sync += first.eq(second)
        m.d.comb += Assert(level != 0)
    with m.If(push):
        with m.If(level == pop):
            m.d.sync += first.eq(word)
        with m.Else():
            m.d.sync += second.eq(word)
    return first, second, level


def _forget(component: Elaboratable) -> Elaboratable:
    """`component` with a fault: it may lose its state in any cycle."""
    return _Disturbed(component, ResetInserter)


def _freeze(component: Elaboratable) -> Elaboratable:
    """`component` with a fault: its state may fail to change in any cycle."""
    return _Disturbed(component, EnableInserter)


class _Disturbed(Elaboratable):
    def __init__(self, component: Elaboratable, inserter: Any) -> None:
        self.component = component
        self.inserter = inserter

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        control = anything(m, 1, "disturbance")
        m.submodules.disturbed = self.inserter({"sync": control})(self.component)
        return m


BREAKS: dict[str, Wrap] = {"forget": _forget, "freeze": _freeze}
"""Ways to break a design, by name."""
