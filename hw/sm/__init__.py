"""Streaming multiprocessors: SM logic controller and core (`hw/sm/README.md`)."""
