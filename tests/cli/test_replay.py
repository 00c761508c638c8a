"""`bench site check --replay`: a simulated run whose numbers were changed, all of them and consistently."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from harness.published.check import check
from harness.runs.run import find_runs
from harness.runs.writer import recover
from harness.session import replay
from tests.support.commands import RUN, Bench

TOKENSTEP = ("run", "--gpu", "l40s", "--engine", "tokenstep", "--workload", "sharegpt", "--requests", "60", "--slots")
CHECK = ("site", "check", "--replay")


def change(run: Path, table: str, make: dict[str, object]) -> None:
    """Puts columns in the place of others in one of a run's tables."""
    path = run / f"{table}.parquet"
    found = pq.read_table(path)
    for name, values in make.items():
        place = found.column_names.index(name)
        found = found.set_column(place, found.schema.field(name), pa.array(values, found.schema.field(name).type))
    pq.write_table(found.replace_schema_metadata(None), path)


def halve(run: Path) -> None:
    """Every time of both tables halved in whole nanoseconds, and all that follows from them made again."""

    def ns(values: pa.ChunkedArray) -> np.ndarray:
        whole: np.ndarray = np.rint(values.to_numpy() * 1e9).astype(np.int64)
        return whole

    steps = pq.read_table(run / "steps.parquet")
    starts = ns(steps["t_s"])
    ends = (starts + ns(steps["duration_s"])) // 2
    change(run, "steps", {"t_s": starts // 2 / 1e9, "duration_s": (ends - starts // 2) / 1e9})
    requests = pq.read_table(run / "requests.parquet")
    names = [name for name in requests.column_names if name.endswith("_s") and name != "token_gaps_s"]
    change(run, "requests", {name: ns(requests[name]) // 2 / 1e9 for name in names})
    assert recover(run) == (run, True)


def published(bench: Bench, directory: Path, *args: str) -> list[Path]:
    assert bench(*args).code == 0
    assert bench("publish", "runs").code == 0
    return find_runs(directory / "results")


@pytest.mark.parametrize("args", [(*RUN, "--policy", "ebplus"), (*TOKENSTEP, "8", "--policy", "ljf")])
def test_a_run_with_all_its_times_halved_passes_a_check_and_no_replay(
    bench: Bench, tmp_path: Path, args: tuple[str, ...]
) -> None:
    (run,) = published(bench, tmp_path, *args)
    honest = bench(*CHECK)
    assert honest.code == 0, honest.out
    assert "1 runs checked, 1 of 1 simulated ones run again, no problem" in honest.out
    halve(run)
    assert bench("site", "check").code == 0
    forged = bench(*CHECK)
    assert forged.code == 1
    assert forged.out.startswith(f"{run.relative_to(tmp_path / 'results')}: requests.parquet: row ")
    told = forged.out.partition("row ")[2]
    assert "_s is " in told
    assert "run again " in told
    assert len(forged.out.splitlines()) == 1


def test_what_differs_by_a_nanosecond_a_row_or_a_word_is_told(bench: Bench, tmp_path: Path) -> None:
    (run,) = published(bench, tmp_path, *RUN, "--policy", "ebplus")
    copy = shutil.copytree(run, tmp_path / "copy")

    def told() -> str:
        recover(run)
        result = bench(*CHECK)
        assert result.code == 1
        shutil.rmtree(run)
        shutil.copytree(copy, run)
        return result.out

    times = pq.read_table(run / "steps.parquet")["t_s"].to_numpy().copy()
    times[7] = (np.rint(times[7] * 1e9) + 1) / 1e9
    change(run, "steps", {"t_s": times})
    assert f"steps.parquet: row 7: t_s is {times[7]}, run again " in told()

    for table in ("requests", "steps"):
        path = run / f"{table}.parquet"
        pq.write_table(pq.read_table(path).slice(0, 100), path)
    # It is not run to its end: past what is published nothing more is told.
    assert "requests.parquet: it has 100 rows, run again " in told()

    manifest = json.loads((run / "run.json").read_text())
    manifest["provenance"]["cost_model"]["basis"] = "measured"
    (run / "run.json").write_text(json.dumps(manifest))
    assert "run.json: provenance.cost_model is " in told()

    manifest = json.loads((copy / "run.json").read_text())
    (run / "run.json").write_text(json.dumps(manifest | {"kind": "measured"}))
    assert "kind is measured, a run of engine simulated is simulated" in told()


def test_a_column_that_came_later_is_passed_over(bench: Bench, tmp_path: Path) -> None:
    (run,) = published(bench, tmp_path, *RUN, "--policy", "v1")
    path = run / "requests.parquet"
    pq.write_table(pq.read_table(path).drop_columns(["cached_tokens"]), path)
    recover(run)
    assert bench(*CHECK).code == 0


def test_what_is_not_at_hand_is_counted_and_no_problem(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "rows.jsonl").write_text('{"prompt_tokens": 9, "output_tokens": 5}\n' * 40)
    given = [*RUN, "--policy", "v1"]
    given[given.index("sharegpt")] = "file:rows.jsonl"
    published(bench, tmp_path, *given)
    published(bench, tmp_path, *RUN, "--policy", "v1")
    result = bench(*CHECK)
    assert result.code == 0, result.out
    assert "not run again: the workload file:rows.jsonl is a file or a download" in result.out
    assert "2 runs checked, 1 of 2 simulated ones run again" in result.out
    alone = bench(*CHECK, str(next((tmp_path / "results").glob("*/*/file*"))))
    assert "0 of 1 simulated ones run again" in alone.out
    # Many runs are shared among processes.
    monkeypatch.setattr(replay, "WORTHWHILE", 1)
    found = list(replay.replays(replay.replayable(check(tmp_path / "results").sound), jobs=2))
    assert [(one.made, one.why is None) for one in found] == [(False, False), (True, True)]
