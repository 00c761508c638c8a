"""What this process may use of its machine."""

import os


def cores() -> int:
    """How many processors this process may run on: those it is bound to, where the system tells."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
