"""Hardware channels: ring, settings, priority policies, recovery of failed copies."""
