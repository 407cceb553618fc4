"""Tests of the output of `make verilog`."""
