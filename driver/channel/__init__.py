"""Hardware channels: ring, settings, priority policies, and copies that have failed."""
