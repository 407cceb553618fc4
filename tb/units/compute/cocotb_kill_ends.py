"""Kill requests while kernels of the tree wait for their releases (PREEMPT-7, NEST-12)."""

from typing import Any

import cocotb
import numpy as np

from signalbox.hw.errors import Refusal
from signalbox.hw.registers import KillScope
from signalbox.tb.testbench.ends import Pace, Sink, Source
from signalbox.tb.units.compute.launch import Launch
from signalbox.tb.units.compute.nested_testbench import NestedTestbench, Sum

_RELEASE = 1 << 768 + 55
_DEPENDENT = 1 << 512 | 1 << 513
"""Bits of a record: a release, and a dependent task to be scheduled."""
_LEAVES = 6


class SlowReleases(NestedTestbench):
    """Each release takes long, so ended kernels queue up."""

    def _release_port(self, port: str, pace: Pace) -> None:
        response = Source(self, f"{port}__response", pace)

        def release(request: dict[str, Any]) -> None:
            self.released.append((request["asid"], request["va"]))
            response.put({"passed": 1}, delay=2000)

        Sink(self, f"{port}__request", pace, release)

    def ran(self, kernel: Launch) -> bool:
        """Whether its block has run."""
        job = kernel.job
        assert isinstance(job, Sum)
        marks = self.contents.read((kernel.asid, 0), job.marks, 4)
        return bool(np.frombuffer(marks, np.uint32)[0])


@cocotb.test()
async def ends_in_the_queue(dut: Any) -> None:
    """If several kernels have ended and wait for their releases, a request to kill their address
    space lets the first ones end, whose dependent tasks are refused, and kills the others. It is
    accepted when all are over."""
    tb = await SlowReleases(dut).start()
    kills = Source(tb, "control__kill")
    dependents = [tb.kernel(asid=3) for _ in range(_LEAVES)]
    leaves = [tb.kernel(asid=3) for _ in range(_LEAVES)]
    parent = tb.kernel(*leaves, asid=3, joins=False)
    for leaf, dependent in zip(leaves, dependents, strict=True):
        leaf.more |= _RELEASE | _DEPENDENT | dependent.page << 480
        tb.know(leaf)
        tb.parents[dependent.number] = parent.number  # for its channel only
    tb.launch(parent)
    await tb.until(lambda: all(map(tb.ran, leaves)), "all leaves have run")
    await tb.steps(500)
    assert not any(leaf.over for leaf in leaves)
    kills.put({"scope": KillScope.SPACE, "asid": 3})
    await tb.until(lambda: bool(kills.sent), "killed")
    killed = tb.cycle
    await tb.until(lambda: tb.get("control__idle"), "idle")
    verdicts = [leaf.verdict for leaf in leaves]
    assert {*verdicts} == {Refusal.NONE, Refusal.KILLED}, verdicts
    late = [one.number for one in leaves if one.over is None or one.over > killed]
    alive = [one.number for one in dependents if one.verdict not in {None, Refusal.KILLED}]
    assert not late and not alive, f"accepted in cycle {killed}; later: {late}, {alive}"
