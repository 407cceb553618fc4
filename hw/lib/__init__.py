"""Building blocks shared by several units."""
