"""Streams and events in CUDA's terms, the channels behind them, and waiting for completion."""
