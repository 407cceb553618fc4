"""Random dwords for the method pipeline, with the methods completed by them."""

from dataclasses import dataclass
from random import Random

from signalbox.hw.errors import Cause
from signalbox.hw.methods import (
    CeMethod,
    ComputeMethod,
    Header,
    HostMethod,
    SecOp,
    SubDeviceMask,
    TertOp,
    pack,
)
from signalbox.tb.models.method_pipeline import Beat, Dword
from signalbox.tb.models.methods import HOST_STATE, Method

__all__ = ["Program", "beats_of", "immediate", "random_method", "settings"]

LEGAL, OBSOLETE, RESERVED = 0, 1, 2
"""Refusals of a dword as a header. 3, for a range of addresses, is not generated."""

_CAUSES = {OBSOLETE: Cause.HEADER_OBSOLETE, RESERVED: Cause.HEADER_RESERVED}

_SETTINGS = [*HOST_STATE]
_COPIES = [*CeMethod]
_OTHERS = [
    HostMethod.WFI,
    HostMethod.SET_REFERENCE,
    HostMethod.NON_STALL_INTERRUPT,
    HostMethod.MEM_OP_D,
    ComputeMethod.SEND_SIGNALING_PCAS_B,
    0x3FFC,
]
_SEMAPHORES = [HostMethod.SEM_EXECUTE, HostMethod.SEMAPHORED]


def random_place(numbers: Random) -> int:
    """Byte offset of a method; each kind is frequent."""
    kinds = (_SETTINGS, _SETTINGS, _COPIES, _OTHERS, _SEMAPHORES, [HostMethod.SET_OBJECT])
    return int(numbers.choice(numbers.choice(kinds)))


def random_data(numbers: Random, place: int) -> int:
    """Data of a method; each property of semaphores and launches is frequent."""
    if place in _SEMAPHORES:
        flags = numbers.choice((0, 1 << 12, 1 << 20, 1 << 24, 1 << 25))
        return numbers.choice((0, 1, 2, 3, 4, 5, 6, 7, 8, 16)) | flags
    if place == CeMethod.LAUNCH_DMA:
        return numbers.choice((0x182, 0x181, 0x180, 0x82, 0x183, numbers.getrandbits(32)))
    return numbers.getrandbits(32)


def random_method(numbers: Random) -> Method:
    """A random method."""
    place = random_place(numbers)
    return Method(place, random_data(numbers, place), random_subchannel(numbers))


def random_subchannel(numbers: Random) -> int:
    """A subchannel, most often one of the first, so that it soon has an object."""
    return numbers.choice((0, 0, 0, 0, 1, 1, 2, 3, 4, 5, 6, 7))


def setting(number: int) -> Dword:
    """A dword with a whole method, which only sets state. `number` : its data, 13 bits."""
    return immediate(HostMethod.SEM_PAYLOAD_LO, number, number % 8)


def immediate(place: int, data: int = 0, subchannel: int = 0) -> Dword:
    """A dword with a whole method."""
    header = pack(
        Header,
        sec_op=SecOp.IMMD_DATA_METHOD,
        address=place // 4,
        count=data,
        subchannel=subchannel,
    )
    return Dword(header, Method(place, data, subchannel), LEGAL)


def settings(count: int, first: int = 0) -> list[Dword]:
    """`count` dwords with a setting each."""
    return [setting(first + number) for number in range(count)]


def beats_of(dwords: list[Dword], width: int, low: int = 0, get: int = 0) -> list[Beat]:
    """Beats of a ring entry with these dwords. `width` : dwords per beat. `low` : place of the
    first dword in its beat."""
    beats = []
    while dwords:
        room = width - low
        part, dwords = dwords[:room], dwords[room:]
        beats.append(Beat(tuple(part), low, first=not beats, end=not dwords, get=get))
        low = 0
    return beats


@dataclass
class _Group:
    """The open method group, which lacks `count` dwords."""

    form: SecOp
    count: int
    place: int
    subchannel: int


