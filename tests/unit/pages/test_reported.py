"""Published figures as runs: nothing pretended that their source does not tell, nothing ranked."""

from __future__ import annotations

import hashlib
import json
import runpy
from pathlib import Path
from typing import Any

import pytest

from harness.core.errors import UserError
from harness.pages.build import build
from harness.pages.facets import settings_words, source_of
from harness.report.comparable import differences
from harness.report.comparison import compare
from harness.report.document import run_document
from harness.report.tables import list_lines
from harness.runs.run import load_run
from tests.support.places import ROOT
from tests.support.sitefactory import only_board, site_of

SCRIPT = runpy.run_path(str(ROOT / "scripts/publish_reported.py"))

TOLD: dict[str, Any] = {
    "gpu": "h200",
    "model": "M",
    "workload": "sharegpt",
    "engine": "vllm",
    "arrival": "closed:concurrency=2048",
}


def write_reported(results: Path, policy: str, rate: float, paper: str = "arXiv 2606.00516", **told: Any) -> Path:
    spec = TOLD | {"policy": policy} | told
    digest = hashlib.sha256(json.dumps(spec, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
    path = results / f"{policy}-{digest[:8]}-{paper[-3:]}"
    path.mkdir(parents=True)
    figures = {"request_throughput": {"value": rate, "table": "Table 2", "read_from": "the paper", "source": "a:b@c"}}
    manifest = {
        "schema": 1,
        "spec": spec,
        "digest": digest,
        "kind": "reported",
        "status": "complete",
        "provenance": {"paper": paper, "set": "Table 2", "figures": figures},
    }
    metrics = {"request_throughput": {"value": rate, "unit": "req/s"}, "ttft_s": {"mean": 2.5, "unit": "s"}}
    (path / "run.json").write_text(json.dumps(manifest))
    (path / "summary.json").write_text(json.dumps({"schema": 1, "window": None, "metrics": metrics}))
    return path


def test_no_verdict_and_no_setting_is_made_up(tmp_path: Path) -> None:
    run = load_run(write_reported(tmp_path, "v1", 17.0))
    assert run.level == "NONE"
    assert "slots" not in run.known_spec
    assert run_document(run)["verdict"] == {"level": "NONE", "reasons": []}
    assert list_lines([run])[0].startswith("NONE     reported")


def test_what_one_does_not_tell_is_no_difference(tmp_path: Path) -> None:
    a, b, c = (write_reported(tmp_path, policy, 17.0, **told) for policy, told in CASES)
    runs = [load_run(path) for path in (a, b, c)]
    assert differences(runs[0], runs[1]).keys() == {"policy"}
    assert differences(runs[1], runs[2]) == {"policy": ("eb", "v0"), "slots": (512, 256)}
    assert compare([a], [b]).metrics["request_throughput"].word == "not ranked"
    with pytest.raises(UserError, match=r"slots: 512 \| 256"):
        compare([b], [c])


CASES: tuple[tuple[str, dict[str, Any]], ...] = (("v1", {}), ("eb", {"slots": 512}), ("v0", {"slots": 256}))


def test_a_board_takes_each_policy_at_its_own_slots_and_ranks_none(tmp_path: Path) -> None:
    for (policy, told), rate in zip(CASES, (17.0, 16.0, 18.0), strict=True):
        write_reported(tmp_path / "runs", policy, rate, **told)
    board = only_board(site_of(tmp_path / "runs", tmp_path / "kept"))
    assert [arm.policy for arm in board.arms] == ["v1", "eb", "v0"]
    assert {arm.level for arm in board.arms} == {"NONE"}
    change = board.arms[1].changes["request_throughput"]
    assert change.ratio == pytest.approx(16 / 17)
    assert (change.low, change.p, change.word) == (None, None, "not ranked")
    assert settings_words(board) == "M · 2,048 in flight"


def test_two_papers_share_no_board(tmp_path: Path) -> None:
    write_reported(tmp_path / "runs", "v1", 17.0)
    write_reported(tmp_path / "runs", "v1", 16.0, paper="arXiv 2608.02244")
    assert len(site_of(tmp_path / "runs", tmp_path / "kept").boards) == 2


def test_a_source_that_is_no_arxiv_number_is_no_link(tmp_path: Path) -> None:
    runs = [load_run(write_reported(tmp_path, "v1", 17.0, paper=paper)) for paper in ("arXiv 2606.00516", "x:y&z")]
    assert [source_of(run) for run in runs] == [
        ("arXiv 2606.00516, Table 2", "https://arxiv.org/abs/2606.00516"),
        ("x:y&z, Table 2", None),
    ]


def test_pages_say_reported_in_words(tmp_path: Path) -> None:
    write_reported(tmp_path / "results", "v1", 17.0)
    write_reported(tmp_path / "results", "eb", 19.0, slots=512)
    build(tmp_path / "results", tmp_path / "site")
    front = next((tmp_path / "site/boards").glob("*.html")).read_text()
    assert "No interval, no verdict, no rank." in front
    assert "+11.8 %" in front
    assert "not ranked: INVALID" not in front
    page = next((tmp_path / "site/runs").glob("*/index.html")).read_text()
    assert "Nobody ran it here" in page
    assert "<dt>slots</dt><dd>1024</dd>" not in page
    assert "reported" in (tmp_path / "site/policies/eb.html").read_text()


def row(metric: str, value: float, **others: Any) -> dict[str, Any]:
    about = {"table": "Table 3", "gpu": "H200", "model": "Qwen3-8B", "workload": "numina_math", "policy": "eb+"}
    known = {"mu_L": None, "mu_O": None, "concurrency": 2048, "N": None, "B": None, "source": "a:b@c", "note": None}
    return about | known | {"metric": metric, "value": value, "unit": "ms", "provenance": "plot_script"} | others


def test_a_cell_keeps_its_sources_and_its_contradictions() -> None:
    rows = [
        row("mean_tpot", 31.0, N=256, table="Fig 6 (TPOT)"),
        row("mean_tpot", 33.0, provenance="rebuttal_2026-04"),
        row("mean_tpot", 40.0, provenance="figure_digitised"),
        row("gain_vs_v1", 3.0),
    ]
    (found,) = SCRIPT["cells"](rows).values()
    spec = SCRIPT["spec_of"](found)
    assert spec["policy"] == "ebplus"
    assert {name: spec.get(name) for name in ("workload", "requests", "slots", "token_budget")} == {
        "workload": "numinamath",
        "requests": 4000,
        "slots": 256,
        "token_budget": None,
    }
    metrics, figures, notes = SCRIPT["metrics_of"](found)
    assert metrics == {"tpot_s": {"mean": 0.031, "unit": "s"}}
    assert figures["tpot_s.mean"]["table"] == "Fig 6"
    assert notes == ["Time per output token: 0.033 s in Table 3, the authors' rebuttal of April 2026 (a:b@c)"]


def test_a_note_that_nobody_has_read_stops_the_script() -> None:
    told = SCRIPT["in_our_words"]("client shuffles it")
    assert told == "the client sent the rows of all phases shuffled, so this is a mixture and no shift"
    with pytest.raises(SystemExit, match="not known here"):
        SCRIPT["in_our_words"]("the figure is upside down")
