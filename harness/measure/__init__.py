"""Metrics, their intervals and the verdict on a run."""
