"""Tokenizers, chat templates and the hub that both come from."""
