"""Schedules of all requests at once, for the token-step model."""
