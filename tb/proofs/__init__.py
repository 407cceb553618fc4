"""Proofs: `python -m signalbox.tb.proofs.run`. One module per unit of `hw`, which lists its proofs
in `PROOFS`."""
