"""From pushbuffer beats to executed methods."""
