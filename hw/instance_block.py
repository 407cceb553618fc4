"""Instance blocks: a context and its subcontexts' page directories, 4 KiB in memory (ASID-21).

The one place where their layout stands. Of the public block only what names page directories is
used: which of 64 subcontexts have one, and where it lies. The subcontext's number is the ASID.

Source: NVIDIA open-gpu-doc dev_ram.ref.txt (NV_RAMIN_SC_PDB_VALID, NV_RAMIN_SC_PAGE_DIR_BASE_*).
"""

from amaranth.lib import data

__all__ = ["SC_BASES", "SC_STEP", "SC_VALID", "SUBCONTEXTS", "PageDirectoryBase"]

SUBCONTEXTS = 64
"""Subcontexts of an instance block."""

SC_VALID = 166 * 4
"""Byte offset of the bits, one per subcontext, that say whether it has a page directory."""

SC_BASES = 168 * 4
"""Byte offset of the first subcontext's page directory base."""

SC_STEP = 16
"""Bytes from one to the next."""


class PageDirectoryBase(data.Struct):
    """Page directory base of a subcontext, 8 bytes. `target` 0 is this machine's memory; tables of
    version 2 alone are known here."""

    target: 2
    volatile: 1
    reserved0: 1
    fault_replay_tex: 1
    fault_replay_gcc: 1
    reserved1: 4
    version2: 1
    big_page_64k: 1
    base: 52
