"""`bench calibrate attention` on the CPU's own backend: a table for step costs, which goes on after a stop."""

from __future__ import annotations

import json
from pathlib import Path

from harness.profiles.kernels.calls import read_calls
from tests.support.commands import Bench

WORDS = ("calibrate", "attention", "--gpu", "cpu", "--out", "calls.csv", "--before", "0,64")
GRID = ("--chunks", "32,128", "--decodes", "1,8", "--contexts", "32,256")


def test_attention_is_measured_once_and_prices_a_run(bench: Bench, place: Path, engine_python: str) -> None:
    model = str(place / "tiny" / "config.json")
    words = (*WORDS, *GRID, "--model", model, "--engine-python", engine_python)
    first = bench(*words)
    assert first.code == 0, first.err
    assert "0 calls are there, 24 to measure" in first.err
    table = place / "calls.csv"
    calls = read_calls(table).times
    assert len(calls) == 24
    assert {key[:2] for key in calls} == {(0, 0), (32, 0), (32, 64), (128, 0), (128, 64)}
    about = json.loads((place / "calls.json").read_text())
    assert (about["backend"], about["query_heads"], about["kv_heads"], about["head_size"]) == ("CPU_ATTN", 4, 2, 32)

    # A stop in the middle of a line, which is measured again, and nothing else is.
    lines = table.read_text().splitlines(keepends=True)
    table.write_text("".join(lines[:-1]) + lines[-1][:5])
    again = bench(*words)
    assert again.code == 0, again.err
    assert "23 calls are there, 1 to measure" in again.err
    assert table.read_text().splitlines(keepends=True)[:-1] == lines[:-1]

    other = bench(*WORDS, *GRID, "--model", "Qwen3-8B", "--engine-python", engine_python)
    assert other.code == 2
    assert other.err.strip().endswith("calls.csv: is of query_heads 4, not 32: name another --out")

    run = bench(
        *("run", "--engine", "simulated", "--gpu", "l40s", "--model", "Qwen3-8B", "--policy", "v1", "--alone"),
        *("--workload", "synthetic:mu_l=64,mu_o=16", "--requests", "50", "--concurrency", "8", "--slots", "8"),
        *("--cost-model", "kernels:calls.csv", "--json"),
    )
    assert run.code == 0, run.err
    (path,) = (place / "runs").rglob("run.json")
    cost = json.loads(path.read_text())["provenance"]["cost_model"]
    assert (cost["name"], cost["mixed_call"], cost["mixed_calls_used"]) == ("kernels", "measured", 16)
