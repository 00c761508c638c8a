"""Loaders, one a data set."""
