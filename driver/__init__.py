"""Signalbox driver model: a Python driver that writes real pushbuffers."""
