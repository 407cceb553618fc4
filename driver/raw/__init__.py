"""Execution of foreign pushbuffers with a described memory image."""
