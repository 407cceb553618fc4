"""Encodings compared with values worked out by hand from spec page 60."""

import numpy as np
import pytest

from signalbox.driver.commands.disassembler import (
    Malformed,
    Method,
    SubDevices,
    decode,
    disassemble,
)
from signalbox.driver.commands.pushbuffer import CopyFence, InlineFence, Pushbuffer
from signalbox.hw.methods import (
    HostMethod,
    MemOp,
    ObjectClass,
    Reduction,
    RemapSource,
    SemOp,
    TertOp,
)
from signalbox.hw.qmd import ReleaseOp

SET, STORE, USE = TertOp.SET_SUB_DEV_MASK, TertOp.STORE_SUB_DEV_MASK, TertOp.USE_SUB_DEV_MASK


def dwords(commands: Pushbuffer) -> list[int]:
    return commands.dwords


def test_headers():
    assert dwords(Pushbuffer().inc(4, 0x400, 1, 2)) == [0x2002_8100, 1, 2]
    assert dwords(Pushbuffer().non_inc(0, 0x08, 3)) == [0x6001_0002, 3]
    assert dwords(Pushbuffer().one_inc(7, 0x5C, 1, 2, 3)) == [0xA003_E017, 1, 2, 3]
    assert dwords(Pushbuffer().immediate(4, 0x300, 0x182)) == [0x8182_80C0]
    assert dwords(Pushbuffer().end_segment()) == [0xE000_0000]
    assert Pushbuffer().immediate(0, 0x20, 0).to_bytes() == bytes([0x08, 0, 0, 0x80])


def test_linear_copy():
    copy = Pushbuffer().copy(0x1_2345_6789, 0x1_0000_0000_0040, 0x1234)
    assert dwords(copy) == [
        *(0x2004_8100, 0x10000, 0x40, 1, 0x2345_6789),
        *(0x2001_8106, 0x1234),
        0x8182_80C0,
    ]


def test_copy_with_fence():
    copy = Pushbuffer().copy(0x2000, 0x1000, 16, CopyFence(0x1_0000_0010, 7))
    assert dwords(copy)[:4] == [0x2003_8090, 1, 0x10, 7]
    assert dwords(copy)[-1] == 0x8000_80C0 | 0x196 << 16
    word = Pushbuffer().copy(0x2000, 0x1000, 16, CopyFence(4, 7, timestamp=False))
    assert dwords(word)[-1] >> 16 & 0x1FFF == 0x18E
    added = Pushbuffer().copy(0x2000, 0x1000, 16, CopyFence(4, 7, reduction=Reduction.IADD))
    assert dwords(added)[-2:] == [0x2001_80C0, 0x196 | 5 << 14 | 1 << 18 | 1 << 19]


@pytest.mark.parametrize(
    "commands",
    [
        lambda number, small: Pushbuffer().append(0x100, number(5), small(3)),
        lambda number, small: Pushbuffer().add(0x100, number(-1)),
        lambda number, small: Pushbuffer().fill(number(64), small(7), small(4), small(9)),
        lambda number, small: Pushbuffer().set_local_memory(number(4096), number(8192), small(2)),
        lambda number, small: Pushbuffer().invalidate(number(4096), number(8192)),
    ],
)
def test_numbers_of_numpy(commands):
    """They are encoded like ints: no bits are lost in shifts. Three entries of a queue became 0,
    which closes it."""
    assert dwords(commands(np.int32, np.uint8)) == dwords(commands(int, int))


def test_release_by_copy_engine():
    assert dwords(Pushbuffer().copy_release(CopyFence(0x30, 1)))[-1] == 0x8014_80C0


def test_copy_2d():
    copy = Pushbuffer().copy_2d(0x9000, 256, 0x8000, 128, 100, 3)
    assert dwords(copy) == [0x2008_8100, 0, 0x8000, 0, 0x9000, 128, 256, 100, 3, 0x8382_80C0]


