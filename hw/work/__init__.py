"""From launch to placement: task lists and table, global logic controller (`hw/work/README.md`)."""
