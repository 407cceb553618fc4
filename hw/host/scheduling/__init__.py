"""Choice of the channel to serve, and wake-up of parked channels."""
