"""Tests of single units, in a folder for each, named as in `hw`, and of the library of
testbenches."""
