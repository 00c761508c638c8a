"""Comparisons, profit, and how they look on a terminal and as JSON."""
