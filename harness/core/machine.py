"""What this process may use of its machine."""

import contextlib
import os
import resource


def cores() -> int:
    """How many processors this process may run on: those it is bound to, where the system tells."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def allow_open_files() -> None:
    """Lets this process hold as many files and connections open as the system lets it, not only the usual few."""
    with contextlib.suppress(ValueError, OSError):
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
