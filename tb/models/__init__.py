"""Reference models in plain Python, independent of the hardware's code."""
