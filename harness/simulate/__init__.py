"""The virtual-time engine and what its steps cost."""
