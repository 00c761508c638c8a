"""How long the command line takes to start and the main command to run; whole processes, medians of five."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BENCH = str(Path(sys.executable).with_name("bench"))


def wall_s(command: list[str]) -> float:
    """Wall time of one whole process, s."""
    before = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - before


def main() -> None:
    with tempfile.TemporaryDirectory() as out:
        run = [BENCH, "run", "--gpu", "l40s", "--policy", "v1,ebplus", "--workload", "sharegpt", "--out", out]
        for label, command in (
            ("import of the command line", [sys.executable, "-c", "import harness.cli.main"]),
            ("bench --version", [BENCH, "--version"]),
            ("bench run, 4,000 requests × 2 policies", run),
        ):
            print(f"{label:<40} {statistics.median(wall_s(command) for _ in range(5)):6.2f} s")


if __name__ == "__main__":
    main()
