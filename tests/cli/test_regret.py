"""`bench regret` as users type it."""

from __future__ import annotations

from pathlib import Path

from tests.support.commands import RUN, Bench

GRID = """
engine = "simulated"
gpu = "h200"
model = "Qwen/Qwen3-8B"
workload = "synthetic:mu_l=60,mu_o=12"
requests = 60
slots = 16
concurrency = [8, 32]
policy = ["v1", "v0", "adaptive"]
"""


def test_regret_of_runs_and_of_a_grid(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "grid.toml").write_text(GRID)
    first = bench("regret", "grid.toml", "--out", "cells", "--hindsight", "v1,v0")
    assert first.code == 0, first.err
    assert "regret over 2 cells" in first.out
    assert "adaptive" in first.out
    again = bench("regret", "cells", "--hindsight", "v1,v0", "--json")
    assert again.code == 0, again.err
    assert again.json["cells"] == 2
    rows = {row["policy"]: row for row in again.json["policies"]}
    assert set(rows) == {"v1", "v0", "adaptive"}
    assert rows["v1"]["over"] == 0
    assert rows["v1"]["worst"] >= rows["v1"]["mean"] >= 0
    assert bench("regret", "cells", "--format", "csv").out.startswith("policy,cells,mean")
    nobody = bench("regret", "cells", "--hindsight", "sjf")
    assert nobody.code == 2
    assert "none of them ran" in nobody.err
    assert bench("regret", str(tmp_path / "nowhere")).code == 2


def test_a_run_of_one_policy_regrets_nothing(bench: Bench) -> None:
    done = bench(*RUN, "--policy", "v1", "--out", "runs")
    assert done.code == 0, done.err
    shown = bench("regret", "runs", "--json")
    assert [row["mean"] for row in shown.json["policies"]] == [0.0]
