"""What every engine is to a run: it replays a stream into a run directory and says what it was."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from harness.runs.writer import RunWriter
from policies.core import Policy
from policies.own.checked import Checked
from policies.own.file import PolicyFile


@dataclass(frozen=True, slots=True)
class Status:
    """How far a run has come: requests ended, seconds of the run's own clock, output tokens so far.

    The rest is for runs with a client: requests in flight, failures, the longest send lag so far (s), CPU use, and
    what is done before the first request leaves.
    """

    finished: int
    now_s: float
    output_tokens: int
    in_flight: int | None = None
    failed: int = 0
    lag_s: float | None = None
    cpu_share: float | None = None
    doing: str = ""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a replay ended: complete, interrupted or failed, why, what to say of it, and what joins run.json."""

    status: str = "complete"
    reason: str | None = None
    notes: tuple[str, ...] = ()
    observed: dict[str, Any] = field(default_factory=dict)


Progress = Callable[[Status], None]
Stopped = Callable[[], bool]


def cut_short(max_duration_s: float | None, sent: int, planned: int) -> tuple[str, ...]:
    """What to say where a duration ended the sending."""
    if max_duration_s is None or sent == planned:
        return ()
    return (f"sending ended after {max_duration_s:g} s: {sent:,} of {planned:,} requests were sent",)


class Records(Protocol):
    """What takes the rows of a run as it goes: a run directory, or memory."""

    def add_requests(self, batch: pa.RecordBatch) -> None:
        """Rows of REQUESTS."""

    def add_steps(self, batch: pa.RecordBatch) -> None:
        """Rows of STEPS."""


class Engine(Protocol):
    """An engine made ready for one run: whatever the user can mend has been raised already."""

    @property
    def policy_file(self) -> PolicyFile | None:
        """The user's file that its policy is in, None for a policy of the catalog or of nobody."""

    @property
    def kind(self) -> str:
        """What its numbers are: measured, emulated or simulated."""

    @property
    def notes(self) -> list[str]:
        """What is said on the terminal and in the manifest."""

    @property
    def degraded(self) -> list[str]:
        """Why the run is DEGRADED at best, known beforehand."""

    def provenance(self) -> dict[str, Any]:
        """What a reader needs to know of the engine to trust its numbers."""

    def replay(self, writer: RunWriter, progress: Progress, stopped: Stopped) -> Ended:
        """Replays the stream; `stopped` is asked often, and True ends the run early."""


def policy_class(policy: Policy) -> dict[str, Any]:
    """The class of a policy, for run.json's provenance; of one in a user's file where that lay and what it tells."""
    if not isinstance(policy, Checked):
        return {"policy_class": type(policy).__name__}
    name = Path(policy.file.path).name
    columns = {"policy_columns": list(policy.columns)} if policy.columns else {}
    return {"policy_class": policy.file.class_name, "policy_file": name, **columns}


def profile_file(path: str | None) -> dict[str, str]:
    """Where the GPU's profile lay, for run.json's provenance; empty where the project has it."""
    return {"profile_file": path} if path else {}
