"""The machine from the CPU's side: control port, registers by name, parameters, fair locks."""
