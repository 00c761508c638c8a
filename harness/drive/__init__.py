"""A schedule on the wire: `drive` sends a plan to an OpenAI-compatible server and hands rows back."""
