"""Kernels of applications that launch kernels (NEST-11, SHARE-9)."""

import numpy as np
import pytest

from signalbox.driver.kernels.library import SPIN
from signalbox.driver.nested.merge_sort import MergeSort
from signalbox.driver.platform.info import DeviceError
from signalbox.driver.runtime.limits import DEFAULTS, Limit
from signalbox.hw.registers import CONTEXT
from signalbox.tb.driver.nested_bodies import chain_of_a_fault
from signalbox.tb.driver.server.session import Session, serve

NESTED = {"save_places": 8, "nested_kernels": 60, "contexts": 4}

ARGS = {"CYCLES": 10}


@pytest.mark.parametrize("context_each", [False, True])
def test_sorts(context_each: bool):
    """Applications' kernels launch others, in one context or in several."""

    async def body(session: Session) -> None:
        words = np.random.default_rng(1).integers(0, 100, 100, dtype=np.uint32)
        for name in ("first", "second"):
            device = await session.client(name)
            device.set_limit(Limit.NESTING_DEPTH, MergeSort.depth(words.size))
            stream, data = await device.stream(), await device.upload(words)
            sort = await MergeSort.prepare(device, stream, data, words.size)
            await sort.run()
            assert np.array_equal(data.read(np.uint32, words.size), np.sort(words))
            await sort.free()

    settings = {"applications": 2, "context_each": context_each}
    serve(body, config=NESTED, depth=MergeSort.depth(100), **settings)


def test_chain_of_a_fault():
    """The error of a child names its kernel and those above it, as on a machine of one's own."""

    async def body(session: Session) -> None:
        device = await session.client()
        device.set_limit(Limit.NESTING_DEPTH, 4)
        await chain_of_a_fault(device)

    serve(body, config=NESTED, depth=4)


def test_limits():
    """The machine has the server's limits, for all applications, from an application's first launch
    on. A client cannot have limits of its own, except that it can do without children."""

    async def body(session: Session) -> None:
        compute = session.machine.compute
        assert compute is not None
        for name in ("first", "second"):
            device = await session.client(name)
            stream = await device.stream()
            for depth in (1, 3):
                device.set_limit(Limit.NESTING_DEPTH, depth)
                await (await stream.launch(SPIN, 1, 32, ARGS)).synchronize()
                words = [context["PLACEMENT"] for context in compute.contexts]
                depths = [CONTEXT["PLACEMENT"].unpack(word)["DEPTH"] for word in words]
                assert sorted(depths) == [0] * (len(depths) - 1) + [3]
                assert compute.words["CHILD_LIMIT"] == DEFAULTS[Limit.PENDING_LAUNCHES]
            await stream.child(SPIN, 1, 32, ARGS)
            device.set_limit(Limit.PENDING_LAUNCHES, 7)
            with pytest.raises(DeviceError, match=r"7 pending launches: .* server's, 2048"):
                await stream.launch(SPIN, 1, 32, ARGS)

    serve(body, config=NESTED, depth=3)


@pytest.mark.parametrize("context_each", [False, True])
def test_lower_depth(context_each: bool):
    """Launches with a nesting depth between 1 and the server's are refused, as are children with a
    depth of 1, since the machine would not keep to it. Another application nests as before."""

    async def body(session: Session) -> None:
        device, other = await session.client("first"), await session.client("other")
        stream = await device.stream()
        free = device.memory.free_bytes
        with pytest.raises(DeviceError, match=r"depth of 1 allows no children: set it to 4"):
            await stream.child(SPIN, 1, 32, ARGS)
        for depth in (2, 3):
            device.set_limit(Limit.NESTING_DEPTH, depth)
            with pytest.raises(DeviceError, match=f"depth of {depth} is less than the 4 of the"):
                await stream.launch(SPIN, 1, 32, ARGS)
            with pytest.raises(DeviceError, match=f"depth of {depth} is less than the 4 of the"):
                await stream.children(SPIN, 1, 32, [ARGS, ARGS])
        device.set_limit(Limit.NESTING_DEPTH, 5)
        with pytest.raises(DeviceError, match="depth of 5 is more than the 4 of the server"):
            await stream.launch(SPIN, 1, 32, ARGS)
        assert device.memory.free_bytes == free, "memory was taken"
        other.set_limit(Limit.NESTING_DEPTH, 4)
        await chain_of_a_fault(other)
        device.set_limit(Limit.NESTING_DEPTH, 4)
        await chain_of_a_fault(device)

    settings = {"applications": 2, "context_each": context_each}
    serve(body, config=NESTED, depth=4, **settings)
