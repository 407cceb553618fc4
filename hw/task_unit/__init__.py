"""Task unit: slot assignment of tasks, and access to their QMDs (ASID-20 … 26, HOST-10)."""
