"""Tests of what `make verilog` writes."""
