"""Parts of the channel registers: errors, tallies, settings, views, and the access in progress."""
