"""Simulation environment of the design: memory model, trace monitor, simulation top."""
