"""Tests of the buses' signals."""
