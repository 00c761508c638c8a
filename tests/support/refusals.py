"""What a user reads when something is refused."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest

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
