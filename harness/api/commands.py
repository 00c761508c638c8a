"""What the command line does, from Python: run, compare, look at a trace."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.api.results import Results, RunResult
from harness.core.errors import Interrupted, UserError
from harness.report.comparison import Comparison
from workloads.core.trace import Trace

if TYPE_CHECKING:
    import pandas as pd


def run(*, out: str | Path = "runs", quiet: bool = True, again: bool = False, **options: Any) -> Results:
    """Does what `bench run` does, with the options of the command line: `run(gpu="l40s", policy="v1,ebplus", …)`.

    Names have underscores for hyphens (`token_budget=8192`); `gpu`, `policy` and `workload` take a text or a list.
    Returns the runs, in the order in which they ran; what is finished in `out` is read, and run `again` only where that
    is asked for. `quiet=False` shows their progress on standard error. UserError
    where an option is off, RunFailed where a run broke: what was recorded before is kept in `out`.
    """
    from harness.session.choose import choose
    from harness.session.options import read_options
    from harness.session.repeats import repeat_plan
    from harness.session.session import RunSession
    from harness.session.start import START

    asked = read_options(options)
    chosen = choose(asked)
    plan = repeat_plan(asked)
    session = RunSession(START[chosen.engine](asked), Path(out), quiet=quiet, why=chosen.why, plan=plan, again=again)
    runs = session.go()
    if session.failure is not None:
        raise session.failure
    if session.interrupted:
        raise Interrupted(f"interrupted: {len(runs)} of {len(session.specs)} runs ended; they are in {out}")
    return Results(runs)


class Comparisons(Sequence[Comparison]):
    """Each arm against the first: a sequence of comparisons, and all of them as one frame."""

    def __init__(self, comparisons: Sequence[Comparison]) -> None:
        self._comparisons = list(comparisons)

    def __getitem__(self, place: Any) -> Any:
        return self._comparisons[place]

    def __len__(self) -> int:
        return len(self._comparisons)

    def __iter__(self) -> Iterator[Comparison]:
        return iter(self._comparisons)

    def __str__(self) -> str:
        from harness.report.sentences import sentences

        return "\n".join(line for comparison in self for line in sentences(comparison))

    @property
    def frame(self) -> pd.DataFrame:
        """One row per pair of arms and metric: both values in `unit`, the change with its 95 % interval, the word."""
        import pandas as pd

        from harness.report.flat import comparison_rows

        rows = []
        for comparison in self:
            rows += comparison_rows(comparison.a[0].spec.label, comparison.b[0].spec.label, comparison.to_dict())
        return pd.DataFrame(rows)


def compare(
    *results: str | Path | Results | RunResult,
    baseline: str | None = None,
    allow: Collection[str] = (),
    alpha: float | None = None,
    headline: str = "",
    equivalent: float | None = None,
) -> Comparisons:
    """Compares arms as `bench compare` does: the first arm (or the policy `baseline`) with each other arm.

    `results` are directories or runs that were read already; two that hold several arms are held against each other
    policy by policy. `allow` names what may differ besides the policy, `alpha` (tokens) is what gaps are compared with,
    `headline` the rows whose words count, `equivalent` the share (0.02) within which arms are called equal. UserError
    where there are not two arms or they may not be compared.
    """
    from harness.report.comparison import compare_runs
    from harness.report.sides import folders_of, sides_of
    from harness.report.words import Rules, read_headline
    from harness.runs.run import Run, load_run, runs_of

    found: list[list[Run]] = []
    paths: list[Path] = []
    for result in results:
        if isinstance(result, Results):
            found.append(list(result.runs))
            # What was run or read together is a folder.
            paths.append(Path())
        else:
            paths.append(Path(result.path if isinstance(result, RunResult) else result))
            found.append([load_run(path) for path in dict.fromkeys(runs_of(paths[-1:]))])
    if not any(found):
        raise UserError("compare needs runs: give directories, or what read() and run() return")
    sides, _ = sides_of(folders_of(paths, found), baseline, alone=len(results) == 1)
    if not sides:
        raise UserError(f"only one arm ({found[0][0].spec.policy}): give runs of two policies to compare")
    rules = Rules(read_headline(headline) if headline else (), equivalent)
    return Comparisons([compare_runs(a, b, frozenset(allow), alpha, rules=rules) for a, b in sides])


class TraceRows:
    """The rows of a workload: one per request."""

    def __init__(self, rows: Trace) -> None:
        self.trace = rows

    def __len__(self) -> int:
        return len(self.trace)

    @property
    def source(self) -> dict[str, Any]:
        """Where the rows come from."""
        return dict(self.trace.source)

    @property
    def digest(self) -> str:
        """What tells whether two traces are the same."""
        return self.trace.digest

    @property
    def frame(self) -> pd.DataFrame:
        """One row per request: lengths in tokens, and session, turn and timestamp (s) where the workload has them."""
        import pandas as pd

        columns: dict[str, Any] = {
            "prompt_tokens": self.trace.prompt_tokens,
            "output_tokens": self.trace.output_tokens,
        }
        if self.trace.session is not None:
            columns["session"] = self.trace.session
        if self.trace.turn is not None:
            columns["turn"] = self.trace.turn
        if self.trace.timestamp_s is not None:
            columns["timestamp_s"] = self.trace.timestamp_s
        return pd.DataFrame(columns)


def trace(workload: str, requests: int | None = None, seed: int = 0, model: str = "Qwen/Qwen3-8B") -> TraceRows:
    """The rows that a run would take of a workload: `trace("sharegpt", requests=1000)`; None takes all.

    UserError or WorkloadError where the workload cannot be had.
    """
    from workloads.catalog import load_workload
    from workloads.core.options import split

    name, given = split(workload)
    return TraceRows(load_workload(name, given, requests=requests, seed=seed, model=model))
