"""The installed package, as users have it."""
