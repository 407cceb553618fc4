"""The server: one machine, shared by many applications (SHARE-1 … SHARE-11)."""
