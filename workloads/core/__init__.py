"""A trace of requests, when they are due, and the texts that name both."""
