"""Benchmarks: cycles of the whole machine, measured from its trace and compared with recorded
cycles."""
