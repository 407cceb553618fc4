"""Signalbox hardware in Amaranth HDL: everything between the command stream and the cores."""
