"""The machine as the CPU sees it: control port, registers by name, parameters, fair locks."""
