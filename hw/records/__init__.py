"""Payloads and port signatures of the ready/valid streams between units.

Streams follow the four rules of `amaranth.lib.stream`: a transfer happens when `valid` and `ready`
are both 1; once `valid` is 1, it and its payload hold until the transfer; `valid` never depends on
`ready`; `ready` may change freely.
"""
