"""The supplied core: all units connected (ASID-1, ASID-27)."""

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import connect, flipped

from signalbox.hw.config import Config
from signalbox.hw.records.placement import KernelWord, coordinates
from signalbox.hw.sm.core.execute import Execute
from signalbox.hw.sm.core.fetch import Fetch
from signalbox.hw.sm.core.kernel_rows import KernelRows
from signalbox.hw.sm.core.launch_unit import LaunchUnit
from signalbox.hw.sm.core.load_store import LoadStoreUnit
from signalbox.hw.sm.core.read_port import ReadArbiter
from signalbox.hw.sm.core.records import context, context_write, place, unit_kinds, warp_place
from signalbox.hw.sm.core.register_file import RegisterFile
from signalbox.hw.sm.core.retire import Retire, warp_next
from signalbox.hw.sm.core.shared_memory import SharedMemory
from signalbox.hw.sm.core.state_transfer import StateTransfer, WarpWait
from signalbox.hw.sm.core.warp_exit import WarpExit
from signalbox.hw.sm.core.warp_scheduler import WarpScheduler
from signalbox.hw.sm.core.warp_start import WarpStart
from signalbox.hw.sm.core.warp_waits import Barriers, WarpWaits
from signalbox.hw.sm.port import SmPort

__all__ = ["Core"]


