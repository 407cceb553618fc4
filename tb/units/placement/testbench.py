"""Testbench of a `GlobalController`; models its SMs and checks every placed block (PLACE-1 … 10).

The model has its own tables, based on requests and freed resources, with one state per cycle. The
only property of the design that it uses is the number of cycles of a decision.
"""

import os
from collections import deque
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from cocotb.triggers import ReadOnly, RisingEdge

from signalbox.hw.config import Config
from signalbox.hw.placement.controller import GlobalController
from signalbox.tb.testbench.reset import reset

__all__ = ["AFFINITY", "DEEP", "LOWER", "WARP", "WHOLE", "WIDE", "Bench", "Kernel", "rounds"]

WIDE, DEEP, AFFINITY = range(3)
WHOLE, WARP, LOWER = range(3)
FOREVER = 1 << 60
ENDS_WAITING = 8
"""Maximum number of pending ends of blocks on an SM."""


def rounds(sms: int) -> int:
    """Cycles that a choice among `sms` SMs takes."""
    return next(n for n in range(9) if 3**n >= sms)


@dataclass(eq=False)
class Kernel:
    """A kernel: needs of a block, and range of cycles for which its warps run."""

    row: int
    priority: int = 0
    blocks: int = 1
    warps: int = 1
    registers: int = 1
    shared: int = 0
    barrier: bool = False
    asid: int = 0
    policy: int = WIDE
    grid: tuple[int, int, int] = (1 << 20, 1, 1)
    first: tuple[int, int, int] = (0, 0, 0)
    runs: tuple[int, int] = (5, 20)
    # State of the model: undistributed blocks, position of the next one, blocks on SMs.
    left: int = 0
    at: tuple[int, int, int] = (0, 0, 0)
    on_sms: int = 0
    opened: int = -1
    filled: int = -1
    placed: list[tuple[int, int, int]] = field(default_factory=list)

    @property
    def whole(self) -> tuple[int, int, int]:
        return (self.warps * self.registers, self.warps, self.shared)

    @property
    def warp(self) -> tuple[int, int, int]:
        return (self.registers, 1, self.shared)

    def after(self) -> tuple[int, int, int]:
        """The position after `at`."""
        x, y, z = self.at
        number = (z * self.grid[1] + y) * self.grid[0] + x + 1
        plane, x = divmod(number, self.grid[0])
        return (x, plane % self.grid[1], plane // self.grid[1])


@dataclass(eq=False)
class Block:
    kernel: Kernel
    unstarted: int
    begun: bool = False
    running: list[int] = field(default_factory=list)


class Sm:
    """An SM: accepts blocks, starts their warps when they fit, and reports freed resources."""

    def __init__(self, config: Config, numbers: Random) -> None:
        self.numbers = numbers
        self.free = [config.register_units, config.sm_warps, config.shared_units]
        self.slots = config.sm_blocks
        self.coming: Block | None = None
        self.blocks: list[Block] = []
        self.received = 0
        self.ended: deque[int] = deque()

    def take(self) -> None:
        assert self.coming is not None
        self.blocks.append(self.coming)
        assert len(self.blocks) <= self.slots, "more blocks than slots"
        self.coming = None
        self.received += 1

    def highest(self) -> int:
        return max((block.kernel.priority + 1 for block in self.blocks), default=0)

    def finish(self, now: int) -> tuple[int, int, int, int] | None:
        """End at most one warp. Returns the freed resources."""
        for block in self.blocks:
            over = [end for end in block.running if end <= now]
            if over:
                block.running.remove(over[0])
                done = not block.running and not block.unstarted
                kernel = block.kernel
                freed = (kernel.registers, 1, kernel.shared * done, int(done))
                self.free = [have + back for have, back in zip(self.free, freed, strict=False)]
                if done:
                    self.blocks.remove(block)
                    self.ended.append(kernel.row)
                return freed
        return None

    def start(self, now: int) -> None:
        """Start one warp, of the most urgent block that fits."""
        waiting = sorted(
            (block for block in self.blocks if block.unstarted),
            key=lambda block: -block.kernel.priority,
        )
        for n, block in enumerate(waiting):
            kernel = block.kernel
            if n and not block.begun:
                continue
            needs = kernel.whole if kernel.barrier and not block.begun else kernel.warp
            if block.begun:
                needs = (needs[0], 1, 0)
            if all(have >= need for have, need in zip(self.free, needs, strict=True)):
                shared = 0 if block.begun else kernel.shared
                taken = (kernel.registers, 1, shared)
                self.free = [have - need for have, need in zip(self.free, taken, strict=True)]
                block.begun = True
                block.unstarted -= 1
                block.running.append(now + self.numbers.randint(*kernel.runs))
                return


@dataclass
class Left:
    """The model's row of an SM: available resources, blocks, and the spaces served last.

    `sent` is the number of blocks sent. `top` is the highest level (priority + 1) of the SM's last
    complete report, and of the blocks sent since.
    """

    amounts: list[int]
    slots: int
    kernels: list[Kernel] = field(default_factory=list)
    spaces: list[int] = field(default_factory=list)
    sent: int = 0
    top: int = 0

    def copy(self) -> "Left":
        return replace(
            self,
            amounts=list(self.amounts),
            kernels=list(self.kernels),
            spaces=list(self.spaces),
        )

    def has(self, needs: tuple[int, int, int]) -> bool:
        return all(left >= need for left, need in zip(self.amounts, needs, strict=True))

    def qualifies(self, kernel: Kernel, step: int) -> bool:
        if len(self.kernels) >= self.slots:
            return False
        if step == WHOLE:
            return self.has(kernel.whole)
        if step == WARP:
            return not kernel.barrier and self.has(kernel.warp)
        return all(other.priority < kernel.priority for other in self.kernels)

    def refuses(self, kernel: Kernel) -> bool:
        """Whether it qualifies by no step, as far as its current work is known."""
        whole, warp = self.qualifies(kernel, WHOLE), self.qualifies(kernel, WARP)
        lower = len(self.kernels) < self.slots and self.top <= kernel.priority
        return not (whole or warp or lower)


class Bench:
    """One `GlobalController`, cycle by cycle.

    Members
    -------
    kernels : open rows.
    order : order of their opening.
    eager : fraction of cycles in which an SM accepts a block.
    slow : SMs that accept none.
    log : (cycle, row, sm, step) of every block. The cycle is that of its commit, one before its
        link is valid.
    """

    def __init__(self, dut: Any, config: Config) -> None:
        self.dut, self.config = dut, config
        seed = int(os.environ["COCOTB_RANDOM_SEED"])
        self.numbers = Random(seed)
        dut._log.info(f"seed {seed}")
        self.now = 0
        self.eager = 1.0
        self.slow: set[int] = set()
        self.tardy = False
        """SMs report ends only when the maximum number is pending."""
        self.kernels: dict[int, Kernel] = {}
        self.sms = [Sm(config, self.numbers) for _ in range(config.sms)]
        full = [config.register_units, config.sm_warps, config.shared_units]
        self.table = [Left(list(full), config.sm_blocks) for _ in range(config.sms)]
        self.last: dict[int, int] = {}
        self.log: list[tuple[int, int, int, int]] = []
        self.todo: dict[str, deque[Any]] = {n: deque() for n in ("open", "add", "stop", "close")}
        self.answers: list[tuple[int, int, tuple[int, int, int]]] = []
        self.refused: list[tuple[int, Any]] = []
        self.free: list[int] = [1] * config.sms
        depth = rounds(config.sms) + 2
        self.history: deque[tuple[list[Left], list[int], dict[int, int]]] = deque(maxlen=depth)
        self.keeps_answers = False
        self._answered = False
        self._sm_state = [(0, 0, 0, 0, 0)] * config.sms
        self._heard = [(0, 0)] * config.sms
        """Highest level and number of received blocks reported by each SM in the last cycle."""
        members = GlobalController(config).signature.members
        port = members["port"].signature.members
        self.shapes = {
            name: port[name].signature.members["payload"].shape
            for name in ("open", "add", "stopped")
        }
        self.shapes |= {name: members[name].shape for name in ("placed", "refused")}
        link = members["sm"].signature.members
        self.shapes["freed"] = link["freed"].shape
        self.shapes["block"] = link["block"].signature.members["payload"].shape

    @classmethod
    async def start(cls, dut: Any, config: Config) -> "Bench":
        bench = cls(dut, config)
        for name in ("open", "add", "stop", "close"):
            getattr(dut, f"port__{name}__valid").value = 0
            getattr(dut, f"port__{name}__payload").value = 0
        dut.port__stopped__ready.value = 1
        for n in range(config.sms):
            for name in ("freed", "ended__valid", "ended__payload", "highest", "received"):
                getattr(dut, f"sm__{n}__{name}").value = 0
            dut_ready(dut, n).value = 1
        await reset(dut)
        return bench

    # Requests

    def open(self, kernel: Kernel) -> Kernel:
        self.todo["open"].append(kernel)
        return kernel

    async def opened(self, kernel: Kernel) -> None:
        """Open a row, and wait until the request was taken."""
        self.open(kernel)
        await self.until(lambda: kernel.opened >= 0)

    async def until(self, condition: Any, limit: int = 5000) -> None:
        for _ in range(limit):
            if condition():
                return
            await self.step()
        raise AssertionError(f"not within {limit} cycles")

    async def steps(self, count: int) -> None:
        for _ in range(count):
            await self.step()

    def end_all(self, sm: int) -> None:
        """Let all running warps of an SM end as soon as possible."""
        for block in self.sms[sm].blocks:
            block.running = [self.now] * len(block.running)

    def end_one(self, sm: int) -> None:
        """Let one warp of an SM end."""
        block = next(block for block in self.sms[sm].blocks if block.running)
        block.running[0] = self.now

    # Cycles

    async def step(self) -> None:
        """One cycle."""
        self._drive_requests()
        freed = [self._drive_sm(n, sm) for n, sm in enumerate(self.sms)]
        self.dut.port__stopped__ready.value = int(not self.keeps_answers)
        await ReadOnly()
        self._sample(freed)
        await RisingEdge(self.dut.clk)
        self.now += 1

    def _drive_requests(self) -> None:
        for name, todo in self.todo.items():
            valid = getattr(self.dut, f"port__{name}__valid")
            valid.value = int(bool(todo))
            if todo:
                payload = getattr(self.dut, f"port__{name}__payload")
                payload.value = self._payload(name, todo[0])

    def _payload(self, name: str, what: Any) -> int:
        if name == "open":
            x, y, z = what.first
            width, height, depth = what.grid
            return (
                self
                .shapes["open"]
                .const({
                    "row": what.row,
                    "needs": {
                        "priority": what.priority,
                        "barrier": what.barrier,
                        "warps": what.warps,
                        "registers": what.registers,
                        "shared": what.shared,
                        "block_registers": what.warps * what.registers,
                    },
                    "asid": what.asid,
                    "policy": what.policy,
                    "blocks": what.blocks,
                    "first": {"x": x, "y": y, "z": z},
                    "grid": {"x": width, "y": height, "z": depth},
                })
                .as_bits()
            )
        if name == "add":
            row, blocks = what
            return self.shapes["add"].const({"row": row, "blocks": blocks}).as_bits()
        return what

    def _drive_sm(self, n: int, sm: Sm) -> tuple[int, int, int, int] | None:
        """Drive the outputs of an SM for this cycle; only changes are written."""
        dut = self.dut
        freed = sm.finish(self.now)
        sm.start(self.now)
        ready = int(n not in self.slow and self.numbers.random() < self.eager)
        self.free[n] = ready
        word = 0
        if freed:
            names = ("registers", "warps", "shared", "block")
            word = self.shapes["freed"].const(dict(zip(names, freed, strict=True))).as_bits()
        told = len(sm.ended) >= (ENDS_WAITING if self.tardy else 1)
        ended = sm.ended[0] + 1 if told else 0
        state = (ready, word, sm.highest(), sm.received % 64, ended)
        before = self._sm_state[n]
        if state != before or self.now == 0:
            dut_ready(dut, n).value = ready
            getattr(dut, f"sm__{n}__freed").value = word
            getattr(dut, f"sm__{n}__highest").value = state[2]
            getattr(dut, f"sm__{n}__received").value = state[3]
            getattr(dut, f"sm__{n}__ended__valid").value = int(ended > 0)
            getattr(dut, f"sm__{n}__ended__payload").value = max(0, ended - 1)
            self._sm_state[n] = state
        return freed

    # Outputs

    def _sample(self, freed: list[tuple[int, int, int, int] | None]) -> None:
        dut = self.dut
        placed = self.shapes["placed"].from_bits(int(dut.placed.value))
        refused = self.shapes["refused"].from_bits(int(dut.refused.value))
        self._hear(placed.sm if placed.valid else None)
        if placed.valid:
            assert not refused.valid, "a block is placed by a decision that found no SM"
            self._check_block(placed)
        if refused.valid:
            self._check_refusal(refused)
            self.refused.append((self.now, refused))
        # The state of this cycle's registers, as used by a decision that begins now.
        ready = [int(sm.coming is None or bool(self.free[n])) for n, sm in enumerate(self.sms)]
        self.history.append(([row.copy() for row in self.table], ready, dict(self.last)))
        for n, sm in enumerate(self.sms):
            back = freed[n]
            if back:
                row = self.table[n]
                row.amounts = [have + more for have, more in zip(row.amounts, back, strict=False)]
                if back[3]:
                    row.kernels.remove(self._ended_kernel(sm))
            if sm.coming is not None and self.free[n]:
                sm.take()
            if self._sm_state[n][4] and int(getattr(dut, f"sm__{n}__ended__ready").value):
                self._on_end(sm.ended.popleft())
        self._sample_requests()
        self._check_drained()

    def _ended_kernel(self, sm: Sm) -> Kernel:
        return self.kernels[sm.ended[-1]]

    def _on_end(self, row: int) -> None:
        self.kernels[row].on_sms -= 1

    def _sample_requests(self) -> None:
        dut = self.dut
        for name, todo in self.todo.items():
            if todo and int(getattr(dut, f"port__{name}__ready").value):
                what = todo.popleft()
                if name == "open":
                    assert what.row not in self.kernels
                    what.left, what.at = what.blocks, what.first
                    what.opened = what.filled = self.now
                    self.kernels[what.row] = what
                    self.last.pop(what.row, None)
                elif name == "add":
                    kernel = self.kernels[what[0]]
                    kernel.filled = kernel.filled if kernel.left else self.now
                    kernel.left += what[1]
                elif name == "close":
                    del self.kernels[what]
        offered = bool(int(dut.port__stopped__valid.value))
        if offered and not self._answered:
            answer = self.shapes["stopped"].from_bits(int(dut.port__stopped__payload.value))
            at = (answer.next.x, answer.next.y, answer.next.z)
            kernel = self.kernels[answer.row]
            assert (answer.blocks, at) == (kernel.left, kernel.at), "wrong answer to stop"
            kernel.left = 0
            self.answers.append((answer.row, answer.blocks, at))
        self._answered = offered and self.keeps_answers

    def _check_drained(self) -> None:
        drained = int(self.dut.port__drained.value)
        for row, kernel in self.kernels.items():
            if drained >> row & 1 and self.now > kernel.filled:
                assert not kernel.left and not kernel.on_sms, f"row {row} is not drained"

    def drained(self, row: int) -> bool:
        """Whether the design reported it in the last cycle, with all requests taken into
        account."""
        said = int(self.dut.port__drained.value) >> row & 1
        return bool(said) and self.now > self.kernels[row].filled + 1

    def _hear(self, taken: int | None) -> None:
        """Apply the reports of the last cycle, except that of SM `taken`, to which a block was sent
        in that cycle, as it does not include this block."""
        for n, (row, heard) in enumerate(zip(self.table, self._heard, strict=True)):
            highest, received = heard
            if n != taken and row.sent % 64 == received:
                row.top = highest
        self._heard = [(state[2], state[3]) for state in self._sm_state]

    # Every decision without an SM

    def _check_refusal(self, refused: Any) -> None:
        """Check a refusal in the last cycle: the kernel has undistributed blocks, no SM qualified
        when the decision began, and the reported resources were lacking."""
        if len(self.history) < self.history.maxlen:
            return
        table, ready, _ = self.history[0]
        told = tuple(
            bool(getattr(refused, name))
            for name in ("registers", "warps", "shared", "slots", "lower")
        )
        reasons = [
            self._lacks(kernel, table)
            for kernel in self.kernels.values()
            if kernel.left
            and all(
                not open_ or row.refuses(kernel) for row, open_ in zip(table, ready, strict=True)
            )
        ]
        assert told in reasons, f"refused for {told}, expected one of {reasons}"

    @staticmethod
    def _lacks(kernel: Kernel, table: list[Left]) -> tuple[bool, ...]:
        """Resources that no SM has: registers, warps, shared memory, a block slot; lower work."""
        amounts = [
            all(row.amounts[n] < need for row in table) for n, need in enumerate(kernel.whole)
        ]
        slots = all(len(row.kernels) >= row.slots for row in table)
        return (*amounts, slots, all(row.top > kernel.priority for row in table))

    # Every block

    def _check_block(self, placed: Any) -> None:
        """Check the block of the last cycle's commit."""
        dut, sm, row = self.dut, placed.sm, placed.row
        kernel, target = self.kernels[row], self.sms[sm]
        commit = self.now - 1
        at = (placed.at.x, placed.at.y, placed.at.z)
        assert int(getattr(dut, f"sm__{sm}__block__valid").value), "not offered"
        word = int(getattr(dut, f"sm__{sm}__block__payload").value)
        offered = self.shapes["block"].from_bits(word)
        assert (offered.row, offered.at.x, offered.at.y, offered.at.z) == (row, *at)
        assert target.coming is None, "the link was not free"
        assert kernel.left > 0, f"row {row} has no block left"
        assert at == kernel.at, f"block {at} of row {row}, expected {kernel.at}"
        before = [
            other
            for other in self.kernels.values()
            if other.left and other.filled < commit and _goes_before(other, kernel)
        ]
        assert not before, f"row {row} is served before row {before[0].row}"
        step = int(placed.step.value if hasattr(placed.step, "value") else placed.step)
        assert self.table[sm].qualifies(kernel, step), f"SM {sm} does not qualify: {step}"
        if step != WHOLE or kernel.policy == WIDE or not self._follows(row, sm):
            self._check_decision(kernel, sm, step)
        kernel.left -= 1
        kernel.at = kernel.after()
        kernel.on_sms += 1
        kernel.placed.append(at)
        self.log.append((commit, row, sm, step))
        self.last[row] = sm
        entry = self.table[sm]
        needs = kernel.whole
        entry.amounts = [have - need for have, need in zip(entry.amounts, needs, strict=True)]
        entry.kernels.append(kernel)
        entry.sent += 1
        entry.top = max(entry.top, kernel.priority + 1)
        if kernel.asid not in entry.spaces[:1]:
            entry.spaces = [kernel.asid, *entry.spaces[:1]]
        target.coming = Block(kernel, kernel.warps)

    def _follows(self, row: int, sm: int) -> bool:
        """Whether the block may follow another one to its SM without a decision."""
        return bool(self.log) and self.log[-1][1:3] == (row, sm)

    def _check_decision(self, kernel: Kernel, sm: int, step: int) -> None:
        """Check the decision against the state when it began."""
        table, ready, last = self.history[0]
        commit = self.now - 1
        span = rounds(self.config.sms) + 1
        if len(self.history) < self.history.maxlen:
            return
        open_ = [n for n, row in enumerate(table) if ready[n]]
        qualified = {
            n: next(s for s in (WHOLE, WARP, LOWER) if table[n].qualifies(kernel, s))
            for n in open_
            if any(table[n].qualifies(kernel, s) for s in (WHOLE, WARP, LOWER))
        }
        assert sm in qualified, f"SM {sm} did not qualify when the decision began"
        best = min(qualified.values())
        assert step == best == qualified[sm], f"step {step}, while step {best} had an SM"
        recent = [one for one in self.log if one[0] >= commit - span]
        if not recent and step != LOWER:
            order = [
                self._order(kernel, table[n], n, last) for n in qualified if qualified[n] == best
            ]
            assert self._order(kernel, table[sm], sm, last) == min(order), "not the policy's choice"

    def _order(self, kernel: Kernel, row: Left, n: int, last: dict[int, int]) -> tuple[int, ...]:
        """Sort key; the smallest is best."""
        warps = max(0, row.amounts[1])
        if kernel.policy == DEEP:
            return (last.get(kernel.row) != n, -warps, n)
        strange = kernel.policy == AFFINITY and kernel.asid not in row.spaces
        return (int(strange), len(row.kernels), -warps, n)


def dut_ready(dut: Any, n: int) -> Any:
    return getattr(dut, f"sm__{n}__block__ready")


def _goes_before(one: Kernel, other: Kernel) -> bool:
    """PLACE-1."""
    return (-one.priority, one.opened) < (-other.priority, other.opened)