def test_fill():
    """The commands equal those of public memsets: one component of the pattern's size, or two of 4
    bytes."""
    fill = Pushbuffer().fill(0x1_2345_6789, 0xAB, 1, 0x1000)
    assert dwords(fill) == [
        *(0x2003_81C0, 0xAB, 0, 4),
        *(0x2002_8102, 1, 0x2345_6789),
        *(0x2001_8106, 0x1000),
        0x8582_80C0,
    ]
    assert dwords(Pushbuffer().fill(0, 0x1234, 2, 1))[1:4] == [0x1234, 0, 0x1_0004]
    assert dwords(Pushbuffer().fill(0, 0x1234_5678, 4, 1))[1:4] == [0x1234_5678, 0, 0x3_0004]
    assert dwords(Pushbuffer().fill(0, 5 << 32 | 6, 8, 1))[1:4] == [6, 5, 0x103_0054]
    fenced = dwords(Pushbuffer().fill(0, 0, 4, 1, CopyFence(0x1_0000_0010, 7)))
    assert fenced[:4] == [0x2003_8090, 1, 0x10, 7] and fenced[-1] == 0x8596_80C0
    with pytest.raises(ValueError, match="unit = 3: 1, 2, 4 or 8 bytes"):
        Pushbuffer().fill(0, 0, 3, 1)
    with pytest.raises(ValueError, match="pattern = 0x100 does not fit its 1 bytes"):
        Pushbuffer().fill(0, 0x100, 1, 1)


def test_remap():
    x, w, b, no = (RemapSource[name] for name in ("SRC_X", "SRC_W", "CONST_B", "NO_WRITE"))
    remap = Pushbuffer().remap(w, no, b, x, size=3, sources=4, const_a=1, const_b=2)
    assert dwords(remap) == [0x2003_81C0, 1, 2, 0x0332_0563]
    text = disassemble([*Pushbuffer().set_object().dwords, *remap.dwords])
    expected = (
        "dst_x SRC_W, dst_y NO_WRITE, dst_z CONST_B, dst_w SRC_X, 3 bytes each, 4 in the source"
    )
    assert f"SET_REMAP_COMPONENTS = 0x03320563  ({expected})" in text
    for wrong in ({"size": 5}, {"size": 0}, {"size": 1, "sources": 5}):
        with pytest.raises(ValueError, match=r" = [05]: 1 … 4"):
            Pushbuffer().remap(x, **wrong)
    with pytest.raises(ValueError, match="targets = 0: 1 … 4"):
        Pushbuffer().remap(size=1)


def test_semaphores():
    group = [0x2005_0017, 0xFFFF_0010, 0xFF]
    where = 0xFF_FFFF_0010
    assert dwords(Pushbuffer().acquire(where, 5)) == [*group, 5, 0, 1 << 12]
    assert dwords(Pushbuffer().acquire(where, 5, SemOp.ACQ_CIRC_GEQ, switch=False))[-1] == 3
    assert dwords(Pushbuffer().release(where, 1 << 32 | 2, wide=True)) == [
        *group,
        *(2, 1, 1 | 1 << 20 | 1 << 24),
    ]
    assert dwords(Pushbuffer().release(where, 2, timestamp=True, wfi=False))[-1] == 1 | 1 << 25
    assert dwords(Pushbuffer().add(where, 1)) == [*group, 1, 0, 6 | 5 << 27 | 1 << 31]
    assert dwords(Pushbuffer().add(where, -1)) == [*group, 0xFFFF_FFFF, 0, 6 | 5 << 27 | 1 << 31]
    assert dwords(Pushbuffer().reduce(where, 3, Reduction.IMAX, unsigned=False))[-1] == 6 | 1 << 27


def test_host_methods():
    assert dwords(Pushbuffer().set_object()) == [0x2001_8000, 0xC7B5]
    assert dwords(Pushbuffer().non_stall_interrupt(5)) == [0x8005_0008]
    assert dwords(Pushbuffer().wait_idle()) == [0x8001_001E]
    assert dwords(Pushbuffer().wait_own()) == [0x8000_001E]
    assert dwords(Pushbuffer().mem_op(MemOp.MEMBAR)) == [0x2004_000A, 0, 0, 0, 0x2800_0000]


def test_invalidations():
    group, ack = 0x2004_000A, 1 << 5
    pdb, address = 0x12_3456_7000, 0x1_2345_6789_ABCD
    whole = [group, 0, 0, 0x3456_7000 | ack, 0x09 << 27 | 0x12]
    assert dwords(Pushbuffer().invalidate()) == [group, 0, 0, 1 | ack, 0x09 << 27]
    assert dwords(Pushbuffer().invalidate(pdb)) == whole
    assert dwords(Pushbuffer().invalidate(pdb, address)) == [
        *(group, 0x6789_A000, 0x1_2345),
        *(0x3456_7000 | ack, 0x0A << 27 | 0x12),
    ]
    assert dwords(Pushbuffer().invalidate(0, 0)) == [group, 0, 0, ack, 0x0A << 27]


