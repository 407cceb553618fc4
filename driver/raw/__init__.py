"""Pushbuffers of other software, executed beside a described memory image."""
