"""Tests of the library of testbenches."""
