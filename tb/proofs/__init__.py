"""Proofs: `python -m signalbox.tb.proofs.run`. Each module is about one unit of `hw`, and lists its
proofs in `PROOFS`."""
