"""One streaming multiprocessor: logic controller, core, and memory gate."""

from amaranth.hdl import Module
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from signalbox.hw.config import Config
from signalbox.hw.nested.link import NestedLink
from signalbox.hw.records.memory import ReadPort, WritePort
from signalbox.hw.records.placement import SmLink, kernel_word
from signalbox.hw.sm.block_families import BlockFamilies
from signalbox.hw.sm.controller import SmController, sm_events
from signalbox.hw.sm.core.core import Core
from signalbox.hw.sm.faulty_blocks import FaultyBlocks, sm_fault
from signalbox.hw.sm.memory_gate import MemoryGate
from signalbox.hw.sm.port import CoreFactory, SmMemory, block_launch, launch_answer, make_core
from signalbox.hw.sm.timing.core import TimingCore

__all__ = ["Sm"]


def nested_events(config: Config) -> data.StructLayout:
    """Strobes for timelines: launches by blocks, and their answers."""
    return data.StructLayout({
        "asked": data.StructLayout({"valid": 1, **block_launch(config).members}),
        "answered": launch_answer(config),
    })


class Sm(wiring.Component):
    """Logic controller, core, and the gate between core and memory.

    Parameters
    ----------
    core : constructs the core behind the SM port; by default the supplied one, or with
        `Config.timing_core` the timing core. Raises `CoreError`.

    Members
    -------
    link : in, the global logic controller.
    kernel : in, kernel words.
    number : in, `sm_bits` bits, constant: number of the SM.
    kill : in, per kernel row: its warps must end, and no further ones start.
    fault : out, stream of `sm_fault`: warp faults, offered 1 cycle after the core offers them.
    read : out, memory client, reads.
    write : out, memory client, writes.
    events : out, see `sm_events`.
    nested : in, with nested launches: the engine.
    nested_events : out, with nested launches, see `nested_events`.
    """

    def __init__(self, config: Config, core: CoreFactory | None = None) -> None:
        self._config = config
        self.core = make_core(core or (TimingCore if config.timing_core else Core), config)
        nested = {
            "nested": In(NestedLink(config)),
            "nested_events": Out(nested_events(config)),
        }
        super().__init__({
            **(nested if config.nested else {}),
            "link": In(SmLink(config)),
            "kernel": In(kernel_word(config)),
            "number": In(config.sm_bits),
            "kill": In(config.rows),
            "fault": Out(stream.Signature(sm_fault(config))),
            "read": Out(ReadPort(config)),
            "write": Out(WritePort(config)),
            "events": Out(sm_events(config)),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, core = self._config, self.core
        m.submodules.controller = controller = SmController(config)
        m.submodules.core = core
        m.submodules.gate = gate = MemoryGate(config)
        connect(m, flipped(self.link), controller.link)
        connect(m, flipped(self.read), gate.read)
        connect(m, flipped(self.write), gate.write)
        for name in ("begin", "start", "end"):
            connect(m, getattr(controller.port, name), getattr(core, name))
        for name in SmMemory(config).members:
            connect(m, getattr(gate.core, name), getattr(core, name))
        m.submodules.faulty = faulty = FaultyBlocks(config)
        connect(m, core.fault, faulty.i)
        connect(m, faulty.o, flipped(self.fault))
        m.d.comb += [
            faulty.begin.valid.eq(core.begin.valid & core.begin.ready),
            faulty.begin.what.eq(core.begin.payload),
        ]
        if config.preemption:
            connect(m, controller.port.stop, core.stop)
            m.d.comb += controller.port.saved.eq(core.saved)
        if config.nested:
            self._launch(m, controller)
        m.d.comb += [
            core.kernel.eq(controller.port.kernel),
            core.finish.eq(controller.port.finish),
            controller.kernel.eq(self.kernel),
            gate.kernel.eq(self.kernel),
            controller.kill.eq(self.kill),
            core.kill.eq(self.kill),
            core.number.eq(self.number),
            self.events.eq(controller.events),
        ]
        return m

    def _launch(self, m: Module, controller: SmController) -> None:
        """Launches by blocks, and their children."""
        m.submodules.families = families = BlockFamilies(self._config)
        core, asked = self.core, self.nested_events.asked
        connect(m, core.launch, families.launch)
        connect(m, families.link, flipped(self.nested))
        m.d.comb += [
            core.launched.eq(families.answer),
            asked.valid.eq(core.launch.valid & core.launch.ready),
            [asked[name].eq(core.launch.p[name]) for name in ("slot", "row", "page")],
            self.nested_events.answered.eq(families.answer),
            core.children.eq(families.waits),
            core.child_failed.eq(families.failed),
            families.arrive.eq(controller.arrive),
            families.over.eq(controller.over),
            families.left.eq(controller.gone),
            controller.families.eq(families.families),
            controller.accepts.eq(families.accepts),
        ]
