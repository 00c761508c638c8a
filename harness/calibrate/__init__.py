"""Step costs of a machine from its step logs, as a profile."""
