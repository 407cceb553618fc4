"""Standard buses at the ports of a Signalbox."""
