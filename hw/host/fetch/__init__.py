"""From a doorbell to pushbuffer beats."""
