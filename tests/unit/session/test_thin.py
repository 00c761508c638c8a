"""Simulated runs without tables: taken away only where they come again, and refused where they come otherwise."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from harness.core.errors import UserError
from harness.core.runspec import RunSpec
from harness.measure.facts import Facts
from harness.published.detail import CURVES, GAPS, QUANTILES, STRETCHES
from harness.published.figures import examine, other_figures
from harness.published.tables import RunTables
from harness.published.verify import verify_run
from harness.runs.run import load_run
from harness.runs.tables import FORM, read_table
from harness.runs.thin import has_figures, is_thin, table_digest
from harness.session.one_run import prepare, run
from harness.session.thin import expand, thin

FILES = ["run.json", "summary.json", "tables.json"]
SPEC = RunSpec(
    gpu="l40s",
    model="Qwen/Qwen3-8B",
    policy="eb:k=8",
    workload="synthetic:mu_l=64,mu_o=16",
    arrival="closed:concurrency=16",
    requests=80,
    slots=16,
    token_budget=2048,
    cost_model="kernels",
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return run(prepare(SPEC), tmp_path, (), lambda _: None, lambda: False).path


def test_tables_go_and_come_again_alike(path: Path) -> None:
    before = {name: read_table(path, name) for name in ("requests", "steps")}
    assert [change.why for change in thin([path])] == [None]
    assert is_thin(path)
    assert sorted(file.name for file in path.iterdir()) == ["figures.json", *FILES]
    with pytest.raises(UserError, match=f"not kept here: `bench expand {path}` makes it again"):
        load_run(path).requests()
    assert list(thin([path])) == []
    assert [change.why for change in expand([path])] == [None]
    assert not is_thin(path)
    for name, table in before.items():
        assert read_table(path, name).equals(table)
    assert verify_run(path) is None
    assert list(expand([path])) == []


def test_a_forged_digest_is_found(path: Path) -> None:
    list(thin([path]))
    told = json.loads((path / "tables.json").read_text())
    told["requests"]["rows"] += 1
    (path / "tables.json").write_text(json.dumps(told))
    (change,) = expand([path])
    assert change.why == "tables.json tells other rows than run.json: take both from a copy"
    told["requests"] |= {"rows": 80, "sha256": "0" * 64}
    (path / "tables.json").write_text(json.dumps(told))
    (change,) = expand([path])
    assert change.why is not None
    assert change.why.startswith("requests.parquet made again has other values, by tables.json")
    assert is_thin(path)


def test_forged_figures_are_found_against_the_tables(path: Path) -> None:
    list(thin([path]))
    told = json.loads((path / "figures.json").read_text())
    list(expand([path]))
    run = load_run(path)
    tables = RunTables.of(run)
    assert other_figures(run, tables) is None
    told["detail"]["course"]["waiting"][3] = 7.25
    (path / "figures.json").write_text(json.dumps(told))
    assert "figures.json: detail.course.waiting.3 is not what" in (other_figures(run, tables) or "")


def test_figures_of_another_form_are_as_if_they_were_not_there(path: Path) -> None:
    list(thin([path]))
    assert has_figures(path)
    told = json.loads((path / "figures.json").read_text())
    for form in (FORM - 1, None, "2"):
        (path / "figures.json").write_text(json.dumps(told | {"form": form}, separators=(",", ":")))
        assert not has_figures(path)
    with pytest.raises(UserError, match=r"requests\.parquet: not kept here"):
        examine(load_run(path))
    list(expand([path]))
    run = load_run(path)
    with pytest.raises(UserError, match=f"its form is '2', this bench has {FORM}: take it from a copy"):
        other_figures(run, RunTables.of(run))


def test_what_figures_hold_changes_their_form() -> None:
    """A build of before must not be taken for one of now: who changes this raises FORM, and then this."""
    holds = [[field.name for field in dataclasses.fields(Facts)], QUANTILES, STRETCHES, GAPS, CURVES]
    assert (FORM, hashlib.sha256(json.dumps(holds).encode()).hexdigest()[:8]) == (2, "0ca212b0")


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("detail", None),
        ("detail.curves", {"ttft_s": [1.0]}),
        ("detail.curves", {"<b>": [0.0] * 105}),
        ("detail.course", {}),
        ("detail.course.t_s", [None] * 240),
        ("detail.course.waiting", ["<b>"] * 240),
        ("detail.course.policy_mode", [{}] * 240),
        ("detail.course.other", [0.0] * 240),
        ("detail.sums", []),
        ("detail.sums.completed", -1),
        ("detail.sums.fairness", {"over": []}),
        ("detail.marks", [1]),
        ("facts", None),
        ("facts.stream", 0),
        ("facts.stay", True),
        ("facts.values", {"ttft_s": "1"}),
        ("facts.episodes", [1]),
        ("facts.fairness", {"": [[2, 1], [1, 1], [1, 1]]}),
        ("facts.more", 1),
    ],
)
def test_figures_of_another_shape_leave_the_run_out_and_no_page_breaks(path: Path, part: str, value: object) -> None:
    list(thin([path]))
    told = json.loads((path / "figures.json").read_text())
    place, (*above, last) = told, part.split(".")
    for name in above:
        place = place[name]
    place[last] = value
    (path / "figures.json").write_text(json.dumps(told, separators=(",", ":")))
    with pytest.raises(UserError, match=r"figures\.json: .*make it again"):
        examine(load_run(path))


def test_a_summary_is_held_against_the_figures(path: Path) -> None:
    list(thin([path]))
    assert examine(load_run(path))["difference"] is None
    told = json.loads((path / "summary.json").read_text())
    told["metrics"]["ttft_s"]["p50"] *= 0.9
    (path / "summary.json").write_text(json.dumps(told))
    assert "summary.metrics.ttft_s.p50 is" in examine(load_run(path))["difference"]


def test_nothing_is_written_through_a_link(path: Path, tmp_path: Path) -> None:
    list(thin([path]))
    other = tmp_path / "other"
    other.write_text("mine")
    (path / ".requests.parquet").symlink_to(other)
    assert [change.why for change in expand([path])] == [None]
    assert other.read_text() == "mine"


def test_a_damaged_run_is_a_line_and_hides_no_other(path: Path, tmp_path: Path) -> None:
    list(thin([path]))
    broken = tmp_path / "broken"
    shutil.copytree(path, broken)
    (broken / "run.json").write_text("{")
    first, second = expand([broken, path])
    assert first.why is not None
    assert "run.json" in first.why
    assert second.why is None


def test_tables_that_were_exchanged_are_found(path: Path) -> None:
    list(thin([path]))
    list(expand([path]))
    file = path / "steps.parquet"
    table = pq.read_table(file)
    later = table.column("t_s").combine_chunks().to_numpy() + 1e-9
    place = table.schema.get_field_index("t_s")
    pq.write_table(table.set_column(place, table.schema.field("t_s"), pa.array(later)), file)
    assert "steps.parquet made again has other values, by tables.json" in (verify_run(path) or "")


def test_a_run_that_comes_otherwise_keeps_its_tables(path: Path) -> None:
    file = path / "requests.parquet"
    table = pq.read_table(file)
    place = table.schema.get_field_index("done_s")
    done = table.column("done_s").combine_chunks().to_numpy() + 1e-3
    pq.write_table(table.set_column(place, table.schema.field("done_s"), pa.array(done)), file)
    (change,) = thin([path])
    assert "done_s is" in (change.why or "")
    assert file.is_file()
    assert not (path / "tables.json").exists()


def test_what_was_measured_keeps_its_tables(path: Path) -> None:
    manifest = json.loads((path / "run.json").read_text())
    manifest["kind"] = "emulated"
    (path / "run.json").write_text(json.dumps(manifest))
    (change,) = thin([path])
    assert change.why is not None
    assert (path / "requests.parquet").is_file()


def test_a_digest_is_of_values_and_not_of_how_they_lie() -> None:
    values = pa.table({"a": pa.array([1.0, None]), "b": pa.array(["x", "y"]), "c": pa.array([[1], []])})
    chunked = pa.concat_tables([values.slice(0, 1), values.slice(1)])
    assert table_digest(values) == table_digest(chunked)
    assert table_digest(values) != table_digest(values.set_column(0, "a", pa.array([1.0, 0.0])))
    assert table_digest(values) != table_digest(values.set_column(2, "c", pa.array([[], [1]])))
    encoded = values.set_column(1, "b", values.column("b").dictionary_encode())
    assert table_digest(encoded) != table_digest(values)
