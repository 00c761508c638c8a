"""The public Python API of bench: runs, comparisons and traces as pandas DataFrames.

    import schedbench as sb
    runs = sb.run(gpu="l40s", policy="v1,ebplus", workload="sharegpt", requests=2000)
    runs.summary[["policy", "output_throughput_tok_per_s", "ttft_p99_s"]]
    sb.compare(runs).frame

What a user can mend is raised as one of USER_ERRORS, one line that says how. Everything else in the distribution may
change from one version to the next. docs/python.md has examples.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness.api.commands import Comparisons, TraceRows, compare, run, trace
    from harness.api.results import Results, RunResult, read
    from harness.core.errors import USER_ERRORS

# Where each name comes from: what a notebook does not use is not imported.
_HOME = {
    "Comparisons": "harness.api.commands",
    "Results": "harness.api.results",
    "RunResult": "harness.api.results",
    "TraceRows": "harness.api.commands",
    "USER_ERRORS": "harness.core.errors",
    "compare": "harness.api.commands",
    "read": "harness.api.results",
    "run": "harness.api.commands",
    "trace": "harness.api.commands",
}

__all__ = [
    "USER_ERRORS",
    "Comparisons",
    "Results",
    "RunResult",
    "TraceRows",
    "compare",
    "read",
    "run",
    "trace",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'schedbench' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return __all__
