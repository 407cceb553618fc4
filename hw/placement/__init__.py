"""Global logic controller: kernel table, SM table, SM choice (PLACE-1 … 10)."""
