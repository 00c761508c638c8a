"""Run directories that somebody edited or damaged: one line that names file and key, and nothing overwritten."""

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from harness.core.errors import UserError
from harness.core.records import REQUESTS
from harness.core.runspec import RunSpec
from harness.report.document import run_document
from harness.report.tables import list_lines, show_table
from harness.runs.run import find_runs, load_run, load_runs, partial_of
from harness.runs.writer import RunWriter, recover
from tests.support.console import rendered
from tests.support.disk import file_size_limit
from tests.support.runfactory import SPEC, batch_of, toy_run, write_run, write_toy


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write_toy(tmp_path / "runs", n=30)


def edit(file: Path, key: str, value: Any) -> None:
    """Put a value under a dotted key; `...` removes it. A spec gets the digest that goes with it."""
    document = json.loads(file.read_text())
    *above, last = key.split(".")
    here = document
    for part in above:
        here = here[part]
    if value is ...:
        del here[last]
    else:
        here[last] = value
    if above[:1] == ["spec"]:
        document["digest"] = RunSpec.from_dict(document["spec"]).digest
    file.write_text(json.dumps(document))


def refusal(path: Path, what: Callable[[Path], Any] = load_run) -> str:
    with pytest.raises(UserError) as caught:
        what(path)
    line = str(caught.value)
    assert line.isprintable()
    return line


NO_OBJECT: tuple[Any, ...] = (None, 7, [], "x")
NO_TEXTS: tuple[Any, ...] = (None, "x", [1], {})
NO_NUMBER: tuple[Any, ...] = ("x", [1], {}, True)

WRONG: list[tuple[str, Any]] = [
    *((key, value) for key in ("provenance", "planned") for value in NO_OBJECT),
    *((key, value) for key in ("notes", "degraded") for value in NO_TEXTS),
    *((key, value) for key in ("counts", "verdict") for value in NO_OBJECT),
    ("counts.failed", "1"),
    ("counts.finishes", {"length": None}),
    ("counts.requests", ...),
    ("verdict.level", "GOOD"),
    ("verdict.level", ["VALID"]),
    ("verdict.reasons", "x"),
    ("verdict.reasons", [None]),
    ("verdict.level", ...),
    ("kind", "dreamt"),
    ("status", "lost"),
    ("status", {}),
    ("digest", 7),
    ("reason", 3),
    *((key, ...) for key in ("reason", "provenance", "spec", "digest", "kind", "status", "planned", "notes")),
    ("spec", []),
    ("planned.requests", "many"),
    ("provenance.trace", [1]),
    ("provenance.trace_label", 3),
    ("spec.requests", "x"),
    ("spec.requests", -1),
    ("spec.slots", 1.5),
    ("spec.slots", True),
    ("spec.gpu", None),
    ("spec.arrival", 3),
    ("spec.policy", "v1\x1b[31m"),
    ("spec.slo", {"ttft_s": "x"}),
    ("spec.client", 3),
    ("spec.watermark", None),
]


@pytest.mark.parametrize(("key", "value"), WRONG)
def test_an_edited_manifest_is_a_line_that_names_file_and_key(path: Path, key: str, value: Any) -> None:
    edit(path / "run.json", key, value)
    line = refusal(path)
    assert "run.json" in line
    assert key in line or (key, value) == ("digest", 7)
    assert load_runs([path]) == ([], [line])


@pytest.mark.parametrize(
    ("window", "key"),
    [({"start": 0}, "rows"), ({"start": 0, "rows": 1, "of": 0, "order": "file"}, "of"), (3, "window")],
)
def test_an_edited_window_is_named(path: Path, window: Any, key: str) -> None:
    edit(path / "run.json", "provenance.trace", {"window": window})
    assert key in refusal(path)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b'{"schema": 1, "a": ' + b"[" * 200_000, "cannot be read"),
        (b'{"schema": 1, "a": ' + b"[" * 100 + b"]" * 100 + b"}", "nested more than 50 deep"),
        (b'{"schema": 1, "a": NaN}', "NaN is no JSON number"),
        (b'{"schema": 1, "a": 1e999}', "not finite"),
        (b'{"schema": 1, "a": ' + b"9" * 50 + b"}", "more than 64 bits"),
        (b'{"schema": 1, "a": ' + b"9" * 9999 + b"}", "cannot be read"),
        (b'{"schema": 1, "a": "\\ud800"}', "not valid Unicode"),
        (b'{"schema": true}', "no schema version"),
        (b"[]", "no schema version"),
        (b"\xff\xfe\x00", "cannot be read"),
    ],
)
@pytest.mark.parametrize("name", ["run.json", "summary.json"])
def test_what_no_writer_of_ours_writes_is_a_line(path: Path, name: str, content: bytes, why: str) -> None:
    (path / name).write_bytes(content)
    line = refusal(path)
    assert name in line
    assert why in line


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("metrics", value) for value in (*NO_OBJECT, ...)),
        *(("metrics.output_throughput", value) for value in NO_OBJECT),
        *(("metrics.output_throughput.value", value) for value in (*NO_NUMBER, ...)),
        ("metrics.ttft_s.p50", "x"),
        ("metrics.ttft_s.unit", 3),
        ("metrics.ttft_s.count", []),
        *(("window", value) for value in NO_OBJECT[1:]),
        ("window.start_s", "x"),
        ("window.rule", ...),
    ],
)
def test_an_edited_summary_names_its_key_and_recover_makes_it_again(path: Path, key: str, value: Any) -> None:
    good = (path / "summary.json").read_bytes()
    edit(path / "summary.json", key, value)
    line = refusal(path)
    assert "summary.json" in line
    assert key.removesuffix(".value") in line
    assert "bench recover" in line
    assert recover(path) == (path, True)
    assert (path / "summary.json").read_bytes() == good


