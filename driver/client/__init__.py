"""A client of a server: the driver of an application that shares a machine (SHARE-1)."""
