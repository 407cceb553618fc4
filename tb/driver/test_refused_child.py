"""Refused launches of kernels by kernels, read from the registers (NEST-11)."""

import asyncio

import pytest

from signalbox.driver.faults.refused_child import RefusedChild, refused_child
from signalbox.driver.platform.control_port import ControlPort
from signalbox.hw.errors import Refusal
from signalbox.hw.qmd import SkedCheck
from signalbox.tb.driver.fakes.machine import FakeMachine

ZERO = SkedCheck.THREAD_DIMENSION_ZERO


def refuse(machine: FakeMachine, reason: int, check: int, count: int) -> None:
    """Set the machine's registers. Bit positions are repeated as an independent check."""
    words = machine.engine.words
    words["TASK_STATUS"] |= 4
    words["CHILD_REFUSED"] = reason | check << 4 | 3 << 16 | 5 << 26
    words["CHILD_REFUSED_RECORD"] = 0x1234_5678
    words["CHILD_REFUSED_PARENT"] = 0x1234_5679
    words["CHILD_REFUSALS"] = count | 9 << 16


def read(machine: FakeMachine) -> RefusedChild | None:
    return asyncio.run(refused_child(ControlPort(machine)))


@pytest.mark.parametrize(
    ("reason", "check", "count", "text"),
    [
        (12, 0, 1, "DEPTH, its parent is as deep as the limit allows"),
        (13, 0, 7, "for its parent's block; the first of 7 refused launches"),
        (4, ZERO.value, 1, f"CHECK, check {ZERO.value}, THREAD_DIMENSION_ZERO"),
        (4, 63, 1, "CHECK, check 63"),
        (15, 0, 1, "reason 15"),
    ],
)
def test_text(reason: int, check: int, count: int, text: str) -> None:
    """The text names reason and record; after the reading the machine can record the next
    refusal."""
    machine = FakeMachine()
    assert read(machine) is None
    refuse(machine, reason, check, count)
    found = read(machine)
    assert found is not None
    record = "record 0x1234567800 of ASID 3, launched by a kernel of channel 9 at depth 5: "
    assert str(found).startswith(record) and str(found).endswith(text)
    assert machine.engine.words["TASK_STATUS"] == 0 and read(machine) is None


def test_members() -> None:
    machine = FakeMachine()
    refuse(machine, 4, ZERO.value, 2)
    assert read(machine) == RefusedChild(
        Refusal.CHECK, ZERO, 3, 9, 5, 0x12_3456_7800, 2, 0x12_3456_7900
    )


def test_meanings() -> None:
    """Each possible reason for a refused launch is explained."""
    machine = FakeMachine()
    others = {Refusal.NONE, Refusal.KERNEL, Refusal.RELEASE, Refusal.QUEUE, Refusal.TIMEOUT}
    for reason in Refusal:
        refuse(machine, reason.value, 0, 1)
        assert (f": {reason.name}, " in str(read(machine))) == (reason not in others)
