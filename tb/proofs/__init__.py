"""Proofs: `python -m signalbox.tb.proofs.run`. One module per unit, with its proofs in `PROOFS`."""
