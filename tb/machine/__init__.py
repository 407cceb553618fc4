"""Directed tests of the host on the whole machine."""