class Core(wiring.Component):
    """In-order core: each warp has at most one instruction in flight, many warps overlap
    (`hw/sm/README.md`). All accesses of a warp carry its kernel row.

    Members are those of `SmPort`, seen from the core.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        super().__init__(SmPort(config).flip())

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        m.submodules.kernels = self._kernels = KernelRows(config)
        m.submodules.fetch = self._fetch = Fetch(config)
        m.submodules.warps = self._warps = WarpScheduler(config)
        m.submodules.waits = self._waits = WarpWaits(config)
        m.submodules.barriers = self._barriers = Barriers(config)
        m.submodules.execute = self._execute = Execute(config)
        m.submodules.registers = self._registers = RegisterFile(config)
        m.submodules.retire = self._retire = Retire(config)
        m.submodules.memory = self._memory = LoadStoreUnit(config)
        m.submodules.shared = self._shared = SharedMemory(config)
        m.submodules.start = self._start = WarpStart(config)
        self._launches = LaunchUnit(config) if config.nested else None
        m.submodules.ending = self._ending = WarpExit(config, len(unit_kinds(config).members) + 1)
        self._transfer = StateTransfer(config) if config.preemption else None
        self._blocks(m)
        self._contexts(m)
        self._turns(m)
        self._pipeline(m)
        self._begin_warps(m)
        self._end_warps(m)
        self._bus(m)
        if self._launches is not None:
            m.submodules.launches = self._launches
            self._launch(m, self._launches)
        if self._transfer is None:
            self._without_transfer(m)
        else:
            m.submodules.transfer = self._transfer
            self._stop_blocks(m, self._transfer)
            self._transfer_warps(m, self._transfer)
            self._transfer_instructions(m, self._transfer)
            self._transfer_faults(m, self._transfer)
        return m

    def _blocks(self, m: Module) -> None:
        """Start of blocks; kernel words."""
        config, begin, shared = self._config, self.begin, self._shared
        fetch, kernels, barriers = self._fetch, self._kernels, self._barriers
        m.submodules.blocks = blocks = memory.Memory(
            shape=coordinates, depth=config.sm_blocks, init=[]
        )
        write, read = blocks.write_port(), blocks.read_port()
        begins = Signal()
        m.d.comb += [
            begins.eq(begin.valid & begin.ready),
            begin.ready.eq(shared.free & ~shared.clear.bit_select(begin.p.slot, 1)),
            shared.begin.valid.eq(begins),
            shared.begin.what.eq(begin.payload),
            write.en.eq(begins),
            write.addr.eq(begin.p.slot),
            write.data.eq(begin.p.at),
            read.addr.eq(fetch.slot),
            fetch.block.eq(read.data),
            kernels.kernel.eq(self.kernel),
            kernels.row[1].eq(begin.p.row),
            barriers.warps.eq(kernels.traits[1].warps),
            fetch.drop.valid.eq(self.kernel.valid & (self.kernel.word == KernelWord.NEEDS)),
            fetch.drop.row.eq(self.kernel.row),
            self._start.forget.eq(begins),
        ]
        m.d.sync += [barriers.begin.valid.eq(begins), barriers.begin.slot.eq(begin.p.slot)]

    def _contexts(self, m: Module) -> None:
        """Contexts and places of warps: the pipeline writes first, a starting warp waits."""
        config, start, done = self._config, self._start, self._retire.write
        depth = config.sm_warps
        m.submodules.contexts = contexts = memory.Memory(
            shape=context(config), depth=depth, init=[]
        )
        m.submodules.places = places = memory.Memory(shape=place(config), depth=depth, init=[])
        new, read = contexts.write_port(), contexts.read_port()
        put, look = places.write_port(), places.read_port()
        self._written = written = Signal(context_write(config), name="written")
        self._context_ram, self._place_ram = contexts, places
        warp = Signal(config.warp_bits)
        pick = self._warps.pick
        m.d.sync += warp.eq(pick.warp)
        m.d.comb += [
            start.free_write.eq(~done.valid),
            written.eq(Mux(done.valid, done, start.write)),
            new.en.eq(written.valid),
            new.addr.eq(written.warp),
            new.data.eq(written.context),
            put.en.eq(start.take),
            put.addr.eq(self.start.p.warp),
            put.data.eq(start.place),
            read.addr.eq(pick.warp),
            look.addr.eq(pick.warp),
            self._fetch.at.warp.eq(warp),
            self._fetch.at.place.eq(look.data),
            self._fetch.at.context.eq(read.data),
        ]

    def _turns(self, m: Module) -> None:
        """Warp scheduling: wait, wake, pick."""
        warps, fetch, waits = self._warps, self._fetch, self._waits
        self._next = next_ = Signal(warp_next(self._config), name="next")
        self._waiting = waiting = Signal(warp_place(self._config), name="waiting")
        done = self._ending.failed
        m.d.comb += [
            warps.admit.eq(fetch.admit),
            fetch.pick.eq(warps.pick),
            warps.started.valid.eq(self._start.write.valid & self._start.free_write),
            warps.started.warp.eq(self._start.write.warp),
            warps.next.eq(next_),
            warps.done.valid.eq(done.valid & ~done.what.transfer),
            warps.done.what.eq(done.what),
            warps.wake.eq(waits.wake),
            warps.outcome.eq(fetch.outcome),
            warps.open.program.eq(fetch.program.open),
            warps.open.constants.eq(fetch.constants.open),
            *(
                warps.open[name].eq(self._may_retry(name))
                for name in unit_kinds(self._config).members
            ),
            warps.ended.eq(self._ending.ended),
            fetch.dying.eq(warps.dying),
            fetch.over.eq(warps.over),
            fetch.kill.eq(self.kill),
            waits.kill.eq(self.kill),
            waits.at.eq(waiting),
            waits.start.valid.eq(self._start.take),
            waits.start.warp.eq(self.start.p.warp),
            waits.next.eq(next_),
            waits.release.eq(self._barriers.release),
            self._barriers.arrive.valid.eq(next_.barrier),
            self._barriers.arrive.slot.eq(next_.slot),
            self._barriers.undo.eq(waits.undo),
            self._barriers.leave.valid.eq(fetch.last.valid & ~fetch.last.saves),
            self._barriers.leave.slot.eq(fetch.last.place.slot),
        ]

    def _may_retry(self, unit: str) -> Value:
        """Whether warps held for a unit may retry. Stopped and killed warps do not wait for the
        launches of others."""
        room = self._fetch.room[unit]
        return room | self.kill.any() | self._fetch.stopped.any() if unit == "launch" else room

    def _pipeline(self, m: Module) -> None:
        fetch, execute, registers = self._fetch, self._execute, self._registers
        memory_, shared, kernels, retire = self._memory, self._shared, self._kernels, self._retire
        for own in (memory_, shared):
            m.d.comb += own.row.row.eq(execute.row.row)
        connect(m, memory_.result, registers.loads[0])
        connect(m, shared.result, registers.loads[1])
        rests, self._late = Signal(name="rests"), Signal(name="late")
        waited = Signal(3)
        """`waited`: cycles for which a context has waited to be written, up to 7. `rests`: a row
        pauses, for a waiting memory result or for such a context; never for two consecutive
        cycles."""
        m.d.sync += [
            waited.eq(Mux(self._late, waited + (waited != 7), 0)),
            rests.eq((registers.waiting | (waited == 7)) & ~execute.paused),
        ]
        m.d.comb += [
            kernels.row[0].eq(fetch.row),
            fetch.traits.eq(kernels.traits[0]),
            kernels.number.eq(self.number),
            kernels.local_row.eq(execute.row.row.place.row),
            memory_.local.eq(kernels.local),
            kernels.ask.eq(fetch.ask),
            fetch.buffer.eq(kernels.buffer),
            kernels.look[0].eq(fetch.look),
            fetch.word.eq(kernels.word[0]),
            memory_.row.valid.eq(execute.row.valid & ~(execute.row.shared | execute.row.launch)),
            shared.row.valid.eq(execute.row.valid & execute.row.shared),
            registers.look.eq(execute.look),
            execute.dest.eq(registers.dest),
            execute.fresh.eq(registers.fresh),
            *(execute.words[n].eq(registers.words[n]) for n in range(3)),
            registers.write.eq(execute.write),
            registers.cover.eq(execute.cover),
            registers.mark.eq(execute.mark),
            registers.result.eq(execute.result),
            execute.pause.eq(rests),
            self._start.threads.eq(execute.threads),
            execute.thread.eq(self._start.thread),
            retire.ahead.eq(execute.ahead),
            retire.retired.eq(execute.retired),
        ]

    def _begin_warps(self, m: Module) -> None:
        start, registers, kernels = self._start, self._registers, self._kernels
        connect(m, flipped(self.start), start.start)
        m.d.comb += [
            start.free.eq(~registers.busy),
            start.got.eq(~registers.busy),
            registers.take.valid.eq(start.take),
            registers.take.p.owner.eq(self.start.p.warp),
            registers.take.p.count.eq(self.start.p.registers),
            kernels.look[1].eq(start.look),
            start.word.eq(kernels.word[1]),
        ]

    def _end_warps(self, m: Module) -> None:
        ending = self._ending
        m.d.comb += [ending.ending.eq(self._warps.ending), ending.last.eq(self._fetch.last)]
        connect(m, self._memory.ends[0], ending.ends[0])
        connect(m, self._memory.ends[1], ending.ends[1])
        connect(m, self._shared.ends, ending.ends[2])
        connect(m, ending.end, flipped(self.end))
        connect(m, ending.give, self._registers.give)

    def _bus(self, m: Module) -> None:
        m.submodules.reads = reads = ReadArbiter(self._config, 3)
        fetch, own = self._fetch, self._memory
        connect(m, fetch.program.request, reads.ask[0])
        connect(m, fetch.constants.request, reads.ask[1])
        connect(m, own.ask, reads.ask[2])
        m.d.comb += [
            fetch.program.beat.eq(reads.beats[0]),
            fetch.constants.beat.eq(reads.beats[1]),
            own.beat.eq(reads.beats[2]),
        ]
        connect(m, reads.request, flipped(self.read_request))
        connect(m, flipped(self.read_beat), reads.beat)
        connect(m, own.request, flipped(self.write_request))
        connect(m, own.data, flipped(self.write_beat))
        connect(m, flipped(self.write_done), own.done)

    def _launch(self, m: Module, unit: LaunchUnit) -> None:
        """Launches, and waits for children."""
        fetch, execute = self._fetch, self._execute
        connect(m, unit.launch, flipped(self.launch))
        connect(m, unit.result, self._registers.loads[2])
        connect(m, unit.end, self._ending.ends[3])
        m.d.comb += [
            unit.row.valid.eq(execute.row.valid & execute.row.launch),
            unit.row.row.eq(execute.row.row),
            unit.launched.eq(self.launched),
            unit.reserve.eq(fetch.reserve.launch),
            fetch.room.launch.eq(unit.room),
            fetch.children.eq(self.children),
            fetch.child_failed.eq(self.child_failed),
            self._waits.children.eq(self.children),
        ]

    def _rooms(self) -> tuple[tuple[str, LoadStoreUnit | SharedMemory], ...]:
        return ("memory", self._memory), ("shared", self._shared)

    def _without_transfer(self, m: Module) -> None:
        """Blocks are never stopped."""
        fetch = self._fetch
        connect(m, fetch.o, self._execute.i)
        connect(m, self._ending.fault, flipped(self.fault))
        for name, unit in self._rooms():
            m.d.comb += [fetch.room[name].eq(unit.room), unit.reserve.eq(fetch.reserve[name])]
        m.d.comb += [
            self._late.eq(self._start.write.valid & ~self._start.free_write),
            self._shared.finish.eq(self.finish),
            self._next.eq(self._retire.next),
            self._waiting.eq(self._execute.retired.at),
        ]

    def _stop_blocks(self, m: Module, transfer: StateTransfer) -> None:
        """Stopped blocks, and blocks that continue."""
        start, fetch = self.start, self._fetch
        connect(m, flipped(self.stop), transfer.stop)
        m.d.comb += [
            transfer.begin.eq(self._shared.begin),
            transfer.finish.eq(self.finish),
            transfer.kill.eq(self.kill),
            self.saved.eq(transfer.saved),
            self._shared.finish.eq((self.finish & ~transfer.stopped) | transfer.saved),
            fetch.stopped.eq(transfer.stopped),
            self._waits.stopped.eq(transfer.stopped),
            transfer.start.valid.eq(self._start.take),
            transfer.start.warp.eq(start.p.warp),
            transfer.start.registers.eq(start.p.registers),
            transfer.over.eq(self._ending.over),
        ]

    def _transfer_warps(self, m: Module, transfer: StateTransfer) -> None:
        """Warps that are saved and restored. A warp that had ended before its block was saved
        starts only to end again."""
        warps, start, waits = self._warps, self._start, self._waits
        put, retire, lost = transfer.put, self._retire, transfer.lost
        context_, place_ = self._context_ram.read_port(), self._place_ram.read_port()
        timed, barred = (
            waits.cut[name].bit_select(transfer.look, 1) for name in ("timed", "barred")
        )
        waits_for = Signal(WarpWait, name="waits_for")
        puts = put.valid & put.ready
        m.d.comb += [
            transfer.at.eq(start.at),
            start.fate.eq(transfer.fate),
            transfer.resume.eq(start.resume),
            warps.done_before.valid.eq(start.over.valid | lost.valid),
            warps.done_before.warp.eq(Mux(start.over.valid, start.over.warp, lost.payload)),
            lost.ready.eq(~start.over.valid),
            transfer.saving.eq(warps.saving),
            warps.saved.eq(transfer.gone),
            context_.addr.eq(transfer.look),
            place_.addr.eq(transfer.look),
            waits.look.eq(transfer.look),
            transfer.context.eq(context_.data),
            transfer.place.eq(place_.data),
            transfer.wait.eq(waits_for),
            transfer.left.eq(waits.left),
            put.ready.eq(~(retire.retired.valid | start.write.valid)),
            self._late.eq((start.write.valid | put.valid) & retire.retired.valid),
            self._next.eq(retire.next),
            self._waiting.eq(self._execute.retired.at),
        ]
        m.d.sync += waits_for.eq(
            Mux(barred, WarpWait.BARRIER, Mux(timed, WarpWait.TIME, WarpWait.NONE))
        )
        with m.If(puts):
            m.d.comb += [
                self._written.valid.eq(1),
                self._written.warp.eq(put.p.warp),
                self._written.context.eq(put.p.context),
                self._next.warp.eq(put.p.warp),
                self._next.slot.eq(put.p.place.slot),
                # `wait` is from memory, and may have any value if the state could not be saved.
                self._next.ready.eq(~(self._next.barrier | self._next.waits)),
                self._next.barrier.eq(put.p.wait == WarpWait.BARRIER),
                self._next.waits.eq(put.p.wait == WarpWait.TIME),
                self._next.word.eq(put.p.left),
                self._waiting.place.eq(put.p.place),
            ]

    def _transfer_instructions(self, m: Module, transfer: StateTransfer) -> None:
        """Instructions of the transfer alternate with those of the warps."""
        fetch, execute = self._fetch, self._execute
        mine, last = Signal(name="transfers"), Signal(name="transferred")
        i = execute.i
        m.d.comb += [
            mine.eq(transfer.o.valid & ~(last & fetch.o.valid)),
            i.valid.eq(transfer.o.valid | fetch.o.valid),
            i.payload.eq(Mux(mine, transfer.o.payload, fetch.o.payload)),
            transfer.o.ready.eq(i.ready & mine),
            fetch.o.ready.eq(i.ready & ~mine),
            transfer.retired.eq(execute.retired),
            transfer.top.eq(self._retire.top),
            transfer.done.valid.eq(self._ending.failed.valid),
            transfer.done.shared.eq(self._shared.ends.valid & self._shared.ends.ready),
            transfer.done.what.eq(self._ending.failed.what),
        ]
        with m.If(i.valid & i.ready):
            m.d.sync += last.eq(mine)
        for name, unit in self._rooms():
            m.d.comb += [
                transfer.room[name].eq(unit.room),
                fetch.room[name].eq(unit.room & ~transfer.wants[name]),
                unit.reserve.eq(fetch.reserve[name] | transfer.reserve[name]),
            ]

    def _transfer_faults(self, m: Module, transfer: StateTransfer) -> None:
        """Faults of warps go first, but an offered one stays until it is taken."""
        warp, state = self._ending.fault, transfer.fault
        chosen, stays = Signal(name="state_fault"), Signal(name="state_fault_stays")
        m.d.comb += [
            chosen.eq(state.valid & (stays | ~warp.valid)),
            self.fault.valid.eq(warp.valid | state.valid),
            self.fault.payload.eq(Mux(chosen, state.payload, warp.payload)),
            warp.ready.eq(self.fault.ready & ~chosen),
            state.ready.eq(self.fault.ready & chosen),
        ]
        m.d.sync += stays.eq(chosen & ~self.fault.ready)
