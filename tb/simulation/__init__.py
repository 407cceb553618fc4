"""Simulation of a design or of the whole machine: build, run, memory model, trace."""
