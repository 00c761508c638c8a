"""vLLM's own scheduler in virtual time, as a process of the engine's environment that replays job after job."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.runs.step_log import StepLog, read_step_log
from tests.support.places import ROOT


@dataclass(frozen=True, slots=True)
class Replayed:
    """What a job gave: a row a request as it ended, the step log, and what each step held where it was asked."""

    ends: list[list[Any]]
    log: StepLog
    contents: list[list[float]]
    sent: int


class EmulatedEngine:
    """One process of a module that does what `policies.vllm_emulated` does; `run` replays a job."""

    def __init__(self, python: str, folder: Path, module: str = "policies.vllm_emulated") -> None:
        self._folder = folder
        self._jobs = itertools.count()
        self._errors = folder / "stderr.txt"
        with self._errors.open("w") as errors:
            self._process = subprocess.Popen(
                [python, "-m", module],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env={**os.environ, "PYTHONPATH": str(ROOT), "VLLM_LOGGING_LEVEL": "ERROR"},
            )
        self.version: str = self._hear()["ready"]["vllm"]

    def run(self, job: dict[str, Any], cost: Callable[..., int] | None = None) -> Replayed:
        """Replays a job; `cost` answers with a step's duration where the job asks. AssertionError where it fails."""
        path = self._folder / f"steps-{next(self._jobs)}.bin"
        self._say({**job, "step_log": str(path)})
        ends: list[list[Any]] = []
        contents: list[list[float]] = []
        while True:
            heard = self._hear()
            if "end" in heard:
                ends.append(heard["end"])
            elif "step" in heard:
                assert cost is not None
                contents.append(heard["step"])
                self._say(cost(*heard["step"]))
            else:
                break
        assert "done" in heard, heard
        log = read_step_log(path, 0)
        path.unlink()
        assert log.cut_off == 0
        assert len(log.rows) == heard["done"]["steps"]
        return Replayed(ends, log, contents, heard["done"]["sent"])

    def refuses(self, job: dict[str, Any]) -> str:
        """The one line with which a job ends in error."""
        self._say(job)
        while "error" not in (heard := self._hear()):
            assert "done" not in heard, "the job was done"
        return str(heard["error"])

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        assert self._process.wait(60) == 0
        self._process.stdout.close()

    def _say(self, value: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(value) + "\n")
        self._process.stdin.flush()

    def _hear(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"the engine's process ended: {self._errors.read_text()[-2000:]}"
        heard: dict[str, Any] = json.loads(line)
        return heard
