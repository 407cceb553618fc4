"""Tests, simulation tops and the verification plan. pytest is the only entry point."""
