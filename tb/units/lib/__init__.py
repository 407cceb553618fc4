"""Tests of the parts in `hw/lib`."""
