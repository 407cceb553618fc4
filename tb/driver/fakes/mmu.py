"""The driver's `Mmu` over a translator in plain Python, for tests of address spaces alone."""

import asyncio
from collections.abc import Callable

from signalbox.driver.memory.physical import Buffer, Memory
from signalbox.hw.config import Config
from signalbox.tb.driver.fakes.machine import SPACE, FakeMachine
from signalbox.tb.driver.fakes.translator import UNBOUND, VA_LIMIT, Translator
from signalbox.tb.models.pagetables import Fault, Sparse, Translation

__all__ = ["UNBOUND", "VA_LIMIT", "FakeMmu", "WatchedMemory", "machine_with_mmu"]


class FakeMmu:
    """Implements `driver.memory.mmu.Mmu` over tables in a machine's memory.

    Members
    -------
    commands : all commands in order, including failed ones: name, ASID, further arguments.
    latency : function that returns a number of turns of the event loop. It is called twice per
        command: for the time until the command takes effect, and for the time until its
        acknowledgement.
    failing : True makes commands raise instead of being acknowledged.
    """

    def __init__(self, machine: FakeMachine, latency: Callable[[], int] = lambda: 0) -> None:
        self._translator = Translator(machine.memory)
        self.commands: list[tuple] = []
        self.latency = latency
        self.failing = False
        self._order = asyncio.Lock()

    # driver.memory.mmu.Mmu

    async def bind(self, asid: int, base: int, limit: int) -> None:
        assert base % 4096 == 0 and (limit + 1) % 4096 == 0, (base, limit)
        await self._command(self._translator.bind, "bind", asid, base, limit)

    async def unbind(self, asid: int) -> None:
        await self._command(self._translator.unbind, "unbind", asid)

    async def invalidate_all(self) -> None:
        await self._command(self._translator.forget_all, "all")

    async def invalidate_asid(self, asid: int) -> None:
        await self._command(self._translator.forget_asid, "asid", asid)

    async def invalidate_page(self, asid: int, va: int) -> None:
        await self._command(self._translator.forget_page, "page", asid, va)

    async def _command(self, effect: Callable[..., None], name: str, *arguments: int) -> None:
        async with self._order:
            self.commands.append((name, *arguments))
            for _ in range(self.latency()):
                await asyncio.sleep(0)
            if self.failing:
                raise TimeoutError(f"{(name, *arguments)} was not acknowledged")
            effect(*arguments)
            for _ in range(self.latency()):
                await asyncio.sleep(0)

    # For tests

    @property
    def bound(self) -> dict[int, tuple[int, int]]:
        """Page directory base and last address of each ASID."""
        return self._translator.bound

    def taken(self) -> list[tuple]:
        """Returns the commands since the last call."""
        commands, self.commands = self.commands, []
        return commands

    def access(self, asid: int, va: int) -> Translation | Sparse | Fault:
        """Translate a request, and remember the page if one is found."""
        return self._translator.access(asid, va)

    def remembers(self, address: int, size: int) -> bool:
        """Whether an access or a walk may still reach a range of physical memory."""
        return self._translator.remembers(address, size)


class WatchedMemory(Memory):
    """Memory that checks on `free` that the Mmu no longer remembers the buffer."""

    def __init__(self, machine: FakeMachine, mmu: FakeMmu) -> None:
        super().__init__(machine, len(machine.memory), base=4096)
        self._mmu = mmu

    def free(self, buffer: Buffer) -> None:
        super().free(buffer)
        assert not self._mmu.remembers(buffer.address, buffer.size), f"{buffer} can be reached"


def machine_with_mmu(latency: Callable[[], int] = lambda: 0) -> tuple[FakeMmu, WatchedMemory]:
    """Returns the Mmu of a machine of 8 MiB, and the machine's memory without the first page."""
    machine = FakeMachine(Config(memory_bytes=SPACE))
    mmu = FakeMmu(machine, latency)
    return mmu, WatchedMemory(machine, mmu)
