"""The static site from published runs."""
