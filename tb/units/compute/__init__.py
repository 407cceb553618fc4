"""Tests of the compute engine as a whole."""
