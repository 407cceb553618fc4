"""From a doorbell to beats of pushbuffers."""
