"""CONFIG of the served channel: address space, context and rights."""

from amaranth.hdl import Module
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.host.channel_settings import setting_event, setting_ram
from signalbox.hw.registers import CHANNEL

__all__ = ["ChannelRights", "channel_rights"]


def channel_rights(config: Config) -> data.StructLayout:
    """Fields of CONFIG. `privileged`: AUTH_LEVEL. `early_waits`: acquires other than `== 0` of
    counting semaphores need not wait for an engine (COPY-13)."""
    return data.StructLayout({
        "asid": config.asid_bits,
        "context": 4,
        "privileged": 1,
        "early_waits": 1,
    })


class ChannelRights(wiring.Component):
    """Local copy of CONFIG of all channels.

    Members
    -------
    setting : in, writes of channel registers, see `setting_event`.
    select : in, `channel_bits` bits: number of a channel.
    rights : out, its `channel_rights`, from CONFIG; one cycle later.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        super().__init__({
            "setting": In(setting_event(config)),
            "select": In(config.channel_bits),
            "rights": Out(channel_rights(config)),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        (ram,) = setting_ram(m, self._config, self.setting, "CONFIG")
        m.d.comb += ram.addr.eq(self.select)
        places = {
            "asid": "ASID",
            "context": "CONTEXT",
            "privileged": "AUTH_LEVEL",
            "early_waits": "EARLY_WAITS",
        }
        for name, field in places.items():
            m.d.comb += self.rights[name].eq(ram.data[CHANNEL["CONFIG"].field(field).lo :])
        return m
