"""Run directories that somebody edited or damaged: one line that names file and key, and nothing overwritten."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from harness.core.runspec import RunSpec
from harness.runs.run import find_runs, load_run, load_runs
from harness.runs.writer import recover
from tests.support.refusals import run_refusal
from tests.support.runfactory import write_toy


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
    line = run_refusal(path)
    assert "run.json" in line
    assert key in line or (key, value) == ("digest", 7)
    assert load_runs([path]) == ([], [line])


@pytest.mark.parametrize(
    ("window", "key"),
    [({"start": 0}, "rows"), ({"start": 0, "rows": 1, "of": 0, "order": "file"}, "of"), (3, "window")],
)
def test_an_edited_window_is_named(path: Path, window: Any, key: str) -> None:
    edit(path / "run.json", "provenance.trace", {"window": window})
    assert key in run_refusal(path)


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
    line = run_refusal(path)
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
    line = run_refusal(path)
    assert "summary.json" in line
    assert key.removesuffix(".value") in line
    assert "bench recover" in line
    assert recover(path) == (path, True)
    assert (path / "summary.json").read_bytes() == good


@pytest.mark.parametrize("key", ["counts", "verdict", "verdict.level", "counts.completed"])
def test_recover_makes_counts_and_verdict_again(path: Path, key: str) -> None:
    good = (path / "run.json").read_bytes()
    edit(path / "run.json", key, None)
    assert "bench recover" in run_refusal(path)
    assert recover(path) == (path, True)
    assert (path / "run.json").read_bytes() == good


def test_a_spec_that_does_not_match_its_digest_was_edited(path: Path) -> None:
    manifest = json.loads((path / "run.json").read_text())
    manifest["spec"]["seed"] = 99
    (path / "run.json").write_text(json.dumps(manifest))
    for what in (load_run, recover):
        assert "run.json was edited: its spec does not match its digest" in run_refusal(path, what)


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
