"""The timing core: all units connected (ASID-1, ASID-27)."""

from amaranth.hdl import Cat, Module
from amaranth.lib import wiring
from amaranth.lib.wiring import connect, flipped

from signalbox.hw.config import Config
from signalbox.hw.lib.arbiter import RoundRobin
from signalbox.hw.lib.onehot import select
from signalbox.hw.lib.shared import Shared
from signalbox.hw.sm.port import SmPort
from signalbox.hw.sm.timing.accesses import Loads, Stores
from signalbox.hw.sm.timing.kernel_rows import KernelRows
from signalbox.hw.sm.timing.launch_unit import LaunchUnit
from signalbox.hw.sm.timing.state_transfer import StateTransfer
from signalbox.hw.sm.timing.steps import Steps
from signalbox.hw.sm.timing.timer import Timer
from signalbox.hw.sm.timing.warp_exit import WarpExit
from signalbox.hw.sm.timing.warp_start import WarpStart

__all__ = ["TimingCore"]

_OWNER = ("warp", "row", "slot", "index")
"""A warp and its place, as known at its start."""


class TimingCore(wiring.Component):
    """A core without computation: its warps only spend time, access memory and launch kernels, as
    specified by the record of their task (`hw/sm/README.md`). All accesses of a warp carry its
    kernel row.

    Members are those of `SmPort`, seen from the core.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        super().__init__(SmPort(config).flip())

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        m.submodules.tasks = tasks = KernelRows(config)
        m.submodules.start = start = WarpStart(config)
        sources = 3 + config.preemption + 2 * config.nested
        m.submodules.timer = timer = Shared(Timer(config, sources), "timer")
        m.submodules.steps = steps = Steps(config)
        m.submodules.loads = loads = Loads(config)
        m.submodules.stores = stores = Stores(config)
        m.submodules.ending = ending = WarpExit(config)
        connect(m, flipped(self.begin), start.begin)
        connect(m, flipped(self.start), start.start)
        m.d.comb += [
            tasks.kernel.eq(self.kernel),
            tasks.row.eq(start.row),
            tasks.want.eq(start.want),
            start.known.eq(tasks.known),
            start.cause.eq(tasks.cause),
            tasks.look.eq(start.look),
            start.word.eq(tasks.word),
            steps.word.eq(tasks.word),
            [
                getattr(steps, name).eq(getattr(start, name))
                for name in ("warp", "put_stride", "put_accesses", "facts", "place", "keep")
            ],
            start.free.eq(steps.free),
            timer.kill.eq(self.kill),
        ]
        self._start, self._steps, self._ending = start, steps, ending
        wakes = [start.wake, loads.wake, stores.wake]
        if config.preemption:
            m.submodules.transfer = transfer = StateTransfer(config)
            wakes.append(transfer.wake)
            self._stop_blocks(m, transfer, timer)
            self._transfer_warps(m, transfer)
            self._end_warps(m, transfer)
            connect(m, transfer.write, stores.state)
            connect(m, stores.written, transfer.written)
            connect(m, transfer.read, loads.state)
            connect(m, loads.arrived, transfer.arrived)
        if config.nested:
            m.submodules.launches = launches = LaunchUnit(config)
            connect(m, steps.launch, launches.i)
            connect(m, launches.launch, flipped(self.launch))
            m.d.comb += [
                launches.launched.eq(self.launched),
                steps.children.eq(self.children),
            ]
            wakes += [launches.wake, steps.again]
        for number, wake in enumerate(wakes):
            connect(m, wake, timer.wakes[number])
        connect(m, timer.fire, steps.fire)
        connect(m, steps.load, loads.load)
        connect(m, steps.store, stores.store)
        if not config.preemption:
            connect(m, steps.last, ending.last)
        connect(m, tasks.request, loads.ask)
        connect(m, loads.beat, tasks.beat)
        connect(m, loads.request, flipped(self.read_request))
        connect(m, flipped(self.read_beat), loads.answer)
        connect(m, stores.request, flipped(self.write_request))
        connect(m, stores.beat, flipped(self.write_beat))
        connect(m, flipped(self.write_done), stores.done)
        connect(m, ending.fault, flipped(self.fault))
        connect(m, ending.end, flipped(self.end))
        return m

    def _stop_blocks(self, m: Module, transfer: StateTransfer, timer: wiring.PureInterface) -> None:
        """Stopped blocks, and blocks that continue."""
        begin, start = self.begin, self._start
        connect(m, flipped(self.stop), transfer.stop)
        m.d.comb += [
            transfer.begin.valid.eq(begin.valid & begin.ready),
            transfer.begin.what.eq(begin.payload),
            transfer.finish.eq(self.finish),
            transfer.kill.eq(self.kill),
            self.saved.eq(transfer.saved),
            timer.stopped.eq(transfer.stopped),
            timer.owner.valid.eq(start.keep),
            timer.owner.warp.eq(self.start.p.warp),
            timer.owner.slot.eq(self.start.p.slot),
        ]

    def _transfer_warps(self, m: Module, transfer: StateTransfer) -> None:
        """Warps that are saved and restored; one that had ended makes no access."""
        start, steps, starts = self._start, self._steps, self.start
        connect(m, steps.save, transfer.save)
        connect(m, transfer.put, steps.put)
        m.d.comb += [
            transfer.start.valid.eq(starts.valid & starts.ready),
            [transfer.start.owner[name].eq(starts.p[name]) for name in _OWNER],
            transfer.start.registers.eq(starts.p.registers),
            transfer.resume.eq(start.resume),
            start.fate.eq(transfer.fate),
            transfer.over.eq(steps.over),
        ]
        with m.If(start.none):
            m.d.comb += steps.word.eq(0)

    def _end_warps(self, m: Module, transfer: StateTransfer) -> None:
        """Warps that end, and warps that are saved; failures of states."""
        last = self._ending.last
        sources = [self._steps.last, *transfer.last]
        m.submodules.exits = exits = RoundRobin(len(sources))
        m.d.comb += [
            exits.requests.eq(Cat(source.valid for source in sources)),
            exits.advance.eq(last.ready),
            last.valid.eq(exits.grant.any()),
            [
                source.ready.eq(exits.grant[number] & last.ready)
                for number, source in enumerate(sources)
            ],
            last.payload.eq(select(exits.grant, [source.p.as_value() for source in sources])),
        ]
