"""Decoding of fault records, and their ring (spec 6.4)."""

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from signalbox.driver.faults.fault_buffer import FaultBuffer, FaultBufferError, FaultBufferOverflow
from signalbox.driver.memory.asids import AddressSpaces
from signalbox.driver.memory.physical import Memory
from signalbox.driver.memory.translation_fault import TranslationFault, decode
from signalbox.hw.methods import pack
from signalbox.hw.page_tables import FAULT_RECORD_BYTES, AccessType, FaultRecord, FaultType
from signalbox.tb.driver.fakes.machine import FakeMachine
from signalbox.tb.driver.fakes.mmu import machine_with_mmu
from signalbox.tb.driver.hangs import HANGS
from signalbox.tb.simulation.runner import choose_seed

RECORDS = 8


def record(**fields: int) -> bytes:
    """Returns a valid record."""
    return pack(FaultRecord, **{"valid": 1, **fields}).to_bytes(FAULT_RECORD_BYTES, "little")


def nobody(asid: int, base: int) -> None:
    """Lookup without any address space."""


def test_all_fields():
    found = decode(
        record(
            instance=0x1234,
            address=0x1_2345_6789,
            timestamp=99,
            engine=5,
            asid=9,
            fault_type=FaultType.RO,
            replayable=1,
            client=17,
            access_type=AccessType.WRITE,
            client_type=1,
            gpc=3,
        ),
        nobody,
    )
    assert found == TranslationFault(
        space=None,
        asid=9,
        va=0x1_2345_6789_000,
        access=AccessType.WRITE,
        cause=FaultType.RO,
        base=0x1234_000,
        client=17,
        hub=True,
        gpc=3,
        engine=5,
        time_ns=99,
        replayable=True,
    )
    assert str(found) == (
        "write of 0x123456789000 in an unknown address space (ASID 9, page directory base "
        "0x1234000) faulted with RO: the page is read-only; client 17 of HUB, engine 5, at 99 ns"
    )


def test_independent_bits():
    """The record's bits are those of the public tables."""
    dwords = [
        7 << 12,
        1,
        3 << 12,
        2,
        4,
        0,
        6 | 1023 << 16,
        13 | 9 << 8 | 2 << 16 | 5 << 24 | 1 << 31,
    ]
    found = decode(b"".join(dword.to_bytes(4, "little") for dword in dwords), nobody)
    assert found is not None
    assert (found.base, found.va, found.time_ns) == (1 << 32 | 7 << 12, 2 << 32 | 3 << 12, 4)
    assert (found.engine, found.client, found.gpc, found.hub) == (6, 9, 5, False)
    assert found.asid == 1023
    assert (found.cause, found.access) == (FaultType.REGION, AccessType.ATOMIC_STRONG)
    assert "; client 9 of GPC 5, engine 6, at 4 ns" in str(found)


@pytest.mark.parametrize("cause", FaultType)
@pytest.mark.parametrize("access", AccessType)
def test_every_cause(cause: FaultType, access: AccessType):
    found = decode(record(fault_type=cause, access_type=access), nobody)
    assert found is not None and (found.cause, found.access) == (cause, access)
    assert f"faulted with {cause.name}: " in str(found)
    assert str(found).startswith(access.name.lower().split("_")[-1]) or "atomic of" in str(found)


def test_unknown_numbers():
    """Numbers without a name in the public tables are shown as they are."""
    raw = int.from_bytes(record(), "little") | 31 << 224 | 7 << 240
    found = decode(raw.to_bytes(FAULT_RECORD_BYTES, "little"), nobody)
    assert found is not None and (found.cause, found.access) == (31, 7)
    assert str(found).startswith("access of type 7 of 0x0 in") and "unknown cause 31;" in str(found)


def test_physical():
    raw = int.from_bytes(record(address=5), "little") | 9 << 240
    found = decode(raw.to_bytes(FAULT_RECORD_BYTES, "little"), nobody)
    assert found is not None and found.physical and found.access is AccessType.WRITE
    assert str(found).startswith("write of physical 0x5000 in")


def test_no_record():
    assert decode(bytes(FAULT_RECORD_BYTES), nobody) is None
    with pytest.raises(ValueError, match="a fault record has 32 bytes, not 31"):
        decode(bytes(31), nobody)


