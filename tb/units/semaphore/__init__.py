"""Tests of the semaphore unit."""
