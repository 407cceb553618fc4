"""Instance blocks: page directories and address limits of a context's subcontexts, 4 KiB in memory
(ASID-5, ASID-21).

The only definition of their layout. Only the page directories of the public block are used: a valid
bit and a base for each of 64 subcontexts. The subcontext number is the ASID.

The address limits are not public. The public block had a single limit (NV_RAMIN_ADR_LIMIT), and has
none since it has subcontexts. The limits lie behind the end of the public block.

Source: NVIDIA open-gpu-doc dev_ram.ref.txt (NV_RAMIN_SC_PDB_VALID, NV_RAMIN_SC_PAGE_DIR_BASE_*).
"""

from amaranth.lib import data

__all__ = [
    "SC_BASES",
    "SC_LIMITED",
    "SC_LIMITS",
    "SC_LIMIT_BYTES",
    "SC_STEP",
    "SC_VALID",
    "SUBCONTEXTS",
    "PageDirectoryBase",
]

SUBCONTEXTS = 64
"""Subcontexts per instance block."""

SC_VALID = 166 * 4
"""Byte offset of the valid bits of the page directories, one per subcontext."""

SC_BASES = 168 * 4
"""Byte offset of the first page directory base."""

SC_STEP = 16
"""Bytes between page directory bases."""

SC_LIMITED = 424 * 4
"""Byte offset of the valid bits of the address limits, one per subcontext; 0 in public blocks."""

SC_LIMITS = 426 * 4
"""Byte offset of the first address limit: the last virtual address; only its page number counts. A
value past the last possible virtual address means no limit."""

SC_LIMIT_BYTES = 8
"""Bytes per address limit."""


class PageDirectoryBase(data.Struct):
    """Page directory base of a subcontext, 8 bytes. `target` 0 is this machine's memory. Only
    tables of version 2 are supported."""

    target: 2
    volatile: 1
    reserved0: 1
    fault_replay_tex: 1
    fault_replay_gcc: 1
    reserved1: 4
    version2: 1
    big_page_64k: 1
    base: 52
