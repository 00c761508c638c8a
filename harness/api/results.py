"""Run directories as objects of a notebook: requests, steps and summaries as DataFrames."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from harness.api.frames import summary_row, table_frame
from harness.core.errors import UserError
from harness.core.runspec import RunSpec
from harness.runs.run import Run, load_run, runs_of

if TYPE_CHECKING:
    import pandas as pd

# What tells the rows of several runs apart, before the columns of their tables.
KEYS = ("gpu", "workload", "policy", "repeat")


class RunResult:
    """One run as its directory holds it. Frames are read from the files each time they are asked for."""

    def __init__(self, run: Run) -> None:
        self._run = run

    @property
    def path(self) -> Path:
        """The run's directory."""
        return self._run.path

    @property
    def spec(self) -> RunSpec:
        """Everything that decided the run."""
        return self._run.spec

    @property
    def manifest(self) -> dict[str, Any]:
        """run.json: the spec, provenance, verdict and counts."""
        return self._run.manifest

    @property
    def verdict(self) -> str:
        """VALID, DEGRADED or INVALID; NONE of a reported run."""
        return self._run.level

    @property
    def reasons(self) -> list[str]:
        """Why the verdict is not VALID."""
        return list(self._run.manifest.get("verdict", {}).get("reasons", []))

    @property
    def summary(self) -> pd.DataFrame:
        """One row: what the run was, its verdict, and each metric with its unit in the column's name."""
        import pandas as pd

        return pd.DataFrame([summary_row(self._run)])

    def requests(self) -> pd.DataFrame:
        """One row per request, the columns of requests.parquet; times in s since the run began.

        UserError where the run has no tables: a reported one has none.
        """
        self._refuse_reported()
        return table_frame(self._run.requests())

    def steps(self) -> pd.DataFrame:
        """One row per step of the engine, the columns of steps.parquet; UserError where no engine wrote any."""
        self._refuse_reported()
        table = self._run.steps()
        if table is None:
            raise UserError(f"{self.path}: the engine told nothing of its steps: they come with engines of bench's own")
        return table_frame(table)

    def _refuse_reported(self) -> None:
        if self._run.kind == "reported":
            raise UserError(f"{self.path}: a paper reported these figures: there are no tables, `summary` has them all")

    def __repr__(self) -> str:
        spec = self.spec
        return f"<{spec.policy} on {spec.gpu}, {spec.workload}, repeat {spec.repeat}: {self.verdict}>"


class Results(Sequence[RunResult]):
    """Runs in the order in which they were read or made; frames hold all of them, told apart by their first columns."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self._runs = list(runs)

    @overload
    def __getitem__(self, place: int) -> RunResult: ...
    @overload
    def __getitem__(self, place: slice) -> Results: ...
    def __getitem__(self, place: int | slice) -> RunResult | Results:
        if isinstance(place, slice):
            return Results(self._runs[place])
        return RunResult(self._runs[place])

    def __len__(self) -> int:
        return len(self._runs)

    def __iter__(self) -> Iterator[RunResult]:
        return map(RunResult, self._runs)

    def __repr__(self) -> str:
        policies = ", ".join(dict.fromkeys(run.spec.policy for run in self._runs))
        return f"<{len(self)} runs: {policies}>"

    @property
    def runs(self) -> list[Run]:
        """The runs as the rest of the harness knows them."""
        return list(self._runs)

    def where(self, **fields: Any) -> Results:
        """The runs whose spec has these values: `where(gpu="l40s", policy="v1")`."""
        return Results([run for run in self._runs if all(getattr(run.spec, k) == v for k, v in fields.items())])

    @property
    def summary(self) -> pd.DataFrame:
        """One row per run, as `RunResult.summary`."""
        import pandas as pd

        return pd.DataFrame([summary_row(run) for run in self._runs])

    def requests(self) -> pd.DataFrame:
        """The requests of all runs."""
        return self._together(RunResult.requests)

    def steps(self) -> pd.DataFrame:
        """The steps of all runs."""
        return self._together(RunResult.steps)

    def _together(self, frame_of: Callable[[RunResult], pd.DataFrame]) -> pd.DataFrame:
        import pandas as pd

        frames = []
        for result in self:
            keys = {name: getattr(result.spec, name) for name in KEYS}
            frames.append(pd.concat({tuple(keys.values()): frame_of(result)}, names=list(keys)))
        return pd.concat(frames).reset_index(level=list(KEYS)).reset_index(drop=True) if frames else pd.DataFrame()


def read(*paths: str | Path) -> Results:
    """The runs in directories: each may be one run or hold several, however deep.

    UserError where a directory holds no run, or where one cannot be read.
    """
    directories = runs_of([Path(path) for path in paths])
    return Results([load_run(path) for path in dict.fromkeys(directories)])
