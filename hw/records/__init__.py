"""Records that travel between units on ready/valid streams.

Streams follow the four rules of `amaranth.lib.stream`: a transfer happens when `valid` and
`ready` are both 1; `valid`, once 1, stays with its payload until then; `valid` never waits for
`ready`; `ready` may do anything.
"""
