"""What a user can mend of a workload."""


class WorkloadError(ValueError):
    """A workload, trace or tokenizer that the user can mend: one line that names file, row and remedy."""
