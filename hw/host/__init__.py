"""Host scheduler: rings, prefetch, method decode and execution, scheduling of channels."""
