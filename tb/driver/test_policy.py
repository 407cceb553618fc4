"""COPY-20 … COPY-24: the semaphore operations around a copy, and its channel."""

import pytest

from signalbox.driver.channel.priority_policy import (
    CountFirstPolicy,
    NoPriorityPolicy,
    PolicyError,
    PriorityPolicy,
)
from signalbox.driver.commands.disassembler import Method, decode
from signalbox.driver.commands.pushbuffer import Pushbuffer

ALL = range(8)
"""Every channel is usable."""


def operations(policy, channel: int) -> list[tuple[str, int]]:
    """Returns the semaphore operations and copies of one copy, as (kind, semaphore number)."""
    commands = Pushbuffer().set_object()
    policy.before_copy(channel, commands)
    commands.copy(0x2000, 0x1000, 16)
    policy.after_copy(channel, commands)
    state, found = {}, []
    for method in decode(commands.dwords):
        assert isinstance(method, Method)
        state[method.address] = method.data
        if method.address == 0x300:
            found.append(("copy", 0))
        if method.address == 0x6C:
            number = ((state[0x60] << 32 | state[0x5C]) - 0xFF_FFFF_0000) // 16
            kind = {
                (1 << 12, 0): "acquire 0",
                (0xA800_0006, 1): "increment",
                (0xA800_0006, 0xFFFF_FFFF): "decrement",
            }[method.data, state[0x64]]
            found.append((kind, number))
    return found


def bound(policy, channels: int = 8):
    policy.bind(channels, [0xFF_FFFF_0000 + 16 * slot for slot in range(policy.semaphores)])
    return policy


@pytest.mark.parametrize("levels", range(1, 9))
def test_sequence(levels: int):
    policy = bound(PriorityPolicy(levels))
    assert policy.semaphores == levels - 1
    for channel in range(8):
        level = policy.level_of_channel(channel)
        acquires = [("acquire 0", higher - 2) for higher in range(level + 1, levels + 1)]
        count = [("increment", level - 2)] if level > 1 else []
        end = [("decrement", level - 2)] if level > 1 else []
        assert operations(policy, channel) == [*acquires, *count, ("copy", 0), *end]


@pytest.mark.parametrize("levels", range(1, 9))
def test_count_first(levels: int):
    """The commands are the published ones, but with the increment before the acquires."""
    published, early = bound(PriorityPolicy(levels)), bound(CountFirstPolicy(levels))
    for channel in range(8):
        level = early.level_of_channel(channel)
        found = operations(early, channel)
        assert sorted(found) == sorted(operations(published, channel))
        if level > 1:
            assert found[0] == ("increment", level - 2)
            assert found[-2:] == [("copy", 0), ("decrement", level - 2)]


def test_two_levels():
    policy = bound(PriorityPolicy(2), 2)
    assert operations(policy, 0) == [("acquire 0", 0), ("copy", 0)]
    assert operations(policy, 1) == [("increment", 0), ("copy", 0), ("decrement", 0)]


def test_baseline_is_bare():
    policy = bound(NoPriorityPolicy(4))
    assert policy.semaphores == 0
    for channel in range(8):
        assert operations(policy, channel) == [("copy", 0)]
    assert [policy.channel(-u, ALL) for u in range(4)] == [
        bound(PriorityPolicy(4)).channel(-u, ALL) for u in range(4)
    ]


@pytest.mark.parametrize(
    ("levels", "priorities", "expected"),
    [
        (2, 6, [1, 1, 1, 2, 2, 2]),
        (8, 2, [1, 8]),
        (8, 8, [1, 2, 3, 4, 5, 6, 7, 8]),
        (8, 3, [1, 5, 8]),
        (1, 4, [1, 1, 1, 1]),
    ],
)
def test_numbers_may_differ(levels: int, priorities: int, expected: list[int]):
    policy = bound(PriorityPolicy(levels, stream_priorities=priorities))
    assert [policy.level_of_priority(-u) for u in range(priorities)] == expected


def test_several_channels_per_level():
    policy = bound(PriorityPolicy(2, channels_per_level=[3, 1]))
    assert [policy.channel(0, ALL) for _ in range(4)] == [0, 1, 2, 0]
    assert [policy.channel(-1, ALL) for _ in range(2)] == [3, 3]
    assert [len(group) for group in bound(PriorityPolicy(3))._channels] == [3, 3, 2]


def test_only_usable_channels():
    """Streams of a level take its usable channels in turn; without a usable channel there is an
    error."""
    policy = bound(PriorityPolicy(2, channels_per_level=[4, 2]))
    assert [policy.channel(0, {0, 2, 3, 4}) for _ in range(4)] == [0, 2, 3, 0]
    assert [policy.channel(0, {1}) for _ in range(2)] == [1, 1]
    assert policy.channel(0, ALL) == 2
    with pytest.raises(
        PolicyError, match=r"none of the channels of priority -1 \(4, 5\) is usable"
    ):
        policy.channel(-1, {0, 1, 2, 3, 6})


def test_refused():
    with pytest.raises(PolicyError, match="8 levels need 8 channels, the device has 4"):
        bound(PriorityPolicy(8), 4)
    with pytest.raises(PolicyError, match="2 levels need 9 channels, the device has 8"):
        bound(PriorityPolicy(2, [8, 1]))
    with pytest.raises(PolicyError, match="levels = 0"):
        PriorityPolicy(0)
    with pytest.raises(PolicyError, match="names 1 levels, not 2"):
        PriorityPolicy(2, [4])
    with pytest.raises(PolicyError, match="each has at least 1"):
        PriorityPolicy(2, [4, 0])
    with pytest.raises(PolicyError, match="stream_priorities = 0"):
        PriorityPolicy(2, stream_priorities=0)
    with pytest.raises(PolicyError, match="channel 6 has no priority"):
        bound(PriorityPolicy(2, [4, 1])).level_of_channel(6)
