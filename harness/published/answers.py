"""What other tools' definitions need of a run: each request's times and lengths, and the gaps of its tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from harness.core.errors import UserError
from harness.measure.columns import MISSING, NANOSECONDS
from harness.measure.gaps import decode_ends, follow_steps
from harness.published.tables import RunTables
from harness.runs.run import Run

Floats = npt.NDArray[np.float64]
PERCENTILES = (50, 90, 95, 99)


@dataclass(frozen=True, slots=True)
class Answers:
    """Of every request of a run, in the order of the stream: lengths, times (s, from the first send), gaps of tokens.

    `ttft_s` and `e2el_s` count from the send, 0 where a request was not completed; `duration_s` is the span from the
    first send to the last end.
    """

    completed: npt.NDArray[np.bool_]
    prompt_tokens: list[int]
    output_tokens: list[int]
    started_s: list[float]
    ttft_s: Floats
    e2el_s: Floats
    gaps_s: list[list[float]]
    errors: list[str]
    duration_s: float

    @property
    def tpot_s(self) -> Floats:
        """(E2EL - TTFT) / (output tokens - 1) of completed requests of two tokens or more."""
        tokens = np.array(self.output_tokens)
        long = self.completed & (tokens > 1)
        spread: Floats = (self.e2el_s[long] - self.ttft_s[long]) / (tokens[long] - 1)
        return spread

    @property
    def itl_s(self) -> Floats:
        """Every gap of every completed request."""
        return np.array([gap for gaps in self.gaps_s for gap in gaps], dtype=np.float64)


def answers_of(run: Run) -> Answers:
    """The answers of a run; UserError where it has no tables, or nothing was sent."""
    if run.kind == "reported":
        raise UserError(f"{run.path}: a reported run has no tables to export: export a run of bench")
    tables = RunTables.of(run)
    requests, table = tables.measured.requests, tables.requests
    sent = requests.sent != MISSING
    if not sent.any():
        raise UserError(f"{run.path}: no request was sent: there is nothing to export")
    done = requests.completed & sent
    zero = int(requests.sent[sent].min())
    # The last token ends an answer for those who read no further.
    last = np.where(requests.last != MISSING, requests.last, requests.done)
    ends = [int(times[times != MISSING].max()) for times in (last, requests.done) if (times != MISSING).any()]

    def since_sent(times: Any) -> Floats:
        seconds: Floats = np.where(done, (times - requests.sent) / NANOSECONDS, 0.0)
        return seconds

    order = requests.order
    errors = table.column("error").to_pylist()
    finishes = table.column("finish").to_pylist()
    return Answers(
        completed=done,
        prompt_tokens=requests.prompt_tokens.tolist(),
        output_tokens=np.where(done, requests.output_tokens, 0).tolist(),
        started_s=[(int(at) - zero) / NANOSECONDS if at != MISSING else 0.0 for at in requests.sent],
        ttft_s=since_sent(requests.first),
        e2el_s=since_sent(last),
        gaps_s=_gaps(tables),
        errors=["" if ok else str(errors[at] or finishes[at]) for ok, at in zip(done, order, strict=True)],
        duration_s=(max(ends) - zero) / NANOSECONDS if ends else 0.0,
    )


def _gaps(tables: RunTables) -> list[list[float]]:
    """Each completed request's gaps, s: its own list, or where it has none what follows from the steps."""
    requests = tables.measured.requests
    listed = tables.requests.column("token_gaps_s").to_pylist()
    lists = [listed[at] for at in requests.order]
    without = np.array([one is None for one in lists], dtype=np.bool_)
    ends = np.zeros(0, dtype=np.int64) if tables.steps is None else decode_ends(tables.steps)
    start, stop = follow_steps(requests, ends, without)
    gaps: list[list[float]] = []
    for place, (own, complete) in enumerate(zip(lists, requests.completed, strict=True)):
        if not complete:
            gaps.append([])
        elif own is not None:
            gaps.append([float(gap) for gap in own])
        else:
            times = np.concatenate(([requests.first[place]], ends[start[place] : stop[place]]))
            gaps.append((np.diff(times) / NANOSECONDS).tolist())
    return gaps


def spread(values: Floats) -> dict[str, float]:
    """Mean, median, standard deviation and percentiles of values; empty of none."""
    if not len(values):
        return {}
    return {
        "mean": float(values.mean()),
        "median": float(np.median(values)),
        "std": float(values.std()),
        **{f"p{percent}": float(np.percentile(values, percent)) for percent in PERCENTILES},
    }
