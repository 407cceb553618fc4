"""One set of random programs on the machine, from registers to the final comparison."""

from collections.abc import Sequence
from random import Random

from signalbox.hw.config import Config
from signalbox.hw.methods import AcquireTimer, pack
from signalbox.hw.registers import CHANNEL, address, channel_address
from signalbox.tb.machine.random.programs import ENTRIES, Program, generate
from signalbox.tb.models.host import HostModel, Ring
from signalbox.tb.simulation.machine import SimMachine

__all__ = ["PATIENCE", "Round"]

PATIENCE = 400
"""Maximum time of a round, in thousands of cycles."""


class Round:
    """Programs of `channels` with priorities 1 … `levels`; see `generate`."""

    def __init__(
        self,
        machine: SimMachine,
        config: Config,
        numbers: Random,
        commands: int,
        *,
        channels: Sequence[int],
        levels: int,
        first_slot: int = 0,
    ) -> None:
        self.machine, self.numbers, self.levels = machine, numbers, levels
        self.programs = generate(numbers, channels, levels, config.semaphores, commands, first_slot)
        self.model = HostModel(config, bytearray(config.memory_bytes))
        self.model.semaphores.counting = levels - 1

    async def begin(self) -> None:
        """Set up and submit everything; execution starts in the meantime."""
        await self._settings()
        await self._submit([await self._load(program) for program in self.programs])

    async def end(self) -> None:
        """Wait for the end and compare everything with the model."""
        await self._finish()
        self._compare()

    async def _settings(self) -> None:
        """Apply random settings of memory and scheduler (back-pressure, latency, slices, retry)."""
        numbers, memory = self.numbers, self.machine.dut.memory
        stall = numbers.choice((0, 0, 40, 150))
        for name in ("ar", "r", "aw", "w", "b"):
            getattr(memory, f"stall_{name}").value = numbers.randrange(stall + 1)
        memory.random.value = numbers.getrandbits(63) + 1
        memory.read_latency.value = numbers.choice((2, 8, 30, 100))
        memory.write_latency.value = numbers.choice((2, 8, 30, 100))
        await self.machine.write32(address("SEM_COUNTING"), self.levels - 1)

    async def _load(self, program: Program) -> int:
        """Write memory and registers of one channel. Returns its final GP_PUT."""
        numbers, layout, machine = self.numbers, program.layout, self.machine
        data, entries = program.image(numbers)
        ring = b"".join(entry.to_bytes(8, "little") for entry in entries)
        words = numbers.randbytes(256)
        source = numbers.randbytes(layout.destination - layout.source)
        parts = (
            (layout.base, ring),
            (layout.words, words),
            (layout.source, source),
            (layout.destination, bytes(layout.pushbuffer - layout.destination)),
            (layout.pushbuffer, data),
            (layout.userd, bytes(0x8C) + len(entries).to_bytes(4, "little")),
        )
        for start, content in parts:
            self.model.memory[start : start + len(content)] = content
            if start != layout.userd:
                machine.memory_write(start, content)
        machine.memory_write(layout.userd, bytes(512))
        registers = {
            "GP_BASE": layout.base,
            "GP_BASE_HI": (ENTRIES.bit_length() - 1) << 16,
            "USERD": layout.userd,
            "USERD_HI": 0,
            "CONFIG": CHANNEL["CONFIG"].pack(AUTH_LEVEL=1, EARLY_WAITS=numbers.randint(0, 1)),
            "SLICE": numbers.choice((1, 20, 300, 5000, 1 << 31)),
            "ACQUIRE": pack(AcquireTimer, retry_man=numbers.randint(1, 9), retry_exp=2),
            "CONTROL": 1,
        }
        for name, value in registers.items():
            await machine.write32(channel_address(layout.channel, name), value)
        self.model.enable(layout.channel, Ring(layout.base, ENTRIES, layout.userd), privileged=True)
        return len(entries)

    async def _submit(self, puts: list[int]) -> None:
        """Ring doorbells in random order, each time after adding a few more entries."""
        given = [0] * len(puts)
        while left := [i for i, put in enumerate(puts) if given[i] < put]:
            number = self.numbers.choice(left)
            step = self.numbers.choice((1, 2, 5, 40))
            given[number] = min(puts[number], given[number] + step)
            layout = self.programs[number].layout
            self.machine.memory_write(layout.userd + 0x8C, given[number].to_bytes(4, "little"))
            await self.machine.write32(address("DOORBELL"), layout.channel)
            if self.numbers.random() < 0.3:
                await self.machine.wait_cycles(self.numbers.randint(1, 300))

    async def _finish(self) -> None:
        """Wait until every channel has executed everything."""
        for program in self.programs:
            index = program.layout.channel
            waited = 0
            while not await self._idle(index):
                waited += 1
                assert waited < PATIENCE, f"channel {index} still works"
                await self.machine.wait_cycles(1000)
        # Wait for the last write-backs of GP_GET and REF.
        await self.machine.wait_cycles(1000)

    async def _idle(self, index: int) -> bool:
        """Whether the channel has nothing left to do; it must not be halted."""
        word = await self.machine.read32(channel_address(index, "STATUS"))
        status = CHANNEL["STATUS"].unpack(word)
        assert not status["HALTED"], await self._error(index)
        return not status["PENDING"] and not status["COPIES"]

    async def _error(self, index: int) -> str:
        names = ("CAUSE", "METHOD0", "DATA0", "ERROR_VA", "GP_GET")
        found = {
            name: hex(await self.machine.read32(channel_address(index, name))) for name in names
        }
        return f"channel {index} halted: {found}"

    def _compare(self) -> None:
        """Compare memory and semaphores with the untimed model."""
        model = self.model
        for program in self.programs:
            model.doorbell(program.layout.channel)
        model.run()
        for program in self.programs:
            layout = program.layout
            assert not model.busy(layout.channel), f"the model is stuck in {layout.channel}"
            for start, end in (
                (layout.words, layout.words + 256),
                (layout.destination, layout.pushbuffer),
            ):
                found = self.machine.memory_read(start, end - start)
                wanted = bytes(model.memory[start:end])
                wrong = [start + i for i in range(end - start) if found[i] != wanted[i]]
                assert not wrong, f"channel {layout.channel}: {len(wrong)} bytes from {wrong[0]:#x}"
