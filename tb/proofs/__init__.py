"""Proofs: `python -m signalbox.tb.proofs.run`; one module per unit, each with its `PROOFS`."""
