"""Reference models in plain Python; they share no code with the hardware."""