def test_address_space():
    """The space is found by its page directory base, and the message names the nearest mapping."""

    async def main():
        mmu, memory = machine_with_mmu()
        spaces = AddressSpaces(mmu, memory, 4)
        space = spaces.create("video")
        await space.map(0x20_0000, 4096, va=0x10000, name="frame")
        fields = {"address": 0x11, "access_type": AccessType.WRITE, "asid": 0}
        raw = record(instance=space.base >> 12, **fields)
        unbound = decode(raw, spaces.owner)
        await spaces.acquire(space)
        bound = decode(raw, spaces.owner)
        assert bound is not None and (bound.space, bound.asid) == ("video", 0)
        assert unbound == bound, "it is still the space's table"
        other = decode(record(instance=space.base >> 12, **fields | {"asid": 1}), spaces.owner)
        assert other is not None and (other.space, other.asid) == (None, 1)
        assert str(bound) == (
            "write of 0x11000 in address space 'video' (ASID 0) faulted with PDE: no page table "
            "covers the address; client 0 of GPC 0, engine 0, at 0 ns; 0x11000 lies 0 bytes "
            "past the end of mapping 'frame' (4096 bytes at 0x10000)"
        )
        spaces.release(space)
        await spaces.close(space)
        assert "an unknown address space" in str(decode(raw, spaces.owner))

    asyncio.run(main())


def test_unbound():
    """Without a bound space none is named, whichever space has the ASID now."""

    def somebody(asid: int, base: int):
        raise AssertionError("the space must not be looked up")

    found = decode(record(instance_aperture=1, asid=5, fault_type=4, address=2), somebody)
    assert found is not None and (found.space, found.asid, found.base) == (None, 5, None)
    assert str(found).startswith(
        "read of 0x2000 in ASID 5, to which no address space is bound, faulted with "
        "UNBOUND_INST_BLOCK: nothing is bound to the ASID; client 0"
    )


@pytest.mark.parametrize(
    ("client", "name"),
    [
        (1, "host (client 1 of HUB)"),
        (2, "semaphore unit (client 2 of HUB)"),
        (3, "copy engine 0 (client 3 of HUB)"),
        (6, "copy engine 3 (client 6 of HUB)"),
        (7, "task unit (client 7 of HUB)"),
        (8, "client 8 of HUB"),
        (0, "client 0 of HUB"),
    ],
)
def test_requester(client: int, name: str):
    found = decode(record(client=client, client_type=1), nobody)
    assert found is not None and found.requester == name and f"; {name}, engine 0" in str(found)


# -- ring ------------------------------------------------------------------------------------------


class Ring:
    """The machine's side of the ring: writes records, drops them when the ring is full, and holds
    the registers."""

    def __init__(self, size: int = RECORDS * FAULT_RECORD_BYTES) -> None:
        machine = FakeMachine()
        self.memory = Memory(machine, len(machine.memory))
        self.memory.allocate(FAULT_RECORD_BYTES, align=1)
        self.buffer = self.memory.allocate(size, align=FAULT_RECORD_BYTES)
        self.at_get = self.at_put = 0
        self.dropping = False
        self.dropped = 0
        self.reader = FaultBuffer(self.buffer, self, nobody)

    def fault(self, page: int, **fields: int) -> bool:
        """Record a fault. Returns whether there was room."""
        following = (self.at_put + 1) % RECORDS
        if self.dropping or following == self.at_get:
            self.dropping = True
            self.dropped += 1
            return False
        self.buffer.write(record(address=page, **fields), self.at_put * FAULT_RECORD_BYTES)
        self.at_put = following
        return True

    async def get(self) -> int:
        return self.at_get

    async def put(self) -> int:
        return self.at_put

    async def set_get(self, index: int) -> None:
        self.at_get = index

    async def overflowed(self) -> bool:
        return self.dropping

    async def clear_overflow(self) -> None:
        self.dropping = False


