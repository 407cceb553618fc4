"""Tests of the server and its clients (SHARE-1 … SHARE-10)."""
