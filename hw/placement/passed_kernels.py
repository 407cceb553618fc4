"""Kernels that were passed over while they wait for their SMs (PLACE-6)."""

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.placement.preemption import choice_cycles
from signalbox.hw.placement.row_order import row_event
from signalbox.hw.placement.sm_choice import fan_ins
from signalbox.hw.records.placement import disabled_sms

__all__ = ["PassedKernels", "least_turn", "longest_turn", "patience", "served_kernel"]

TURN = 64
"""Maximum number of cycles from the last pass until all kernels are served again, while nothing
restarts."""


def least_turn(config: Config) -> int:
    """Minimum number of cycles from a pass until all kernels are served again because an SM has
    changed: the kernels behind get at least one decision."""
    return len(fan_ins(config.sms)) + 8


def longest_turn(config: Config) -> int:
    """Maximum number of cycles from the last kernel refused and passed over until all are served
    again, whatever restarts: after a restart, all can be passed over, and the kernels behind get a
    decision."""
    return TURN + config.rows


def patience(config: Config) -> int:
    """Cycles for which a kernel that may have blocks stopped waits before it is passed over."""
    return choice_cycles(config) + 4


def served_kernel(config: Config) -> data.StructLayout:
    """The served kernel, as far as it matters here. `saves`: it may have blocks stopped."""
    return data.StructLayout({"row": config.row_bits, "saves": 1, **disabled_sms(config)})


