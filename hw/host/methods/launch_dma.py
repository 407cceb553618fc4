"""LAUNCH_DMA: whether a copy starts, waits or is refused, and its command (COPY-1, COPY-4; spec
4)."""

from amaranth.hdl import Const, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.errors import Cause
from signalbox.hw.host.copy_launcher import copy_launch
from signalbox.hw.host.methods.channel_rights import channel_rights
from signalbox.hw.host.methods.served_channel import channel_status
from signalbox.hw.host.methods.service import Outcome, Service
from signalbox.hw.host.records import method_settings
from signalbox.hw.methods import CopyLaunch, LaunchTransfer
from signalbox.hw.registers import Wait

__all__ = ["LaunchDma"]


class LaunchDma(wiring.Component):
    """Decides about LAUNCH_DMA in one cycle. Owns no state.

    A copy starts when its acquire group holds and an engine can take it. A pipelined copy without
    an interrupt can also start behind a running copy of the channel, while that engine's queue has
    room and the slice lasts.

    Members
    -------
    service : in, the served channel.
    run : in, execute its method as LAUNCH_DMA in this cycle.
    settings : in, `method_settings` of the channel.
    rights : in, `channel_rights` of the channel.
    now, known : in, see `ServedChannel`.
    held : in, its acquire group holds.
    spent : in, see `SlicePort`.
    outcome : out, see `Outcome`.
    launch : out, strobe, see `copy_launch`.
    """

    def __init__(self, config: Config) -> None:
        super().__init__({
            "service": In(Service(config)),
            "run": In(1),
            "settings": In(method_settings()),
            "rights": In(channel_rights(config)),
            "now": In(channel_status),
            "known": In(channel_status),
            "held": In(1),
            "spent": In(1),
            "outcome": Out(Outcome()),
            "launch": Out(copy_launch(config)),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        launch = data.View(CopyLaunch, self.service.step.method.data)
        out, run, known = self.outcome, self.run, self.known
        copying, working = known.copying, known.tasks
        wrong = self._refuse(m, launch)
        # The channel's last copy has ended in this cycle; `known` shows that one cycle later.
        ended = copying & ~self.now.copying
        behind = (launch.transfer == LaunchTransfer.PIPELINED) & (launch.interrupt == 0)
        follows = behind & ~self.spent
        legal = Signal()
        can = Signal()
        may = Signal()
        m.d.comb += [
            legal.eq(run & ~wrong & ~working),
            can.eq(self.held & Mux(copying, follows & known.queue, known.able)),
            may.eq(~self.service.quit & ~ended),
            out.refuse.eq(run & wrong & ~copying & ~working),
            out.done.eq(legal & can & may),
            out.park.eq(run & (working | (copying & (wrong | ~follows)) | (~wrong & may & ~can))),
            out.busy.eq(legal & ~self.service.quit & ended & follows),
            out.disarm.eq(out.park & ~copying),
            self.launch.valid.eq(out.done),
        ]
        with m.If(working):
            m.d.comb += out.wait.eq(Wait.TASKS)
        with m.Elif(~copying):
            m.d.comb += out.wait.eq(Wait.ENGINE)
        with m.Elif(follows & self.held & ~wrong):
            m.d.comb += out.wait.eq(Wait.QUEUE)
        with m.Else():
            m.d.comb += out.wait.eq(Wait.COPIES)
        self._describe(m, launch)
        return m

    def _refuse(self, m: Module, launch: data.View) -> Signal:
        """Whether the copy is refused: a mode that is not modelled, physical addresses without
        privilege, a component without a source, or no bytes. Drives the cause."""
        copy, traits, wrong = self.settings.copy, self.service.step.traits, Signal()
        bad = Signal()
        barred = Signal()
        zero = Signal()
        unmapped = Signal()
        moves = launch.transfer != LaunchTransfer.NONE
        m.d.comb += [
            bad.eq(
                ~traits.modelled
                | (launch.src_physical & copy.src_refused)
                | (launch.dst_physical & copy.dst_refused)
            ),
            barred.eq((launch.src_physical | launch.dst_physical) & ~self.rights.privileged),
            zero.eq(moves & (~copy.bytes | (launch.multi_line & ~copy.lines))),
            unmapped.eq(moves & launch.remap & copy.remap_refused),
            wrong.eq(bad | barred | unmapped | zero),
        ]
        with m.If(bad):
            m.d.comb += self.outcome.cause.eq(Cause.COPY_MODE)
        with m.Elif(barred):
            m.d.comb += self.outcome.cause.eq(Cause.METHOD_PRIVILEGED)
        with m.Elif(unmapped):
            m.d.comb += self.outcome.cause.eq(Cause.COPY_REMAP)
        with m.Else():
            m.d.comb += self.outcome.cause.eq(Cause.COPY_ZERO)
        return wrong

    def _describe(self, m: Module, launch: data.View) -> None:
        """The command."""
        service, copy, command = self.service, self.settings.copy, self.launch.command
        method = service.step.method
        m.d.comb += [
            self.launch.channel.eq(service.channel),
            self.launch.behind.eq(self.known.copying),
            self.launch.interrupt.eq(launch.interrupt != 0),
            command.channel.eq(service.channel),
            command.subchannel.eq(method.subchannel),
            command.data.eq(method.data),
            command.asid.eq(self.rights.asid),
            command.transfer.eq(launch.transfer != LaunchTransfer.NONE),
            command.src.eq(copy.src),
            command.dst.eq(copy.dst),
            command.src_physical.eq(launch.src_physical),
            command.dst_physical.eq(launch.dst_physical),
            command.pitch_in.eq(copy.pitch_in),
            command.pitch_out.eq(copy.pitch_out),
            command.line_length.eq(copy.line_length),
            command.line_count.eq(Mux(launch.multi_line, copy.line_count, Const(1, 32))),
            command.remap.eq(launch.remap),
            command.components.eq(copy.components),
            command.const_a.eq(copy.const_a),
            command.const_b.eq(copy.const_b),
            command.semaphore.eq(launch.semaphore),
            command.semaphore_va.eq(copy.semaphore_va),
            command.payload.eq(copy.payload),
            command.wide.eq(launch.wide),
            command.reduction_enable.eq(launch.reduction_enable),
            command.reduction.eq(launch.reduction),
            command.reduction_unsigned.eq(launch.reduction_unsigned),
        ]
