"""Preemption in the timing core: saves and restores blocks, with the remaining work of their warps
(PREEMPT-9)."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out, connect

from signalbox.hw.config import Config
from signalbox.hw.errors import CoreCause
from signalbox.hw.lib.stream import StreamFIFO
from signalbox.hw.records.memory import MemoryStatus
from signalbox.hw.sm.port import block_begin, block_save
from signalbox.hw.sm.timing.layouts import (
    state_access,
    state_answer,
    state_bits,
    warp_owner,
    warp_place,
    warp_state,
    warp_wake,
)
from signalbox.hw.sm.timing.state_beats import StateBeats
from signalbox.hw.sm.timing.state_lines import StateLines, block_place
from signalbox.hw.sm.timing.steps import moved_warp
from signalbox.hw.sm.timing.warp_exit import warp_last
from signalbox.hw.sm.warp_fates import WarpFates, warp_fate, warp_number

__all__ = ["StateTransfer"]

_UNDER_WAY = 8
"""Maximum number of blocks and warps with lines under way."""

_HALF = warp_state.size // 2
"""Bits of ended warps in the fates of a block; those of saved warps follow."""


class StateTransfer(wiring.Component):
    """Saves blocks and warps one after the other, and restores others meanwhile. Accesses of
    several may be outstanding; they complete in order.

    Members
    -------
    begin : in, strobe: a block begins.
    stop : in, stream of `block_save`: blocks to be saved.
    stopped : out, per block slot: its warps execute nothing more.
    finish : in, strobe per block slot: all warps of the block have ended.
    saved : out, strobe per block slot: the stopped block's state is in memory.
    kill : in, per kernel row: nothing of it need be saved.
    start : in, strobe: a warp starts, with a number of units of registers; `owner` is valid as soon
        as the warp is offered.
    fate : out, fate of the starting warp (`warp_fate`), 1 cycle after it is offered.
    resume : in, with `start`: the warp must be restored.
    over : in, strobe: a warp ends, unless it is saved.
    save : in, stream of `moved_warp`: warps to be saved; always accepted.
    put : out, stream of the progress of restored warps.
    wake : out, stream of `warp_wake`: the restored warp, after its progress; it computes for the
        rest of its time.
    last : out, two streams of `warp_last`: saved warps, and failures of blocks.
    write : out, stream of `state_access`: writes.
    written : in, stream of `state_answer`: lines written, when visible.
    read : out, stream of `state_access`: reads.
    arrived : in, stream of `state_answer`: their data.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        begin = data.StructLayout({"valid": 1, "what": block_begin(config)})
        units = range(config.register_units + 1)
        start = data.StructLayout({"valid": 1, "owner": warp_owner(config), "registers": units})
        over = data.StructLayout({"valid": 1, "number": warp_number(config)})
        put = data.StructLayout({"warp": config.warp_bits, "place": warp_place(config)})
        super().__init__({
            "begin": In(begin),
            "stop": In(stream.Signature(block_save(config))),
            "stopped": Out(config.sm_blocks),
            "finish": In(config.sm_blocks),
            "saved": Out(config.sm_blocks),
            "kill": In(config.rows),
            "start": In(start),
            "fate": Out(warp_fate),
            "resume": In(1),
            "over": In(over),
            "save": In(stream.Signature(moved_warp(config))),
            "put": Out(stream.Signature(put)),
            "wake": Out(stream.Signature(warp_wake(config))),
            "last": Out(stream.Signature(warp_last(config))).array(2),
            "write": Out(stream.Signature(state_access(config))),
            "written": In(stream.Signature(state_answer(config))),
            "read": Out(stream.Signature(state_access(config))),
            "arrived": In(stream.Signature(state_answer(config))),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        m.submodules.fates = self._fates = WarpFates(config)
        m.submodules.saves = self._saves = StateLines(config)
        m.submodules.loads = self._loads = StateLines(config)
        self._opened, self._closed, self._dropped = (
            Signal(config.sm_blocks, name=name) for name in ("opened", "closed", "dropped")
        )
        """Strobes per block slot: the block is restored (`_opened`); is saved (`_closed`); is not
        saved, as its row was killed (`_dropped`)."""
        self._blocks(m)
        self._places(m)
        self._queues(m)
        self._tell_fate(m)
        self._save(m)
        self._restore(m)
        return m

    def _blocks(self, m: Module) -> None:
        """State of the block slots."""
        begin, stop, slots = self.begin, self.stop, self._config.sm_blocks
        opening = Signal(slots, name="opening")
        begins, stops, closes = (Signal(slots, name=name) for name in ("begins", "stops", "closes"))
        self._opening = opening
        m.d.comb += [
            stop.ready.eq(~begin.valid),
            begins.eq(self._slot(begin.valid, begin.what.slot)),
            stops.eq(self._slot(stop.valid & stop.ready, stop.p.slot)),
            closes.eq(self._closed | self._dropped),
            self.saved.eq(closes),
            self._fates.fresh.eq(begins),
            self._loads.blocks.eq(begins & begin.what.restores.replicate(slots)),
            self._saves.blocks.eq(self.finish & self.stopped),
        ]
        m.d.sync += [
            self.stopped.eq(self.stopped & ~closes | stops),
            opening.eq(opening & ~self._opened | self._loads.blocks),
        ]

    def _slot(self, valid: Value, number: Value) -> Value:
        """Bit `number`, if `valid`."""
        return Cat(valid & (number == n) for n in range(self._config.sm_blocks))

    def _places(self, m: Module) -> None:
        """Per slot, the place of its block. A block that is stopped for the first time gets its
        place then. All warps of a block have the same number of registers."""
        begin, stop, start = self.begin, self.stop.p, self.start
        owner = self._table(m, "owners", ("row", "shared"))
        page = self._table(m, "pages", ("page",))
        amount = self._table(m, "amounts", ("registers",))
        m.d.comb += [
            owner.en.eq(begin.valid),
            owner.addr.eq(begin.what.slot),
            owner.data.row.eq(begin.what.row),
            owner.data.shared.eq(begin.what.shared),
            page.en.eq(begin.valid | self.stop.valid),
            page.addr.eq(Mux(begin.valid, begin.what.slot, stop.slot)),
            page.data.page.eq(Mux(begin.valid, begin.what.page, stop.page)),
            amount.en.eq(start.valid),
            amount.addr.eq(start.owner.slot),
            amount.data.registers.eq(start.registers),
            [lines.kill.eq(self.kill) for lines in (self._saves, self._loads)],
        ]

    def _table(self, m: Module, name: str, fields: tuple[str, ...]) -> memory.WritePort:
        """Part of the places, which each `StateLines` reads."""
        config = self._config
        members = block_place(config).members
        shape = data.StructLayout({field: members[field] for field in fields})
        m.submodules[name] = table = memory.Memory(shape=shape, depth=config.sm_blocks, init=[])
        for lines in (self._saves, self._loads):
            read = table.read_port()
            m.d.comb += [
                read.addr.eq(lines.look),
                [lines.place[field].eq(read.data[field]) for field in fields],
            ]
        return table.write_port()

    def _queues(self, m: Module) -> None:
        """Warps to be saved and to be restored: each hardware warp at most once."""
        config, start = self._config, self.start
        shape, depth = moved_warp(config), config.sm_warps + 1
        m.submodules.stopped_warps = stopped = StreamFIFO(shape, depth)
        m.submodules.resumed_warps = resumed = StreamFIFO(shape, depth)
        connect(m, stopped.o, self._saves.warps)
        connect(m, resumed.o, self._loads.warps)
        m.d.comb += [
            self.save.ready.eq(1),
            stopped.i.valid.eq(self.save.valid),
            stopped.i.payload.eq(self.save.payload),
            resumed.i.valid.eq(start.valid & self.resume),
            resumed.i.p.owner.eq(start.owner),
        ]

    def _tell_fate(self, m: Module) -> None:
        fates, over, at = self._fates, self.over, self.start.owner
        one, all_ = fates.fates
        slot, index = Signal.like(at.slot, name="slot"), Signal.like(at.index, name="index")
        m.d.sync += [slot.eq(at.slot), index.eq(at.index)]
        m.d.comb += [
            fates.look[0].eq(at.slot),
            fates.look[1].eq(self._saves.look),
            fates.over.eq(over),
            self._saves.fates[:_HALF].eq(all_.over),
            self._saves.fates[_HALF:].eq(all_.saved),
            self.fate.waits.eq(self._opening.bit_select(slot, 1)),
            self.fate.over.eq(one.over.bit_select(index, 1)),
            self.fate.saved.eq(one.saved.bit_select(index, 1)),
        ]

    def _move(
        self, m: Module, name: str, lines: wiring.PureInterface, o: wiring.PureInterface
    ) -> wiring.PureInterface:
        """Make the accesses of lines. Returns the blocks and warps under way."""
        shape = data.StructLayout({"block": 1, "owner": warp_owner(self._config)})
        m.submodules[f"{name}_beats"] = beats = StateBeats(self._config)
        m.submodules[f"{name}_order"] = order = StreamFIFO(shape, _UNDER_WAY)
        goes = Signal(name=f"{name}_goes")
        connect(m, beats.o, wiring.flipped(o))
        m.d.comb += [
            lines.ready.eq(beats.i.ready & order.i.ready),
            goes.eq(lines.valid & lines.ready),
            beats.i.valid.eq(goes),
            beats.i.payload.eq(lines.payload),
            order.i.valid.eq(goes),
            order.i.p.block.eq(lines.p.block),
            order.i.p.owner.eq(lines.p.owner),
        ]
        return order.o

    def _save(self, m: Module) -> None:
        """A block of a killed row is not saved. A saved warp stays marked when it is restored: it
        is saved again, or ends."""
        lines, written, last = self._saves.o, self.written, self.last[0]
        change = self._fates.change
        kept = stream.Signature(lines.p.shape()).create(path=("kept",))
        drops = Signal(name="drops")
        m.d.comb += [
            drops.eq(lines.valid & lines.p.block & lines.p.killed),
            self._dropped.eq(self._slot(drops, lines.p.owner.slot)),
            kept.valid.eq(lines.valid & ~drops),
            kept.payload.eq(lines.payload),
            lines.ready.eq(kept.ready | drops),
        ]
        o = self._move(m, "save", kept, self.write)
        bad, fails, ends, done = (
            Signal(name=f"save_{name}") for name in ("bad", "fails", "ends", "done")
        )
        m.d.comb += [
            fails.eq(bad | (written.p.status != MemoryStatus.OK)),
            ends.eq(written.valid & written.p.last & o.valid),
            last.valid.eq(ends & (fails | ~o.p.block)),
            last.p.ends.eq(~o.p.block),
            last.p.warp.eq(o.p.owner.warp),
            [last.p.fault[name].eq(o.p.owner[name]) for name in ("row", "slot", "index")],
            last.p.fault.cause.eq(Mux(fails, CoreCause.STATE_BUS, CoreCause.NONE)),
            done.eq(ends & (last.ready | ~last.valid)),
            written.ready.eq(~written.p.last | done),
            o.ready.eq(done),
            self._closed.eq(self._slot(done & o.p.block, o.p.owner.slot)),
            change.valid.eq(done & ~o.p.block),
            change.saved.eq(1),
            [change.number[name].eq(o.p.owner[name]) for name in ("slot", "index")],
        ]
        with m.If(written.valid & written.ready):
            m.d.sync += bad.eq(fails & ~written.p.last)

    def _restore(self, m: Module) -> None:
        """A block that cannot be restored is treated as if all its warps had ended; a warp ends
        with the fault."""
        arrived, load, last = self.arrived, self._fates.load, self.last[1]
        o = self._move(m, "load", self._loads.o, self.read)
        owner, state = o.p.owner, Signal(warp_state, name="state")
        bad, told = Signal(name="load_bad"), Signal(name="load_told")
        self._take_head(m, Value.cast(state))
        with m.If(arrived.valid & arrived.ready & (arrived.p.status != MemoryStatus.OK)):
            m.d.sync += bad.eq(1)
        m.d.comb += [
            [last.p.fault[name].eq(owner[name]) for name in ("row", "slot", "index")],
            last.p.fault.cause.eq(CoreCause.STATE_BUS),
            load.p.slot.eq(owner.slot),
            load.p.fates.over.eq(Value.cast(state)[:_HALF] | bad.replicate(_HALF)),
            load.p.fates.saved.eq(Value.cast(state)[_HALF:]),
            self.put.p.warp.eq(owner.warp),
            [self.put.p.place[name].eq(state[name]) for name in ("va", "first", "count")],
            self.wake.p.warp.eq(owner.warp),
            self.wake.p.row.eq(owner.row),
            self.wake.p.wait.eq(Mux(bad, 0, state.left)),
            self.wake.p.cause.eq(Mux(bad, CoreCause.STATE_BUS, CoreCause.NONE)),
        ]
        with m.FSM(name="restore"):
            with m.State("TAKE"):
                m.d.comb += arrived.ready.eq(1)
                with m.If(arrived.valid & arrived.p.last):
                    m.next = "DONE"
            with m.State("DONE"):
                with m.If(o.valid):
                    m.next = "WARP"
                    with m.If(o.p.block):
                        m.next = "BLOCK"
            with m.State("BLOCK"):
                m.d.comb += last.valid.eq(bad & ~told)
                with m.If(last.ready):
                    m.d.sync += told.eq(1)
                with m.If(~last.valid):
                    m.d.comb += load.valid.eq(~self._fates.change.valid)
                    with m.If(load.valid & load.ready):
                        m.d.comb += self._opened.eq(self._slot(load.ready, owner.slot))
                        m.next = "NEXT"
            with m.State("WARP"):
                m.d.comb += self.put.valid.eq(~bad)
                with m.If(self.put.ready | bad):
                    m.next = "WAKE"
            with m.State("WAKE"):
                m.d.comb += self.wake.valid.eq(1)
                with m.If(self.wake.ready):
                    m.next = "NEXT"
            with m.State("NEXT"):
                m.d.comb += o.ready.eq(1)
                m.d.sync += [bad.eq(0), told.eq(0)]
                m.next = "TAKE"

    def _take_head(self, m: Module, head: Value) -> None:
        """Keep the first bits of the lines that arrive."""
        arrived, bits = self.arrived, state_bits(self._config)
        taken = Signal(range(warp_state.size // bits + 1), name="taken")
        with m.If(arrived.valid & arrived.ready):
            m.d.sync += taken.eq(taken + 1)
            with m.If(taken != warp_state.size // bits):
                m.d.sync += head.eq(Cat(head, arrived.p.word)[bits:])
            with m.Else():
                m.d.sync += taken.eq(taken)
            with m.If(arrived.p.last):
                m.d.sync += taken.eq(0)