def run(body: Callable[[Ring], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(body(Ring()), HANGS))


def test_ring():
    """Records are read once, in order, even across the end of the ring, and are then invalid."""

    async def body(ring: Ring):
        assert await ring.reader.read() == []
        for start in range(0, 30, 5):
            for page in range(start, start + 5):
                assert ring.fault(page)
            found = await ring.reader.read()
            assert [fault.va >> 12 for fault in found] == list(range(start, start + 5))
            assert ring.at_get == ring.at_put and await ring.reader.read() == []
        assert not any(ring.buffer.read()[FAULT_RECORD_BYTES - 1 :: FAULT_RECORD_BYTES] >> 7)

    run(body)


def test_overflow():
    """An overflow is raised once, with the records kept; then the machine records again."""

    async def body(ring: Ring):
        for page in range(RECORDS + 2):
            ring.fault(page)
        with pytest.raises(FaultBufferOverflow) as caught:
            await ring.reader.read()
        kept = [fault.va >> 12 for fault in caught.value.faults]
        assert kept == list(range(RECORDS - 1)) and ring.dropped == 3
        assert str(caught.value) == (
            "the fault buffer of 8 records was full, and faults were dropped; 7 were kept"
        )
        assert await ring.reader.read() == []
        assert ring.fault(77)
        assert [fault.va >> 12 for fault in await ring.reader.read()] == [77]

    run(body)


def test_random_ring():
    """Every fault is read, or its loss is reported."""
    seed = choose_seed()
    print(f"SIGNALBOX_SEED={seed}")
    numbers = random.Random(seed)

    async def body(ring: Ring):
        sent: list[int] = []
        read: list[TranslationFault] = []
        for page in range(500):
            if ring.fault(page):
                sent.append(page)
            if numbers.random() < 0.2:
                dropping = ring.dropping
                try:
                    read += await ring.reader.read()
                    assert not dropping
                except FaultBufferOverflow as overflow:
                    assert dropping
                    read += overflow.faults
        dropping = ring.dropping
        try:
            read += await ring.reader.read()
        except FaultBufferOverflow as overflow:
            read += overflow.faults
        assert [fault.va >> 12 for fault in read] == sent

    run(body)


@pytest.mark.parametrize("turns", range(11))
@pytest.mark.parametrize("taken", [True, False])
def test_interrupted(taken: bool, turns: int):
    """A call that is interrupted, before or after an access to a register, loses no records."""

    class SlowRing(Ring):
        async def _access(self, name: str, *values: int) -> Any:
            before, after = (0, 1) if taken else (1, 0)
            for _ in range(before):
                await asyncio.sleep(0)
            found = await getattr(Ring, name)(self, *values)
            for _ in range(after):
                await asyncio.sleep(0)
            return found

        async def get(self) -> int:
            return await self._access("get")

        async def put(self) -> int:
            return await self._access("put")

        async def set_get(self, index: int) -> None:
            await self._access("set_get", index)

        async def overflowed(self) -> bool:
            return await self._access("overflowed")

        async def clear_overflow(self) -> None:
            await self._access("clear_overflow")

    async def body() -> None:
        for faults in (3, RECORDS + 2):
            ring = SlowRing()
            for page in range(faults):
                ring.fault(page)
            kept = min(faults, RECORDS - 1)
            read: list[TranslationFault] = []
            dropped = False
            for patience in (turns, HANGS):
                reading = asyncio.ensure_future(ring.reader.read())
                for _ in range(patience):
                    await asyncio.sleep(0)
                reading.cancel()
                try:
                    read += await reading
                except FaultBufferOverflow as overflow:
                    read, dropped = read + overflow.faults, True
                except asyncio.CancelledError:
                    pass
            assert [fault.va >> 12 for fault in read] == list(range(kept))
            assert dropped == (faults > kept) and ring.at_get == ring.at_put

    asyncio.run(asyncio.wait_for(body(), HANGS))


def test_not_valid():
    """A record without VALID is not read, and earlier records are not lost."""

    async def body(ring: Ring):
        ring.fault(1)
        ring.fault(2, valid=0)
        assert [fault.va >> 12 for fault in await ring.reader.read()] == [1]
        with pytest.raises(
            FaultBufferError, match="record 1 of the fault buffer is not valid, PUT"
        ):
            await ring.reader.read()
        assert ring.at_get == 1

    run(body)


@pytest.mark.parametrize("name", ["get", "put"])
def test_bad_pointer(name: str):
    async def body(ring: Ring):
        setattr(ring, f"at_{name}", RECORDS)
        message = f"^{name.upper()} of the fault buffer is 8, it has 8 records$"
        with pytest.raises(FaultBufferError, match=message):
            await ring.reader.read()

    run(body)


@pytest.mark.parametrize("size", [FAULT_RECORD_BYTES, 3 * FAULT_RECORD_BYTES + 1])
def test_bad_size(size: int):
    with pytest.raises(ValueError, match="does not hold 2 or more whole records of 32 bytes"):
        Ring(size)
