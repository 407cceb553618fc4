"""Use of the SMs, as `signalbox status` shows it."""

import asyncio
import random
from dataclasses import dataclass
from typing import cast

from signalbox.driver.kernels.library import SPIN
from signalbox.driver.platform.control_port import ControlPort
from signalbox.driver.protocol.messages import Report, Status
from signalbox.driver.server.sm_use import SmUse
from signalbox.tb.driver.server.session import Session, serve
from signalbox.tb.simulation.runner import choose_seed


@dataclass
class _Counter:
    """A control port with the counter alone, of SMs that have been busy for `busy` cycles."""

    busy: int = 0
    cycle: int = 0

    @property
    def machine(self) -> "_Counter":
        return self

    def now(self) -> int:
        return self.cycle

    async def read(self, name: str) -> int:
        assert name == "SM_CYCLES"
        return self.busy & 0xFFFF_FFFF


def test_parts() -> None:
    """Random use, over many times the range of the counter: the parts are those of the interval and
    of the whole time, if the counter is read whenever it is due, and not much more often."""
    rng = random.Random(seed := choose_seed())
    print(f"seed {seed}")
    sms = rng.choice((1, 4, 132))
    counter = _Counter()
    use = SmUse(cast(ControlPort, counter), sms)

    async def main() -> None:
        assert not use.due
        for _ in range(10):
            busy, cycle, readings = counter.busy, counter.cycle, 0
            most = rng.choice((0, 1, sms))
            for _ in range(rng.randrange(1, 40)):
                step = (1 << 29) // sms
                counter.cycle += step
                counter.busy += rng.randint(0, most * step)
                if use.due:
                    readings += 1
                    await use.read()
            elapsed = counter.cycle - cycle
            assert readings <= elapsed * sms >> 31
            await use.look()
            recent = f"{(counter.busy - busy) / (sms * elapsed):.1%}"
            whole = f"{counter.busy / (sms * counter.cycle):.1%}"
            name = "1 SM" if sms == 1 else f"{sms} SMs"
            assert str(use) == f"{name}: {recent} busy since the last status, {whole} so far"

    asyncio.run(main())


def test_without_sms() -> None:
    use = SmUse(cast(ControlPort, None), 0)
    asyncio.run(use.look())
    assert not str(use) and not use.due


def test_status() -> None:
    """A status shows the use until then, to applications and to others."""

    async def run(session: Session) -> None:
        device = await session.client()
        stream, call = await device.stream(), session.links[device].connection.call

        async def told() -> tuple[float, float]:
            text = (await call(Status(), Report)).text.splitlines()[1]
            name, rest = text.split(": ")
            assert name == f"{device.info.sms} SMs", text
            words = rest.split()
            assert words[1:] == f"busy since the last status, {words[-3]} so far".split(), text
            return float(words[0][:-1]), float(words[-3][:-1])

        assert await told() == (0, 0)
        await (await stream.launch(SPIN, 400, 1, {"CYCLES": 1})).synchronize()
        recent, whole = await told()
        assert recent > whole > 0
        await device.machine.wait_cycles(1000)
        assert (await told())[0] == 0

    serve(run)
