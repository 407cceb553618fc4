"""The copy engine."""