@pytest.mark.parametrize("key", ["counts", "verdict", "verdict.level", "counts.completed"])
def test_recover_makes_counts_and_verdict_again(path: Path, key: str) -> None:
    good = (path / "run.json").read_bytes()
    edit(path / "run.json", key, None)
    assert "bench recover" in refusal(path)
    assert recover(path) == (path, True)
    assert (path / "run.json").read_bytes() == good


def test_a_spec_that_does_not_match_its_digest_was_edited(path: Path) -> None:
    manifest = json.loads((path / "run.json").read_text())
    manifest["spec"]["seed"] = 99
    (path / "run.json").write_text(json.dumps(manifest))
    for what in (load_run, recover):
        assert "run.json was edited: its spec does not match its digest" in refusal(path, what)


def test_a_run_from_before_a_field_of_the_spec_is_read(path: Path) -> None:
    manifest = json.loads((path / "run.json").read_text())
    del manifest["spec"]["client"]
    told = json.dumps(manifest["spec"], sort_keys=True, separators=(",", ":"))
    manifest["digest"] = hashlib.sha256(told.encode()).hexdigest()
    (path / "run.json").write_text(json.dumps(manifest))
    assert load_run(path).spec.client == {}


def test_one_bad_run_does_not_hide_the_others(tmp_path: Path, path: Path) -> None:
    good = write_toy(tmp_path / "runs", policy="other", n=30)
    edit(path / "run.json", "notes", 7)
    runs, problems = load_runs(find_runs(tmp_path / "runs"))
    assert [run.path for run in runs] == [good]
    assert len(problems) == 1
    assert "notes" in problems[0]


def _tables(path: Path) -> tuple[bytes, bytes]:
    return (path / "summary.json").read_bytes(), (path / "run.json").read_bytes()


