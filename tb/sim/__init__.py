"""What surrounds the design in a simulation: memory model, trace monitor, simulation top."""
