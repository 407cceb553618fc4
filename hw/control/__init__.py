"""The control port: registers over AXI4-Lite, interrupts, performance counters."""