class PassedKernels(wiring.Component):
    """Passes over kernels that find no SM, while there are SMs for the kernels behind, and later
    has all of them served again.

    A refused kernel is passed over if some SM takes no block of it, nor of the kernels passed over
    before. A kernel that may have blocks stopped waits for `patience` cycles first, not counting
    those in which none can be stopped for it (`placing`); its patience goes on after a restart,
    unless another such kernel has waited meanwhile. The SMs of a kernel passed over are held: no
    block of a kernel behind it goes there.

    A turn ends, and all are served again,

    * when a kernel that cannot be passed over is refused, or no kernel is left;
    * when an SM of a kernel passed over has changed, or a decision that was in flight has found
      one, and the kernels behind have had `least_turn` cycles since the last pass;
    * `TURN` cycles after the last pass, for changes that SMs do not show.

    The last two are delayed while a kernel that may have blocks stopped still has patience. After
    each pass, and after a restart that comes meanwhile, the kernels behind get their `least_turn`.

    A restart serves the first kernel, but the turn goes on: kernels that were passed over in it are
    passed over again at once, without a decision (`at_once`), one per cycle. So the kernels behind
    get their decisions even if others restart all the time. A turn then ends at the latest
    `longest_turn` cycles after the last pass that was not at once.

    Members
    -------
    served : in, the served kernel, if any.
    loads : in, strobe: this row is served in the next cycle.
    opens : in, strobe: the row opens.
    begins : in, strobe: a decision for the served kernel begins.
    refused : in, strobe: a decision for the served kernel has found no SM, and the kernel is still
        served in the next cycle.
    waits : in, the served kernel waits, and may have blocks stopped.
    placing : in, no block is stopped for it yet, see `Preemption`.
    idle : in, no kernel is served or about to be served.
    sent : in, strobe: a block of the row is sent.
    grows : in, per SM, see `SmRow`.
    restart : in, the first kernel is served next.
    at_once : out, strobe: the served kernel was passed over earlier in this turn; no decision for
        it begins.
    passes : out, strobe, combinational: the served kernel is passed over.
    passed : out, per row: its kernel was passed over since the last restart.
    barred : out, per SM: no block of the served kernel goes there.
    holds : out, SMs are held.
    again : out, strobe, combinational: serve all kernels again.
    """

    def __init__(self, config: Config) -> None:
        self._config, sms = config, config.sms
        self._held, self._kept = Signal(sms, name="held"), Signal(sms, name="kept")
        """SMs of kernels passed over since the last restart (`_held`), in this turn (`_kept`)."""
        self._own = Signal(sms, name="own")
        """SMs that take blocks of the served kernel."""
        self._spent = Signal(config.rows, name="spent")
        """Per row: passed over in this turn."""
        self._stays = Signal(name="stays")
        """The served kernel waits for a block to be stopped."""
        self._begun = Signal(name="patience_begun")
        """A kernel has waited; since then it was not passed over, and none of its blocks was
        sent."""
        event = row_event(config)
        super().__init__({
            "served": In(served_kernel(config)),
            "loads": In(event),
            "opens": In(event),
            "begins": In(1),
            "refused": In(1),
            "waits": In(1),
            "placing": In(1),
            "idle": In(1),
            "sent": In(event),
            "grows": In(sms),
            "restart": In(1),
            "at_once": Out(1),
            "passes": Out(1),
            "passed": Out(config.rows),
            "barred": Out(sms),
            "holds": Out(1),
            "again": Out(1),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        served, held, own = self.served, self._held, self._own
        disabled, covered = (
            Signal(self._config.sms, name=name) for name in ("disabled", "covered")
        )
        refused, over, leaves = (Signal(name=name) for name in ("was_refused", "over", "leaves"))
        turn_ends = self._turn(m, over)
        m.d.comb += [
            disabled.eq(served.disabled),
            own.eq(~disabled),
            covered.eq(held | own),
            self.barred.eq(held | disabled),
            self.holds.eq(held.any()),
            over.eq(refused & ~(served.saves & self._stays)),
            leaves.eq(over | self.at_once),
            self.passes.eq(leaves & ~covered.all()),
            self.again.eq(self.holds & ((leaves & covered.all()) | self._ends(m) | turn_ends)),
        ]
        # Known late in its cycle: it takes effect in the next one.
        m.d.sync += refused.eq(self.refused & ~self.restart)
        self._wait(m)
        with m.If(self.passes):
            m.d.sync += [held.eq(covered), self.passed.bit_select(served.row, 1).eq(1)]
        with m.If(self.opens.valid):
            m.d.sync += self.passed.bit_select(self.opens.row, 1).eq(0)
        with m.If(self.restart):
            m.d.sync += [held.eq(0), self.passed.eq(0)]
        self._remember(m, covered, self.again | (self.restart & turn_ends))
        return m

    def _wait(self, m: Module) -> None:
        """Patience of the kernel that waited last. It is kept over restarts until this kernel waits
        again; another kernel that waits begins with full patience."""
        most, served = patience(self._config), self.served
        left = Signal(range(most + 1), init=most, name="patience")
        row, mine = Signal.like(served.row, name="patient_row"), Signal(name="is_patient")
        """`row`: row of that kernel. `mine`: it is the served one."""
        counts, now = self.waits & ~self.at_once, Mux(mine, left, most)
        m.d.comb += [self._stays.eq((left != 0) | ~mine), self._begun.eq(left != most)]
        with m.If(counts):
            m.d.sync += [
                row.eq(served.row),
                mine.eq(1),
                left.eq(now - (self._stays & ~self.placing)),
            ]
        with m.If(self.loads.valid):
            m.d.sync += mine.eq((self.loads.row == row) & ~counts)
        over = (self.passes & ~self.at_once) | (self.sent.valid & (self.sent.row == row))
        with m.If(over | (self.opens.valid & (self.opens.row == row))):
            m.d.sync += left.eq(most)

    def _remember(self, m: Module, covered: Value, ends: Value) -> None:
        """Kernels passed over in this turn, until it `ends`, and whether their SMs have changed."""
        own, spent, kept = self._own, self._spent, self._kept
        mine, since = Signal(name="mine"), Signal(name="changed_since")
        found, late = Signal(name="found"), self.passes & (self.sent.row == self.served.row)
        m.d.comb += mine.eq((self.grows & own).any())
        m.d.sync += [
            # A decision that was in flight, for a kernel passed over, has found an SM. Known late
            # in its cycle.
            found.eq(self.sent.valid & (late | self.passed.bit_select(self.sent.row, 1))),
            # Changes that the last decision for the served kernel has not seen.
            since.eq((since | mine) & ~self.begins),
            self._woken.eq(self._woken | found | (self.grows & kept).any()),
            self.at_once.eq(self.loads.valid & ~self.restart & spent.bit_select(self.loads.row, 1)),
        ]
        with m.If(self.passes):
            m.d.sync += [kept.eq(kept | covered), spent.bit_select(self.served.row, 1).eq(1)]
            with m.If(~self.at_once & (since | mine) & ~self.begins):
                m.d.sync += self._woken.eq(1)
        with m.If(self.opens.valid):
            m.d.sync += spent.bit_select(self.opens.row, 1).eq(0)
        with m.If(ends):
            m.d.sync += [spent.eq(0), kept.eq(0), self._woken.eq(0)]

    def _ends(self, m: Module) -> Signal:
        """Whether no kernel is left, and no decision in flight."""
        longest = len(fan_ins(self._config.sms)) + 3
        flight = Signal(range(longest + 1), name="cycles_in_flight")
        ends = Signal(name="ends")
        m.d.comb += ends.eq(self.idle & (flight == 0))
        with m.If(self.begins):
            m.d.sync += flight.eq(longest)
        with m.Elif(flight != 0):
            m.d.sync += flight.eq(flight - 1)
        return ends

    def _turn(self, m: Module, over: Value) -> Signal:
        """Whether the turn of the kernels behind is over. `over`: the served kernel was refused,
        and waits no longer."""
        longest, least = longest_turn(self._config), least_turn(self._config)
        turn, rest = Signal(range(longest + 1), name="turn"), Signal(range(least + 1), name="rest")
        """`turn`: cycles until the turn is over. `rest`: until the kernels behind have had
        `least_turn`."""
        ends, self._woken = Signal(name="turn_ends"), Signal(name="woken")
        changed = self._woken | (turn <= longest - TURN)
        m.d.comb += ends.eq(
            (((rest == 0) & changed) | (turn == 0)) & ~(over | (self.waits & self._stays))
        )
        m.d.sync += [turn.eq(turn - (turn != 0)), rest.eq(rest - ((rest != 0) & self.holds))]
        with m.If(((self.at_once | self.restart) & (rest != 0)) | (self.restart & self._begun)):
            m.d.sync += rest.eq(least)
        with m.If(self.passes & over):
            m.d.sync += [turn.eq(longest), rest.eq(least)]
        return ends