class Program:
    """Entries of one channel. Groups may span entries."""

    def __init__(self, numbers: Random, width: int) -> None:
        """`width` : dwords per beat."""
        self._numbers, self._width = numbers, width
        self._group: _Group | None = None
        self._skips = self._ignores = self._stored = False

    def entry(self) -> list[Beat]:
        """Beats of the next entry, or a mark outside of entries."""
        numbers = self._numbers
        get = numbers.getrandbits(20)
        odd = numbers.random()
        if odd < 0.12:
            beats = [self._mark(get)]
        else:
            dwords, masks = [], []
            for _ in range(numbers.choice((1, 1, 2, 3, 7, 15))):
                masks.append((self._ignores, self._stored))
                dwords.append(self._dword())
            beats = beats_of(dwords, self._width, numbers.randrange(self._width), get)
            if odd < 0.17:
                beats = self._cut(beats, masks)
        if any(beat.end for beat in beats):
            self._skips = False
        return beats

    def _mark(self, get: int) -> Beat:
        """A beat without dwords: a whole entry, or an error of the ring."""
        numbers = self._numbers
        mark = Beat(empty=True, first=True, end=True, get=get)
        cause = numbers.choice((
            Cause.NONE,
            Cause.NONE,
            Cause.ENTRY_OPCODE,
            Cause.ENTRY_RANGE,
            Cause.FETCH_FAULT,
            Cause.FETCH_BUS,
            Cause.USERD_WRITE,
            Cause.RING_POINTER,
        ))
        unread = cause in (Cause.FETCH_FAULT, Cause.FETCH_BUS)
        whole = cause not in (Cause.USERD_WRITE, Cause.RING_POINTER)
        if unread:
            whole = numbers.random() < 0.5  # else GP_PUT was not read
        if cause == Cause.ENTRY_RANGE or (unread and whole):
            self._lose()
        return Beat(empty=True, first=whole, end=whole, get=mark.get, cause=cause)

    def _cut(self, beats: list[Beat], masks: list[tuple[bool, bool]]) -> list[Beat]:
        """The entry, with a bad beat: the bad beat and all later ones have no dwords, and a mark
        ends the entry. `masks` : for each dword, whether methods were ignored before it, and
        whether the stored mask would ignore them."""
        numbers, get = self._numbers, beats[0].get
        bad = numbers.randrange(len(beats))
        self._ignores, self._stored = masks[sum(len(beat.dwords) for beat in beats[:bad])]
        self._lose()
        cause = numbers.choice((Cause.FETCH_BUS, Cause.FETCH_FAULT))
        rest = [Beat(empty=True, get=get) for _ in range(numbers.randrange(3))]
        return [
            *beats[:bad],
            Beat(first=not bad, get=get, cause=cause),
            *rest,
            Beat(empty=True, end=True, get=get),
        ]

    def _lose(self) -> None:
        """Forget the open group, as dwords are lost."""
        self._group, self._skips = None, False

    def _dword(self) -> Dword:
        numbers = self._numbers
        if self._skips:
            return Dword(numbers.getrandbits(32))
        if self._group is not None:
            return self._data(self._group)
        return self._header()

    def _data(self, group: _Group) -> Dword:
        value = random_data(self._numbers, group.place)
        method = None if self._ignores else Method(group.place, value, group.subchannel)
        if group.form != SecOp.NON_INC_METHOD:
            group.place += 4
        if group.form == SecOp.ONE_INC:
            group.form = SecOp.NON_INC_METHOD
        group.count -= 1
        if not group.count:
            self._group = None
        return Dword(value, method)

    def _header(self) -> Dword:
        numbers = self._numbers
        forms = (self._open, self._immediate, self._control, self._illegal)
        (form,) = numbers.choices(forms, (8, 8, 3, 0.4))
        return form()

    def _open(self) -> Dword:
        numbers = self._numbers
        form = numbers.choice((SecOp.INC_METHOD, SecOp.NON_INC_METHOD, SecOp.ONE_INC))
        place, subchannel = random_place(numbers), random_subchannel(numbers)
        count = numbers.choice((0, 1, 1, 2, 3, 6, 20))
        if place == 0x3FFC:
            count = min(count, 1)
        if count:
            self._group = _Group(form, count, place, subchannel)
        header = {"address": place // 4, "count": count, "subchannel": subchannel}
        return Dword(pack(Header, sec_op=form, **header), None, LEGAL)

    def _immediate(self) -> Dword:
        numbers = self._numbers
        place = random_place(numbers)
        one = immediate(place, random_data(numbers, place) & 0x1FFF, random_subchannel(numbers))
        return one._replace(method=None) if self._ignores else one

    def _control(self) -> Dword:
        """A dword without a method."""
        numbers = self._numbers
        kind = numbers.choice(("nop", "nop", "end", "set", "on", "on", "store", "use"))
        if kind == "nop":
            return Dword(0, None, LEGAL)
        if kind == "end":
            self._skips = True
            return Dword(pack(Header, sec_op=SecOp.END_PB_SEGMENT), None, LEGAL)
        mask = 1 if kind == "on" else numbers.getrandbits(12)
        operation = TertOp.SET_SUB_DEV_MASK
        if kind == "store":
            operation, self._stored = TertOp.STORE_SUB_DEV_MASK, not mask & 1
        elif kind == "use":
            operation, self._ignores = TertOp.USE_SUB_DEV_MASK, self._stored
        else:
            self._ignores = not mask & 1
        return Dword(pack(SubDeviceMask, operation=operation, mask=mask), None, LEGAL)

    def _illegal(self) -> Dword:
        numbers = self._numbers
        word = numbers.getrandbits(29) & ~(1 << 12)
        form, refusal = numbers.choice((
            (SecOp.GRP2_USE_TERT, OBSOLETE),
            (SecOp.RESERVED6, RESERVED),
            (SecOp.INC_METHOD, RESERVED),
        ))
        value = word | form << 29 | (1 << 12 if form == SecOp.INC_METHOD else 0)
        place, subchannel = (value & 0xFFF) << 2, value >> 13 & 7
        return Dword(value, Method(place, value, subchannel, _CAUSES[refusal]), refusal)
