"""Standard buses at the edge of a Signalbox."""
