"""Channel registers: settings, state, errors, start and resumption of a channel (HOST-6).

Start. CONTROL.ENABLE goes from 0 to 1. Once the channel's outstanding operations have ended, its
ring, prefetch buffer and method state are cleared, and METHODS, COPIES, TASKS and REFERENCE become
0.

Error. It halts the channel, and its record is shown in the registers.

Resumption. Software writes 1 to the error's bit of INTR_0 or INTR_1, or a privileged channel
executes CLEAR_FAULTED. After a refused method, the held method is executed again, as METHOD0 and
DATA0 now specify it. After a failed copy or task, the channel continues with its held method, or
keeps its wait. If another copy or task has failed meanwhile, the channel stays halted and shows the
record of that failure.
"""

from collections.abc import Mapping

from amaranth.hdl import Module, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from signalbox.hw.config import Config
from signalbox.hw.errors import Cause
from signalbox.hw.host.channel_block.access_control import AccessControl
from signalbox.hw.host.channel_block.bound_objects import BoundObjects
from signalbox.hw.host.channel_block.channel_view import ChannelView, StatusPort
from signalbox.hw.host.channel_block.error_intake import ErrorIntake
from signalbox.hw.host.channel_block.error_rows import ErrorRows
from signalbox.hw.host.channel_block.error_store import ErrorStore
from signalbox.hw.host.channel_block.error_words import error_words
from signalbox.hw.host.channel_block.halts import Halts
from signalbox.hw.host.channel_block.read_choice import ReadChoice
from signalbox.hw.host.channel_block.stored_settings import StoredSettings
from signalbox.hw.host.channel_block.tallies import Tallies
from signalbox.hw.host.channel_settings import ChannelControl
from signalbox.hw.host.copy_launcher import CopyReports
from signalbox.hw.host.methods.pipeline import channel_edit
from signalbox.hw.host.methods.service import MethodReports
from signalbox.hw.host.ports import MethodEvents, RingIndexPort, UserdWrites
from signalbox.hw.host.waits.compute_waits import TaskReports
from signalbox.hw.lib.delayed import delayed
from signalbox.hw.records.channel import channel_event
from signalbox.hw.records.register import RegisterPort
from signalbox.hw.registers import OBJECTS

__all__ = ["ChannelRegisters"]


