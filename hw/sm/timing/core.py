"""The timing core: all units connected (ASID-1, ASID-27)."""

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import connect, flipped

from signalbox.hw.config import Config
from signalbox.hw.lib.shared import Shared
from signalbox.hw.sm.port import SmPort
from signalbox.hw.sm.timing.accesses import Loads, Stores
from signalbox.hw.sm.timing.kernel_rows import KernelRows
from signalbox.hw.sm.timing.steps import Steps
from signalbox.hw.sm.timing.timer import Timer
from signalbox.hw.sm.timing.warp_exit import WarpExit
from signalbox.hw.sm.timing.warp_start import WarpStart

__all__ = ["TimingCore"]


class TimingCore(wiring.Component):
    """Warps only spend time and access memory, as specified by the record of their task
    (`hw/sm/README.md`). All accesses of a warp carry its kernel row.

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
        m.submodules.timer = timer = Shared(Timer(config, 3), "timer")
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
        for number, source in enumerate((start, loads, stores)):
            connect(m, source.wake, timer.wakes[number])
        connect(m, timer.fire, steps.fire)
        connect(m, steps.load, loads.load)
        connect(m, steps.store, stores.store)
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
