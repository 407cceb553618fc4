"""Task unit: which tasks hold a slot, and their records in memory (ASID-20 … 26, HOST-10)."""