def _rewrite(file: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    pq.write_table(change(pq.read_table(file)), file)


def _with(name: str, values: Callable[[list[Any]], list[Any]]) -> Callable[[pa.Table], pa.Table]:
    def change(table: pa.Table) -> pa.Table:
        place = table.schema.get_field_index(name)
        field = table.schema.field(place)
        return table.set_column(place, field, pa.array(values(table.column(name).to_pylist()), field.type))

    return change


def _first(value: Any) -> Callable[[list[Any]], list[Any]]:
    return lambda values: [value, *values[1:]]


DAMAGE: dict[str, tuple[str, Callable[[pa.Table], pa.Table], str]] = {
    "column gone": ("requests", lambda table: table.drop_columns(["finish"]), "no column finish"),
    "column more": ("requests", lambda table: table.append_column("x", table.column("row")), "column 'x'"),
    "column renamed": ("steps", lambda table: table.rename_columns(["T", *table.column_names[1:]]), "no column t_s"),
    "other type": (
        "requests",
        lambda table: table.set_column(7, "sent_s", table.column("sent_s").cast(pa.string())),
        "column sent_s is string, not double",
    ),
    "whole numbers as floats": (
        "requests",
        lambda table: table.set_column(1, "row", table.column("row").cast(pa.float64())),
        "column row is double, not int64",
    ),
    "not a number": ("requests", _with("sent_s", _first(float("nan"))), "sent_s"),
    "endless": ("requests", _with("done_s", _first(float("inf"))), "done_s"),
    "beyond": ("requests", _with("due_s", _first(-1e12)), "due_s"),
    "gap": ("requests", _with("token_gaps_s", _first([0.1, float("nan")])), "token_gaps_s"),
    "step": ("steps", _with("duration_s", _first(1e300)), "duration_s"),
    "negative count": ("requests", _with("output_tokens", _first(-5)), "output_tokens"),
    "huge count": ("requests", _with("prompt_tokens", _first(2**62)), "prompt_tokens"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_recover_refuses_a_damaged_table_and_leaves_the_summary(path: Path, damage: str) -> None:
    name, change, why = DAMAGE[damage]
    before = _tables(path)
    _rewrite(path / f"{name}.parquet", change)
    line = refusal(path, recover)
    assert f"{name}.parquet: damaged" in line
    assert why in line
    assert _tables(path) == before
    assert refusal(path, lambda path: getattr(load_run(path), name)())


@pytest.mark.parametrize("name", ["requests", "steps"])
@pytest.mark.parametrize("kind", ["directory", "pipe", "gone", "text"])
def test_a_table_that_is_no_file_is_an_error_and_not_an_empty_table(path: Path, name: str, kind: str) -> None:
    before = _tables(path)
    table = path / f"{name}.parquet"
    table.unlink()
    if kind == "directory":
        table.mkdir()
    elif kind == "pipe":
        os.mkfifo(table)
    elif kind == "text":
        table.write_text("row,finish\n")
    assert f"{name}.parquet" in refusal(path, recover)
    assert f"{name}.parquet" in refusal(path, lambda path: getattr(load_run(path), name)())
    assert _tables(path) == before


def test_a_summary_that_is_a_pipe_is_not_waited_for(path: Path) -> None:
    (path / "summary.json").unlink()
    os.mkfifo(path / "summary.json")
    assert "not a regular file" in refusal(path)


def test_a_log_of_other_columns_is_refused_and_kept(tmp_path: Path) -> None:
    writer = RunWriter.create(tmp_path, SPEC, kind="simulated", provenance={})
    writer.add_requests(batch_of(REQUESTS, toy_run(20)[0]))
    writer.close()
    log = writer.partial / "requests.arrows"
    with pa.ipc.new_stream(str(log), pa.schema([("x", pa.int64())])) as stream:
        stream.write_batch(pa.record_batch({"x": [1]}))
    assert "requests.arrows: damaged" in refusal(writer.partial, recover)
    assert log.is_file()


def test_a_run_without_a_summary_says_how_to_make_it(path: Path) -> None:
    (path / "summary.json").unlink()
    assert f"bench recover {path}" in rendered(show_table(load_run(path)), 400)


def test_here_and_above_are_directories_like_any_other(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(path)
    assert recover(Path()) == (path, False)
    run = load_run(Path())
    assert run_document(run)["status"] == "complete"
    assert list_lines([run])
    assert find_runs(Path()) == [Path()]
    (path / "below").mkdir()
    monkeypatch.chdir(path / "below")
    assert recover(Path("..")) == (path, False)
    assert load_run(Path("..")).status == "complete"


def test_recover_inside_a_partial_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = RunWriter.create(tmp_path, SPEC, kind="simulated", provenance={})
    writer.add_requests(batch_of(REQUESTS, toy_run(20)[0]))
    writer.close()
    monkeypatch.chdir(writer.partial)
    assert "did not finish" in refusal(Path())
    assert recover(Path()) == (writer.path, True)
    assert load_run(writer.path).status == "interrupted"


def test_a_partial_directory_under_another_name_is_finished_where_it_lies(tmp_path: Path) -> None:
    writer = RunWriter.create(tmp_path, SPEC, kind="simulated", provenance={})
    writer.add_requests(batch_of(REQUESTS, toy_run(20)[0]))
    writer.close()
    moved = writer.partial.rename(tmp_path / "mine")
    assert "did not finish" in refusal(moved)
    assert recover(moved) == (moved, True)
    assert load_run(moved).manifest["counts"]["requests"] == 20


@pytest.mark.parametrize("given", ["/", "", "x" * 300, "/" + "y/" * 3000, "a\0b", ".partial"])
@pytest.mark.parametrize("what", [load_run, recover])
def test_what_cannot_be_a_run_is_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: Callable[[Path], Any], given: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="no run directory"):
        what(Path(given))


def test_a_colon_in_a_relative_path_is_no_scheme(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (path.parent / "noisy:sigma=1").mkdir()
    path.rename(path.parent / "noisy:sigma=1" / "run")
    monkeypatch.chdir(path.parent)
    again = load_run(Path("noisy:sigma=1/run"))
    assert again.requests().num_rows == again.manifest["counts"]["requests"]


def test_the_root_has_a_partial_name() -> None:
    assert partial_of(Path("/")) == Path("/.partial")


@pytest.mark.parametrize("out", ["x" * 300, "y/" * 3000, "a\0b", "\ud800"])
def test_an_absurd_out_is_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, out: str) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="give another --out") as caught:
        RunWriter.create(Path(out), SPEC, kind="simulated", provenance={})
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 500


def test_what_could_not_be_begun_leaves_nothing(tmp_path: Path) -> None:
    with file_size_limit(10), pytest.raises(UserError, match="cannot start a run there"):
        RunWriter.create(tmp_path, SPEC, kind="simulated", provenance={})
    assert not [one for one in tmp_path.rglob("*") if one.name.endswith(".partial")]


def test_a_run_that_completed_nothing_is_invalid(tmp_path: Path) -> None:
    run = load_run(write_run(tmp_path, []))
    assert run.level == "INVALID"
    assert "INVALID: completed requests: 0 (below 1)" in run.manifest["verdict"]["reasons"]
