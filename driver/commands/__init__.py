"""Command streams: pushbuffers written, and read back as text."""
