"""What two arms of several repeats must have in common, where the repeats differ among themselves."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from harness.core.errors import UserError
from harness.report.comparable import shared_rows
from harness.report.comparison import compare
from harness.runs.run import Run, load_run
from tests.support.runfactory import SPEC, toy_run, write_run, write_toy


def test_one_pair_of_equal_streams_does_not_make_the_others_paired(tmp_path: Path) -> None:
    arms: tuple[list[Path], list[Path]] = ([], [])
    for repeat, streams in enumerate(((1, 1), (2, 3))):
        for arm, policy, stream in zip(arms, ("v1", "eb"), streams, strict=True):
            arm.append(write_toy(tmp_path / policy, policy=policy, seed=repeat, repeat=repeat, stream_seed=10 + stream))
    with pytest.raises(UserError, match="replay different requests"):
        compare(*arms)
    allowed = compare(*arms, frozenset({"trace"}))
    assert any("not paired" in note for note in allowed.notes)


def window_run(start: int, rows: int, of: int, order: str = "file") -> Run:
    """A run of which only the window into its trace is known."""
    window = {"start": start, "rows": rows, "of": of, "order": order}
    return Run(Path("run"), {"provenance": {"trace": {"window": window}}}, SPEC, {})


@pytest.mark.parametrize(
    ("windows", "says"),
    [
        ([(0, 50), (50, 50)], None),
        ([(0, 50), (49, 50)], "100 replayed, 99 of the trace's 200 distinct"),
        # From row 180 on, 50 rows are 180 to 199 and then 0 to 29.
        ([(0, 30), (180, 50)], "80 replayed, 50 of the trace's 200 distinct"),
        ([(30, 30), (180, 50)], None),
        ([(0, 50), (60, 50), (105, 20)], "120 replayed, 115 of the trace's 200 distinct"),
        ([(0, 50)], None),
    ],
)
def test_repeats_that_replay_the_same_rows_are_told(windows: list[tuple[int, int]], says: str | None) -> None:
    told = shared_rows([window_run(start, rows, 200) for start, rows in windows])
    assert (told is None) if says is None else (told is not None and says in told)
    shuffled = [window_run(start, rows, 200, order="shuffled") for start, rows in windows]
    assert shared_rows(shuffled) is None


def reported(path: Path, policy: str, metrics: dict[str, Any]) -> Path:
    """A run that a paper reported."""
    spec = dataclasses.replace(SPEC, policy=policy)
    path.mkdir()
    run = {"schema": 1, "spec": spec.to_dict(), "digest": spec.digest, "kind": "reported", "status": "complete"}
    (path / "run.json").write_text(json.dumps(run | {"verdict": {"level": "VALID", "reasons": []}}))
    (path / "summary.json").write_text(json.dumps({"schema": 1, "metrics": metrics}))
    return path


def test_a_reported_metric_that_one_side_lacks_or_has_as_zero_has_no_ratio(tmp_path: Path) -> None:
    rate = {"value": 100.0, "unit": "tok/s"}
    a = reported(tmp_path / "a", "v0", {"output_throughput": rate, "request_throughput": {"value": 0, "unit": "req/s"}})
    b = reported(tmp_path / "b", "v1", {"ttft_s": {"mean": 2.0, "unit": "s"}, "request_throughput": {"value": 3.0}})
    for first, second in ((a, b), (b, a)):
        rows = compare([first], [second]).metrics
        for name in ("ttft_s", "output_throughput"):
            assert name not in rows or rows[name].ratio is None
    assert compare([a], [b]).metrics["request_throughput"].ratio is None


def test_an_arms_own_repeats_are_what_is_compared(tmp_path: Path) -> None:
    requests, steps = toy_run(60)
    a, b = (write_run(tmp_path, requests, steps, spec=dataclasses.replace(SPEC, policy=name)) for name in ("v1", "eb"))
    assert [run.path for run in compare([a], [b]).b] == [load_run(b).path]