class ChannelRegisters(wiring.Component):
    """Serves the channel block of the register map. The parts in `channel_block` own its state;
    here, only a refused method and a SET_OBJECT are delayed by one cycle.

    Members
    -------
    port : in, the control port, which writes only writable registers. Latency from acceptance to
        response: 5 cycles for a read, 6 for a write. A start also waits for the channel's
        outstanding operations and for `edit`; a clear waits for `edit` and for errors being
        recorded.
    control : out, writes of registers; enabled and halted channels.
    restart : out, stream: empty the ring of `channel`.
    edit : out, stream of `channel_edit`: change the context of a channel.
    copies : in, ends of copies. A failed copy halts its channel from the next cycle on. Its failure
        is taken when no error is being recorded or cleared.
    tasks : in, ends of tasks, likewise. The failure of a copy is taken first.
    reports : in, refused methods, CLEAR_FAULTED, SET_OBJECT and decided acquires.
    methods : in, executed methods.
    userd : in, `referenced`: REF is in memory.
    status : in, state of the channels in other units.
    put, get : out, read ports of GP_PUT and GP_GET.
    error : out, strobe: an error of `channel` with `cause` is recorded; two cycles after a method
        was refused, one after a failure was taken.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        channel = data.StructLayout({"channel": config.channel_bits})
        super().__init__({
            "port": In(RegisterPort(12)),
            "control": Out(ChannelControl(config)),
            "restart": Out(stream.Signature(channel)),
            "edit": Out(stream.Signature(channel_edit(config))),
            "copies": In(CopyReports(config)),
            "tasks": In(TaskReports(config)),
            "reports": In(MethodReports(config)),
            "methods": In(MethodEvents(config)),
            "userd": In(UserdWrites(config)),
            "status": In(StatusPort(config)),
            "put": Out(RingIndexPort(config)),
            "get": Out(RingIndexPort(config)),
            "error": Out(channel_event(config, cause=Cause)),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        m.submodules.access = self._access = AccessControl(config)
        m.submodules.intake = self._intake = ErrorIntake(config)
        m.submodules.rows = self._rows = ErrorRows(config)
        m.submodules.store = self._store = ErrorStore(config)
        m.submodules.halts = self._halts = Halts(config)
        m.submodules.tallies = self._tallies = Tallies(config)
        m.submodules.objects = self._objects = BoundObjects(config)
        m.submodules.settings = self._settings = StoredSettings(config)
        m.submodules.view = self._view = ChannelView(config)
        m.submodules.choice = self._choice = ReadChoice()
        refused = delayed(m, self.reports.halt, "refused")
        self._record(m, refused)
        self._halt(m, refused)
        self._count(m)
        self._bind(m)
        self._look(m)
        self._read(m, error_words(m, self._store.shown, self._rows.more))
        self._serve(m)
        return m

    def _record(self, m: Module, refused: data.View) -> None:
        """Connects the sources of errors to the error records."""
        access, intake, rows, store = self._access, self._intake, self._rows, self._store
        noted = intake.noted
        m.d.comb += [
            intake.refused.eq(refused),
            intake.failed.eq(self.copies.failed),
            intake.task_failed.eq(self.tasks.failed),
            intake.hold.eq(access.hold),
            intake.rows.eq(rows.rows),
            self.copies.taken.eq(intake.failed_taken),
            self.tasks.taken.eq(intake.task_failed_taken),
            self.error.valid.eq(noted.valid),
            self.error.channel.eq(noted.channel),
            self.error.cause.eq(noted.contents.why.cause),
            rows.taken.eq(intake.taken),
            rows.noted.eq(noted),
            rows.channel.eq(access.channel),
            rows.cleared.eq(access.cleared),
            rows.all.eq(access.all),
            store.noted.eq(noted),
            store.channel.eq(access.channel),
            store.second.eq(rows.second),
            store.rewrite_method.eq(access.rewrite_method),
            store.rewrite_data.eq(access.rewrite_data),
            store.value.eq(access.data),
        ]

    def _halt(self, m: Module, refused: data.View) -> None:
        halts = self._halts
        m.d.comb += [
            halts.refused.valid.eq(refused.valid),
            halts.refused.channel.eq(refused.channel),
            halts.failed.valid.eq(self.copies.failed.valid),
            halts.failed.channel.eq(self.copies.failed.channel),
            halts.task_failed.valid.eq(self.tasks.failed.valid),
            halts.task_failed.channel.eq(self.tasks.failed.channel),
            halts.ended.valid.eq(self.copies.ended.valid),
            halts.ended.channel.eq(self.copies.ended.channel),
            halts.ended.failed.eq(self.copies.ended.failed),
            halts.task_ended.eq(self.tasks.ended),
            halts.channel.eq(self._access.channel),
            halts.cleared.eq(self._access.cleared),
            halts.follows.eq(self._rows.follows),
            self.control.halted.eq(halts.halted),
        ]

    def _count(self, m: Module) -> None:
        tallies = self._tallies
        m.d.comb += [
            tallies.executed.valid.eq(self.methods.executed.valid),
            tallies.executed.channel.eq(self.methods.executed.channel),
            tallies.ended.valid.eq(self.copies.ended.valid),
            tallies.ended.channel.eq(self.copies.ended.channel),
            tallies.task_ended.valid.eq(self.tasks.ended.valid),
            tallies.task_ended.channel.eq(self.tasks.ended.channel),
            tallies.referenced.eq(self.userd.referenced),
            tallies.started.eq(self._access.started),
            tallies.channel.eq(self._access.channel),
        ]

    def _bind(self, m: Module) -> None:
        objects = self._objects
        m.d.comb += [
            objects.bound.eq(delayed(m, self.reports.bound, "bound_before")),
            objects.started.eq(self._access.started),
            objects.channel.eq(self._access.channel),
        ]

    def _look(self, m: Module) -> None:
        """State of the access's channel."""
        view, access = self._view, self._access
        m.d.comb += [
            self.put.channel.eq(access.channel),
            self.get.channel.eq(access.channel),
            view.channel.eq(access.channel),
            view.enabled.eq(access.enabled),
            view.halted.eq(self._halts.halted),
            view.recorded.eq(self._rows.shown),
            view.started.eq(access.started),
            view.acquire.eq(self.reports.acquire),
            view.peek_put.eq(self.put.index),
            view.peek_get.eq(self.get.index),
        ]
        connect(m, flipped(self.status), view.status)

    def _read(self, m: Module, errors: Mapping[str, Value]) -> None:
        """Selects the data of a read from everything that a register may show."""
        access, choice = self._access, self._choice
        shown = {
            **{name: self._view.words[name] for name in self._view.words.shape().members},
            **{name: self._tallies.words[name] for name in self._tallies.words.shape().members},
            **{name: self._objects.words[name] for name in OBJECTS},
            **errors,
        }
        m.d.comb += [choice.shown[name].eq(value) for name, value in shown.items()]
        m.d.comb += [
            choice.word.eq(access.word),
            choice.data.eq(access.data),
            choice.halted.eq(self._view.is_halted),
            choice.setting.eq(self._settings.value),
            choice.keep.eq(access.port.response.valid),
        ]

    def _serve(self, m: Module) -> None:
        """Connects the access to the ports."""
        access, settings, view = self._access, self._settings, self._view
        connect(m, flipped(self.port), access.port)
        connect(m, flipped(self.restart), access.restart)
        connect(m, flipped(self.edit), access.edit)
        m.d.comb += [
            access.resume.eq(self.reports.resume),
            access.value.eq(self._choice.value),
            access.clears.eq(self._choice.clears),
            access.is_enabled.eq(view.is_enabled),
            access.is_halted.eq(view.is_halted),
            # A failure may still wait for its record when its operation is no longer outstanding.
            access.is_idle.eq(view.is_idle & ~self._halts.failing),
            access.error.eq(self._store.shown),
            access.recording.eq(self._intake.recording),
            self.control.enabled.eq(access.enabled),
            settings.channel.eq(access.channel),
            settings.word.eq(access.word),
            settings.data.eq(access.data),
            settings.store.eq(access.store),
            self.control.setting.eq(settings.setting),
        ]
