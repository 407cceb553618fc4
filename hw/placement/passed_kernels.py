"""Kernels that were passed over while they wait for their SMs (PLACE-6)."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.placement.preemption import choice_cycles
from signalbox.hw.placement.row_order import row_event
from signalbox.hw.placement.sm_choice import fan_ins
from signalbox.hw.records.placement import disabled_sms

__all__ = ["PassedKernels", "least_turn", "patience", "served_kernel"]

TURN = 64
"""Most cycles from the last pass until all kernels are served again."""


def least_turn(config: Config) -> int:
    """Least cycles from a pass until all kernels are served again since an SM has changed: those
    behind have at least a decision."""
    return len(fan_ins(config.sms)) + 8


def patience(config: Config) -> int:
    """Cycles for which a kernel that may have blocks stopped waits, and is not passed over."""
    return choice_cycles(config) + 4


def served_kernel(config: Config) -> data.StructLayout:
    """The served kernel, as far as it matters here. `saves`: it may have blocks stopped."""
    return data.StructLayout({"row": config.row_bits, "saves": 1, **disabled_sms(config)})


class PassedKernels(wiring.Component):
    """Passes over kernels that find no SM, while there are SMs for those behind, and has all served
    again.

    A kernel that is refused is passed over if some SM takes none of its blocks, nor of those passed
    over before. One that may have blocks stopped waits for `patience` cycles first. Its SMs are
    held: no block of a kernel behind it goes there.

    All are served again

    * when a kernel is refused that cannot be passed over, or no kernel is left;
    * when a decision that was in flight finds an SM for a kernel passed over;
    * when a held SM has changed, `least_turn` cycles after the last pass;
    * `TURN` cycles after the last pass, for changes that SMs do not show.

    The last two wait while a kernel does that may have blocks stopped, for `patience` cycles.

    Members
    -------
    served : in, the served kernel, if any.
    begins : in, strobe: a decision for it begins.
    refused : in, strobe: a decision for it has found no SM, and it is served in the next cycle.
    waits : in, it waits, and may have blocks stopped.
    idle : in, no kernel is served, or will be.
    sent : in, strobe: a block of the row is sent.
    grows : in, per SM, see `SmRow`.
    restart : in, the first kernel is served next.
    passes : out, strobe: the served kernel is passed over; combinational.
    passed : out, per row: it was passed over.
    barred : out, SMs to which no block of the served kernel goes.
    some : out, there are such SMs.
    again : out, strobe: all kernels are to be served again; combinational.
    """

    def __init__(self, config: Config) -> None:
        self._config, sms = config, config.sms
        self._held = Signal(sms, name="held")
        self._own = Signal(sms, name="own")
        """SMs that take blocks of kernels passed over, and of the served one."""
        self._stays = Signal(name="stays")
        """The served kernel waits for a block to be stopped."""
        event = row_event(config)
        super().__init__({
            "served": In(served_kernel(config)),
            "begins": In(1),
            "refused": In(1),
            "waits": In(1),
            "idle": In(1),
            "sent": In(event),
            "grows": In(sms),
            "restart": In(1),
            "passes": Out(1),
            "passed": Out(config.rows),
            "barred": Out(sms),
            "some": Out(1),
            "again": Out(1),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        served, held, own = self.served, self._held, self._own
        disabled, covered = (
            Signal(self._config.sms, name=name) for name in ("disabled", "covered")
        )
        most = patience(self._config)
        left = Signal(range(most + 1), init=most, name="patience")
        over, refused, found = (Signal(name=name) for name in ("over", "was_refused", "found"))
        m.d.comb += [
            disabled.eq(served.disabled),
            own.eq(~disabled),
            covered.eq(held | own),
            self.barred.eq(held | disabled),
            self.some.eq(self.barred.any()),
            self._stays.eq(left != 0),
            over.eq(refused & ~(served.saves & self._stays)),
            self.passes.eq(over & ~covered.all()),
            self.again.eq(
                held.any() & ((over & covered.all()) | found | self._ends(m) | self._is_over(m))
            ),
        ]
        # Known late in their cycle: they take effect in the next one.
        mine = self.passes & (self.sent.row == served.row)
        m.d.sync += [
            refused.eq(self.refused & ~self.restart),
            found.eq(self.sent.valid & (mine | self.passed.bit_select(self.sent.row, 1))),
        ]
        m.d.sync += left.eq(Mux(self.waits, left - self._stays, most))
        with m.If(self.passes):
            m.d.sync += [held.eq(covered), self.passed.bit_select(served.row, 1).eq(1)]
        with m.If(self.restart):
            m.d.sync += [held.eq(0), self.passed.eq(0)]
        return m

    def _ends(self, m: Module) -> Signal:
        """No kernel is left, and no decision in flight."""
        longest = len(fan_ins(self._config.sms)) + 3
        flight = Signal(range(longest + 1), name="cycles_in_flight")
        ends = Signal(name="ends")
        m.d.comb += ends.eq(self.idle & (flight == 0))
        with m.If(self.begins):
            m.d.sync += flight.eq(longest)
        with m.Elif(flight != 0):
            m.d.sync += flight.eq(flight - 1)
        return ends

    def _is_over(self, m: Module) -> Signal:
        """The turn of the kernels behind is over."""
        turn = Signal(range(TURN + 1), name="turn")
        mine, other, since, woken = (
            Signal(name=name) for name in ("mine", "other", "changed_since", "woken")
        )
        over = Signal(name="turn_over")
        m.d.comb += [
            mine.eq((self.grows & self._own).any()),
            other.eq((self.grows & self._held).any()),
            over.eq(
                ((turn == 0) | (woken & (turn <= TURN - least_turn(self._config))))
                & ~(self.waits & self._stays)
            ),
        ]
        m.d.sync += [
            turn.eq(turn - (turn != 0)),
            # Changes that the last decision for the served kernel has not seen.
            since.eq((since | mine) & ~self.begins),
            woken.eq(woken | other),
        ]
        with m.If(self.passes):
            m.d.sync += [
                turn.eq(TURN),
                woken.eq(woken | other | ((since | mine) & ~self.begins)),
            ]
        with m.If(self.restart):
            m.d.sync += woken.eq(0)
        return over