def test_compute():
    launch = [0x2001_20AD, 0x8765_4321, 0x8002_20B0]
    assert dwords(Pushbuffer().launch_task(0x87_6543_2100)) == launch
    record = bytes(range(256))
    inline = dwords(Pushbuffer().launch_inline(0x87_6543_2100, record))
    assert inline[:5] == [0x2042_20C6, 0, 0x8765_4321, 0x0302_0100, 0x0706_0504]
    assert inline[66:] == [0xFFFE_FDFC, *launch]
    put = Pushbuffer().append(0x87_6543_2100, 0x3_0000_05, 255)
    assert dwords(put) == [0x2002_20AD, 0x8765_4321, 0xFF00_0005, 0x8006_20B0]
    shut = Pushbuffer().close_queue(0x87_6543_2100, 0x1FF_FFFF)
    assert dwords(shut) == [0x2002_20AD, 0x8765_4321, 0x00FF_FFFF, 0x8006_20B0]
    count_down = Pushbuffer().decrement_dependence(0xFF_FFFF_FF00)
    assert dwords(count_down) == [0x2001_20AD, 0xFFFF_FFFF, 0x8007_20B0]
    assert dwords(Pushbuffer().limit_slots(255)) == [0x80FF_20AC]
    assert dwords(Pushbuffer().wait_tasks()) == [0x8000_2044]
    report = Pushbuffer().report(0x12_3456_7890, 5)
    assert dwords(report) == [0x2004_26C0, 0x12, 0x3456_7890, 5, 0]
    assert dwords(Pushbuffer().report(0, 5, timestamp=False))[-1] == 1 << 28
    signed = Pushbuffer().report(0, 5, reduction=ReleaseOp.MAX, signed=True)
    assert dwords(signed)[-1] == 1 << 3 | 2 << 9 | 1 << 17


