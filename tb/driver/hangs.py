"""Guard against tests that hang."""

__all__ = ["HANGS"]

HANGS = 200
"""Seconds after which a test counts as hanging, also on a slow machine."""
