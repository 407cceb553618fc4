"""The register description: no overlaps, fixed addresses, refused values."""

from itertools import pairwise

import pytest

from signalbox.hw.config import CONFIGS, Config
from signalbox.hw.methods import AcquireTimer, pack
from signalbox.hw.registers import (
    ADDRESS_BITS,
    CHANNEL,
    GLOBAL,
    REGISTERS,
    SEMAPHORE,
    Access,
    address,
    channel_address,
    channel_word,
    semaphore_address,
)

FIXED = {
    "ID": 0x000,
    "VERSION": 0x004,
    "CHANNELS": 0x008,
    "COPY_ENGINES": 0x00C,
    "SEMAPHORES": 0x010,
    "COUNTERS": 0x014,
    "DATA_WIDTH": 0x018,
    "ADDRESS_WIDTH": 0x01C,
    "MEMORY_BYTES_LO": 0x020,
    "MEMORY_BYTES_HI": 0x024,
    "ASIDS": 0x028,
    "CYCLE_NS": 0x02C,
    "SEM_WINDOW_LO": 0x030,
    "SEM_WINDOW_HI": 0x034,
    "PREFETCH_BEATS": 0x038,
    "TIME_0": 0x080,
    "TIME_1": 0x084,
    "DOORBELL": 0x090,
    "INTR": 0x100,
    "INTR_ENABLE": 0x104,
    "INTR_COPY_HI": 0x11C,
    "SEM_COUNTING": 0x140,
    "WRITEBACK": 0x144,
    "METHODS": 0x180,
    "DOORBELLS": 0x1A4,
    "MMU_COMMAND": 0x218,
    "MMU_STATUS": 0x21C,
    "FAULT_PUT": 0x250,
    "FAULT_STATUS": 0x254,
    "FAULT_RECORD_0": 0x260,
    "RUNLIST_BASE_LO": 0x300,
    "RUNLIST_BASE_HI": 0x304,
    "RUNLIST_SUBMIT": 0x308,
    "RUNLIST_INFO": 0x30C,
    "RUNLIST_STATUS": 0x31C,
    "RUNLIST_ERROR": 0x320,
    "RUNLIST_ENTRIES": 0x324,
    "MASKED_SMS": 0x328,
}
"""Addresses that existing programs rely on."""


def test_addresses_do_not_overlap():
    places = []
    for block in REGISTERS:
        for index in range(block.count):
            places += [block.address(register.name, index) for register in block]
    assert len(set(places)) == len(places)
    assert all(place % 4 == 0 and 0 <= place < 1 << ADDRESS_BITS for place in places)


def test_blocks_hold_their_registers():
    spans = sorted((block.base, block.base + block.count * block.stride) for block in REGISTERS)
    assert all(end <= start for (_, end), (start, _) in pairwise(spans))
    for block in REGISTERS:
        offsets = [register.offset for register in block]
        assert offsets == sorted(offsets) and offsets[-1] < block.stride
        assert len({register.name for register in block}) == len(offsets)
        # The decoder relies on this.
        assert block.stride & (block.stride - 1) == 0
        assert block.base % (block.count * block.stride) == 0
        assert all(block.built(config) <= block.count for config in CONFIGS.values())


def test_every_limit_fits():
    assert CHANNEL.built(Config(channels=64)) == CHANNEL.count
    assert SEMAPHORE.built(Config(semaphores=1024)) == SEMAPHORE.count


def test_fields_do_not_overlap():
    for block in REGISTERS:
        for register in block:
            used = 0
            for field in register.fields:
                assert 0 <= field.lo <= field.hi < 32
                assert not used & field.mask, f"{register.name}.{field.name}"
                used |= field.mask
            assert register.mask == (used or 0xFFFF_FFFF)
            assert len({field.name for field in register.fields}) == len(register.fields)
            assert register.reset is None or not register.reset & ~register.mask


@pytest.mark.parametrize(("asids", "bits"), [(1024, 0x3FF), (65, 0x7F), (64, 0x3F), (16, 0xF)])
def test_bits_of_missing_asids_are_not_stored(asids: int, bits: int):
    config = Config(asids=asids)
    for register, place in (CHANNEL["CONFIG"], 0), (GLOBAL["TASK_LISTS_SIZE"], 16):
        assert register.mask & ~register.stored(config) == (0x3FF & ~bits) << place
    assert CHANNEL["SLICE"].stored(config) == 0xFFFF_FFFF


def test_places():
    assert {name: address(name) for name in FIXED} == FIXED
    assert channel_address(3, "GP_BASE") == 0x4308
    assert channel_word("GP_BASE") == 2
    assert semaphore_address(5, "TIMESTAMP_LO") == 0x8058
    assert GLOBAL["DOORBELL"].access is Access.WO


def test_acquire_is_the_public_layout():
    values = {"retry_man": 2, "retry_exp": 3, "timeout_man": 0xABC, "timeout_enable": 1}
    upper = {name.upper(): value for name, value in values.items()}
    assert CHANNEL["ACQUIRE"].pack(**upper) == pack(AcquireTimer, **values)


def test_pack_and_unpack():
    status = CHANNEL["STATUS"]
    word = status.pack(HALTED=1, WAIT=5, COPIES=15, TASKS=0x123)
    assert word == 0x123F_0502
    assert status.unpack(word) == {
        "ENABLED": 0,
        "HALTED": 1,
        "FLOOR": 0,
        "SERVED": 0,
        "PENDING": 0,
        "ACTIVE": 0,
        "WAIT": 5,
        "ACQUIRE_FAIL": 0,
        "COPIES": 15,
        "TASKS": 0x123,
    }


@pytest.mark.parametrize("value", [-1, 16])
def test_pack_refuses_what_does_not_fit(value: int):
    with pytest.raises(ValueError, match=rf"^STATUS\.WAIT = {value:#x} does not fit its 4 bits$"):
        CHANNEL["STATUS"].pack(WAIT=value)


def test_refuses_unknown_names():
    with pytest.raises(KeyError, match="register STATUS has no field WEIGHT"):
        CHANNEL["STATUS"].pack(WEIGHT=1)
    with pytest.raises(KeyError, match="block GLOBAL has no register GP_BASE"):
        address("GP_BASE")


def test_refuses_unknown_sets():
    with pytest.raises(ValueError, match=r"^channel 64 is outside 0 … 63$"):
        channel_address(64, "CONTROL")
    with pytest.raises(ValueError, match=r"^semaphore -1 is outside 0 … 1023$"):
        semaphore_address(-1, "PAYLOAD_LO")
    with pytest.raises(ValueError, match=r"^STATUS = 0x100000000 is not a 32-bit number$"):
        CHANNEL["STATUS"].unpack(1 << 32)
