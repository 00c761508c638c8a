"""Real runs predicted: rows of ours and of other tools, errors, and a host found again."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from harness.calibrate.constants import calibrate
from harness.calibrate.profile import write_profile
from harness.core.errors import USER_ERRORS, UserError
from harness.core.runspec import RunSpec
from harness.engines.base import Status
from harness.profiles.host import Host, read_host
from harness.reproduce.measured_rows import MeasuredRun, Setting, read_measured_run, told
from harness.reproduce.prediction import Prediction, predict
from harness.reproduce.prediction_text import prediction_document
from harness.runs.run import runs_of
from harness.session.one_run import prepare, run
from tests.support.places import ROOT, SHARED

REAL = SHARED / "reference" / "llmservingsim" / "rtxpro6000-llama-3.1-8b"
SPEC = RunSpec(
    gpu="h200",
    model="Qwen/Qwen3-8B",
    policy="v1",
    workload="synthetic:mu_l=300,mu_o=80",
    arrival="closed:concurrency=48",
    requests=192,
    slots=32,
    token_budget=2048,
    cost_model="kernels",
    host="t0=0.0011,h=1.2e-05",
)


def simulated(out: Path, spec: RunSpec = SPEC) -> Path:
    def progress(_: Status) -> None:
        pass

    return run(prepare(spec), out, (), progress, lambda: False).path


def errors(prediction: Prediction) -> dict[str, float]:
    return {score.name: 100 * score.error for score in prediction.scores}


@pytest.mark.parametrize("arrival", ["closed:concurrency=48", "poisson:rate=12.0"])
def test_a_run_of_our_own_is_predicted_to_the_nanosecond(tmp_path: Path, arrival: str) -> None:
    path = simulated(tmp_path, replace(SPEC, arrival=arrival))
    found = predict(read_measured_run(path), "kernels", read_host(SPEC.host))
    assert all(abs(error) < 1e-4 for error in errors(found).values())
    assert all(score.correlation is None or score.correlation > 0.999999 for score in found.scores)
    # With another host it is not.
    assert errors(predict(read_measured_run(path), "kernels", Host()))["TPOT"] > 5


def test_the_host_of_a_run_is_found_again_and_said_to_be_fitted(tmp_path: Path) -> None:
    measured = read_measured_run(simulated(tmp_path))
    found = predict(measured, "kernels", Host(), "host")
    # One load tells t0 + 32·h; which of the two it is shows only where fewer decode.
    assert found.host.step_s + 32 * found.host.decode_s == pytest.approx(1.1e-3 + 32 * 1.2e-5, abs=5e-5)
    assert all(abs(error) < 0.5 for error in errors(found).values())
    (document,) = prediction_document([found])
    assert document["host"]["fitted_on_this_run"] == "host"
    alone = predict(measured, "kernels", Host(), "t0")
    assert alone.host.decode_s == 0
    with pytest.raises(UserError, match="--fit: linear step costs"):
        predict(measured, "linear", Host(), "host")


def test_rows_of_another_tool(tmp_path: Path) -> None:
    rows = [
        {
            "input_toks": 10,
            "output_toks": 3,
            "arrival_time": 1e9,
            "queued_ts": 5.5,
            "first_token_ts": 6,
            "last_token_ts": 7,
        },
        {
            "input_toks": 20,
            "output_toks": 1,
            "arrival_time": 1e9,
            "queued_ts": 5.0,
            "first_token_ts": 6,
            "last_token_ts": 6,
        },
    ]
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    found = read_measured_run(path)
    # Ordered by the clock that tokens have, and counted from the first arrival.
    assert found.prompt_tokens.tolist() == [20, 10]
    assert found.arrival.tolist() == [0.0, 0.5]
    assert found.first.tolist() == [1.0, 1.0]
    assert found.setting == Setting()
    path = tmp_path / "rows.csv"
    path.write_text("arrived_at,prompt_tokens,output_tokens,first_token_s,last_token_s\n0,5,2,1,2\n1,6,2,2,3\n")
    assert read_measured_run(path).last.tolist() == [2.0, 3.0]
    with pytest.raises(UserError, match="nobody says on what it ran: give --gpu and --model"):
        predict(read_measured_run(path), "kernels", Host())


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no requests in it"),
        ("a,b\n1,2\n", "no column of each request's arrival: call it one of queued_ts"),
        ("{nonsense", "neither JSON lines nor CSV"),
        ("arrived_at,prompt_tokens,output_tokens,first_token_s,last_token_s\n0,5,2,,2\n", "row 1: first_token_s is ''"),
        ("arrived_at,prompt_tokens,output_tokens,first_token_s,last_token_s\n0,5,2,1,2\n", "fewer than two completed"),
        (
            "arrived_at,prompt_tokens,output_tokens,first_token_s,last_token_s\n0,5,2,1,2\n9,5,2,1,2\n",
            "request 2 has tokens before it arrived",
        ),
    ],
)
def test_files_that_are_no_list_of_requests(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "rows"
    path.write_text(text)
    with pytest.raises(USER_ERRORS) as error:
        read_measured_run(path)
    assert why in str(error.value)
    assert "\n" not in str(error.value)


def real_run() -> MeasuredRun:
    if not REAL.is_dir():
        pytest.skip("no ../shared/reference next to the repository: the real RTX PRO 6000 run was not predicted")
    run = read_measured_run(REAL / "vllm-requests.jsonl")
    return told(run, gpu="rtxpro6000", model="Llama-3.1-8B", slots=128, token_budget=2048)


def test_the_real_run_on_an_rtx_pro_6000_with_nothing_fitted() -> None:
    found = errors(predict(real_run(), "kernels", Host()))
    assert abs(found["TPOT"]) < 4
    assert abs(found["TTFT"]) < 8
    assert abs(found["latency"]) < 5
    assert abs(found["makespan"]) < 4


def test_the_same_with_its_own_tables_and_one_constant() -> None:
    prediction = predict(real_run(), f"kernels:{REAL}", Host(), "t0")
    found = errors(prediction)
    assert abs(found["TPOT"]) < 1
    assert abs(found["TTFT"]) < 2
    assert abs(found["makespan"]) < 1
    assert 0.5e-3 < prediction.host.step_s < 2e-3


def test_real_vllm_on_a_cpu_by_a_profile_of_other_runs(tmp_path: Path) -> None:
    """Calibrated on drifting lengths, predicted on ShareGPT: runs that are published here."""
    profile = tmp_path / "cpu.toml"
    write_profile(calibrate(runs_of([ROOT / "results" / "cpu-tiny"])), profile)
    runs = runs_of([ROOT / "results" / "cpu" / "tiny" / "sharegpt-max_prompt_tokens=1000" / "v1"])
    assert len(runs) == 3
    found = [errors(predict(told(read_measured_run(path), gpu=str(profile)), "linear", Host())) for path in runs]
    for name in ("output tok/s", "TTFT", "TPOT", "latency"):
        assert np.median([abs(one[name]) for one in found]) < 10, name