def test_write_inline():
    """LAUNCH_DMA of the compute class, its data, and its semaphore (HOST-14)."""
    settings = [0x2005_2060, 6, 1, 0x1_2345, 0x6789_ABCD, 0]
    data = [0x6002_206D, 0x0403_0201, 0x0000_0605]
    assert dwords(Pushbuffer().write_inline(0x1_2345_6789_ABCD, bytes(range(1, 7)))) == [
        *settings,
        0x8011_206C,
        *data,
    ]
    one = InlineFence(0x12_3456_7890, 0x77, timestamp=False)
    semaphore = [0x2003_2077, 0x12, 0x3456_7890, 0x77]
    released = Pushbuffer().write_inline(0x1_2345_6789_ABCD, bytes(range(1, 7)), one)
    assert dwords(released) == [*semaphore, *settings, 0x9021_206C, *data]
    four = dwords(Pushbuffer().write_inline(0, b"x", InlineFence(0x10, 5)))
    assert four[10] == 0x8021_206C
    lines = dwords(Pushbuffer().write_inline_2d(0, 64, [b"abcde", b"fghij"]))
    assert lines[1:6] == [5, 2, 0, 0, 64]
    assert lines[7:] == [0x6004_206D, 0x6463_6261, 0x65, 0x6968_6766, 0x6A]
    long = dwords(Pushbuffer().write_inline(0, bytes(4 * 8192)))
    assert (long[7], long[7 + 8192], len(long)) == (0x7FFF_206D, 0x6001_206D, 7 + 8192 + 2)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda p: p.write_inline(1 << 49, b"x"),
            r"destination address = 0x2000000000000 does not",
        ),
        (lambda p: p.write_inline(0, b""), r"lines of \[0\] bytes: they need one length, not 0"),
        (lambda p: p.write_inline_2d(0, 0, []), r"lines of \[\] bytes"),
        (lambda p: p.write_inline_2d(0, 0, [b"a", b"bc"]), r"lines of \[1, 2\] bytes"),
        (lambda p: p.write_inline_2d(0, 1 << 32, [b"a"]), r"destination pitch = 0x100000000 does"),
        (
            lambda p: p.write_inline(0, b"x", InlineFence(1 << 40, 0)),
            r"inline semaphore address = 0x10000000000 does not fit its 40",
        ),
        (
            lambda p: p.write_inline(0, b"x", InlineFence(0, 1 << 32)),
            r"inline semaphore payload = 0x100000000 does not fit its 32",
        ),
        (lambda p: p.inc(8, 0x400, 1), r"Header.subchannel = 0x8 does not fit its 3 bits"),
        (lambda p: p.inc(0, 0x4000, 1), r"Header.address = 0x1000 does not fit its 12 bits"),
        (lambda p: p.inc(0, 0x3FFC, 1, 2), r"2 values from method 0x3ffc on run past the last"),
        (lambda p: p.inc(0, 0x3FF8, 1, 2, 3), r"3 values from method 0x3ff8 .* address, 0x3ffc"),
        (lambda p: p.one_inc(0, 0x3FFC, 1, 2), r"2 values from method 0x3ffc on run past the"),
        (lambda p: p.inc(0, 0x402), r"method 0x402 is not a multiple of 4"),
        (lambda p: p.inc(0, 8, 1 << 32), r"data of method 0x8 = 0x100000000 does not fit"),
        (lambda p: p.immediate(0, 8, 1 << 13), r"Header.count = 0x2000 does not fit its 13 bits"),
        (lambda p: p.acquire(1 << 40, 0), r"semaphore address = 0x10000000000 does not fit its 40"),
        (lambda p: p.acquire(2, 0), r"semaphore address = 0x2 is not a multiple of 4"),
        (lambda p: p.release(0, 1 << 32), r"semaphore payload = 0x100000000 does not fit its 32"),
        (lambda p: p.add(0, -1 - (1 << 32)), r"semaphore payload = -0x1 does not fit its 32 bits"),
        (lambda p: p.copy(1 << 49, 0, 1), r"destination address = 0x2000000000000 does not fit"),
        (lambda p: p.copy(0, -1, 1), r"source address = -0x1 does not fit its 49 bits"),
        (lambda p: p.copy(0, 0, 1 << 32), r"copy size = 0x100000000 does not fit its 32 bits"),
        (lambda p: p.invalidate(0x1800), r"page directory = 0x1800 is not a multiple of 4096"),
        (lambda p: p.invalidate(1 << 59), r"page directory = 0x800000000000000 does not fit its"),
        (lambda p: p.invalidate(0, 1 << 49), r"address = 0x2000000000000 does not fit its 49 bits"),
        (lambda p: p.invalidate(address=0x1000), r"address = 0x1000 without an address space"),
        (lambda p: p.raw(-1), r"dword = -0x1 does not fit its 32 bits"),
        (lambda p: p.launch_task(0x180), r"record 0x180 is not a multiple of 256"),
        (lambda p: p.launch_task(1 << 40), r"record 0x10000000000 does not fit 40 bits"),
        (lambda p: p.launch_task(-256), r"record -0x100 does not fit 40 bits"),
        (lambda p: p.launch_inline(1 << 40, bytes(256)), r"does not fit 40 bits"),
        (lambda p: p.launch_inline(1, bytes(256)), r"record 0x1 is not a multiple of 256"),
        (lambda p: p.decrement_dependence(1 << 40), r"does not fit 40 bits"),
        (lambda p: p.append(0, 0, 0), r"count = 0: 1 … 255"),
        (lambda p: p.append(0, 0, 256), r"count = 256: 1 … 255"),
        (lambda p: p.limit_slots(-1), r"count = -1: 0 … 255"),
        (lambda p: p.limit_slots(256), r"count = 256: 0 … 255"),
        (lambda p: p.launch_inline(0, bytes(255)), r"a record has 256 bytes, not 255"),
        (lambda p: p.report(1 << 40, 0), r"report semaphore address = 0x10000000000 does not fit"),
    ],
)
def test_refused(make, message: str):
    commands = Pushbuffer()
    with pytest.raises(ValueError, match=message):
        make(commands)
    assert not commands.dwords


@pytest.mark.parametrize(
    "make",
    [
        lambda p: p.copy(0, 0, 1, CopyFence(0, 1), flush=1, colour=1),
        lambda p: p.copy_2d(0, 0, 0, 0, 1, 1, colour=1),
        lambda p: p.fill(0, 0, 1, 1, colour=1),
        lambda p: p.launch(colour=1),
    ],
)
def test_unknown_fields(make):
    commands = Pushbuffer()
    with pytest.raises(TypeError, match=r"CopyLaunch has no field colour; its fields .* flush,"):
        make(commands)
    assert not commands.dwords
    with pytest.raises(TypeError, match=r"MemOpD has no field colour; its fields .* operation"):
        commands.mem_op(MemOp.MMU_TLB_INVALIDATE, colour=1)


