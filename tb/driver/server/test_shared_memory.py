"""Memory shared with other processes: contents, portions, and limits for their holders; alone, and
as the memory of the RTL."""

import os
from collections.abc import Generator
from contextlib import contextmanager

import pytest

from signalbox.driver.server.shared_memory import PAGE_BYTES, SharedMemory
from signalbox.hw.top import Signalbox
from signalbox.tb.driver.server.holder import Holder
from signalbox.tb.simulation.sizes import SIZES
from signalbox.tb.simulation.tiers import ON_VERILATOR
from signalbox.tb.simulation.top import simulate_top

SIZE = 16 * PAGE_BYTES


@contextmanager
def shared(memory: SharedMemory, offset: int, size: int) -> Generator[Holder]:
    """Share a portion with a new process."""
    descriptor = memory.share(offset, size)
    try:
        holder = Holder(descriptor, size)
    finally:
        os.close(descriptor)
    with holder:
        yield holder


def test_both_see_what_either_writes():
    memory = SharedMemory(SIZE)
    memory.view[PAGE_BYTES - 1 :][:1] = b"<"
    with shared(memory, PAGE_BYTES, 2 * PAGE_BYTES) as holder:
        holder.write(0, b"first")
        holder.write(2 * PAGE_BYTES - 4, b"last")
        assert memory.view[PAGE_BYTES - 1 : PAGE_BYTES + 6] == b"<first\0"
        assert memory.view[3 * PAGE_BYTES - 5 : 3 * PAGE_BYTES + 1] == b"\0last\0"
        memory.view[PAGE_BYTES + 100 :][:5] = b"reply"
        assert holder.read(99, 7) == b"\0reply\0"


def test_portions_are_independent():
    """Each process sees and changes its own portion alone."""
    memory = SharedMemory(SIZE)
    with (
        shared(memory, 0, PAGE_BYTES) as one,
        shared(memory, PAGE_BYTES, 2 * PAGE_BYTES) as other,
    ):
        one.write(0, b"\1" * PAGE_BYTES)
        other.write(0, b"\2" * 2 * PAGE_BYTES)
        assert one.read(0, PAGE_BYTES) == b"\1" * PAGE_BYTES
        assert other.read(0, 2 * PAGE_BYTES) == b"\2" * 2 * PAGE_BYTES
    assert memory.view[: 3 * PAGE_BYTES] == b"\1" * PAGE_BYTES + b"\2" * 2 * PAGE_BYTES
    assert not any(memory.view[3 * PAGE_BYTES :])


@pytest.mark.parametrize("held", [False, True])
def test_fresh_portions_are_zero(held: bool):
    """A holder sees none of the earlier contents, whether written by the machine or by an earlier
    holder."""
    memory = SharedMemory(SIZE)
    memory.view[:] = b"\xff" * SIZE
    if held:
        with shared(memory, PAGE_BYTES, PAGE_BYTES) as holder:
            holder.write(0, b"\xee" * PAGE_BYTES)
    with shared(memory, PAGE_BYTES, PAGE_BYTES) as holder:
        assert not any(holder.read(0, PAGE_BYTES))
        assert not any(memory.view[PAGE_BYTES : 2 * PAGE_BYTES])
    assert set(memory.view[:PAGE_BYTES]) == set(memory.view[2 * PAGE_BYTES :]) == {0xFF}


def test_withdrawn():
    """After a range is withdrawn, only the other parts of the portion are still shared."""
    memory = SharedMemory(SIZE)
    with shared(memory, 0, 3 * PAGE_BYTES) as holder:
        holder.write(0, b"\1" * 3 * PAGE_BYTES)
        memory.withdraw(PAGE_BYTES, PAGE_BYTES)
        assert not any(memory.view[PAGE_BYTES : 2 * PAGE_BYTES])
        holder.write(PAGE_BYTES, b"late")
        assert not any(memory.view[PAGE_BYTES : 2 * PAGE_BYTES])
        memory.view[PAGE_BYTES:][:6] = b"hidden"
        assert holder.read(PAGE_BYTES, 6) == b"late\1\1"
        holder.write(2 * PAGE_BYTES, b"seen")
        assert memory.view[2 * PAGE_BYTES :][:4] == b"seen"


@pytest.mark.parametrize("size", [0, PAGE_BYTES - 1, 2 * PAGE_BYTES])
def test_size_is_sealed(size: int):
    """A holder cannot resize its file; shortening it would crash a process that reads past the
    end."""
    memory = SharedMemory(SIZE)
    with shared(memory, 0, PAGE_BYTES) as holder:
        assert holder.resize(size) == "PermissionError"
        holder.write(PAGE_BYTES - 1, b"x")
        assert memory.view[PAGE_BYTES - 1] == ord("x")


@pytest.mark.parametrize(
    ("offset", "size", "problem"),
    [
        (1, PAGE_BYTES, "not multiples of 4096"),
        (0, PAGE_BYTES + 1, "not multiples of 4096"),
        (0, 0, "not inside"),
        (0, -PAGE_BYTES, "not inside"),
        (-PAGE_BYTES, PAGE_BYTES, "not inside"),
        (SIZE, PAGE_BYTES, "not inside"),
        (PAGE_BYTES, SIZE, "not inside"),
    ],
)
def test_bad_ranges(offset: int, size: int, problem: str):
    memory = SharedMemory(SIZE)
    memory.view[:] = b"\1" * SIZE
    for call in (memory.share, memory.withdraw):
        with pytest.raises(ValueError, match=problem):
            call(offset, size)
    assert set(memory.view) == {1}


@pytest.mark.parametrize("size", [-PAGE_BYTES, 0, PAGE_BYTES + 1])
def test_bad_sizes(size: int):
    with pytest.raises(ValueError, match=f"size = {size} is not a positive multiple of 4096"):
        SharedMemory(size)


def test_no_addresses():
    with pytest.raises(OSError, match=rf"no addresses for {1 << 60} bytes: .+"):
        SharedMemory(1 << 60)


def test_no_descriptors(monkeypatch: pytest.MonkeyPatch):
    """Without descriptors, sharing fails with the cause in the message, and the bytes are kept."""
    memory = SharedMemory(SIZE)
    memory.view[:4] = b"stay"

    def refuse(name: str, flags: int) -> int:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(os, "memfd_create", refuse)
    with pytest.raises(OSError, match="no file for 4096 shared bytes: Too many open files"):
        memory.share(0, PAGE_BYTES)
    assert memory.view[:4] == b"stay"


def test_large_memory_is_cheap():
    """Only written pages are backed."""
    memory = SharedMemory(1 << 40)
    memory.view[-1] = 1
    assert memory.view[-2:] == b"\0\1"


def test_closed():
    """Slices keep their bytes after the memory is closed."""
    memory = SharedMemory(SIZE)
    memory.view[:4] = b"kept"
    part = memory.view[:4]
    memory.close()
    memory.close()
    assert part == b"kept"
    with pytest.raises(ValueError, match="released"):
        memory.view[0]
    for call in (memory.share, memory.withdraw):
        with pytest.raises(ValueError, match="the shared memory is closed"):
            call(0, PAGE_BYTES)


@pytest.mark.nightly
@ON_VERILATOR
def test_rtl(simulator: str):
    simulate_top(
        Signalbox(SIZES["tiny"]),
        "signalbox.tb.driver.cocotb_shared_memory",
        simulator=simulator,
        name="shared-memory",
        minimum=2,
    )
