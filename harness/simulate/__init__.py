"""The virtual-time engine: vLLM's batching rules, a step at a time or in leaps."""
