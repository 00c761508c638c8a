"""Prompt and output lengths without texts: embedded counts, twins, synthetic laws, drifts, hints."""
