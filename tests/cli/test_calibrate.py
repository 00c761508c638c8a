"""`bench calibrate`: from runs to a profile that `--gpu` takes."""

from __future__ import annotations

from pathlib import Path

from tests.support.commands import Bench

RUN = (
    "run",
    "--gpu",
    "rtxpro6000",
    "--workload",
    "sharegpt",
    "--requests",
    "300",
    "--slots",
    "256",
    "--cost-model",
    "linear",
)


def test_runs_become_a_profile_that_runs_take(bench: Bench, tmp_path: Path) -> None:
    for concurrency in ("16", "64"):
        done = bench(*RUN, "--policy", "v1,eb:k=8", "--repeat", "1", "--concurrency", concurrency)
        assert done.code == 0, done.err
    found = bench("calibrate", "runs", "--out", "mine.toml")
    assert found.code == 0, found.err
    assert "4 simulated runs of Qwen/Qwen3-8B on rtxpro6000" in found.out
    assert "α_d 10.38 ms" in found.out
    assert "warning: these runs are simulated" in found.out
    assert "bench run --engine simulated --gpu ./mine.toml --model Qwen/Qwen3-8B" in found.out
    again = bench("calibrate", "runs", "--out", "mine.toml")
    assert again.code == 2
    assert "mine.toml: is there already" in again.err
    mine = ("run", "--gpu", "./mine.toml", "--policy", "ebplus", "--workload", "sharegpt", "--requests", "100")
    run = bench(*mine, "--out", "replayed")
    assert run.code == 0, run.err
    assert "mine / Qwen3-8B: calibrated step times (linear)" in run.err
    document = bench("calibrate", "runs", "--out", "other.toml", "--json").json
    assert document["mixed_form"] == "fitted"
    assert document["decode"]["constants"]["α_d"]["value"] == document["constants"]["alpha_d_s"]


def test_a_machine_without_a_data_sheet_and_a_model_of_ones_own(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "cpu-tiny.toml").write_text(
        'label = "a CPU"\naliases = []\n[pairs."me/tiny"]\nkv_tokens = { value = 8192, source = "log" }\n'
        '[pairs."me/tiny".steps]\nbasis = "calibrated"\nsource = "mine"\nflags = []\nalpha_p_s = 0.01\n'
        "beta_p_s_per_token = 1e-4\nalpha_d_s = 0.02\nbeta_d_s_per_request = 1e-3\n"
        '[pairs."me/tiny".mixed]\nform = "additive"\nsource = "none"\nflags = []\n',
        encoding="utf-8",
    )
    # Where this machine has vLLM, `auto` would start it: the CPU is here.
    asked = ("--engine", "simulated", "--workload", "synthetic:mu_l=64,mu_o=16", "--requests", "50")
    given = ("run", "--gpu", "./cpu-tiny.toml", *asked)
    run = bench(*given, "--model", "tiny", "--policy", "v1,ebplus", "--json")
    assert run.code == 0, run.err
    assert {one["model"] for one in run.json["runs"]} == {"me/tiny"}
    other = bench(*given, "--policy", "v1")
    assert other.code == 2
    assert "no measured pair of Qwen/Qwen3-8B" in other.err
    roofline = bench(*given, "--model", "tiny", "--policy", "v1", "--cost-model", "roofline")
    assert roofline.code == 2
    assert "no roofline: use linear" in roofline.err
    assert len(roofline.err.splitlines()) == 1


def test_runs_that_cannot_be_fitted_get_one_line(bench: Bench) -> None:
    assert bench(*RUN, "--policy", "v1").code == 0
    found = bench("calibrate", "runs", "--out", "mine.toml")
    assert found.code == 2
    assert "prefill-only steps" in found.err
    assert "eb:k=" in found.err
