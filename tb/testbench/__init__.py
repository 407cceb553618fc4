"""What testbenches of several units share: clock and reset, streams, memories, protocol rules."""
