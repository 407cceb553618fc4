"""Command streams: encoding and disassembly of pushbuffers."""
