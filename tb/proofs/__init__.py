"""Proofs: `python -m tb.proofs.run`; one module per unit, each with its `PROOFS`."""
