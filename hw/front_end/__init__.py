"""Front end of the compute engine: contexts, compute methods, launches (spec pages 20, 60)."""
