"""From beats of pushbuffers to executed methods."""
