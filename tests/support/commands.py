"""The command line as users type it: whole processes, exit codes, what stands on which stream."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.warm import Warm

BENCH = str(Path(sys.executable).with_name("bench"))


@dataclass(frozen=True, slots=True)
class Result:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output as the one JSON document that it must be."""
        return json.loads(self.out)


Bench = Callable[..., Result]
# Starts a mock server with more options: its address and its process.
Serve = Callable[..., tuple[str, subprocess.Popen[str]]]


def bench_in(directory: Path, warm: Warm | None = None) -> Bench:
    """`bench ARGS…` in a directory, with a cache of its own and no network; forked where a warm process is given."""
    own = {"BENCH_CACHE": str(directory / "cache"), "HF_HOME": str(directory / "hf"), "HF_HUB_OFFLINE": "1"}

    def call(*args: str, limit_bytes: int | None = None) -> Result:
        words, env = [BENCH, *args], os.environ | own | {"COLUMNS": "120"}
        if warm is None:
            done = subprocess.run(words, cwd=directory, env=env, capture_output=True, text=True, check=False)
            result = Result(done.returncode, done.stdout, done.stderr)
        else:
            result = Result(*warm.run(words, directory, env, limit_bytes))
        assert "Traceback" not in result.err, result.err
        return result

    return call


# One run a policy under one cost model: the defaults of repeats and of models beside are for answers, not for tests.
ONCE = ("--repeat", "1", "--alone")
RUN = (
    *("run", "--gpu", "l40s", "--workload", "sharegpt", "--requests", "300", "--concurrency", "200", "--slots", "64"),
    *ONCE,
)
# Of a server's requests so few and short that they take no time.
ENDPOINT_RUN = ("run", "--workload", "sharegpt:output_cap=8", "--requests", "60", "--concurrency", "10")
