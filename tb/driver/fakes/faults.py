"""Translation of a machine's accesses, and the fault buffer, in plain Python."""

from collections.abc import Callable

from signalbox.hw.methods import pack
from signalbox.hw.page_tables import FAULT_RECORD_BYTES, FaultRecord
from signalbox.hw.registers import GLOBAL
from signalbox.tb.driver.fakes.translator import Translator
from signalbox.tb.models.pagetables import Fault, Translation

__all__ = ["FakeFaults"]

READ, WRITE, ATOMIC = 0, 1, 2
PRIV, RO, NO_ATOMICS = 5, 6, 15
FAULT, OVERFLOW = 1, 2


class FakeFaults:
    """The fault buffer: its registers (`words`) and the machine's side of it. A record is in flight
    for the next `landing` reads of FAULT_SIZE."""

    def __init__(self, memory: bytearray, translator: Translator, now: Callable[[], int]) -> None:
        self._memory, self._translator, self._now = memory, translator, now
        names = ("BUFFER_LO", "BUFFER_HI", "SIZE", "GET", "PUT", "STATUS", "DROPPED")
        self.words = {f"FAULT_{name}": 0 for name in names}
        self.landing = 0

    @property
    def pending(self) -> bool:
        """State of the interrupt."""
        return bool(self.words["FAULT_STATUS"])

    def size(self) -> int:
        """Read FAULT_SIZE."""
        under_way, self.landing = self.landing > 0, max(0, self.landing - 1)
        return self.words["FAULT_SIZE"] | under_way << 31

    def write(self, name: str, value: int) -> None:
        """Write a register."""
        assert name == "FAULT_SIZE" or not self.landing, "a record is in flight"
        if name == "FAULT_STATUS":
            self.words[name] &= ~value
            return
        enabled = self.words["FAULT_SIZE"] >> 31
        assert not (enabled and name.startswith("FAULT_BUFFER")), "the buffer is in use"
        self.words[name] = value & GLOBAL[name].mask
        if not self.words["FAULT_SIZE"] >> 31:
            self.words["FAULT_PUT"] = 0

    def translate(self, asid: int, va: int, access: int, client: int) -> int | None:
        """Returns the physical address of an access. A fault is recorded and returns None."""
        found = self._translator.access(asid, va)
        if isinstance(found, Translation):
            code = self._refusal(found, access)
            if code is None:
                return found.pa
        else:
            assert isinstance(found, Fault), "no page is sparse"
            code = found.code
        self._record(asid, va, access, client, code)
        return None

    @staticmethod
    def _refusal(page: Translation, access: int) -> int | None:
        if page.privileged:
            return PRIV
        if page.read_only and access != READ:
            return RO
        return NO_ATOMICS if page.atomic_disable and access == ATOMIC else None

    def _record(self, asid: int, va: int, access: int, client: int, code: int) -> None:
        words = self.words
        words["FAULT_STATUS"] |= FAULT
        size = GLOBAL["FAULT_SIZE"].unpack(words["FAULT_SIZE"])
        put = words["FAULT_PUT"]
        following = (put + 1) % max(1, size["RECORDS"])
        full = bool(size["ENABLE"]) and following == words["FAULT_GET"]
        words["FAULT_STATUS"] |= OVERFLOW * full
        if full or not size["ENABLE"] or words["FAULT_STATUS"] & OVERFLOW:
            words["FAULT_DROPPED"] += 1
            return
        bound = self._translator.bound.get(asid)
        record = pack(
            FaultRecord,
            instance_aperture=0 if bound else 1,
            instance=bound[0] >> 12 if bound else 0,
            address=va >> 12,
            timestamp=self._now(),
            asid=asid,
            fault_type=code,
            client=client,
            access_type=access,
            client_type=1,
            valid=1,
        )
        base = words["FAULT_BUFFER_HI"] << 32 | words["FAULT_BUFFER_LO"]
        at = base + put * FAULT_RECORD_BYTES
        self._memory[at : at + FAULT_RECORD_BYTES] = record.to_bytes(FAULT_RECORD_BYTES, "little")
        words["FAULT_PUT"] = following
