"""The runlist: from a list in memory to the channels that may be served (HOST-7)."""

from amaranth.hdl import Cat, Module
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out, connect, flipped

from signalbox.hw.config import Config
from signalbox.hw.host.scheduling.failed_acquires import FailedAcquires
from signalbox.hw.host.scheduling.runlist_loader import RunlistLoader
from signalbox.hw.host.scheduling.tsg_rotation import TsgRotation
from signalbox.hw.records.channel import channel_event
from signalbox.hw.records.memory import ReadPort
from signalbox.hw.records.runlist import RunlistControl, group_word

__all__ = ["Runlist"]


class Runlist(wiring.Component):
    """Loader, words of two lists, and rotation. Design: `README.md` in this folder.

    Members
    -------
    control : in, the registers.
    read : out, memory port of the loader.
    ready : in, per channel, its head can proceed.
    working : in, per channel, it has something to do, or waits.
    serving : in, a channel is served.
    served : in, its number.
    expire : in, strobe: it gives up the slice of its TSG.
    polling, lacking, holding, executed, clear : in, see `FailedAcquires`.
    failed : in, strobe: an acquire of the served channel has failed; `yields`: with
        ACQUIRE_SWITCH_TSG.
    all_idle : in, no copy, task or change of memory is outstanding.
    eligible : out, registered, per channel: it may be served.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        super().__init__({
            "control": In(RunlistControl()),
            "read": Out(ReadPort(config)),
            "ready": In(config.channels),
            "working": In(config.channels),
            "serving": In(1),
            "served": In(config.channel_bits),
            "expire": In(1),
            "polling": In(config.channels),
            "lacking": In(config.channels),
            "holding": In(config.channels),
            "executed": In(channel_event(config)),
            "clear": In(channel_event(config)),
            "failed": In(channel_event(config, yields=1)),
            "all_idle": In(1),
            "eligible": Out(config.channels, init=-1),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, control = self._config, self.control
        m.submodules.loader = loader = RunlistLoader(config)
        m.submodules.rotation = rotation = TsgRotation(config)
        m.submodules.acquires = acquires = FailedAcquires(config)
        m.submodules.words = words = Memory(
            shape=group_word(config), depth=2 << config.runlist_bits, init=[]
        )
        connect(m, flipped(self.read), loader.read)
        connect(m, loader.list, rotation.list)
        write, read = words.write_port(), words.read_port()
        m.d.comb += [
            write.addr.eq(Cat(loader.write.at, ~rotation.half)),
            write.data.eq(loader.write.word),
            write.en.eq(loader.write.valid),
            read.addr.eq(rotation.at),
            rotation.word.eq(read.data),
            loader.submit.eq(control.submit),
            rotation.enable.eq(control.enable),
            rotation.unit.eq(control.unit),
            rotation.expire.eq(self.expire),
            self.eligible.eq(rotation.eligible),
            control.refused.eq(loader.refused),
            control.state.reading.eq(loader.pending & ~loader.list.valid),
            control.state.pending.eq(loader.pending),
            [control.state[name].eq(getattr(rotation, name)) for name in ("tsgid", "groups")],
            control.state.running.eq(rotation.running),
        ]
        states = ("ready", "working", "polling", "lacking", "holding", "all_idle")
        m.d.comb += [
            [getattr(acquires, name).eq(getattr(self, name)) for name in states],
            acquires.executed.eq(self.executed),
            acquires.clear.eq(self.clear),
            acquires.failed.eq(self.failed),
            acquires.enable.eq(control.enable),
            acquires.listed.eq(rotation.listed),
            acquires.served.eq(rotation.work.served),
            control.acquire.eq(acquires.acquire),
            rotation.work.ready.eq(self.ready),
            rotation.work.working.eq(self.working),
            rotation.work.yielding.eq(acquires.yielding),
            rotation.work.served.eq((1 << self.served) & self.serving.replicate(config.channels)),
        ]
        return m
