"""What a user reads when something is refused."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.core.errors import UserError
from harness.runs.run import load_run
from workloads.core.errors import WorkloadError


def refusal(what: Callable[[], Any]) -> str:
    """The one printable line, of less than 600 characters, with which a workload is refused; no warning beside it."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(WorkloadError) as caught:
            what()
    line = str(caught.value)
    assert line.isprintable()
    assert len(line) < 600
    return line


def run_refusal(path: Path, what: Callable[[Path], Any] = load_run) -> str:
    """The one printable line with which a run's directory is refused."""
    with pytest.raises(UserError) as caught:
        what(path)
    line = str(caught.value)
    assert line.isprintable()
    return line