def test_groups_up_to_the_last_method():
    assert len(Pushbuffer().inc(0, 0x3FF8, 1, 2)) == len(Pushbuffer().one_inc(0, 0x3FF8, 1, 2)) == 3
    assert len(Pushbuffer().non_inc(0, 0x3FFC, 1, 2)) == 3
    assert len(Pushbuffer().inc(0, 0x3FFC)) == 1


def test_decode_is_the_inverse():
    commands = Pushbuffer().set_object().copy(0x2000, 0x1000, 64).raw(0).add(0x40, -1)
    methods = [item for item in decode(commands.dwords) if isinstance(item, Method)]
    assert [(item.subchannel, item.address, item.data) for item in methods] == [
        (4, 0x000, 0xC7B5),
        *((4, 0x400, 0), (4, 0x404, 0x1000), (4, 0x408, 0), (4, 0x40C, 0x2000)),
        *((4, 0x418, 64), (4, 0x300, 0x182)),
        *((0, 0x5C, 0x40), (0, 0x60, 0), (0, 0x64, 0xFFFF_FFFF), (0, 0x68, 0)),
        (0, 0x6C, 6 | 5 << 27 | 1 << 31),
    ]


def test_decode_forms():
    forms = Pushbuffer().one_inc(1, 0x10, 7, 8, 9).non_inc(2, 0x10, 7, 8)
    addresses = [item.address for item in decode(forms.dwords) if isinstance(item, Method)]
    assert addresses == [0x10, 0x14, 0x14, 0x10, 0x10]


def test_headers_without_methods_are_named():
    commands = Pushbuffer().raw(0, 0x2000_0040, 0x0003_0010).end_segment().raw(0xFFFF_FFFF, 0)
    assert disassemble(commands.dwords).splitlines() == [
        "    0: 0x00000000: no operation",
        "    1: 0x20000040: INC_METHOD of no dwords",
        "    2: 0x00030010: USE_SUB_DEV_MASK",
        "    3: 0xe0000000: END_PB_SEGMENT, which skips the 2 dwords after it",
    ]


def test_ignored_methods():
    """Methods under a mask without device 0 are shown as ignored; they bind nothing and do not
    count as methods."""
    commands = Pushbuffer().sub_devices(STORE, 0xFFE).sub_devices(USE).set_object(1)
    commands.immediate(1, 0x100, 9).sub_devices(SET, 1).immediate(1, 0x100, 7)
    masks = SubDevices()
    found = [item for item in decode(commands.dwords, masks=masks) if isinstance(item, Method)]
    assert [(item.position, item.data, item.object_class) for item in found] == [(6, 7, 0)]
    assert masks == SubDevices(active=True, stored=False)
    lines = disassemble(commands.dwords).splitlines()
    assert lines[1] == "    1: 0x00030000: USE_SUB_DEV_MASK"
    behind = "ignored: the sub-device mask leaves out device 0"
    assert lines[2] == f"    3: subchannel 1 SET_OBJECT = 0x0000c7b5, {behind}"
    assert lines[-1] == "    6: subchannel 1 method 0x100 = 0x00000007"


def test_equal_lines_are_folded():
    commands = Pushbuffer().non_inc(0, HostMethod.NOP, *[0] * 12).raw(0, 0)
    assert disassemble(commands.dwords).splitlines() == [
        "    1: subchannel 0 NOP = 0x00000000  … × 12, the last at 12",
        "   13: 0x00000000: no operation  … × 2, the last at 14",
    ]


def test_decode_malformed():
    words = [0xC000_0000, 0x4004_0000, 0x0004_0010, 0x2001_1002, 0x2003_0002, 1]
    found = list(decode(words))
    assert [item.reason for item in found if isinstance(item, Malformed)] == [
        "reserved header form",
        "obsolete header form",
        "obsolete header form",
        "reserved header bit 12 is set",
        "the group lacks 2 of its 3 dwords",
    ]
    assert [item.position for item in found] == [0, 1, 2, 3, 5, 4]
    assert [item.missing for item in found if isinstance(item, Malformed)] == [0, 0, 0, 0, 2]
    (past,) = decode([0x2002_0FFF])
    assert isinstance(past, Malformed)
    assert past.reason == "the group runs past the last method address"


