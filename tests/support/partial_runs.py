"""Runs that still go on: what of them is whole on disk."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from harness.core.records import COMPLETED
from harness.core.sizes import MOST_REQUESTS
from harness.runs.append_log import whole_batches


def wait_until(what: Callable[[], object], process: subprocess.Popen[str] | subprocess.Popen[bytes]) -> None:
    """Waits until something holds; AssertionError where the process that is to bring it about ends before."""
    while not what():
        assert process.poll() is None, f"the process ended with {process.returncode}"
        # Whoever watches takes no processor from who is watched.
        time.sleep(0.02)


def completed_rows(directory: Path) -> int:
    """Completed requests in the whole batches of the logs below a directory: a kill takes none of them back."""
    return sum(
        finish in COMPLETED
        for log in directory.glob("**/*.partial/requests.arrows")
        for batch in whole_batches(log, MOST_REQUESTS)
        for finish in batch.column("finish").to_pylist()
    )


def wait_for_completed(process: subprocess.Popen[str] | subprocess.Popen[bytes], directory: Path) -> None:
    """Waits until a run below the directory has a completed request that nothing can take back."""
    wait_until(lambda: completed_rows(directory), process)


def handled(process: subprocess.Popen[str], signal: int) -> bool:
    """Whether a signal that was sent to a process has reached it: another of its kind is then another signal."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    pending = next(line for line in status.splitlines() if line.startswith("ShdPnd:"))
    return not int(pending.split()[1], 16) >> (signal - 1) & 1
