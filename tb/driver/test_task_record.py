"""Task records as bytes: bit positions and refused values, compared with the model."""

from dataclasses import replace

import pytest

from signalbox.driver.compute.occupancy import BlockError
from signalbox.driver.compute.qmd import Release, TaskRecord
from signalbox.hw.config import Config
from signalbox.hw.qmd import DependentAction, Placement, ReleaseOp
from signalbox.tb.models.tasks import FIELDS, Machine, Task, buffers, judge

CONFIG = Config()
MACHINE = Machine(CONFIG.sm_warps, CONFIG.sm_registers, CONFIG.sm_shared)
RECORD = TaskRecord(program=0x1_2345_6788, registers=9, grid=(5, 6, 7), block=(8, 4, 2))


def bits(record: TaskRecord, low: int, width: int) -> int:
    word = int.from_bytes(record.pack(CONFIG), "little")
    return word >> low & (1 << width) - 1


def test_is_what_it_says() -> None:
    record = replace(RECORD, priority=63, shared=1025, barrier=True, head=True)
    word = int.from_bytes(record.pack(CONFIG), "little")
    assert judge(word, MACHINE) == Task(
        priority=63,
        barrier=True,
        warps=2,
        registers=3,
        block_registers=6,
        shared=2,
        grid=(5, 6, 7),
        first=(0, 0, 0),
        blocks=210,
    )
    fields = {name: word >> low & (1 << width) - 1 for name, (low, width) in FIELDS.items()}
    assert fields["head"] == 1 and fields["buffer"] == 0
    assert fields["program_high"] << 32 | fields["program_low"] == 0x1_2345_6788


def test_arguments_and_placement() -> None:
    record = replace(
        RECORD, arguments=0x1_FFFF_0000_0010, argument_bytes=48, placement=Placement.DEEP
    )
    assert bits(record, 640, 1) == 1 and bits(record, 1075, 13) == 3
    assert bits(record, 1024, 49) == 0x1_FFFF_0000_0010
    assert bits(record, 138, 2) == 2


def test_constant_buffers() -> None:
    record = replace(
        RECORD, arguments=0x10, argument_bytes=16, constants={3: (0x1_FFFF_0000_0014, 131_056)}
    )
    word = int.from_bytes(record.pack(CONFIG), "little")
    assert buffers(word) == {0: (0x10, 16), 3: (0x1_FFFF_0000_0014, 131_056)}
    assert isinstance(judge(word, MACHINE), Task)


def test_releases_and_dependent_task() -> None:
    record = replace(
        RECORD,
        releases=(
            Release(0xAB_1234_5678, 7),
            Release(0x1000, (1 << 64) - 1, wide=True, timestamp=True, interrupt=True),
            Release(0x2000, 5, reduction=ReleaseOp.MAX, signed=True),
        ),
        dependent=0x12_3456_7800,
        action=DependentAction.DECREMENT_DEPENDENCE,
    )
    for first in (768, 896, 1664):
        assert bits(record, first + 55, 1) == 1
    assert bits(record, 768, 40) == 0xAB_1234_5678 and bits(record, 832, 64) == 7
    assert bits(record, 768 + 62, 2) == 1 and bits(record, 896 + 62, 2) == 0
    assert bits(record, 896 + 61, 1) == 1 and bits(record, 960, 64) == (1 << 64) - 1
    assert bits(record, 896 + 59, 2) == 1 and bits(record, 768 + 59, 2) == 0
    assert bits(record, 1664 + 58, 1) == 1 and bits(record, 1664 + 52, 3) == 2
    assert bits(record, 1664 + 56, 2) == 1
    assert bits(record, 480, 32) == 0x1234_5678 and bits(record, 512, 4) == 1 | 4 << 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"grid": (0, 1, 1)}, "is empty"),
        ({"grid": (1 << 31, 2, 1)}, "2\\^32 blocks"),
        ({"grid": (1, 1 << 16, 1)}, "CTA_RASTER_HEIGHT = 0x10000 does not fit its 16 bits"),
        ({"program": 4}, "not a multiple of 8"),
        ({"program": 1 << 49}, "does not fit 49 bits"),
        ({"priority": 64}, "priority = 64"),
        ({"argument_bytes": 8}, "not a multiple of 16"),
        ({"constants": {0: (0, 16)}}, "constant buffer 0: 1 … 7; 0 holds the arguments"),
        ({"constants": {8: (0, 16)}}, "constant buffer 8: 1 … 7"),
        ({"constants": {1: (0, 8)}}, "constant buffer 1 of 8 bytes: a multiple of 16"),
        ({"constants": {1: (0, 131_072)}}, "constant buffer 1 of 131072 bytes: .*131056 at most"),
        ({"constants": {1: (2, 16)}}, "constant buffer 1 at 0x2: a multiple of 4 of 49 bits"),
        ({"constants": {1: (1 << 49, 16)}}, "constant buffer 1 at 0x2000000000000"),
        ({"local": 8}, "local = 8: a multiple of 16, 524272 at most"),
        ({"local": 1 << 19}, "local = 524288"),
        ({"releases": (Release(0, 0),) * 4}, "4 releases: 3 at most"),
        ({"releases": (Release(1 << 40, 0),)}, "RELEASE0_ADDRESS_UPPER = 0x100 does not fit"),
        ({"dependent": 0x80}, "not a multiple of 256"),
    ],
)
def test_refused(changes: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(RECORD, **changes).pack(CONFIG)


def test_too_big_for_the_machine() -> None:
    with pytest.raises(BlockError, match="registers: a block needs 8192"):
        replace(RECORD, registers=128).pack(CONFIG)
