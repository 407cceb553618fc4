"""Runs pushbuffers of other software, with memory contents from a file."""
