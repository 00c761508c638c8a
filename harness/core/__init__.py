"""What every room knows: the spec of a run, its records, errors, lines of text."""
