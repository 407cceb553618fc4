"""Global logic controller: kernel table, SM table, choice of the SM of a block (PLACE-1 … 10)."""