def test_disassemble():
    text = disassemble(Pushbuffer().set_object().copy(0, 0, 1).add(0x40, 1).dwords)
    assert "subchannel 4 SET_OBJECT = 0x0000c7b5" in text
    assert "LAUNCH_DMA = 0x00000182  (transfer NON_PIPELINED, src_pitch, dst_pitch)" in text
    assert "SEM_EXECUTE = 0xa8000006  (REDUCTION, IADD, unsigned)" in text
    text = disassemble(Pushbuffer().invalidate(0x5000, 0x7000).mem_op(MemOp.MEMBAR).dwords)
    assert "MEM_OP_A = 0x00007000  (target_addr_lo 0x7)" in text
    assert "MEM_OP_C = 0x00005020  (ack_type, pdb_addr_lo 0x5)" in text
    assert "MEM_OP_D = 0x50000000  (MMU_TLB_INVALIDATE_TARGETED)" in text
    assert "MEM_OP_D = 0x28000000  (MEMBAR)" in text
    text = disassemble(Pushbuffer().host(HostMethod.MEM_OP_D, 3 << 27 | 1).dwords)
    assert "(operation 3, pdb_addr_hi)" in text
    assert "method 0x300" in disassemble(Pushbuffer().immediate(5, 0x300, 1).dwords)


def test_disassemble_compute():
    """Methods of a subchannel are named after the class last bound to it."""
    commands = Pushbuffer().set_object(1, ObjectClass.COMPUTE)
    commands.launch_inline(0x100, bytes(256)).report(0x10, 1, reduction=ReleaseOp.DEC)
    lines = disassemble(commands.inc(1, 0x2BC, 3).immediate(1, 0x2C0, 5).dwords).splitlines()
    text = "\n".join(lines)
    assert "subchannel 1 SET_INLINE_QMD_ADDRESS_B = 0x00000001" in text
    assert "LOAD_INLINE_QMD_DATA(0) = 0x00000000" in text
    assert "LOAD_INLINE_QMD_DATA(63) = 0x00000000" in text
    assert "SEND_PCAS_A = 0x00000001" in text
    assert "SEND_SIGNALING_PCAS2_B = 0x00000002  (SCHEDULE)" in text
    assert "SET_REPORT_SEMAPHORE_D = 0x00000808  (reduction_enable, reduction DEC)" in text
    assert "SEND_SIGNALING_PCAS_B = 0x00000003  (invalidate, schedule)" in text
    assert lines[-1].endswith("SEND_SIGNALING_PCAS2_B = 0x00000005")
    inline = Pushbuffer().set_object(1, ObjectClass.COMPUTE)
    inline.write_inline(0x1_0000_0000, b"12345", InlineFence(0x20, 9, timestamp=False))
    inline.immediate(1, 0x310, 5).immediate(1, 0x2F0, 1).inc(1, 0x1B0, 0x4013)
    text = disassemble(inline.dwords)
    assert "LINE_LENGTH_IN = 0x00000005" in text and "OFFSET_OUT_UPPER = 0x00000001" in text
    assert "LAUNCH_DMA = 0x00001021  (pitch, completion RELEASE_SEMAPHORE, one_word)" in text
    assert "LOAD_INLINE_DATA = 0x34333231" in text and "SET_I2M_SEMAPHORE_C = 0x00000009" in text
    assert "SET_SPA_VERSION = 0x00000005" in text and "method 0x2f0 = 0x00000001" in text
    assert "(pitch, reduction_enable, completion FLUSH_ONLY, reduction DEC)" not in text
    assert "(pitch, reduction_enable, completion FLUSH_ONLY, reduction MAX)" in text
    again = Pushbuffer().set_object(1, ObjectClass.COMPUTE).set_object(1, ObjectClass.COPY)
    assert "method 0x2b4 " in disassemble(again.inc(1, 0x2B4, 1).dwords)
    known = {1: int(ObjectClass.COMPUTE)}
    assert "WAIT_FOR_IDLE" in disassemble(Pushbuffer().wait_tasks().dwords, objects=known)
