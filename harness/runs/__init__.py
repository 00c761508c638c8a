"""The run directory: read, checked, written, recovered."""
