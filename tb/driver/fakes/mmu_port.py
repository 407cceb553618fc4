"""The registers of binds and invalidations, in plain Python."""

from signalbox.hw.config import Config
from signalbox.hw.registers import GLOBAL, MmuOperation
from signalbox.tb.driver.fakes.translator import Translator

__all__ = ["FakeMmuPort"]


class FakeMmuPort:
    """A command takes effect `latency` cycles after it is written; until then others are refused.

    Members
    -------
    words : readable registers.
    commands : accepted operations, with their ASIDs.
    stuck : True keeps commands from ending.
    """

    def __init__(self, config: Config, translator: Translator) -> None:
        self._config, self._translator = config, translator
        self.words = {name: 0 for name in ("MMU_COMMAND", "MMU_STATUS")}
        self.words |= {
            f"MMU_{name}_{half}": 0 for name in ("VA", "PDB", "LIMIT") for half in ("LO", "HI")
        }
        self.commands: list[tuple[MmuOperation, int]] = []
        self.latency = 20
        self.stuck = False
        self._left = 0

    @property
    def busy(self) -> bool:
        """Whether a command is in progress."""
        return self._left > 0

    def write(self, name: str, value: int) -> None:
        """Write a register."""
        if name != "MMU_COMMAND":
            assert not self.busy, "an argument changes during a command"
            self.words[name] = value & GLOBAL[name].mask
            return
        fields = GLOBAL[name].unpack(value)
        operation, asid = fields["OPERATION"], fields["ASID"]
        known = operation < len(MmuOperation) and asid < self._config.asids
        if self.busy or not known:
            self.words["MMU_STATUS"] |= GLOBAL["MMU_STATUS"].pack(REFUSED=1)
            return
        self.words["MMU_STATUS"] = GLOBAL["MMU_STATUS"].pack(BUSY=1)
        self.commands.append((MmuOperation(operation), asid))
        self._left = self.latency

    def step(self) -> None:
        """Advance by a cycle."""
        if self.busy and not self.stuck:
            self._left -= 1
            if not self.busy:
                self._carry_out(*self.commands[-1])
                self.words["MMU_STATUS"] = 0

    def _pair(self, name: str) -> int:
        return self.words[f"MMU_{name}_HI"] << 32 | self.words[f"MMU_{name}_LO"]

    def _carry_out(self, operation: MmuOperation, asid: int) -> None:
        translator = self._translator
        match operation:
            case MmuOperation.INVALIDATE_ALL:
                translator.forget_all()
            case MmuOperation.INVALIDATE_ASID:
                translator.forget_asid(asid)
            case MmuOperation.INVALIDATE_PAGE:
                translator.forget_page(asid, self._pair("VA"))
            case MmuOperation.BIND:
                translator.bind(asid, self._pair("PDB"), self._pair("LIMIT") | 0xFFF)
            case MmuOperation.UNBIND:
                translator.unbind(asid)
