"""`bench grid status`: how far a grid is, seen from any terminal."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from harness.session.grid_index import FinishedIndex
from harness.session.grid_run import seconds_in_words
from harness.session.grid_state import FOLDER, SECOND, find_cells, is_running, read_cells, read_failures, read_status


def status_of(out: Path) -> dict[str, Any]:
    """How far the grid in `out` is, as JSON values; UserError where none was begun there.

    While it runs what it last wrote holds; where it ended, also by a kill, the runs that are there are counted.
    """
    folder = out / FOLDER
    labels = read_cells(folder)
    last = read_status(folder)
    if is_running(out) and last and not last.get("ended"):
        return last | {"state": "running"}
    finished, failed = _counted(out, labels)
    failures = read_failures(folder) | failed
    told = [
        {"cell": labels[key], "reason": why} for key, why in failures.items() if key in labels and key not in finished
    ]
    left = len(labels) - len(finished) - len(told)
    return {
        "state": "running" if is_running(out) else "finished" if not left else "stopped",
        "cells": len(labels),
        "finished": len(finished),
        "failed": len(told),
        "cannot_be_had": last.get("cannot_be_had", 0),
        "left": left,
        "elapsed_s": last.get("elapsed_s"),
        "cells_per_s": last.get("cells_per_s"),
        "running": [],
        "failures": told,
    }


def told_status(status: dict[str, Any]) -> list[str]:
    """The status in lines."""
    lines = [
        f"{status['state']}: {status['finished']:,} of {status['cells']:,} cells finished, "
        f"{status['failed']:,} failed, {status['left']:,} left"
    ]
    if status["state"] == "running" and status.get("elapsed_s"):
        remaining = status.get("remaining_s")
        rest = f", about {seconds_in_words(remaining)} remain" if remaining else ""
        rate = status.get("cells_per_s") or 0.0
        lines.append(f"{seconds_in_words(status['elapsed_s'])} so far, {rate:.3g} cells/s{rest}")
    lines += [f"runs now: {label}" for label in status["running"]]
    reasons = Counter(one["reason"] for one in status["failures"])
    for reason, count in reasons.most_common():
        first = next(one["cell"] for one in status["failures"] if one["reason"] == reason)
        lines.append(f"failed ({count}): {reason}; {first}{' and others' if count > 1 else ''}")
    return lines


def _counted(out: Path, labels: dict[str, str]) -> tuple[set[str], dict[str, str]]:
    finished: set[str] = set()
    failed: dict[str, str] = {}
    index = FinishedIndex(out / FOLDER)
    for second in (False, True):
        digests = {key.removesuffix(SECOND) for key in labels if key.endswith(SECOND) == second}
        if digests:
            found = find_cells(out, digests, index, second)
            finished |= found.finished.keys()
            failed |= found.failed
    return finished, failed
