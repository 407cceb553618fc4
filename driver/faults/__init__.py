"""Errors of channels, tasks and warps, and the records of translation faults behind them."""
