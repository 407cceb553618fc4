"""Proofs: `python -m signalbox.tb.proofs.run`. Modules by unit of `hw`, with proofs in `PROOFS`."""
