"""A paced server to try drivers on, and what this machine can drive."""
