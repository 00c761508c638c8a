"""Runs and reads: the harness drives an engine with a stream under a policy and measures what it did."""

__version__ = "0.2.0"
