import json
from pathlib import Path

from tests.support.commands import Bench


def test_import_info_plot(bench: Bench, tmp_path: Path) -> None:
    digest = bench("trace", "info", "drift:distribution", "--requests", "60", "--json").json["digest"]
    done = bench("trace", "import", "drift:distribution", "t.parquet", "--requests", "60")
    assert done.code == 0
    assert digest in done.out
    told = bench("trace", "info", "file:t.parquet", "--gpu", "h200", "--json").json
    assert told["digest"] == digest
    assert len(told["prediction"]["phases"]) == 3
    assert "predicted to win" in bench("trace", "info", "file:t.parquet", "--gpu", "h200").out
    again = bench("trace", "import", "synthetic", "t.parquet")
    assert (again.code, again.out) == (2, "")
    assert "is there already" in again.err
    assert bench("trace", "info", "sharegpt", "--gpu", "nothing").code == 2
    assert bench("trace", "plot", "file:t.parquet", "--out", "t.html").out == "t.html\n"


def test_a_drift_runs_with_its_own_arrival_and_its_marks_are_kept(bench: Bench, tmp_path: Path) -> None:
    done = bench(
        *("run", "--gpu", "h200", "--policy", "v1,ebplus", "--workload", "drift:concurrency-script"),
        *("--requests", "650", "--json"),
    )
    assert done.code == 0
    for run in done.json["runs"]:
        assert run["counts"]["completed"] == 650
        manifest = json.loads((tmp_path / run["dir"] / "run.json").read_text())
        assert manifest["spec"]["arrival"] == "closed-phases:concurrency=32/2048/500,drain=true,requests=50/400/200"
        assert [mark["first_row"] for mark in manifest["provenance"]["trace"]["phases"]] == [0, 50, 450]
    refused = bench("run", "--gpu", "h200", "--policy", "v1", "--workload", "drift:ramp", "--concurrency", "3")
    assert refused.code == 2
    assert "a schedule of arrivals of its own" in refused.err
