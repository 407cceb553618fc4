"""Streams and events as in CUDA, the channels that they use, and waiting for completion."""
