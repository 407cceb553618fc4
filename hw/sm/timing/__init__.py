"""A core that takes time and accesses memory, and computes nothing (`hw/sm/README.md`)."""
