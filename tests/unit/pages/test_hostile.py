"""What a hostile pull request brings: a line that names the run, never a fault, and a build that goes on."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from harness.core.errors import UserError
from harness.core.records import REQUESTS
from harness.core.runspec import RunSpec
from harness.engines.emulated import Emulated
from harness.engines.endpoint import EndpointEngine
from harness.engines.simulated import Simulated
from harness.engines.tokenstep import TokenStep
from harness.engines.vllm import Vllm
from harness.measure.columns import Requests
from harness.pages import parallel
from harness.pages.build import MARK, build
from harness.published import corpus
from harness.published.bounds import peak_in_flight
from harness.published.cache import JsonCache
from harness.published.check import check
from harness.published.corpus import Problem, printable
from harness.published.tables import RunTables
from harness.published.verify import difference_from_figures, missing_evidence
from harness.runs import tables
from harness.runs.run import load_run, run_path
from harness.runs.schema import KIND_OF
from harness.runs.tables import read_table
from harness.runs.writer import recover
from tests.support.runfactory import SPEC, request, table_of, toy_run, write_run, write_toy

NOW = datetime(2026, 12, 1, tzinfo=UTC)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_toy(tmp_path / "results", policy="v1", n=60)


def lines(run: Path, *paths: Path) -> list[str]:
    return [f"{one.where}: {one.why}" for one in check(run.parents[4], paths, NOW).problems]


def left_out(run: Path) -> bool:
    """Whether a build leaves out the one bad run, and still shows a good one beside it."""
    results = run.parents[4]
    good = write_toy(results / "good", policy="v0", n=20)
    cache = JsonCache(results.parent / "kept")
    found = corpus.collect(results, cache, lambda entries: parallel.compute(entries, cache, 1))
    return [one.run.path for one in found.runs] == [good] and len(found.problems) == 1


def edit(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    value = json.loads(path.read_text())
    change(value)
    path.write_text(json.dumps(value))


def edit_spec(run: Path, **values: Any) -> Path:
    """Another spec and its digest, in its place, with all made again that `bench recover` makes."""

    def change(manifest: dict[str, Any]) -> None:
        manifest["spec"].update(values)
        canonical = json.dumps(manifest["spec"], sort_keys=True, separators=(",", ":"))
        manifest["digest"] = hashlib.sha256(canonical.encode()).hexdigest()

    edit(run / "run.json", change)
    recover(run)
    manifest = json.loads((run / "run.json").read_text())
    started = datetime.fromisoformat(manifest["started_utc"])
    place = run_path(run.parents[4], RunSpec.from_dict(manifest["spec"]), started, manifest["digest"])
    if place != run:
        place.parent.mkdir(parents=True, exist_ok=True)
        run.rename(place)
    for empty in run.parents[:4]:
        if not any(empty.iterdir()):
            empty.rmdir()
    return place


def put(run: Path, name: str, column: str, values: Callable[[list[Any]], list[Any]]) -> None:
    path = run / f"{name}.parquet"
    table = pq.read_table(path)
    place = table.schema.get_field_index(column)
    field = table.schema.field(place)
    told = pa.array(values(table.column(column).to_pylist()), field.type)
    pq.write_table(table.set_column(place, field, told), path)


@pytest.mark.parametrize("column", ["t_s", "duration_s"])
@pytest.mark.parametrize("value", [None, -1.0, -8e9, float("nan"), float("inf")])
def test_a_step_without_a_time_is_refused_and_stops_no_build(run: Path, column: str, value: float | None) -> None:
    put(run, "steps", column, lambda old: [value] * len(old))
    (found,) = lines(run)
    assert f"steps.parquet: damaged (its column {column} holds a time" in found
    assert left_out(run)


def test_any_fault_of_one_runs_files_is_a_line_that_names_it(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Any:
        raise ValueError("first line\nsecond")

    monkeypatch.setattr("harness.published.check.detail_of", broken)
    monkeypatch.setattr("harness.published.corpus.seen", broken)
    told = f"{run.relative_to(run.parents[4])}: cannot be read: ValueError first line"
    assert lines(run) == [told]
    found = corpus.collect(run.parents[4], JsonCache(Path(os.devnull)))
    assert [f"{one.where}: {one.why}" for one in found.problems] == [told]


@pytest.mark.parametrize(
    "started",
    ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "2026-11-29T22:15:01", "2026-11-30T00:15:01+02:00"],
)
def test_a_start_that_is_no_time_in_utc_is_told(run: Path, started: str) -> None:
    edit(run / "run.json", lambda one: one.update(started_utc=started))
    (found,) = lines(run)
    assert "started_utc is no" in found
    assert left_out(run)


def test_a_start_in_the_future_is_told_by_check_alone(run: Path) -> None:
    results = run.parents[4]
    started = load_run(run).started
    assert check(results, (), started - timedelta(hours=23)).problems == ()
    (found,) = check(results, (), started - timedelta(hours=25)).problems
    assert "in the future" in found.why
    assert build(results, results.parent / "site").problems == 0


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("prefix_cache", {"declared": 1e308, "observed": -1e308}),
        ("client", {"cpu_share": -5}),
        ("client", {"wait_share": -0.1}),
        ("machine", {"elsewhere": 1e308}),
    ],
)
def test_a_share_below_0_or_beyond_all_bounds_is_refused(run: Path, key: str, value: dict[str, float]) -> None:
    edit(run / "run.json", lambda one: one.update({key: value}))
    assert "it must be a share, 0 or more" in lines(run)[0]


@pytest.mark.parametrize("limit", [1e308, -1e308])
def test_a_limit_beyond_all_times_is_a_limit(run: Path, limit: float) -> None:
    assert lines(edit_spec(run, slo={"ttft_s": limit})) == []


def test_a_small_file_of_many_rows_is_not_read(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = run / "steps.parquet"
    table = pq.read_table(path).slice(0, 1)
    monkeypatch.setitem(tables.MOST_ROWS, "steps", 100_000)
    pq.write_table(table.take(pa.array(np.zeros(100_001, np.int64))), path, compression="zstd")
    monkeypatch.setattr(pq.ParquetFile, "read", lambda *_, **__: pytest.fail("read"))
    assert path.stat().st_size < 2**17
    with pytest.raises(UserError, match=r"damaged \(100,001 rows, at most 100,000 are read\)"):
        read_table(run, "steps")


@pytest.mark.parametrize("encoding", ["PLAIN", "DELTA_BYTE_ARRAY", None])
def test_a_text_or_a_list_that_repeats_is_counted_before_it_is_read(
    tmp_path: Path, encoding: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "MOST_BYTES", 2**20)
    rows = [request(row, error="x" * 5000) for row in range(1000)]
    path = tmp_path / "requests.parquet"
    pq.write_table(
        table_of(REQUESTS, rows),
        path,
        use_dictionary=encoding is None,
        column_encoding=encoding and {"error": encoding},
    )
    with pytest.raises(UserError, match=r"texts of more than 1 MiB|MiB in memory"):
        read_table(tmp_path, "requests")
    pq.write_table(table_of(REQUESTS, [request(row, token_gaps_s=[1.0] * 5000) for row in range(100)]), path)
    with pytest.raises(UserError, match="4 MiB in memory, at most 1 are read"):
        read_table(tmp_path, "requests")


def test_every_engine_has_one_kind() -> None:
    engines: dict[str, Any] = {
        "simulated": Simulated,
        "tokenstep": TokenStep,
        "emulated": Emulated,
        "vllm": Vllm,
        "endpoint": EndpointEngine,
    }
    assert {name: engine.kind for name, engine in engines.items()} == KIND_OF


@pytest.mark.parametrize("kind", ["measured", "emulated", "reported"])
def test_a_kind_that_is_not_its_engines_is_told(run: Path, kind: str) -> None:
    edit(run / "run.json", lambda one: one.update(kind=kind))
    (found,) = lines(run)
    assert ("a reported figure has none" if kind == "reported" else "a run of engine simulated is simulated") in found
    assert left_out(run)


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ({"arrival": "closed:concurrency=7"}, "8 requests were in flight at once, closed:concurrency=7 allows 7"),
        ({"arrival": "closed:concurrency=x"}, "names what bench does not know"),
        ({"arrival": "now and then"}, "names what bench does not know"),
        ({"policy": "mycoolpolicy"}, "names what bench does not know (unknown policy 'mycoolpolicy'"),
        ({"policy": "eb:k=0"}, "names what bench does not know"),
        ({"token_budget": 200}, "tokens were computed in one step, the spec allows 200"),
        ({"requests": 4000}, "planned.requests is 60, the spec has 4,000"),
        ({"engine": "nosuch"}, "no engine of bench"),
    ],
)
def test_tables_that_do_not_keep_to_the_spec_are_told(run: Path, spec: dict[str, Any], told: str) -> None:
    run = edit_spec(run, **spec)
    assert any(told in one for one in lines(run)), lines(run)
    assert left_out(run)


def test_more_slots_in_use_than_there_are_is_told(run: Path) -> None:
    put(run, "steps", "running", lambda old: [9] * len(old))
    assert lines(run) == []
    assert "9 requests held a slot in one step, the spec allows 8" in lines(edit_spec(run, slots=8))[0]


def test_the_peak_counts_what_overlaps_and_ended() -> None:
    rows = [request(0, at=0), request(1, at=2), request(2, at=1), request(3, at=0, done_s=None)]
    assert peak_in_flight(Requests.of(table_of(REQUESTS, rows))) == 2


def measured(results: Path, **more: Any) -> Path:
    requests, steps = toy_run(60)
    spec = dataclasses.replace(SPEC, policy="v1", engine="vllm", **more)
    told = {"client": {"cpu_share": 0.1, "wait_share": 0.0}, "machine": {"elsewhere": 0.0}, "engine_steps": {"v": 1}}
    run = write_run(results, requests, steps, spec=spec, observed=told)
    (run / "engine.log").write_text("started\n")
    recover(run)
    return run


def test_a_measured_run_without_the_evidence_of_its_verdict_is_told(tmp_path: Path) -> None:
    run = measured(tmp_path / "results")
    assert lines(run) == []
    edit(run / "run.json", lambda one: [one.pop(name) for name in ("client", "machine", "engine_steps")])
    (run / "engine.log").unlink()
    put_none = pq.read_table(run / "steps.parquet").slice(0, 0)
    pq.write_table(put_none, run / "steps.parquet")
    recover(run)
    (found,) = lines(run)
    assert "lacks client.cpu_share, client.wait_share, machine.elsewhere, engine.log, engine_steps, steps: " in found
    # vLLM's own scheduler tells no steps; a build shows older runs.
    stock = measured(tmp_path / "stock")
    stock = edit_spec(stock, policy="stock")
    edit(stock / "run.json", lambda one: one.pop("engine_steps"))
    assert missing_evidence(load_run(stock), RunTables.of(load_run(stock))) == []
    assert build(tmp_path / "results", tmp_path / "site").problems == 0


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda one: one["metrics"].update(ttft_s={}), "summary.metrics.ttft_s lacks mean"),
        (lambda one: one["metrics"]["tpot_s"].pop("p99"), "summary.metrics.tpot_s lacks p99"),
        (lambda one: one["metrics"]["output_throughput"].pop("low"), "output_throughput lacks low"),
        (lambda one: one.pop("window"), "summary lacks window"),
    ],
)
def test_what_was_taken_out_of_a_summary_is_told(
    run: Path, change: Callable[[dict[str, Any]], object], told: str
) -> None:
    edit(run / "summary.json", change)
    assert told in lines(run)[0]
    # A build shows what an older bench wrote.
    assert build(run.parents[4], run.parents[4].parent / "site").problems == 0


def test_a_stream_under_another_seed_is_no_repeat(run: Path) -> None:
    results = run.parents[4]
    other = write_toy(results, policy="v1", n=60, seed=1, repeat=1)
    assert lines(run) == []
    for name in ("requests", "steps"):
        # Written in another way: what it tells counts.
        pq.write_table(pq.read_table(run / f"{name}.parquet"), other / f"{name}.parquet", compression="gzip")
    recover(other)
    told = f"has another seed and the same requests to the nanosecond as {run.relative_to(results)}: "
    assert [told in one for one in lines(run)] == [True]
    # Whoever is asked about is told of.
    (found,) = lines(run, run)
    assert found.startswith(str(run.relative_to(results)))


def test_a_spec_and_seed_are_published_once(run: Path) -> None:
    results = run.parents[4]
    requests, steps = toy_run(60, 7)
    spec = dataclasses.replace(SPEC, policy="v1")
    write_run(results, requests, steps, spec=spec, started=datetime(2026, 11, 30, 1, tzinfo=UTC))
    (found,) = lines(run)
    assert f"has the spec and seed of {run.relative_to(results)}: one run of a spec and seed can be published" in found
    assert build(results, results.parent / "site").problems == 0


def test_a_reported_summary_is_what_its_provenance_says_was_read(run: Path) -> None:
    spec = dataclasses.replace(SPEC, policy="v1", gpu="h100-sxm")
    path = run.parents[4] / "published/h100-sxm/qwen-qwen3-8b" / run.parents[1].name / "v1/table-4"
    path.mkdir(parents=True)
    figures = {"output_throughput": {"value": 10}, "ttft_s.mean": {"value": 0.5}, "cost": {"value": 3}}
    manifest = {"schema": 1, "spec": spec.to_dict(), "digest": spec.digest, "kind": "reported", "status": "complete"}
    manifest["provenance"] = {"figures": figures}
    (path / "run.json").write_text(json.dumps(manifest))
    metrics = {"output_throughput": {"value": 10.0, "unit": "tok/s"}, "ttft_s": {"mean": 0.5, "unit": "s"}}
    (path / "summary.json").write_text(json.dumps({"schema": 1, "metrics": metrics}))
    assert lines(run) == []
    edit(path / "summary.json", lambda one: one["metrics"]["ttft_s"].update(mean=0.05))
    assert "summary.metrics.ttft_s.mean is 0.05, provenance.figures says 0.5" in lines(run)[0]
    edit(path / "run.json", lambda one: one["provenance"].pop("figures"))
    assert difference_from_figures(load_run(path)) is None


def test_two_builds_into_one_directory_do_not_meet(run: Path, tmp_path: Path) -> None:
    import fcntl

    build(run.parents[4], tmp_path / "site")
    with (tmp_path / "site" / MARK).open("rb") as mark:
        fcntl.flock(mark, fcntl.LOCK_EX)
        with pytest.raises(UserError, match="another build writes there"):
            build(run.parents[4], tmp_path / "site")
    assert build(run.parents[4], tmp_path / "site").written == 0


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (b"a\nb\x1b[31m", r"a\x0ab\x1b[31m"),
        (b"a\xffb", r"a\xffb"),
        ("lab\u202ex".encode(), r"lab\u202ex"),
    ],
)
def test_a_name_that_cannot_be_shown_is_shown_escaped(run: Path, name: bytes, shown: str) -> None:
    results = run.parents[4]
    run.rename(os.fsdecode(os.path.join(os.fsencode(run.parent), name)))
    place = f"{run.parent.relative_to(results)}/{shown}"
    assert lines(run) == [f"{place}: a name that cannot be shown: rename it"]
    built = build(results, results.parent / "site")
    assert (built.runs, built.problems) == (0, 1)
    assert shown in (results.parent / "site/problems.html").read_text()
    (results / os.fsdecode(name)).write_text("x")
    assert any(one.startswith(f"{shown}: ") for one in lines(run))


def test_no_line_is_a_command_to_who_reads_it() -> None:
    assert printable("::error file=x::y") == r"\x3a:error file=x::y"
    assert printable("a ##[error]b") == r"a #\x23[error]b"
    assert Problem("a\n::error::b", "\U000e0001").why == r"\U000e0001"
    assert printable("plain/ä=1:b") == "plain/ä=1:b"


def test_a_hostile_run_hides_no_other(run: Path) -> None:
    results = run.parents[4]
    shutil.copytree(run, results / "x" / run.relative_to(results))
    (results / "x" / run.relative_to(results) / "requests.parquet").write_bytes(b"PAR1")
    assert build(results, results.parent / "site").runs == 1
