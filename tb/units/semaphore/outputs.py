"""Expected outputs of the semaphore unit about its on-chip semaphores."""

from signalbox.hw.config import Config
from signalbox.tb.models.semaphores import SemaphoreMemory
from signalbox.tb.testbench.clocked import Participant, Testbench

__all__ = ["Outputs"]

# Cycles from the acceptance of an operation that is not delayed.
UPDATE = 2
EXACT = 4  # to the zero flag, at the latest


class Outputs(Participant):
    """Checks `update`, `zero` and, with `config.trace`, `written` in every cycle.

    Members
    -------
    updates : number of `update` strobes of writes so far.
    """

    def __init__(self, tb: Testbench, config: Config, model: SemaphoreMemory) -> None:
        self.updates = 0
        self._tb, self._config, self._model = tb, config, model
        self._updates_due: dict[int, tuple[int, bool, int]] = {}
        self._zero_due: dict[int, int] = {}
        self._zeros = [model.zero(config.counters)]
        tb.join(self)

    @property
    def pending(self) -> bool:
        """Whether an effect is due."""
        return bool(self._updates_due or self._zero_due)

    def expect(self, index: int, delay: int, written: bool) -> None:
        """Expect the effects of an operation on slot `index`, accepted in this cycle, which the
        unit delays by `delay` cycles. `written` : it wrote the slot; otherwise it was refused."""
        due = self._tb.cycle + delay
        self._updates_due[due + UPDATE] = index, written, self._model.values[index]
        self._zeros.append(self._model.zero(self._config.counters))
        self._zero_due[due + EXACT] = self._zero_due.get(due + EXACT, 0) + 1

    def sample(self, cycle: int) -> None:
        for _ in range(self._zero_due.pop(cycle, 0)):
            self._zeros.pop(0)
        zero = self._tb.get("zero")
        for index in range(self._config.counters):
            # States from the earliest possible one; once a state is shown, earlier ones are
            # excluded.
            states = [state >> index & 1 for state in self._zeros]
            assert zero >> index & 1 in states, f"cycle {cycle}: zero is {zero:#x}"
        due = self._updates_due.pop(cycle, None)
        update = self._tb.get("update")
        shown = update["index"] if update["valid"] else None
        assert shown == (due and due[0]), f"cycle {cycle}: update of {shown}, not {due}"
        self.updates += due is not None and due[1]
        if self._config.trace:
            written = self._tb.get("written")
            got = (written["index"], written["value"]) if written["valid"] else None
            assert got == ((due[0], due[2]) if due and due[1] else None), f"cycle {cycle}"
