"""Register file: rows of `lanes` words, in units located through a map."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from signalbox.hw.config import Config
from signalbox.hw.lib.arbiter import RoundRobin
from signalbox.hw.sm.core.records import (
    bits,
    dest_bits,
    file_units,
    result_row,
    row_count,
    unit_kinds,
)
from signalbox.hw.sm.core.unit_allocator import UnitAllocator
from signalbox.hw.sm.core.written_flags import WrittenFlags

__all__ = ["UNIT_REGISTERS", "RegisterFile", "register_look"]

UNIT_REGISTERS = 4
"""Registers per thread in a unit."""

_MOST = 64
"""Most units per warp: 256 registers."""


def register_look(config: Config) -> data.StructLayout:
    """Four registers of one row of a warp, or with `own` of `StateTransfer`."""
    return data.StructLayout({
        "warp": config.warp_bits,
        "own": 1,
        "line": 5,
        "registers": data.ArrayLayout(8, 4),
    })


class RegisterFile(wiring.Component):
    """Reads three registers of a row and writes one per cycle.

    Pipeline results are written at once; memory results in the remaining cycles, round robin.

    A register that its warp has not written reads as 0 (PREEMPT-10). The first instruction that
    writes it covers all lanes of all rows, then marks it. The registers of `StateTransfer`, which
    has several instructions in flight, always count as written.

    Members
    -------
    take : in, stream of allocations of units to a warp, see `UnitAllocator`.
    busy : out, an allocation is in progress.
    owner : out, warp of that allocation.
    give : in, stream of warps, each of which gives back all its units.
    look : in, a `register_look`: registers of a row.
    dest : out, `dest_bits` bits, 1 cycle later: location of the fourth register.
    fresh : out, 2 cycles later: the fourth register has not been marked.
    words : out, 32 bits per lane, 2 cycles later: values of the first three registers.
    write : in, write `result`.
    cover : in, write 0 to the lanes outside of its mask.
    mark : in, mark the register of `result` as written.
    result : in, a `result_row`: pipeline result.
    loads : in, one stream of `result_row` per unit: results of instructions that complete later.
    waiting : out, a memory result is waiting.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        row = data.ArrayLayout(32, config.lanes)
        self._units = UnitAllocator(config.register_units, config.sm_warps, _MOST, 4)
        units = self._units.signature.members
        result = result_row(config)
        super().__init__({
            **{name: units[name] for name in ("take", "busy", "owner", "give")},
            "look": In(register_look(config)),
            "dest": Out(dest_bits(config)),
            "fresh": Out(1),
            "words": Out(row).array(3),
            "write": In(1),
            "cover": In(1),
            "mark": In(1),
            "result": In(result),
            "loads": In(stream.Signature(result)).array(len(unit_kinds(config).members)),
            "waiting": Out(1),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.units = self._units
        connect(m, flipped(self.take), self._units.take)
        connect(m, flipped(self.give), self._units.give)
        m.d.comb += [self.busy.eq(self._units.busy), self.owner.eq(self._units.owner)]
        lanes = self._config.lanes
        depth = file_units(self._config) * UNIT_REGISTERS * row_count(self._config)
        m.submodules.file = self._file = memory.Memory(
            shape=data.ArrayLayout(32, lanes), depth=depth, init=[]
        )
        m.submodules.written = self._written = WrittenFlags(
            self._config.register_units, UNIT_REGISTERS, 4
        )
        self._read(m)
        self._mark(m)
        self._write(m)
        return m

    def _read(self, m: Module) -> None:
        look = Signal.like(self.look)
        m.d.sync += look.eq(self.look)
        row_bits = (row_count(self._config) - 1).bit_length()
        places = []
        for number in range(4):
            register = self.look.registers[number]
            inside = look.registers[number][:2]
            own_unit = self._config.register_units + look.registers[number][2:]
            unit = Signal(bits(file_units(self._config)), name=f"unit_{number}")
            m.d.comb += [
                unit.eq(Mux(look.own, own_unit, self._units.unit[number])),
                self._units.look[number].number.eq(register[2:]),
                self._units.look[number].owner.eq(self.look.warp),
                self._written.look[number].eq(Cat(inside, self._units.unit[number])),
            ]
            places.append(Cat(look.line[:row_bits], inside, unit))
        own = Signal()
        m.d.sync += own.eq(look.own)
        written = [flag | own for flag in self._written.written]
        for place, word, known in zip(places, self.words, written, strict=False):
            port = self._file.read_port()
            m.d.comb += [port.addr.eq(place), word.eq(Mux(known, port.data, 0))]
        m.d.comb += [self.dest.eq(places[3]), self.fresh.eq(~written[3])]

    def _mark(self, m: Module) -> None:
        flags, units = self._written, self._units
        row_bits = (row_count(self._config) - 1).bit_length()
        m.d.comb += [
            flags.moves.eq(1),
            flags.mark.valid.eq(self.mark),
            flags.mark.at.eq(self.result.dest[row_bits:]),
            flags.next.eq(units.next),
            units.hold.eq(flags.hold),
        ]

    def _write(self, m: Module) -> None:
        m.submodules.turns = turns = RoundRobin(len(self.loads))
        port = self._file.write_port(granularity=1)
        valid = Cat(load.valid for load in self.loads)
        row = Signal.like(self.result)
        m.d.comb += [
            turns.requests.eq(valid),
            turns.advance.eq(~self.write),
            # Of several results, all but one wait.
            self.waiting.eq(valid.any() & self.write | (valid & (valid - 1)).any()),
            port.addr.eq(row.dest),
            row.eq(self.result),
        ]
        covers = self.write & self.cover
        for lane, word in enumerate(row.words):
            m.d.comb += port.data[lane].eq(Mux(covers & ~row.mask[lane], 0, word))
        for number, load in enumerate(self.loads):
            m.d.comb += load.ready.eq(~self.write & turns.grant[number])
            with m.If(load.ready):
                m.d.comb += row.eq(load.payload)
        with m.If(self.write | valid.any()):
            m.d.comb += port.en.eq(row.mask | covers.replicate(self._config.lanes))
