"""Testbench of a unit with one clock, cycle by cycle."""

from collections.abc import Callable
from functools import cache
from random import Random
from typing import Any, Self, TypeVar

import cocotb
from amaranth.lib import wiring
from cocotb.triggers import Event, NullTrigger, RisingEdge

from signalbox.hw.lib.amaranth_private import PortDirection
from signalbox.hw.lib.flat_ports import ports
from signalbox.tb.testbench.port import Port
from signalbox.tb.testbench.reset import reset

__all__ = ["Participant", "Testbench", "component"]

C = TypeVar("C", bound=wiring.Component)


@cache
def component(kind: Callable[..., C], *arguments: Any, **options: Any) -> C:
    """The component `kind(*arguments, **options)`, for the names and shapes of its ports. It is
    created once per simulation: creating one per test would take longer than the simulations."""
    return kind(*arguments, **options)


class Participant:
    """A model at some ports of the design. It acts at the beginning and at the end of each
    cycle."""

    def drive(self, cycle: int) -> None:
        """Drive inputs of the design for the cycle that begins."""

    def sample(self, cycle: int) -> None:
        """Sample ports of the design at the end of the cycle."""


class Testbench:
    """Drives a design in steps of one clock cycle. Testbenches of units derive from it.

        class FifoTestbench(Testbench):
            def __init__(self, dut: Any) -> None:
                super().__init__(dut, component(StreamFIFO, 16, 5))
                self.source = Source(self, "i")
                self.sink = Sink(self, "o", pace=self.share(0.5))

        tb = await FifoTestbench(dut).start()
        tb.source.put(0x1234)
        await tb.until(lambda: tb.sink.taken, "a payload leaves")

    In each step all participants drive, in the order in which they joined; then the clock rises;
    then all sample. Samples are taken at the rising edge: they show the outputs of the cycle that
    ends there, which depend on the inputs driven in that cycle. A participant that reacts to a
    sample therefore drives its reaction in the next cycle. The same applies to a test between two
    steps: it sees the cycle that has ended, and drives the one that begins.

    Members
    -------
    dut : the design in the simulator.
    ports : by name; members of nested interfaces are joined with two underscores.
    random : random numbers from the seed of the run.
    cycle : number of the current cycle; between two steps, of the one that begins.
    timeout : default limit of `until`, in cycles.
    """

    timeout = 1000

    def __init__(self, dut: Any, design: wiring.Component) -> None:
        """Drive all inputs with 0. `design` : gives names and shapes of the ports; it is not
        elaborated."""
        self.dut = dut
        self.random = Random(cocotb.RANDOM_SEED)
        self.cycle = 0
        self._drives: list[Callable[[int], None]] = []  # of all participants
        self._samples: list[Callable[[int], None]] = []
        self._passed: Event | None = None
        self._rises = RisingEdge(dut.clk)
        flat = ports(design)
        self.ports: dict[str, Port] = {}
        for path, member, _ in design.signature.flatten(design):
            name = "__".join(map(str, path))
            if name in flat:
                self.ports[name] = port = Port(getattr(dut, name), name, member.shape)
                if flat[name][1] == PortDirection.Input:
                    port.set(0)

    def join(self, participant: Participant) -> None:
        """Add a participant to all following steps. It acts after those that joined before."""
        kind = type(participant)
        if kind.drive is not Participant.drive:
            self._drives.append(participant.drive)
        if kind.sample is not Participant.sample:
            self._samples.append(participant.sample)

    async def start(self) -> Self:
        """Start the clock and reset the design."""
        await reset(self.dut)
        return self

    def drive(self, **inputs: Any) -> None:
        """Drive inputs, by name, from the cycle that begins on. Raises `KeyError` for an unknown
        name."""
        for name, value in inputs.items():
            self.ports[name].set(value)

    def get(self, name: str) -> Any:
        """Value of a port in the cycle that has ended. Raises `KeyError` for an unknown name."""
        return self.ports[name].get()

    async def step(self) -> object:
        """Simulate one cycle."""
        for drive in self._drives:
            drive(self.cycle)
        await self._rises
        for sample in self._samples:
            sample(self.cycle)
        self.cycle += 1
        return None

    def run(self) -> None:
        """Simulate cycles in the background from now on. Several cocotb tasks can then wait at the
        same time, with `steps` and `until`; none of them may call `step`."""
        self._passed = Event()
        cocotb.start_soon(self._run(self._passed))

    async def _run(self, passed: Event) -> None:
        while True:
            await NullTrigger()  # waiting tasks run first, so that they drive this cycle
            await self.step()
            passed.set()
            passed.clear()

    async def steps(self, count: int = 1) -> None:
        """Wait for `count` cycles."""
        for _ in range(count):
            if self._passed is None:
                await self.step()
            else:
                await self._passed.wait()

    async def until(
        self, condition: Callable[[], object], description: str, timeout: int | None = None
    ) -> None:
        """Step until the condition is true; returns at once if it is true already.

        Raises `AssertionError` if it is still false after `timeout` cycles (default: the attribute
        `timeout`). `description` : the condition in words, for the message.
        """
        limit = self.timeout if timeout is None else timeout
        for _ in range(limit):
            if condition():
                return
            await self.steps()
        assert condition(), f"cycle {self.cycle}: not within {limit} cycles: {description}"

    def share(self, fraction: float) -> Callable[[], bool]:
        """A pace that is true in a random fraction (0 to 1) of cycles."""
        return lambda: fraction >= 1 or self.random.random() < fraction

    def between(self, least: int, most: int) -> Callable[[], int]:
        """A latency: a random number of cycles from `least` to `most`, for each request anew."""
        return lambda: self.random.randint(least, most)
