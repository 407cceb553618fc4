"""Number of parked channels made ready by semaphores, for a performance counter."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.lib.popcount import popcount
from signalbox.hw.registers import Wait

__all__ = ["WakeCounter"]


class WakeCounter(wiring.Component):
    """Counts parked channels that semaphores make ready. Observes them through registers, off all
    critical paths.

    A channel counts when it becomes ready in one of these cases: the semaphore of its acquire was
    written; its acquire group starts to hold; its acquire group ceases to hold, which starts the
    time-out of a timed acquire. It does not count when its timer expires or an engine becomes idle.

    Members
    -------
    waits, ready, engine, retry, holding : in, per channel, see `Parking`.
    count : out, 0 … `channels`: number of channels made ready. Latency in cycles: 2, plus log2 of
        the number of channels, rounded up.
    """

    def __init__(self, config: Config) -> None:
        channels = config.channels
        self._channels = channels
        super().__init__({
            "waits": In(data.ArrayLayout(Wait, channels)),
            "ready": In(channels),
            "engine": In(channels),
            "retry": In(channels),
            "holding": In(channels),
            "count": Out(range(channels + 1)),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        on_chip, group, timed = (
            self._waiting(m, wait) for wait in (Wait.ONCHIP, Wait.ENGINE, Wait.ENGINE_TIMED)
        )
        # `blocked`, `had` and `lacked` are a cycle older than the others.
        names = ("ready", "engine", "retry", "held", "blocked", "had", "lacked", "woken")
        ready, engine, retry, held, blocked, had, lacked, woken = (
            Signal(self._channels, name=f"{name}_then") for name in names
        )
        m.d.sync += [
            ready.eq(self.ready),
            engine.eq(self.engine),
            retry.eq(self.retry),
            blocked.eq((on_chip | group | timed) & ~ready),
            held.eq(self.holding),
            had.eq(engine),
            lacked.eq(~held),
            # With an engine available before, only the group was missing. Without an engine, a
            # timed wait is over only because the group has ceased to hold.
            woken.eq(
                (blocked & ready & ~retry) & (on_chip | (group & had & lacked) | (timed & ~engine))
            ),
        ]
        m.d.comb += self.count.eq(popcount(m, woken, "woken"))
        return m

    def _waiting(self, m: Module, wait: Wait) -> Signal:
        """Per channel: waits for `wait`; one cycle later."""
        found = Signal(self._channels, name=f"waits_{wait.name.lower()}")
        for channel in range(self._channels):
            m.d.sync += found[channel].eq(self.waits[channel] == wait)
        return found
