"""Hardware channels: ring, settings, priority policies, runlists, repetition of failed copies."""
