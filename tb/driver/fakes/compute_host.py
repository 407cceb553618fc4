"""The reference host with the compute class, for tests of the driver."""

from collections import Counter, deque
from dataclasses import dataclass, field

from signalbox.hw.config import Config
from signalbox.hw.errors import Cause
from signalbox.tb.driver.fakes.compute import WRITE, FakeCompute, FakeTask, Refused
from signalbox.tb.models.host import (
    COPY_CLASSES,
    FIRST_SOFTWARE,
    SOFTWARE,
    Channel,
    Held,
    HostModel,
    Notified,
    Refusal,
    Ring,
)
from signalbox.tb.models.inline_transfer import Transfer, refusal
from signalbox.tb.models.tasks import LocalArea

__all__ = ["ComputeHost"]

COMPUTE_CLASSES = {0xC6C0, 0xC7C0, 0xC9C0}
LAUNCH_DMA, WFI, SET_REFERENCE, SEM_EXECUTE, SEMAPHORED = 0x300, 0x78, 0x50, 0x6C, 0x1C
WAIT_FOR_IDLE, PCAS_A, PCAS_B, PCAS2_B = 0x110, 0x2B4, 0x2BC, 0x2C0
LINE_LENGTH, LINE_COUNT, OUT_UPPER, OUT, PITCH = 0x180, 0x184, 0x188, 0x18C, 0x190
INLINE_LAUNCH, LOAD_DATA, I2M_A, I2M_B, I2M_C = 0x1B0, 0x1B4, 0x1DC, 0x1E0, 0x1E4
INLINE_A, INLINE_B, INLINE = 0x318, 0x31C, range(0x320, 0x420, 4)
LOCAL = 0x790, 0x794, 0x2E4, 0x2E8, 0x2EC
"""Methods of local memory: upper and lower part of the address, upper and lower part of the size,
number of SMs."""
REPORT_A, REPORT_B, REPORT_C, REPORT_D = 0x1B00, 0x1B04, 0x1B08, 0x1B0C
NOTHING, LAUNCHES = {0, 1, 8}, {2, 3, 9, 10}
RELEASE, REDUCTION = 1, 6
REDUCTIONS = (5, 0, 1, 6, 7, 3, 4, 2)
"""Number of each reduction in methods of the host, by its number in a task record."""


@dataclass
class _State:
    """State of a channel, in the order of the members:

    - data of the methods of its compute object;
    - its inline transfer, whether the rest of the transfer's data is dropped, and whether its last
      dword was refused;
    - the place of the method that could not write the inline QMD;
    - errors queued after the one that halts the channel, whether further errors were lost, and
      whether the doorbell was rung during the halt.
    """

    rung: bool = False
    registers: dict[int, int] = field(default_factory=dict)
    inline: dict[int, int] = field(default_factory=dict)
    transfer: Transfer | None = None
    data: list[int] = field(default_factory=list)
    dropped: bool = False
    unwritten: bool = False
    unloaded: int | None = None
    check: int = 0
    more: deque[tuple[Cause, int]] = field(default_factory=deque)
    lost: bool = False


