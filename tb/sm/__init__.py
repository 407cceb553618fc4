"""Tests of the SM logic controller and of the core."""
