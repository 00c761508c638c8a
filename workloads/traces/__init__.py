"""Trace files: our own formats and the published ones, read and written."""
