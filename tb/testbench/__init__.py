"""Library of testbenches: clock, ports, streams, memories, protocol rules, goals."""
