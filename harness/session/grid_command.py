"""The `bench run` that makes a point of a grid: what a reader of one run can type."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from harness.session.options import RunOptions, known_names

# Of fields that hold several values: those that stand apart by commas; the others are given again for each.
WITH_COMMAS = ("slots", "rates", "concurrencies")


def command_of(options: RunOptions, out: Path) -> list[str]:
    """The words of `bench run` with these options: the same runs, into `out`."""
    words = ["bench", "run"]
    for field, name in zip(dataclasses.fields(RunOptions), known_names(), strict=True):
        value = getattr(options, field.name)
        if value != field.default:
            words += _words(field.name, f"--{name.replace('_', '-')}", value)
    return [*words, "--out", str(out)]


def _words(field: str, flag: str, value: Any) -> list[str]:
    if isinstance(value, bool):
        return [flag if value else flag.replace("--", "--no-", 1)]
    if field in WITH_COMMAS:
        return [flag, ",".join(map(str, value))]
    if isinstance(value, tuple):
        return [word for one in value for word in (flag, one)]
    # A value of its own is optional there, and stands behind a sign.
    return [f"{flag}={value}"] if field == "prefix_caching" else [flag, str(value)]
