"""Kill requests while kernels of the tree wait for their releases (PREEMPT-7, NEST-12)."""

from typing import Any

import cocotb

from signalbox.hw.errors import Refusal
from signalbox.hw.registers import KillScope
from signalbox.tb.testbench.ends import Pace, Sink, Source
from signalbox.tb.units.compute.launch import Launch
from signalbox.tb.units.compute.nested_testbench import NestedTestbench

_RELEASE = 1 << 768 + 55
_DEPENDENT = 1 << 512 | 1 << 513
"""Bits of a record: a release, and a dependent task to be scheduled."""
_LEAVES = 6
_SPACE = 3


class SlowReleases(NestedTestbench):
    """Each release takes long, so ended kernels queue up."""

    timeout = 60_000

    def _release_port(self, port: str, pace: Pace) -> None:
        response = Source(self, f"{port}__response", pace)

        def release(request: dict[str, Any]) -> None:
            self.released.append((request["asid"], request["va"]))
            response.put({"passed": 1}, delay=5000)

        Sink(self, f"{port}__request", pace, release)

    def ran(self, kernel: Launch) -> bool:
        """Whether its block has stored its results."""
        space = kernel.asid, 0
        return all(
            self.contents.read(space, va, words.nbytes) == words.tobytes()
            for va, words in kernel.job.results.items()
        )


async def ended_leaves(tb: SlowReleases, more: int = 0) -> tuple[list[Launch], list[Launch]]:
    """Children of a kernel that have ended and wait for their releases one after the other, and
    their dependent tasks. The parent does not join them; `more` : bits of its record."""
    dependents = [tb.kernel(asid=_SPACE) for _ in range(_LEAVES)]
    leaves = [tb.kernel(asid=_SPACE) for _ in range(_LEAVES)]
    parent = tb.kernel(*leaves, asid=_SPACE, joins=False)
    parent.more |= more
    for leaf, dependent in zip(leaves, dependents, strict=True):
        leaf.more |= _RELEASE | _DEPENDENT | dependent.page << 480
        tb.know(leaf)
        tb.parents[dependent.number] = parent.number  # for its channel only
    tb.launch(parent)
    await tb.until(lambda: all(map(tb.ran, leaves)), "all leaves have run")
    await tb.steps(500)
    assert not any(leaf.over for leaf in leaves)
    return leaves, dependents


@cocotb.test()
@cocotb.parametrize(scope=[KillScope.SPACE, KillScope.CONTEXT])
async def ends_in_the_queue(dut: Any, scope: KillScope) -> None:
    """If several kernels have ended and wait for their releases, a request to kill their address
    space or context lets the first two end, whose dependent tasks are refused, and kills the
    others. It is accepted when all are over."""
    tb = await SlowReleases(dut, contexts=2).start()
    kills = Source(tb, "control__kill")
    leaves, dependents = await ended_leaves(tb)
    kills.put({"scope": scope, "asid": _SPACE, "context": _SPACE % 2})
    await tb.until(lambda: bool(kills.sent), "killed")
    killed = tb.cycle
    await tb.until(lambda: tb.get("control__idle"), "idle")
    verdicts = [leaf.verdict for leaf in leaves]
    assert verdicts == [Refusal.NONE] * 2 + [Refusal.KILLED] * (_LEAVES - 2), verdicts
    late = [one.number for one in leaves if one.over is None or one.over > killed]
    alive = [one.number for one in dependents if one.verdict not in {None, Refusal.KILLED}]
    assert not late and not alive, f"accepted in cycle {killed}; later: {late}, {alive}"


@cocotb.test()
@cocotb.parametrize(scope=list(KillScope))
async def others_in_the_queue(dut: Any, scope: KillScope) -> None:
    """A request for another record, address space or context leaves kernels that wait for their
    releases as they are; their dependent tasks run."""
    tb = await SlowReleases(dut, contexts=2).start()
    kills = Source(tb, "control__kill")
    leaves, dependents = await ended_leaves(tb)
    other = _SPACE + 1
    if scope is KillScope.TASK:
        request = {"asid": other, "page": leaves[-1].page, "context": _SPACE % 2}
    else:
        request = {"asid": other, "context": other % 2}
    kills.put({"scope": scope} | request)
    await tb.until(lambda: bool(kills.sent), "accepted")
    await tb.until(lambda: tb.get("control__idle"), "idle")
    assert {one.verdict for one in (*leaves, *dependents)} == {Refusal.NONE}


@cocotb.test()
async def waiting_parent(dut: Any) -> None:
    """A kernel that has ended and waits for its children is killed by a request for its record: it
    fails when they are complete, without releases and dependent tasks. Its children end
    normally."""
    tb = await SlowReleases(dut).start()
    kills = Source(tb, "control__kill")
    dependent = tb.kernel(asid=_SPACE)
    more = _RELEASE | _DEPENDENT | dependent.page << 480
    leaves, _ = await ended_leaves(tb, more)
    parent = tb.tasks[_SPACE, leaves[0].page + _LEAVES]
    kills.put({"scope": KillScope.TASK, "asid": _SPACE, "page": parent.page})
    await tb.until(lambda: bool(kills.sent), "accepted")
    assert parent.over is None
    await tb.until(lambda: tb.get("control__idle"), "idle")
    assert {leaf.verdict for leaf in leaves} == {Refusal.NONE}
    assert (parent.verdict, dependent.over) == (Refusal.KILLED, None)
    assert len(tb.released) == _LEAVES
