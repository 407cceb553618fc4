"""Timing core: spends time and accesses memory, without computing (`hw/sm/README.md`)."""
