"""Guard against tests that hang."""

__all__ = ["HANGS"]

HANGS = 200
"""Seconds after which a test counts as hanging, even on a slow machine."""
