"""Random programs for all channels, with results that do not depend on timing.

Commands are generated in a global order, which is also a possible order of execution. A command
waits only for earlier ones in this order, so no schedule can deadlock. Channels write only their
own memory and semaphores, or shared words in an order enforced by waits, so every schedule ends in
the same state. `tb.models.host` computes that state.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from signalbox.driver.commands.pushbuffer import Pushbuffer
from signalbox.hw.config import WINDOW_BASE
from signalbox.hw.methods import (
    COPY_CLASSES,
    CeMethod,
    CopyLaunch,
    HostMethod,
    LaunchSemaphore,
    Reduction,
    SemOp,
    TertOp,
    pack,
)
from signalbox.tb.models.remap import Remap

__all__ = ["CHANNEL_BYTES", "ENTRIES", "Layout", "Program", "generate"]

ENTRIES = 512
"""Entries of every ring."""

CHANNEL_BYTES = 1 << 17
"""Memory of one channel: ring, USERD, source, destination, words, pushbuffer."""

_AREA = 8192
_REDUCTIONS = [
    (reduction, wide, unsigned)
    for reduction in Reduction
    for wide in (False, True)
    for unsigned in (False, True)
    if not (reduction is Reduction.IADD and wide and not unsigned)
    and not (reduction in {Reduction.INC, Reduction.DEC} and (wide or not unsigned))
]


@dataclass(frozen=True)
class Layout:
    """Addresses of one channel."""

    channel: int

    @property
    def base(self) -> int:
        return 0x1000 + self.channel * CHANNEL_BYTES

    @property
    def userd(self) -> int:
        return self.base + 8 * ENTRIES

    @property
    def words(self) -> int:
        return self.userd + 4096

    @property
    def source(self) -> int:
        return self.words + 4096

    @property
    def destination(self) -> int:
        return self.source + _AREA

    @property
    def pushbuffer(self) -> int:
        return self.destination + _AREA

    @property
    def end(self) -> int:
        return self.base + CHANNEL_BYTES


@dataclass
class Program:
    """Program of one channel.

    Members
    -------
    priority : 1 … P.
    number : index in a set of programs.
    dwords, cuts : the commands, and the ends of their segments.
    """

    layout: Layout
    priority: int
    number: int
    dwords: list[int] = field(default_factory=list)
    cuts: set[int] = field(default_factory=set)
    commands: int = 0
    signals: int = 0

    def image(self, numbers: Random) -> tuple[bytes, list[int]]:
        """Pushbuffer bytes, and ring entries: randomly cut segments, with NOP entries in
        between."""
        entries, start = [], 0
        for cut in [*sorted(self.cuts), len(self.dwords)]:
            if cut > start:
                address = self.layout.pushbuffer + 4 * start
                sync = numbers.random() < 0.1
                entries.append(address | (cut - start) << 42 | sync << 63)
                start = cut
            if numbers.random() < 0.05:
                entries.append(0)
        assert len(entries) < ENTRIES, len(entries)
        data = b"".join(dword.to_bytes(4, "little") for dword in self.dwords)
        assert self.layout.pushbuffer + len(data) <= self.layout.end, len(data)
        return data, entries


def generate(
    numbers: Random,
    channels: Sequence[int],
    levels: int,
    slots: int,
    commands: int,
    first_slot: int = 0,
    in_memory: bool = True,
) -> list[Program]:
    """Programs of `channels` with about `commands` commands in total.

    Semaphores from `first_slot` on: levels - 1 counting semaphores of priorities 2 … levels; then
    one signal and one private slot per channel; and, with `in_memory`, private words.
    """
    assert slots >= first_slot + levels - 1 + 2 * len(channels)
    programs = [
        Program(Layout(channel), 1 + number % levels, number)
        for number, channel in enumerate(channels)
    ]
    for program in programs:
        bind = Pushbuffer().set_object(object_class=numbers.choice(COPY_CLASSES))
        _append(program, bind, numbers)
    maker = _Maker(numbers, programs, levels, first_slot, in_memory)
    while sum(program.commands for program in programs) < commands:
        maker.one(numbers.choice(programs))
    return programs


def _append(program: Program, commands: Pushbuffer, numbers: Random) -> None:
    """Append dwords. Cut the segment at random, also in the middle of a group (HOST-2)."""
    start = len(program.dwords)
    program.dwords += [0] * numbers.choice((0, 0, 0, 1, 2)) + commands.dwords
    if numbers.random() < 0.2 and len(program.cuts) < ENTRIES // 3:
        program.cuts.add(numbers.randint(start + 1, len(program.dwords)))


@dataclass
class _Maker:
    numbers: Random
    programs: list[Program]
    levels: int
    first_slot: int
    in_memory: bool

    def one(self, program: Program) -> None:
        """Append one random command, or one copy with its accompanying commands."""
        kinds = {
            self._copy: 5,
            self._on_own: 6,
            self._signal: 1,
            self._wait: 1,
            self._host_method: 2,
            self._invalidate: 1,
            self._odd_forms: 2,
            self._ignored: 1,
        }
        choice = self.numbers.choices(list(kinds), list(kinds.values()))[0]
        choice(program)

    def _add(self, program: Program, commands: Pushbuffer, count: int = 1) -> None:
        _append(program, commands, self.numbers)
        program.commands += count

    def _slot(self, number: int) -> int:
        return WINDOW_BASE + 16 * (self.first_slot + number)

    def _priority_semaphore(self, level: int) -> int:
        return self._slot(level - 2)

    def _signal_slot(self, program: Program) -> int:
        return self._slot(self.levels - 1 + program.number)

    def _own_slot(self, program: Program) -> int:
        return self._slot(self.levels - 1 + len(self.programs) + program.number)

    def _word(self, program: Program, wide: bool) -> int:
        """A private semaphore, on chip or in memory."""
        if not self.in_memory or self.numbers.random() < 0.5:
            return self._own_slot(program)
        return program.layout.words + self.numbers.randrange(16) * (8 if wide else 4)

    def _payload(self, wide: bool) -> int:
        corner = (0, 1, 2, 0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFFF, (1 << 63) - 1, 1 << 63, -1)
        value = self.numbers.choice((*corner, self.numbers.getrandbits(64)))
        return value % (1 << (64 if wide else 32))

    # Commands

    def _copy(self, program: Program) -> None:
        """A copy with the commands of COPY-23."""
        level, layout = program.priority, program.layout
        buffer = Pushbuffer()
        for higher in range(level + 1, self.levels + 1):
            buffer.acquire(self._priority_semaphore(higher), 0)
        if level > 1:
            buffer.add(self._priority_semaphore(level), 1)
        self._launch(buffer, layout, program)
        if level > 1:
            buffer.add(self._priority_semaphore(level), -1)
        self._add(program, buffer, 1 + self.levels - level + 2 * (level > 1))

    def _launch(self, buffer: Pushbuffer, layout: Layout, program: Program) -> None:
        numbers = self.numbers
        lines = numbers.choice((1, 1, 1, numbers.randint(2, 6)))
        width = numbers.choice((numbers.randint(1, 64), numbers.randint(1, 900)))
        remap = self._remap(buffer) if numbers.random() < 0.3 else None
        width = -(-width // 16) if remap else width
        sizes = (remap.source_bytes, remap.target_bytes) if remap else (1, 1)
        pitches = [width * size + numbers.randrange(40) for size in sizes]
        room = _AREA - lines * max(pitches)
        src, dst = (base + numbers.randrange(room) for base in (layout.source, layout.destination))
        buffer.inc(4, CeMethod.OFFSET_IN_UPPER, 0, src, 0, dst, *pitches, width, lines)
        fence = numbers.random() < 0.2
        if fence:
            word = self._word(program, False)
            buffer.inc(
                4,
                CeMethod.SET_SEMAPHORE_A,
                word >> 32,
                word & 0xFFFF_FFFF,
                numbers.getrandbits(32),
            )
        launch = pack(
            CopyLaunch,
            transfer=numbers.choice((1, 2)),
            src_pitch=1,
            dst_pitch=1,
            multi_line=lines > 1,
            remap=remap is not None,
            semaphore=LaunchSemaphore.ONE_WORD if fence else LaunchSemaphore.NONE,
            reduction_enable=fence and numbers.random() < 0.5,
            reduction=numbers.choice((Reduction.IADD, Reduction.IXOR, Reduction.INC)),
            reduction_unsigned=1,
        )
        buffer.inc(4, CeMethod.LAUNCH_DMA, launch)

    def _remap(self, buffer: Pushbuffer) -> Remap:
        """Set random remap components of a copy, in one third of the cases those of a fill."""
        numbers = self.numbers
        sources = numbers.randint(1, 4)
        names = numbers.choice(("AB", "XYZW"[:sources], "XYZW"[:sources] + "AB"))
        pool = (*names, "no")
        targets = tuple(numbers.choice(pool) for _ in range(numbers.randint(1, 4)))
        constants = numbers.getrandbits(32), numbers.getrandbits(32)
        remap = Remap(targets, numbers.randint(1, 4), sources, *constants)
        buffer.inc(4, CeMethod.SET_REMAP_CONST_A, *constants, remap.word)
        return remap

    def _on_own(self, program: Program) -> None:
        """Set a private semaphore, change it, and acquire its new value."""
        numbers = self.numbers
        reduction, wide, unsigned = numbers.choice(_REDUCTIONS)
        word = self._word(program, wide)
        buffer = Pushbuffer()
        if numbers.random() < 0.3:
            value = self._payload(wide)
            buffer.release(word, value, wide=wide)
            buffer.acquire(
                word,
                value,
                numbers.choice((SemOp.ACQUIRE, SemOp.ACQ_STRICT_GEQ, SemOp.ACQ_CIRC_GEQ)),
                wide=wide,
            )
            self._add(program, buffer, 2)
        else:
            buffer.reduce(word, self._payload(wide), reduction, unsigned=unsigned, wide=wide)
            self._add(program, buffer)

    def _signal(self, program: Program) -> None:
        """Signal that all earlier commands have been executed."""
        program.signals += 1
        self._add(program, Pushbuffer().release(self._signal_slot(program), program.signals))

    def _wait(self, program: Program) -> None:
        """Wait for a signal that comes earlier in the global order."""
        others = [other for other in self.programs if other.signals and other is not program]
        if others:
            other = self.numbers.choice(others)
            count = self.numbers.randint(1, other.signals)
            place, switch = self._signal_slot(other), self.numbers.random() < 0.7
            buffer = Pushbuffer().acquire(place, count, SemOp.ACQ_CIRC_GEQ, switch=switch)
            self._add(program, buffer)

    def _host_method(self, program: Program) -> None:
        numbers = self.numbers
        method, value = numbers.choice((
            (HostMethod.NOP, numbers.getrandbits(32)),
            (HostMethod.WFI, numbers.getrandbits(1)),
            (HostMethod.SET_REFERENCE, numbers.getrandbits(32)),
            (HostMethod.YIELD, numbers.randrange(4)),
            (HostMethod.FB_FLUSH, 0),
            (HostMethod.NON_STALL_INTERRUPT, numbers.getrandbits(32)),
        ))
        self._add(program, Pushbuffer().host(method, value))

    def _invalidate(self, program: Program) -> None:
        """Invalidate translations of any address space, which does not affect results."""
        numbers = self.numbers
        pdb = numbers.choice((None, numbers.randrange(1 << 28) << 12))
        address = None if pdb is None else numbers.choice((None, numbers.getrandbits(49)))
        self._add(program, Pushbuffer().invalidate(pdb, address))

    def _odd_forms(self, program: Program) -> None:
        """Headers of every form, empty groups, and a skipped rest of a segment (HOST-2)."""
        numbers, buffer = self.numbers, Pushbuffer()
        values = [numbers.getrandbits(32) for _ in range(numbers.randrange(5))]
        form = numbers.randrange(5)
        if form == 0:
            buffer.non_inc(numbers.randrange(8), HostMethod.NOP, *values)
        elif form == 1:
            buffer.inc(numbers.randrange(8), HostMethod.SEM_PAYLOAD_LO, *values[:2])
        elif form == 2:
            buffer.one_inc(numbers.randrange(8), HostMethod.SEM_PAYLOAD_LO, *values[:2])
        elif form == 3:
            buffer.immediate(numbers.randrange(8), HostMethod.NOP, numbers.randrange(1 << 13))
        else:
            buffer.end_segment().raw(*values)
        self._add(program, buffer)
        if form == 4:
            # The dwords skipped by END_PB_SEGMENT end with the segment, so the segment ends here.
            program.cuts = {cut for cut in program.cuts if cut <= len(program.dwords)}
            program.cuts.add(len(program.dwords))
            inside = range(len(program.dwords) - len(values), len(program.dwords))
            program.cuts -= set(inside)

    def _ignored(self, program: Program) -> None:
        """Methods that are ignored because the sub-device mask excludes device 0 (HOST-18). Without
        the mask they would halt the channel or change its semaphores."""
        numbers, buffer = self.numbers, Pushbuffer()
        self._masks(buffer, 0)
        for _ in range(numbers.randint(1, 3)):
            values = [numbers.getrandbits(32) for _ in range(numbers.randint(1, 3))]
            place = numbers.choice((HostMethod.ILLEGAL, HostMethod.SEM_PAYLOAD_LO, 0xC, 0x104))
            form = numbers.choice((buffer.inc, buffer.non_inc, buffer.one_inc))
            form(numbers.randrange(8), place, *values)
            buffer.release(self._word(program, False), values[0])
            buffer.immediate(numbers.randrange(8), place, values[0] % 64)
        self._masks(buffer, 1)
        self._add(program, buffer)

    def _masks(self, buffer: Pushbuffer, active: int) -> None:
        """Set a mask with or without device 0, or store it and use it."""
        mask = self.numbers.getrandbits(11) << 1 | active
        if self.numbers.random() < 0.5:
            buffer.sub_devices(TertOp.SET_SUB_DEV_MASK, mask)
        else:
            buffer.sub_devices(TertOp.STORE_SUB_DEV_MASK, mask)
            buffer.sub_devices(TertOp.USE_SUB_DEV_MASK)
