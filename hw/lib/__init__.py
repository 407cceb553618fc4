"""Small parts that several units share."""
