"""Allocator and buffers."""

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import pairwise

import numpy as np
import pytest

from signalbox.driver.memory.physical import Memory, MemoryUseError, OutOfMemory
from signalbox.tb.driver.fakes.machine import FakeMachine
from signalbox.tb.simulation.runner import choose_seed


def make(size: int = 1 << 16) -> Memory:
    return Memory(FakeMachine(), size)


def test_alignment_and_reuse():
    memory = make()
    first = memory.allocate(10, align=1)
    second = memory.allocate(10, align=4096)
    assert (first.address, second.address) == (0, 4096)
    assert memory.allocate(16, align=16).address == 16
    first.free()
    assert memory.allocate(8, align=8).address == 0


def test_whole_again():
    seed = choose_seed()
    print(f"SIGNALBOX_SEED={seed}")
    numbers = random.Random(seed)
    memory, live = make(), []
    for _ in range(500):
        if live and numbers.random() < 0.45:
            live.pop(numbers.randrange(len(live))).free()
        else:
            align = 1 << numbers.randrange(8)
            try:
                live.append(memory.allocate(numbers.randrange(1, 4000), align=align))
            except OutOfMemory:
                continue
            assert live[-1].address % align == 0
        spans = sorted((buffer.address, buffer.address + buffer.size) for buffer in live)
        assert all(a[1] <= b[0] for a, b in pairwise(spans))
        assert memory.free_bytes == memory.size - sum(buffer.size for buffer in live)
    for buffer in live:
        buffer.free()
    assert memory.largest_free == memory.size


@pytest.mark.parametrize("kind", ["allocate", "allocate_pages"])
def test_threads(kind: str, monkeypatch: pytest.MonkeyPatch):
    """Two threads never get the same bytes, even if both look for a free range at the same time."""
    memory, both = make(), threading.Barrier(2)
    find = memory._ranges.find

    def slow_find(size: int, align: int) -> int | None:
        found = find(size, align)
        with suppress(threading.BrokenBarrierError):  # the other thread may not look meanwhile
            both.wait(0.2)
        return found

    monkeypatch.setattr(memory._ranges, "find", slow_find)
    with ThreadPoolExecutor(2) as pool:
        one, other = pool.map(getattr(memory, kind), [4096, 4096])
    assert {one.address, other.address} == {0, 4096}


def test_out_of_memory():
    memory = make(1000)
    memory.allocate(600)
    expected = (
        r"no free range of 500 bytes for 'frame' aligned to 256: 400 of 1000 bytes are free, "
        r"the largest range has 400$"
    )
    with pytest.raises(OutOfMemory, match=expected):
        memory.allocate(500, name="frame")


def test_misuse():
    memory = make()
    buffer = memory.allocate(100, name="b")
    with pytest.raises(MemoryUseError, match=r"bytes 90 … 110 are not inside buffer 'b' \(100"):
        buffer.write(bytes(20), 90)
    buffer.free()
    with pytest.raises(MemoryUseError, match="is freed twice"):
        buffer.free()
    with pytest.raises(MemoryUseError, match="was freed"):
        buffer.read()
    with pytest.raises(MemoryUseError, match="another memory"):
        make().free(memory.allocate(1))
    with pytest.raises(ValueError, match="size = 0"):
        memory.allocate(0)
    with pytest.raises(ValueError, match="align = 3"):
        memory.allocate(1, align=3)


def test_reserve():
    memory = make()
    memory.reserve(0x1000, 0x100)
    with pytest.raises(MemoryUseError, match="0x10f0 cannot be reserved"):
        memory.reserve(0x10F0, 0x20)
    assert memory.allocate(0x1000, align=1).address == 0
    assert memory.allocate(0x10, align=1).address == 0x1100


def test_numpy():
    buffer = make().allocate(64)
    array = np.arange(12, dtype=np.int32).reshape(3, 4)
    buffer.write(array[:, ::2], 8)
    assert np.array_equal(buffer.read(np.int32, (3, 2), 8), array[:, ::2])
    buffer.fill(7)
    assert np.array_equal(np.asarray(buffer), np.full(64, 7, np.uint8))
    for number in (0, 5):
        with pytest.raises(TypeError):
            buffer.write(number)  # pyright: ignore[reportArgumentType]
    assert buffer.read().min() == 7
    assert buffer.address == buffer.at(0)