class ComputeHost(HostModel):
    """`HostModel` with `compute`, which must be set before anything executes.

    Members
    -------
    contexts : CONFIG.CONTEXT of each channel.
    over : number of tasks that are over, by channel.
    """

    def __init__(self, config: Config, *others: object) -> None:
        super().__init__(config, *others)  # pyright: ignore[reportArgumentType]
        self.compute: FakeCompute | None = None
        self.contexts: dict[int, int] = {}
        self.over: Counter[int] = Counter()
        self._states = [_State() for _ in range(config.channels)]

    # Outside

    def cause(self, index: int) -> int:
        """Returns CAUSE of a channel."""
        channel, state = self.channels[index], self._states[index]
        check = state.check if channel.halted is Cause.TASK_CHECK else 0
        return channel.halted | (bool(state.more) or state.lost) << 8 | check << 16

    def enable(self, index: int, ring: Ring, *, privileged: bool = False, asid: int = 0) -> None:
        """Enable a channel with an empty ring."""
        super().enable(index, ring, privileged=privileged, asid=asid)
        self._states[index], self.over[index] = _State(), 0

    def doorbell(self, index: int) -> None:
        """Ring the doorbell of a channel: GP_PUT is read from USERD, during a halt only after the
        halt has ended."""
        self._states[index].rung = bool(self.channels[index].halted)
        super().doorbell(index)

    def clear(self, index: int, replacement: Held | None = None) -> None:
        """End a halt. A queued failure of another task halts the channel again."""
        state = self._states[index]
        super().clear(index, replacement)
        held = self.channels[index].pending
        if state.unwritten and (held is None or held.address != LOAD_DATA):
            state.transfer, state.dropped, state.unwritten = None, True, False
        if state.unloaded is not None and (held is None or held.address != state.unloaded):
            state.inline = {}
        state.unloaded = None
        if state.more:
            self._fail(index, *state.more.popleft())
            state.lost = False
        elif state.rung:
            self.doorbell(index)

    def release(self, asid: int, bits: int) -> bool:
        """Carry out a release of a record, from its first bit on. Returns whether it was
        refused."""
        va, payload = bits & (1 << 40) - 1, bits >> 64
        wide, stamped = bits >> 61 & 1, not bits >> 62 & 3
        operation = REDUCTION if bits >> 58 & 1 else RELEASE
        return self._write(
            asid, va, operation, bits >> 52 & 7, bits >> 56 & 3, stamped, wide, payload
        )

    def ended(self, task: FakeTask, cause: Cause) -> None:
        """Count a task that is over, and halt its channel or queue the error if it failed."""
        self.over[task.channel] += 1
        self.wake()
        if cause is not Cause.NONE:
            channel = self.channels[task.channel]
            state = self._states[task.channel]
            if channel.halted and state.more:
                state.lost = True
            elif channel.halted:
                state.more.append((cause, task.va))
            else:
                self._fail(task.channel, cause, task.va)

    def _fail(self, index: int, cause: Cause, va: int) -> None:
        """Halt a channel with the failure of a task. The channel holds no method."""
        channel = self.channels[index]
        channel.halted, channel.va, channel.holds = cause, va, False
        channel.blamed = Held(PCAS_A, 1, va >> 8)

    # Methods

    def _set_object(self, channel: Channel, method: Held) -> None:  # pyright: ignore
        computes = method.data & 0xFFFF in COMPUTE_CLASSES and method.data >> 16 & 0x1F != SOFTWARE
        if computes and method.subchannel < FIRST_SOFTWARE and self.compute is not None:
            channel.objects[method.subchannel] = method.data & 0x1F_FFFF
        else:
            HostModel._set_object(channel, method)

    def _host_method(self, index: int, channel: Channel, method: Held) -> bool:
        waits = method.address in {WFI, SET_REFERENCE}
        if method.address == SEM_EXECUTE:
            waits = method.data & 7 in {RELEASE, REDUCTION} and method.data >> 20 & 1
        elif method.address == SEMAPHORED:
            waits = method.data & 0x12 and not method.data >> 20 & 1
        if waits and self._tasks(index):
            return False
        return super()._host_method(index, channel, method)

    def _tasks(self, index: int) -> int:
        return self.compute.tasks(index) if self.compute else 0

    def _engine_method(self, index: int, channel: Channel, method: Held) -> bool:
        bound = self._class_of(channel, method.subchannel)
        if bound in COMPUTE_CLASSES:
            return self._compute_method(index, channel, method)
        if bound in COPY_CLASSES and method.address == LAUNCH_DMA and self._tasks(index):
            return False
        return super()._engine_method(index, channel, method)

    @staticmethod
    def _class_of(channel: Channel, subchannel: int) -> int:
        """Class of a subchannel's object; 0 without one, and for a software object."""
        bound = channel.objects.get(subchannel, 0)
        return 0 if bound >> 16 == SOFTWARE else bound & 0xFFFF

    def _compute_method(self, index: int, channel: Channel, method: Held) -> bool:
        state, data = self._states[index], method.data
        if method.address == LOAD_DATA:
            self._load(channel, state, data)
            return True
        if state.transfer is not None:
            state.transfer, state.dropped = None, True
            raise Refusal(Cause.INLINE_ORDER)
        state.registers[method.address] = data
        match method.address:
            case a if a == INLINE_LAUNCH:
                self._write_inline(channel, state, method)
                self._open(state, data)
            case a if a in {WAIT_FOR_IDLE, REPORT_D} and self._tasks(index):
                return False
            case a if a in INLINE:
                state.inline[INLINE.index(a)] = data
            case a if a == PCAS_B and data & 2:
                self._launch_task(index, channel, method)
            case a if a == PCAS2_B and data not in NOTHING:
                if data not in LAUNCHES:
                    raise Refusal(Cause.COMPUTE_MODE)
                self._launch_task(index, channel, method)
            case a if a == REPORT_D:
                self._report(index, channel, data)
        return True

    def _launch_task(self, index: int, channel: Channel, method: Held) -> None:
        state = self._states[index]
        self._write_inline(channel, state, method)
        va = state.registers.get(PCAS_A, 0) << 8
        assert self.compute is not None
        try:
            area = self._local_area(state)
            self.compute.accept(index, self.contexts.get(index, 0), channel.asid, va, area)
        except Refused as refused:
            state.check = refused.check
            raise Refusal(refused.cause, va) from None

    @staticmethod
    def _local_area(state: _State) -> LocalArea:
        high, low, size_high, size_low, sms = (state.registers.get(name, 0) for name in LOCAL)
        size = (size_high & 0xFF) << 32 | size_low
        return LocalArea((high & 0x1_FFFF) << 32 | low, size, sms & 0x1FF)

    def _write_inline(self, channel: Channel, state: _State, method: Held) -> None:
        assert self.compute is not None
        start = (state.registers.get(INLINE_A, 0) << 32 | state.registers.get(INLINE_B, 0)) << 8
        for number, word in state.inline.items():
            at = self.compute.at(channel.asid, start + 4 * number, WRITE)
            if at is None:
                state.unloaded = method.address
                raise Refusal(Cause.INLINE_FAULT, start + 4 * number)
            self.memory[at : at + 4] = word.to_bytes(4, "little")
        state.inline = {}

    def _open(self, state: _State, launch: int) -> None:
        """Begin an inline transfer."""
        registers = state.registers
        names = (OUT, LINE_LENGTH, LINE_COUNT, PITCH)
        low, length, lines, pitch = (registers.get(name, 0) for name in names)
        va = (registers.get(OUT_UPPER, 0) & 0x1_FFFF) << 32 | low
        transfer = Transfer(va, length, lines, pitch)
        state.dropped = True
        if (cause := refusal(launch, transfer)) != "NONE":
            raise Refusal(Cause[cause])
        state.transfer, state.data, state.dropped = transfer, [], False

    def _load(self, channel: Channel, state: _State, dword: int) -> None:
        """Take a dword of an inline transfer. The last dword writes all of them to memory."""
        transfer, registers = state.transfer, state.registers
        if state.dropped:
            return
        if transfer is None:
            raise Refusal(Cause.INLINE_ORDER)
        if len(state.data) + 1 < transfer.dwords:
            state.data.append(dword)
            return
        state.unwritten = True
        for va, content in transfer.stores([*state.data, dword]):
            self._store(channel.asid, va, content)
        launch = registers[INLINE_LAUNCH]
        if launch >> 4 & 3 == 2:
            va = (registers.get(I2M_A, 0) & 0xFF) << 32 | registers.get(I2M_B, 0)
            stamped, payload = not launch >> 12 & 1, registers.get(I2M_C, 0)
            if self._write(channel.asid, va, RELEASE, 0, 0, stamped, 0, payload):
                raise Refusal(Cause.SEM_FAULT, va)
        state.transfer, state.unwritten = None, False

    def _store(self, asid: int, va: int, content: bytes) -> None:
        """Write bytes, page by page."""
        assert self.compute is not None
        while content:
            part = content[: 4096 - va % 4096]
            at = self.compute.at(asid, va, WRITE)
            if at is None:
                raise Refusal(Cause.INLINE_FAULT, va)
            self.memory[at : at + len(part)] = part
            va, content = va + len(part), content[len(part) :]

    def _report(self, index: int, channel: Channel, data: int) -> None:
        registers = self._states[index].registers
        if data & 3 == 3:
            self.events.append(Notified(index, False))
            return
        va = (registers.get(REPORT_A, 0) & 0xFF) << 32 | registers.get(REPORT_B, 0)
        operation = REDUCTION if data >> 3 & 1 else RELEASE
        stamped, payload = not data >> 28 & 1, registers.get(REPORT_C, 0)
        number, signed = data >> 9 & 7, data >> 17 & 3
        if self._write(channel.asid, va, operation, number, signed, stamped, 0, payload):
            raise Refusal(Cause.SEM_FAULT, va)

    def _write(
        self,
        asid: int,
        va: int,
        operation: int,
        number: int,
        signed: int,
        stamped: bool,
        wide: int,
        payload: int,
    ) -> bool:
        """Carry out a release, or a reduction by its number in a record. Returns whether it was
        refused."""
        details = {"reduction": REDUCTIONS[number], "unsigned": not signed, "wide": bool(wide)}
        details |= {"timestamp": stamped, "payload": payload & (1 << 32 + 32 * wide) - 1}
        try:
            self._semaphore(asid, va, operation, **details)
        except Refusal:
            return True
        return False
