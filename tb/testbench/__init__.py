"""Library of testbenches: clock, ports, streams and memories."""
