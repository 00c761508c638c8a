"""Requests and when they are due: traces, arrivals, data sets."""
