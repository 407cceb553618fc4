"""Physical and virtual memory: buffers, page tables, address spaces, ASIDs, fences."""
