"""Tests of virtual memory."""
