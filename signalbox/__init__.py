"""Signalbox: an open register-transfer model of a GPU front end."""
