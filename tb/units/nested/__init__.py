"""Tests of kernels that launch kernels."""
